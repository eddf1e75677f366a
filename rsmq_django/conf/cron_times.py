"""The times of a cron expression in a time zone, forwards and backwards, by the rules of Debian's cron.

The package cronsim parses expressions and finds the matching wall-clock times. Clock changes are handled here: the
rules of cronsim miss times if clocks change at midnight or by half an hour, and differ between the two directions.

- With a star in the minute or hour field (and with six fields) the expression follows elapsed time: every moment with a
  matching wall-clock time counts.
- Otherwise each wall-clock time counts once: a skipped time at the moment of the change, a repeated time the first
time.
  A time skipped by a change of more than three hours, which is a correction, does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
_LARGEST_CHANGE = timedelta(hours=3)


def cron_times(expression: str, zone: tzinfo, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
    """Yield the times after `start`, or with `reverse` before it, latest first; `start` itself is excluded.

    All times are naive UTC in whole seconds. Raises ValueError for an invalid expression.
    """
    if zone is UTC:
        return wall_times(expression, start, reverse=reverse)
    clock = _Clock(zone)
    if _is_fixed(expression):
        return _fixed(clock, expression, start, reverse=reverse)
    return _passing_back(clock, expression, start) if reverse else _passing(clock, expression, start)


def wall_times(expression: str, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
    """Yield the matching times of a clock without changes."""
    try:
        # Imported here: projects without cron expressions need not install it.
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise ValueError("cron expressions need the package cronsim: install rsmq-django[cron]") from error
    try:
        times: Any = CronSim(expression, start, reverse=reverse)
    except CronSimError as error:
        raise ValueError(f"{expression!r} is not a cron expression: {error}") from error
    found: Iterator[datetime] = times
    return found


def _is_fixed(expression: str) -> bool:
    fields = expression.split()
    return len(fields) == 5 and not fields[0].startswith("*") and not fields[1].startswith("*")


class _Clock:
    """The wall clock of a time zone. All times are naive: wall-clock times, or UTC."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone

    def offset(self, moment: datetime) -> timedelta:
        """Return the UTC offset at a moment."""
        local = moment.replace(tzinfo=UTC).astimezone(self._zone)
        return local.utcoffset() or timedelta()

    def first_moment(self, wall: datetime) -> datetime | None:
        """Return when the clock first shows a time or has skipped it; None if a correction has skipped it."""
        offset = (
            wall.replace(tzinfo=self._zone).utcoffset() or timedelta()
        )  # of two, the first; if skipped, the old one
        moment = wall - offset
        skipped = self.offset(moment) - offset
        if not skipped:
            return moment
        return self.change(moment - skipped, moment) if skipped <= _LARGEST_CHANGE else None

    def change(self, before: datetime, after: datetime) -> datetime:
        """Return the moment of the only change between two moments."""
        old = self.offset(before)
        while after - before > _SECOND:
            middle = before + timedelta(seconds=int((after - before).total_seconds()) // 2)
            before, after = (middle, after) if self.offset(middle) == old else (before, middle)
        return after

    def next_change(self, moment: datetime, end: datetime) -> datetime | None:
        """Return the first change after a moment, up to `end`. Clocks are not changed twice within a day."""
        offset = self.offset(moment)
        while moment < end:
            day = min(moment + _DAY, end)
            if self.offset(day) != offset:
                return self.change(moment, day)
            moment = day
        return None

    def last_change(self, moment: datetime, end: datetime) -> datetime | None:
        """Return the last change up to a moment that is after `end`."""
        offset = self.offset(moment)
        while moment > end:
            day = max(moment - _DAY, end)
            if self.offset(day) != offset:
                return self.change(day, moment)
            moment = day
        return None


def _fixed(clock: _Clock, expression: str, start: datetime, *, reverse: bool) -> Iterator[datetime]:
    wall = start + clock.offset(start)
    if reverse:
        # A clock that was just put back has already shown later times.
        wall += max(timedelta(), clock.offset(start - _DAY) - clock.offset(start))
    last = start
    for matching in wall_times(expression, wall, reverse=reverse):
        moment = clock.first_moment(matching)
        # Times skipped by the same change count once.
        if moment is not None and (moment < last if reverse else moment > last):
            last = moment
            yield moment


def _passing(clock: _Clock, expression: str, start: datetime) -> Iterator[datetime]:
    moment, offset = start, clock.offset(start)
    times = wall_times(expression, start + offset)
    while (wall := next(times, None)) is not None:
        change = clock.next_change(moment, wall - offset)
        if change is None:
            moment = wall - offset
            yield moment
        else:
            moment, offset = change, clock.offset(change)
            times = wall_times(expression, change + offset - _SECOND)


def _passing_back(clock: _Clock, expression: str, start: datetime) -> Iterator[datetime]:
    moment = start - _SECOND
    offset = clock.offset(moment)
    times = wall_times(expression, start + offset, reverse=True)
    while (wall := next(times, None)) is not None:
        change = clock.last_change(moment, wall - offset)
        if change is None:
            moment = wall - offset
            yield moment
        else:
            moment = change - _SECOND
            offset = clock.offset(moment)
            times = wall_times(expression, change + offset, reverse=True)
