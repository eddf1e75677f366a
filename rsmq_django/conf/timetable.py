"""Timetables: multiples of a period, or the times of a cron expression in a time zone.

Pure functions: no clock, no settings, no Redis. A tick is a planned time in epoch milliseconds. The next tick depends
only on the tick before it: there is no drift, and every process computes the same ticks. `conf/cron_times.py` has the
rules for days of 23 or 25 hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from .cron_times import cron_times, wall_times

#: Maximum number of past ticks that are considered; with a cron expression each costs about 10 us.
MAX_TICKS = 1000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC, as all moments of conf/cron_times.py


class Timetable(Protocol):
    """Interface of timetables."""

    def after(self, time_ms: float) -> int:
        """Return the first tick after a time."""
        ...

    def back_from(self, time_ms: float) -> Iterator[int]:
        """Return the ticks up to a time, the latest first."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    """Multiples of a period since 1970 in UTC, so that processes agree on them without communication."""

    period_ms: int

    def after(self, time_ms: float) -> int:
        """See Timetable."""
        return (math.floor(time_ms) // self.period_ms + 1) * self.period_ms

    def back_from(self, time_ms: float) -> Iterator[int]:
        """See Timetable."""
        tick = math.floor(time_ms) // self.period_ms * self.period_ms
        while tick > 0:
            yield tick
            tick -= self.period_ms

    def __str__(self) -> str:
        return f"every {in_words(self.period_ms / 1000)}"


@dataclass(frozen=True, slots=True)
class Cron:
    """The times of a cron expression: five fields, or six with seconds first.

    On a day without 02:30, `30 2 * * *` is due when the clock is put forward; on a day with two, at the first one. With
    a star in the minute or hour field it follows elapsed time instead.
    """

    expression: str
    zone: str

    def after(self, time_ms: float) -> int:
        """See Timetable. Raises ValueError if it matches no time within fifty years."""
        tick = next(self._walk(math.floor(time_ms / 1000)), None)
        if tick is None:
            raise ValueError(f"the cron expression {self.expression!r} matches no time within the next fifty years")
        return tick

    def back_from(self, time_ms: float) -> Iterator[int]:
        """See Timetable."""
        # From a second later, to include a tick at that time.
        return self._walk(math.floor(time_ms / 1000) + 1, reverse=True)

    def _walk(self, time_s: int, *, reverse: bool = False) -> Iterator[int]:
        start = _EPOCH + timedelta(seconds=time_s)
        for moment in cron_times(self.expression, zone_of(self.zone), start, reverse=reverse):
            yield round((moment - _EPOCH).total_seconds()) * 1000

    def __str__(self) -> str:
        return f"{self.expression} ({self.zone})"


def missed_and_late(
    timetable: Timetable, *, planned_ms: int, now_ms: int, missed_after_ms: int
) -> tuple[list[int], list[int]]:
    """Return the missed ticks and the late ticks, oldest first.

    The ticks from `planned_ms` to `now_ms` are considered, latest first and at most MAX_TICKS, so that an outage of a
    year costs no more than one of an hour.
    """
    missed: list[int] = []
    late: list[int] = []
    for tick in islice(timetable.back_from(now_ms), MAX_TICKS):
        if tick < planned_ms:
            break
        (late if now_ms - tick <= missed_after_ms else missed).append(tick)
    return missed[::-1], late[::-1]


def is_cron(text: Any) -> bool:
    """Return whether a text is a cron expression that has a time; True for any text if cronsim is not installed."""
    if not isinstance(text, str):
        return False
    if not can_read_cron():
        return bool(text.strip())
    try:
        return next(wall_times(text, datetime(2026, 1, 1)), None) is not None  # noqa: DTZ001 - a wall-clock time
    except ValueError:
        return False


def can_read_cron() -> bool:
    """Return whether cronsim is installed."""
    try:
        import cronsim  # noqa: F401
    except ImportError:
        return False
    return True


def is_zone(name: Any) -> bool:
    """Return whether a text is the name of a time zone."""
    try:
        zone_of(name)
    except (ValueError, TypeError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        return False
    return True


def zone_of(name: str) -> tzinfo:
    """Return the time zone with a name."""
    return UTC if name == "UTC" else ZoneInfo(name)


def in_words(seconds: float) -> str:
    """Return a period as text: "5 min"."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length_s and seconds % length_s == 0:
            return f"{seconds / length_s:g} {unit}"
    return f"{seconds:g} s"


def about_in_words(seconds: float) -> str:
    """Return a period as text, in the largest unit of which there are at least two: 89204 seconds are "24 h"."""
    for unit, length_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds // length_s:g} {unit}"
    return f"{seconds:g} s"
