"""The last hour, day or week of queues on any connection, for the charts and rates of pages.

Counters of complete spans are remembered, so that the same page costs little the next time: up to five minutes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from ..conf.settings import get_settings
from ..core import Client
from ..core.stats.histogram import Histogram
from ..core.stats.history import Counts, Window
from ..core.stats.moments import MAX_QUEUES, Moment, moment_calls, moments, together_call
from ..core.transport.call import Call
from ..queues import get_client
from .places import QueueRef, by_client
from .remembered import LruCache
from .servers import answers_of

#: How long pages wait for the charts of all queues.
WAIT_S = 0.5
#: Of more queues, the first reading of a process takes longer than that: pages do not wait for it.
MAX_AWAITED = 500
#: Number of lists of queues whose counters are remembered; each takes up to a few megabytes.
MAX_PASTS = 32
#: A worker that lost its connection reports its counters when it is back, also for complete spans.
KEEP_PAST_S = 300
#: A span is complete when all workers must have reported: they report once a second.
REPORTED_WITHIN_S = 5
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
    ends: list[Counts] = field(default_factory=list)
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
    ends: list[Counts]
    sent: list[int | None]
    wait: list[Histogram]
    run: list[Histogram]
    by_place: dict[QueueRef, QueuePast]

    @classmethod
    def empty(cls, window: Window) -> Past:
        """Return a history without attempts and messages."""
        begins = window.steps
        return cls(
            step_s=window.step_s,
            begins_s=list(begins),
            ends=[Counts() for _ in begins],
            sent=[None for _ in begins],
            wait=[Histogram() for _ in begins],
            run=[Histogram() for _ in begins],
            by_place={},
        )

    def add(self, at: int, moment: Moment, group: Sequence[QueueRef]) -> None:
        """Add the counters of queues of one connection in one span."""
        self.wait[at].add(moment.wait)
        self.run[at].add(moment.run)
        for place, ends, sent, total_sent in zip(group, moment.queues, moment.sent, moment.total_sent, strict=True):
            own = self.by_place.setdefault(place, QueuePast(self.step_s))
            own.ends.append(ends)
            own.sent.append(sent)
            if total_sent is not None:
                own.looks.append(Look(moment.begins_s + self.step_s, total_sent))
            self.ends[at].add(ends)
            if sent is not None:
                self.sent[at] = (self.sent[at] or 0) + sent


# -- Memory of complete spans -----------------------------------------------------------------------------------------


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


# -- Reading ----------------------------------------------------------------------------------------------------------


def past_of(places: Sequence[QueueRef], span: str, *, task: str | None = None) -> Past:
    """Read the last hour, day or week of queues. With a task, only its attempts."""
    now_s = time.time()
    window = Window.of(now_s - SPANS_S[span], now_s)
    past = Past.empty(window)
    for alias, group in by_client(places).items():
        group, client = group[:MAX_QUEUES], get_client(alias)
        names = tuple(place.name for place in group)
        about = names if task is None else (task, names)
        calls = moment_calls(client.namespace, names, window, task=task)
        for at, moment in enumerate(moments(_spans(client, about, window, now_s, calls))):
            past.add(at, moment, group)
    return past


def past_together(places: Sequence[QueueRef], span: str) -> Past:
    """Read the last hour, day or week of any number of queues together, without numbers for single queues."""
    now_s = time.time()
    window = Window.of(now_s - SPANS_S[span], now_s)
    past = Past.empty(window)
    for alias, group in by_client(places).items():
        client = get_client(alias)
        for at in range(0, len(group), MAX_QUEUES):
            names = tuple(place.name for place in group[at : at + MAX_QUEUES])
            calls = {begins_s: together_call(client.namespace, names, window, begins_s) for begins_s in window.steps}
            for number, moment in enumerate(_spans(client, ("together", names), window, now_s, calls)):
                past.add(number, moment, [QueueRef(alias, "")])
    return past


def _spans(
    client: Client, about: Hashable, window: Window, now_s: float, calls: Mapping[int, Call[Moment]]
) -> list[Moment]:
    """Return the result of each call, by the begin of its span; only unknown ones are sent."""
    known = moments_that_are_over(client, about, window)
    missing = [begins_s for begins_s in calls if begins_s not in known]
    read = dict(zip(missing, answers_of(client, [calls[begins_s] for begins_s in missing]), strict=True))
    every = {begins_s: known.get(begins_s) or read[begins_s] for begins_s in calls}
    remember_moments(client, about, window, now_s, every)
    return list(every.values())


class _ChartReading(threading.Thread):
    """One reading of queues together, which continues when the page that started it stops waiting."""

    def __init__(self, places: Sequence[QueueRef], span: str) -> None:
        super().__init__(name="rsmq-charts", daemon=True)
        self._places, self._span = places, span
        self.found: Past | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.found = past_together(self._places, self._span)
        except Exception as error:
            self.error = error


def _is_remembered(places: Sequence[QueueRef], span: str) -> bool:
    """Return whether counters of queues together are remembered, so that a reading is short."""
    now_s = time.time()
    window = Window.of(now_s - SPANS_S[span], now_s)
    groups = by_client(places).items()
    firsts = [(get_client(alias), tuple(place.name for place in group[:MAX_QUEUES])) for alias, group in groups]
    return all(moments_that_are_over(client, ("together", names), window) for client, names in firsts)


_readings: dict[tuple[object, ...], _ChartReading] = {}
_lock = threading.Lock()


def past_together_soon(places: Sequence[QueueRef], span: str) -> Past | None:
    """Return the result of `past_together`; None while it takes longer than WAIT_S: a later call may get it.

    The first reading of a process takes about a second with a thousand queues; complete spans are remembered.
    """
    key = (os.getpid(), id(get_settings()), span, *places)
    with _lock:
        # Results that no page asked for again are not kept.
        for ended in [each for each, started in _readings.items() if not started.is_alive()]:
            del _readings[ended]
        reading = _readings.get(key)
        if reading is None:
            reading = _readings[key] = _ChartReading(places, span)
            reading.start()
    reading.join(WAIT_S if len(places) <= MAX_AWAITED or _is_remembered(places, span) else 0.0)
    if reading.is_alive():
        return None
    with _lock:
        if _readings.get(key) is reading:
            del _readings[key]
    if reading.error is not None:
        raise reading.error
    return reading.found
