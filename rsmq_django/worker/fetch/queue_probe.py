"""Very many queues: one small script finds the queues that have messages, and only these are fetched from.

A fetch passes four keys of each queue, which costs more than the messages when there are hundreds of queues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...core.call import Call
from ...core.keys import paused_key, queues_key
from ..lease.delivery import WorkQueue

#: With fewer queues, each fetch includes all of them: one round trip instead of two.
MANY = 50
#: While there is work, a message in an earlier queue is noticed within this time.
SCAN_EVERY_S = 0.1
#: A fetch from all queues also finds missing and damaged ones.
LOOK_AT_ALL_EVERY_S = 10.0


@dataclass(slots=True)
class ProbeResult:
    """The reply of a scan."""

    server_ms: int
    #: Time until the next message becomes visible; negative when there is none at all.
    next_ms: float
    queue_count: int
    #: Positions from 1, in the order of the queues.
    positions: list[int]


@dataclass(slots=True)
class QueueProbe:
    """Remembers which of these queues have messages."""

    namespace: str
    queues: Sequence[WorkQueue]
    #: Sorts lanes by their next turns.
    in_turn: Callable[[Sequence[WorkQueue]], Sequence[WorkQueue]]
    call: Call[ProbeResult] = field(init=False)
    ready: Sequence[WorkQueue] = field(default_factory=list)
    _scanned_at: float = 0.0
    _looked_at_all_at: float = 0.0

    def __post_init__(self) -> None:
        keys = [queues_key(self.namespace), paused_key(self.namespace)]
        keys += [work_queue.queue.keys.messages for work_queue in self.queues]
        names = tuple(work_queue.base_name for work_queue in self.queues)
        self.call = Call("worker/scan", tuple(keys), names, _read_found, repeatable=True)

    def is_due(self, now: float) -> bool:
        """Return whether a scan is due."""
        return not self.looks_at_all(now) and (not self.ready or now >= self._scanned_at + SCAN_EVERY_S)

    def looks_at_all(self, now: float) -> bool:
        """Return whether the next fetch includes all queues."""
        return now >= self._looked_at_all_at + LOOK_AT_ALL_EVERY_S

    def scanned(self, found: ProbeResult, now: float) -> None:
        """Note the result of a scan."""
        self._scanned_at = now
        self.ready = self.in_turn([self.queues[position - 1] for position in found.positions])

    def choose(self, now: float) -> Sequence[WorkQueue]:
        """Return the queues to fetch from."""
        if not self.looks_at_all(now):
            return self.ready[:MANY]
        self._looked_at_all_at, self.ready = now, []
        return self.queues

    def fetched(self, looked_at: Sequence[WorkQueue], last: WorkQueue | None, *, is_full: bool) -> None:
        """Note the result of a fetch: if its room was used up, the queue of the last message may have more."""
        if looked_at is not self.queues:
            exhausted = looked_at.index(last) if is_full and last is not None else len(looked_at)
            self.ready = self.ready[exhausted:]


def _read_found(reply: list[bytes | int]) -> ProbeResult:
    server_ms, next_ms, queue_count, *positions = (float(number) for number in reply)
    return ProbeResult(int(server_ms), next_ms, int(queue_count), [int(position) for position in positions])
