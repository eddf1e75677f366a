"""Cron expressions where clocks change, compared with a model that looks at every minute, in the zones of the tz data.

The model knows nothing of the code: it asks the zone for the wall clock of each minute around a change.
"""

from __future__ import annotations

import os
import random
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import pytest

from rsmq_django.conf.timetable import Cron

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
FIRST_YEAR, LAST_YEAR = 2020, 2029
#: All zones with their last rules; those of the same clock are looked at once.
ZONES = sorted(zoneinfo.available_timezones() - {"localtime", "Factory"})
RANGES = {"minute": range(60), "hour": range(24), "day": range(1, 32), "month": range(1, 13), "weekday": range(7)}


# -- The model -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    text: str
    values: frozenset[int]

    @property
    def has_star(self) -> bool:
        return self.text.startswith("*")


@dataclass(frozen=True)
class Expression:
    """An expression of which it is known what it means, because it was made."""

    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(each.text for each in (self.minute, self.hour, self.day, self.month, self.weekday))

    def matches(self, wall: datetime) -> bool:
        if wall.minute not in self.minute.values or wall.hour not in self.hour.values:
            return False
        if wall.month not in self.month.values:
            return False
        is_day, is_weekday = wall.day in self.day.values, wall.isoweekday() % 7 in self.weekday.values
        # Debian's cron: both, when one of the fields begins with a star; otherwise one of them is enough.
        return is_day and is_weekday if self.day.has_star or self.weekday.has_star else is_day or is_weekday

    @property
    def is_fixed(self) -> bool:
        return not self.minute.has_star and not self.hour.has_star


def wall_clock(zone: zoneinfo.ZoneInfo, first: datetime, last: datetime) -> list[tuple[datetime, datetime]]:
    """Return each minute with the wall-clock time that it has."""
    minutes = range(int((last - first) / MINUTE) + 1)
    moments = [first + number * MINUTE for number in minutes]
    return [(moment, moment.astimezone(zone).replace(tzinfo=None)) for moment in moments]


def expected(expression: Expression, clock: list[tuple[datetime, datetime]]) -> list[datetime]:
    """Return the ticks in some minutes of a zone."""
    if not expression.is_fixed:
        return [moment for moment, wall in clock if expression.matches(wall)]
    found, seen = set(), set()
    for (_, before), (moment, wall) in pairwise(clock):
        shown = [before + number * MINUTE for number in range(1, max(1, int((wall - before) / MINUTE)) + 1)]
        shown = shown if wall > before else [wall]  # put back: one minute, which may have been before
        if any(each not in seen and expression.matches(each) for each in shown):
            found.add(moment)
        seen.update(shown)
    return sorted(found)


# -- What is looked at ---------------------------------------------------------------------------------------------


def changes(zone: zoneinfo.ZoneInfo) -> list[datetime]:
    """Return the minutes at which the clocks of a zone are changed."""
    found = []
    day, end = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC), datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC)
    while day < end:
        before, after = day, day + DAY
        offset = before.astimezone(zone).utcoffset()
        if after.astimezone(zone).utcoffset() != offset:
            while after - before > MINUTE:
                middle = before + (int((after - before) / MINUTE) // 2) * MINUTE
                is_before = middle.astimezone(zone).utcoffset() == offset
                before, after = (middle, after) if is_before else (before, middle)
            found.append(after)
        day += DAY
    return found


def random_field(rng: random.Random, name: str, near: int) -> Field:
    """Make a field, mostly one that matches near a change."""
    values = RANGES[name]
    some = rng.randrange(7 if name in ("minute", "hour") else 3)
    if some == 0 or (name not in ("minute", "hour") and rng.random() < 0.6):
        return Field("*", frozenset(values))
    if some == 1:
        step = rng.choice([2, 3, 5, 7, 15])
        return Field(f"*/{step}", frozenset(values[::step]))
    if some in (2, 3):
        first = max(values[0], near - rng.randrange(3))
        last = min(values[-1], near + rng.randrange(3))
        return Field(f"{first}-{last}" if first < last else str(first), frozenset(range(first, max(first, last) + 1)))
    chosen = {min(values[-1], max(values[0], near + rng.randrange(-1, 2))), rng.choice(values)}
    return Field(",".join(map(str, sorted(chosen))), frozenset(chosen))


def random_expression(rng: random.Random, wall: datetime) -> Expression:
    return Expression(
        random_field(rng, "minute", rng.choice([0, 15, 30, 45, wall.minute])),
        random_field(rng, "hour", wall.hour),
        random_field(rng, "day", wall.day),
        random_field(rng, "month", wall.month),
        random_field(rng, "weekday", wall.isoweekday() % 7),
    )


def distinct_clocks(zones: list[str]) -> Iterator[tuple[str, list[datetime]]]:
    """Yield zones with their changes, one of those that have the same."""
    seen: set[Any] = set()
    for name in zones:
        zone = zoneinfo.ZoneInfo(name)
        found = changes(zone)
        clock = tuple((moment, moment.astimezone(zone).utcoffset()) for moment in found)
        if clock and clock not in seen:
            seen.add(clock)
            yield name, found


def compare(name: str, expression: Expression, first: datetime, last: datetime, clock: Any) -> None:
    """Compare code and model in both directions."""
    wanted = [moment for moment in expected(expression, clock) if first < moment <= last]
    cron, first_ms, last_ms = Cron(expression.text, name), first.timestamp() * 1000, last.timestamp() * 1000
    forwards = []
    tick = first_ms
    while (tick := after(cron, tick, last_ms)) <= last_ms:
        forwards.append(datetime.fromtimestamp(tick / 1000, UTC))
    backwards = []
    for tick in islice(cron.back_from(last_ms), len(wanted) + 5):
        if tick <= first_ms:
            break
        backwards.append(datetime.fromtimestamp(tick / 1000, UTC))
    assert forwards == wanted, f"{expression.text} in {name} from {first}"
    assert backwards[::-1] == wanted, f"{expression.text} in {name} back from {last}"


def after(cron: Cron, tick_ms: float, last_ms: float) -> float:
    try:
        return cron.after(tick_ms)
    except ValueError:  # it never comes again
        return last_ms + 1


def compare_around_changes(zones: list[str], *, seed: int, expressions: int, most_changes: int) -> int:
    rng = random.Random(seed)
    compared = 0
    for name, found in distinct_clocks(zones):
        zone = zoneinfo.ZoneInfo(name)
        for change in rng.sample(found, min(most_changes, len(found))):
            first, last = change - timedelta(hours=rng.randrange(2, 10)), change + timedelta(hours=rng.randrange(2, 10))
            clock = wall_clock(zone, first - timedelta(hours=4), last)
            for _ in range(expressions):
                compare(name, random_expression(rng, change.astimezone(zone)), first, last, clock)
                compared += 1
    return compared


def test_expressions_match_the_model_where_clocks_change() -> None:
    seed = int(os.environ.get("CRON_SEED", "20260301"))
    rng = random.Random(seed)
    strange = ["Africa/Cairo", "America/Havana", "America/Santiago", "Asia/Beirut", "Atlantic/Azores"]
    strange += ["Australia/Lord_Howe", "Antarctica/Casey", "Africa/Casablanca", "Antarctica/Troll"]

    compared = compare_around_changes([*strange, *rng.sample(ZONES, 6)], seed=seed, expressions=6, most_changes=2)

    assert compared > 50


@pytest.mark.long
def test_expressions_match_the_model_in_all_zones_for_ten_years() -> None:
    assert compare_around_changes(ZONES, seed=1, expressions=15, most_changes=100) > 10_000


@pytest.mark.parametrize(
    ("expression", "zone", "first", "ticks"),
    [
        # At midnight: there is no hour before one o'clock.
        ("*/15 1 * * FRI", "Africa/Cairo", "2026-04-23T20:00", "22:00 22:15 22:30 22:45"),
        ("30 0 * * *", "Africa/Cairo", "2026-04-23T20:00", "22:00"),
        # By half an hour.
        ("15 2 4 10 *", "Australia/Lord_Howe", "2026-10-03T15:00", "15:30"),
        ("*/10 2 4 10 *", "Australia/Lord_Howe", "2026-10-03T15:00", "15:30 15:40 15:50"),
        # The first of two.
        ("45 1 5 4 *", "Australia/Lord_Howe", "2026-04-04T14:00", "14:45"),
        ("*/15 1 5 4 *", "Australia/Lord_Howe", "2026-04-04T14:10", "14:15 14:30 14:45 15:00 15:15"),
        ("30 2 29 3 *", "Europe/Berlin", "2026-03-29T00:00", "01:00"),
        ("0,30 2 29 3 *", "Europe/Berlin", "2026-03-29T00:00", "01:00"),
        ("30 2 25 10 *", "Europe/Berlin", "2026-10-24T23:00", "00:30"),
        ("*/30 2 25 10 *", "Europe/Berlin", "2026-10-24T23:30", "00:00 00:30 01:00 01:30"),
    ],
)
def test_known_changes(expression: str, zone: str, first: str, ticks: str) -> None:
    start = datetime.fromisoformat(first).replace(tzinfo=UTC)
    cron = Cron(expression, zone)
    found = []
    tick = start.timestamp() * 1000
    for _ in ticks.split():
        tick = cron.after(tick)
        found.append(tick)

    assert [f"{datetime.fromtimestamp(tick / 1000, UTC):%H:%M}" for tick in found] == ticks.split()
    assert cron.after(found[-1]) > found[-1] + 3_600_000
    assert list(islice(cron.back_from(found[-1] + 3_600_000), len(found))) == found[::-1]


def test_seconds_follow_the_time_that_passes() -> None:
    cron = Cron("30 30 2 * * *", "Europe/Berlin")  # 2026-03-29 has no such time
    before = datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp() * 1000

    assert cron.after(before) == datetime(2026, 3, 30, 0, 30, 30, tzinfo=UTC).timestamp() * 1000


def test_correction_of_more_than_three_hours_skips_the_times_in_it() -> None:
    cron = Cron("0 12 * * *", "Pacific/Apia")  # 2011-12-30 did not happen there
    before = datetime(2011, 12, 30, 0, tzinfo=UTC).timestamp() * 1000  # noon of the 29th was at 22:00

    assert cron.after(before) == datetime(2011, 12, 30, 22, tzinfo=UTC).timestamp() * 1000
