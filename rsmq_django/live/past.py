"""The last hour, day or week of the queues that a page shows, on whichever connection they are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..core.errors import RedisFailure
from ..core.histogram import Histogram
from ..core.past import MAX_QUEUES, Ends, Moment, read_past, window_of
from .places import Place, by_client

HOUR, DAY, WEEK = "1h", "24h", "7d"
SPANS_S = {HOUR: 3600, DAY: 86_400, WEEK: 7 * 86_400}
#: Rates beside a queue are those of so many spans at the end: five minutes, fifty minutes, five hours.
RECENT = 5


@dataclass(slots=True)
class QueuePast:
    """One queue, span by span."""

    step_s: int
    ends: list[Ends] = field(default_factory=list)
    sent: list[int | None] = field(default_factory=list)

    @property
    def handled(self) -> list[int]:
        """Return how many attempts succeeded or failed in each span."""
        return [ends.handled for ends in self.ends]

    @property
    def handled_per_min(self) -> float:
        """Return how many attempts a minute ended lately."""
        return self._per_minute(self.handled)

    @property
    def sent_per_min(self) -> float | None:
        """Return how many messages a minute were sent lately; None when nobody looked."""
        known = [sent for sent in self.sent[-RECENT:] if sent is not None]
        return self._per_minute(known) if known else None

    @property
    def failed_share(self) -> float | None:
        """Return which share of the attempts of all spans failed; None when there were none."""
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
    by_place: dict[Place, QueuePast]


def past_of(places: Iterable[Place], span: str) -> Past:
    """Read the last hour, day or week of up to 300 queues of each connection, in one round trip per connection.

    A server that cannot be reached shows as a time in which nothing happened.
    """
    now_s = time.time()
    window = window_of(SPANS_S[span], now_s)
    past = _empty(range(window.begins_s, window.ends_s, window.step_s), window.step_s)
    for group in by_client(places).values():
        group = group[:MAX_QUEUES]
        try:
            found = read_past(group[0].client, [place.name for place in group], span_s=SPANS_S[span], now_s=now_s)
        except RedisFailure:
            continue
        for at, moment in enumerate(found):
            _add(past, at, moment, group)
    return past


def _empty(begins: range, step_s: int) -> Past:
    return Past(
        step_s=step_s,
        begins_s=list(begins),
        ends=[Ends() for _ in begins],
        sent=[None for _ in begins],
        wait=[Histogram() for _ in begins],
        run=[Histogram() for _ in begins],
        by_place={},
    )


def _add(past: Past, at: int, moment: Moment, group: Sequence[Place]) -> None:
    past.wait[at].add(moment.wait)
    past.run[at].add(moment.run)
    total = past.ends[at]
    for place, ends, sent in zip(group, moment.queues, moment.sent, strict=True):
        own = past.by_place.setdefault(place, QueuePast(past.step_s))
        own.ends.append(ends)
        own.sent.append(sent)
        for name in ("succeeded", "retried", "dead", "released", "lost", "cancelled"):
            setattr(total, name, getattr(total, name) + getattr(ends, name))
        if ends.ready is not None:
            total.ready = (total.ready or 0) + ends.ready
        if sent is not None:
            past.sent[at] = (past.sent[at] or 0) + sent
