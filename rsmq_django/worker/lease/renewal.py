"""Renews the leases of a supervisor's worker processes, in case they cannot do it themselves.

Two round trips for all processes together, for any number of queues: one finds the queues from which they hold
messages, one renews. The visibility timeouts of all queues are read by the thousand, to compute how often to renew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from ...conf import QueueSettings
from ...core import Client
from ...core.call import Call
from ...core.keys import queue_keys, worker_key
from ...core.limits import batches, stored_seconds
from ...core.replies import number
from ..fetch.provision import SHORTEST_LEASE_S
from .delivery import WorkQueue
from .inflight import held_queues, renew_inflight
from .leases import RENEWALS_PER_LEASE

#: The longest time between two renewals; also the time in which a changed visibility timeout is noticed.
LONGEST_WAIT_S = 10.0
#: Slices of a thousand queues per round trip.
SLICES_AT_ONCE = 5

#: Returns the work queues of these names, with the in-flight key of a worker.
FindQueues = Callable[[str, Iterable[str]], list[WorkQueue]]


class Renewal:
    """Renews leases on one connection."""

    def __init__(self, client: Client, queues: Sequence[QueueSettings], find_queues: FindQueues) -> None:
        self._client = client
        self._queues = queues
        self._find_queues = find_queues
        self._read_at = 0.0
        #: The shortest and longest visibility timeouts of these queues.
        self.shortest_s = min((float(each.visibility_timeout_s) for each in queues), default=LONGEST_WAIT_S)
        self.longest_s = max((float(each.visibility_timeout_s) for each in queues), default=0.0)

    @property
    def wait_s(self) -> float:
        """Return the time between two renewals, and the maximum wait before an unavailable server is tried again."""
        return min(LONGEST_WAIT_S, max(SHORTEST_LEASE_S, self.shortest_s) / RENEWALS_PER_LEASE)

    def look(self, living: Sequence[str]) -> float:
        """Renew all leases of these workers and return the number of seconds until the next renewal."""
        if time.monotonic() >= self._read_at:
            self._read_lease_times()
        keys = [worker_key(self._client.namespace, worker_id) for worker_id in living]
        names = held_queues(self._client, keys)
        records = [(key, self._find_queues(key, held)) for key, held in zip(keys, names, strict=True)]
        shortest_s = renew_inflight(self._client, [record for record in records if record[1]])
        self.shortest_s = min(self.shortest_s, shortest_s)
        return self.wait_s

    def _read_lease_times(self) -> None:
        settings = list(self._queues)
        slices = list(batches(settings))
        stored: list[bytes] = []
        for at in range(0, len(slices), SLICES_AT_ONCE):
            calls = [self._read_slice(each) for each in slices[at : at + SLICES_AT_ONCE]]
            for reply in self._client.run_many(calls):
                if isinstance(reply, Exception):
                    raise reply
                stored += reply
        found = [_lease_s(each, raw) for each, raw in zip(settings, stored, strict=True)]
        self.shortest_s, self.longest_s = min(found), max(found)
        self._read_at = time.monotonic() + LONGEST_WAIT_S

    def _read_slice(self, settings: Sequence[QueueSettings]) -> Call[list[bytes]]:
        keys = tuple(queue_keys(self._client.namespace, each.name).settings for each in settings)
        return Call("worker/lease_times", keys, (), lambda reply: reply, repeatable=True)


def _lease_s(settings: QueueSettings, stored: bytes) -> float:
    """Return the lease of a queue: the stored visibility timeout, or that of the settings."""
    seconds = stored_seconds(number(stored, -1.0), settings.vt_unit) if stored else -1.0
    return max(SHORTEST_LEASE_S, seconds if seconds >= 0 else float(settings.visibility_timeout_s))
