"""Turns between the lanes of a queue: after a lane has given messages, the next one comes first.

So a customer with ten thousand calls delays another customer's call by one turn of a worker, not by ten thousand. A
turn is the room of a worker in one fetch. Lanes of a higher priority still come before all others. No I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from ..lease.delivery import NO_LANE, WorkQueue

BEFORE_ALL = NO_LANE - 1


class LaneRotation:
    """The order of the lanes of each queue and priority."""

    def __init__(self) -> None:
        #: The lane that gave messages first in the last fetch, by queue and priority.
        self._last: dict[tuple[str, int], int] = {}

    def arrange(self, queues: Sequence[WorkQueue]) -> list[WorkQueue]:
        """Return the queues in the order to fetch from; only lanes of one priority change places.

        The queues may be a part of all: a turn continues after the number of the last lane, whether it exists or not.
        """
        arranged: list[WorkQueue] = []
        for band, lanes in groupby(queues, key=lambda work_queue: work_queue.band):
            last, run = self._last.get(band, BEFORE_ALL), list(lanes)
            arranged += [work_queue for work_queue in run if work_queue.lane > last]
            arranged += [work_queue for work_queue in run if work_queue.lane <= last]
        return arranged

    def gave(self, served: Iterable[WorkQueue]) -> None:
        """Note which queues gave messages in a fetch, in its order."""
        firsts: dict[tuple[str, int], int] = {}
        for work_queue in dict.fromkeys(served):
            firsts.setdefault(work_queue.band, work_queue.lane)
        self._last.update(firsts)
