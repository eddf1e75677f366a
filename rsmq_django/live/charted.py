"""The recent history of queues, for the charts of a page about them or about one of their tasks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence

from ..conf.settings import get_settings
from ..core import Client
from ..core.stats.counters import Window
from ..core.stats.past import MAX_QUEUES, Moment, moments, past_calls, together_call, window_of
from ..queues import get_client
from .past import SPANS_S, Past
from .places import QueueRef, by_client
from .remembered import moments_that_are_over, remember_moments
from .servers import answers_of

#: How long pages wait for the charts of all queues.
WAIT_S = 0.5


def past_of(places: Sequence[QueueRef], span: str, *, task: str | None = None) -> Past:
    """Read the last hour, day or week of queues. With a task, only its attempts."""
    now_s = time.time()
    window = window_of(SPANS_S[span], now_s)
    past = Past.empty(window)
    for alias, group in by_client(places).items():
        group, client = group[:MAX_QUEUES], get_client(alias)
        names = tuple(place.name for place in group)
        about = names if task is None else (task, names)
        calls = past_calls(client.namespace, names, window, task=task)
        known = moments_that_are_over(client, about, window)
        missing = [begins_s for begins_s in calls if begins_s not in known]
        read = dict(zip(missing, answers_of(client, [calls[begins_s] for begins_s in missing]), strict=True))
        every = {begins_s: known.get(begins_s) or read[begins_s] for begins_s in calls}
        remember_moments(client, about, window, now_s, every)
        for at, moment in enumerate(moments(list(every.values()))):
            past.add(at, moment, group)
    return past


def past_together(places: Sequence[QueueRef], span: str) -> Past:
    """Read the last hour, day or week of any number of queues together, without numbers for single queues."""
    now_s = time.time()
    window = window_of(SPANS_S[span], now_s)
    past = Past.empty(window)
    for alias, group in by_client(places).items():
        client = get_client(alias)
        for at in range(0, len(group), MAX_QUEUES):
            names = tuple(place.name for place in group[at : at + MAX_QUEUES])
            for number, moment in enumerate(_moments_together(client, names, window, now_s)):
                past.add(number, moment, [QueueRef(alias, "")])
    return past


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


_readings: dict[tuple[object, ...], _ChartReading] = {}
_lock = threading.Lock()


def past_together_soon(places: Sequence[QueueRef], span: str) -> Past | None:
    """Return the result of `past_together`; None while it takes longer than WAIT_S: a later call may get it.

    The first reading of a process takes seconds with a thousand queues; complete spans are remembered from then on.
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
    reading.join(WAIT_S)
    if reading.is_alive():
        return None
    with _lock:
        if _readings.get(key) is reading:
            del _readings[key]
    if reading.error is not None:
        raise reading.error
    return reading.found


def _moments_together(client: Client, names: tuple[str, ...], window: Window, now_s: float) -> Iterator[Moment]:
    about = ("together", names)
    begins = range(window.begins_s, window.ends_s, window.step_s)
    known = moments_that_are_over(client, about, window)
    missing = [begins_s for begins_s in begins if begins_s not in known]
    calls = [together_call(client.namespace, names, window, begins_s) for begins_s in missing]
    read = dict(zip(missing, answers_of(client, calls), strict=True))
    every = {begins_s: known.get(begins_s) or read[begins_s] for begins_s in begins}
    remember_moments(client, about, window, now_s, every)
    return iter(every.values())
