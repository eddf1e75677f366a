"""Notes the lengths of queues for charts of their past, one slice of the queues at a time: nothing waits for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..core import Client, RsmqError
from ..core.counters import sample

#: How often the lengths of queues are noted: a few times in each minute, so that peaks show.
EVERY_S = 15.0
#: Queues that are noted in one round trip.
SLICE = 250


class Lengths:
    """Notes the lengths of these queues on one connection; `now_ms` is the server's time."""

    def __init__(self, client: Client, names: Sequence[str], *, now_ms: Callable[[], float]) -> None:
        self._client = client
        self._names = names
        self._now_ms = now_ms
        #: Which queue is next, and when this round began.
        self._at = 0
        self._began_at = 0.0

    def look(self, living: Sequence[str] = ()) -> float:
        """Note the lengths of the next queues and return in how many seconds to go on."""
        if self._at == 0:
            self._began_at = time.monotonic()
        part = self._names[self._at : self._at + SLICE]
        at_s = self._now_ms() / 1000
        replies = self._client.run_many([sample(self._client.namespace, name, at_s=at_s) for name in part])
        self._at = self._at + SLICE if self._at + SLICE < len(self._names) else 0
        for reply in replies:
            if isinstance(reply, RsmqError):  # a damaged queue, say: the next look goes on behind this slice
                raise reply
        return 0.0 if self._at else max(0.0, self._began_at + EVERY_S - time.monotonic())
