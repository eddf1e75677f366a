"""Data of earlier pages that a process remembers, so that the same page costs little the next time.

Remembered data is compared with the current state before it is shown: names only select the data that is read at once,
and counters are kept only of complete spans of time.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..conf.settings import Settings
from ..core.stats.counters import Window
from ..core.stats.past import Moment
from .places import QueueRef

#: Number of pages whose names are remembered; each has up to some thousand names.
MAX_PAGES = 32
#: Number of lists of queues whose counters are remembered; each takes up to a few megabytes.
MAX_PASTS = 32
#: A worker that lost its connection reports its counters when it is back, also for complete spans.
KEEP_PAST_S = 300
#: A span is complete when all workers must have reported: they report once a second.
REPORTED_WITHIN_S = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Guess:
    """The contents of a page at the last request."""

    settings: Settings | None = None
    #: Queues that were read for the selection, and the queues on the page.
    read: tuple[QueueRef, ...] = ()
    shown: tuple[QueueRef, ...] = ()
    #: By alias of the connection.
    worker_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class LruCache(Generic[T]):
    """Values by key. The least recently used value is forgotten first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()

    def recall(self, key: Hashable) -> T | None:
        """Return the value of a key, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def keep(self, key: Hashable, value: T) -> None:
        """Remember a value."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)


#: By query string of the page.
pages: LruCache[Guess] = LruCache(MAX_PAGES)


@dataclass(frozen=True, slots=True)
class _Past:
    """The counters of complete spans, by their begin, and until when they are valid (monotonic time)."""

    until_s: float
    moments: dict[int, Moment]


_pasts: LruCache[_Past] = LruCache(MAX_PASTS)


def moments_that_are_over(client: Hashable, names: Hashable, window: Window) -> Mapping[int, Moment]:
    """Return the remembered counters of queues in spans of a window, by their begin."""
    past = _pasts.recall((client, names, window.step_s))
    return past.moments if past is not None and time.monotonic() < past.until_s else {}


def remember_moments(
    client: Hashable, names: Hashable, window: Window, now_s: float, found: Mapping[int, Moment]
) -> None:
    """Remember the complete spans."""
    key, over_s = (client, names, window.step_s), now_s - REPORTED_WITHIN_S
    past = _pasts.recall(key)
    until_s = past.until_s if past is not None and time.monotonic() < past.until_s else time.monotonic() + KEEP_PAST_S
    over = {begins_s: moment for begins_s, moment in found.items() if begins_s + window.step_s <= over_s}
    _pasts.keep(key, _Past(until_s, over))
