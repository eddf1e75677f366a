"""The last hour, day or week of the queues on a page, on any connection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..core.stats.counters import Window
from ..core.stats.histogram import Histogram
from ..core.stats.past import Ends, Moment
from .places import QueueRef

HOUR, DAY, WEEK = "1h", "24h", "7d"
SPANS_S = {HOUR: 3600, DAY: 86_400, WEEK: 7 * 86_400}
#: The number of spans at the end from which the rates of a queue are calculated: 5 minutes, 50 minutes, 5 hours.
RECENT = 5
#: How often workers sample queues. Shorter times say little about a rate.
LOOK_EVERY_S = 15.0


@dataclass(frozen=True, slots=True)
class Look:
    """A sample of a queue: how many messages all clients had ever sent to it by that time."""

    at_s: float
    total_sent: int


@dataclass(slots=True)
class QueuePast:
    """One queue, span by span."""

    step_s: int
    ends: list[Ends] = field(default_factory=list)
    sent: list[int | None] = field(default_factory=list)
    #: In the order of time. Workers sample every few seconds; the current request adds a sample.
    looks: list[Look] = field(default_factory=list)

    @property
    def handled(self) -> list[int]:
        """Return how many attempts succeeded or failed in each span."""
        return [ends.handled for ends in self.ends]

    @property
    def handled_per_min(self) -> float:
        """Return how many attempts per minute ended recently."""
        return self._per_minute(self.handled)

    @property
    def sent_per_min(self) -> float | None:
        """Return how many messages per minute were sent recently; None when no count of that time is known."""
        if len(self.looks) < 2:
            return None
        last = self.looks[-1]
        recent_s = last.at_s - RECENT * self.step_s
        # Workers may have stopped since: an average since an older count is not the rate of the last minutes.
        looks = [look for look in self.looks[:-1] if look.at_s > recent_s - RECENT * self.step_s]
        if not looks:
            return None
        first = next((look for look in reversed(looks) if look.at_s <= recent_s), looks[0])
        # A queue that was deleted and made again begins at 0.
        grown = last.total_sent - first.total_sent if last.total_sent >= first.total_sent else last.total_sent
        return grown * 60 / max(last.at_s - first.at_s, LOOK_EVERY_S)

    def look_now(self, total_sent: int, created_s: float | None, now_s: float) -> None:
        """Add the current count, and the count 0 at the queue's creation."""
        # The times of the samples in the current span are not known.
        self.looks = [look for look in self.looks if look.at_s <= now_s]
        if created_s is not None and created_s <= (self.looks[0].at_s if self.looks else now_s):
            self.looks.insert(0, Look(created_s, 0))
        self.looks.append(Look(now_s, total_sent))

    @property
    def failed_share(self) -> float | None:
        """Return the share of failed attempts in all spans; None when there were none."""
        handled = sum(self.handled)
        return sum(ends.failed for ends in self.ends) / handled if handled else None

    def _per_minute(self, counts: Sequence[int]) -> float:
        # The last span has only begun.
        recent = counts[-RECENT:]
        seconds = max((len(recent) - 1) * self.step_s + min(time.time() % self.step_s, self.step_s), 1.0)
        return sum(recent) * 60 / seconds


@dataclass(slots=True)
class Past:
    """All queues of a page."""

    step_s: int
    begins_s: list[int]
    #: Over all queues, by span.
    ends: list[Ends]
    sent: list[int | None]
    wait: list[Histogram]
    run: list[Histogram]
    by_place: dict[QueueRef, QueuePast]

    @classmethod
    def empty(cls, window: Window) -> Past:
        """Return a history without attempts and messages."""
        begins = range(window.begins_s, window.ends_s, window.step_s)
        return cls(
            step_s=window.step_s,
            begins_s=list(begins),
            ends=[Ends() for _ in begins],
            sent=[None for _ in begins],
            wait=[Histogram() for _ in begins],
            run=[Histogram() for _ in begins],
            by_place={},
        )

    def add(self, at: int, moment: Moment, group: Sequence[QueueRef]) -> None:
        """Add the counters of queues of one connection in one span."""
        self.wait[at].add(moment.wait)
        self.run[at].add(moment.run)
        for place, ends, sent in zip(group, moment.queues, moment.sent, strict=True):
            own = self.by_place.setdefault(place, QueuePast(self.step_s))
            own.ends.append(ends)
            own.sent.append(sent)
            if ends.total_sent is not None:
                own.looks.append(Look(moment.begins_s + self.step_s, ends.total_sent))
            self._add_ends(at, ends)
            if sent is not None:
                self.sent[at] = (self.sent[at] or 0) + sent

    def _add_ends(self, at: int, ends: Ends) -> None:
        total = self.ends[at]
        total.succeeded += ends.succeeded
        total.retried += ends.retried
        total.dead += ends.dead
        total.released += ends.released
        total.lost += ends.lost
        total.cancelled += ends.cancelled
