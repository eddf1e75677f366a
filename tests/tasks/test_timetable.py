"""Due times: periods without drift, and cron expressions on days that have 23 or 25 hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from rsmq_django.conf.timetable import (
    MAX_TICKS,
    Cron,
    Every,
    Timetable,
    about_in_words,
    in_words,
    is_cron,
    is_zone,
    missed_and_late,
)

HOUR_MS = 3_600_000


def ms(text: str, zone: str = "UTC") -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def local_times(timetable: Timetable, first: str, last: str, zone: str) -> list[str]:
    """Return the ticks from one moment to another, with their offset from UTC in hours."""
    tick, found = ms(first, zone) - 1, []
    while (tick := timetable.after(tick)) <= ms(last, zone):
        moment = datetime.fromtimestamp(tick / 1000, UTC).astimezone(ZoneInfo(zone))
        found.append(f"{moment:%d. %H:%M} {moment.utcoffset() / timedelta(hours=1):+g}")
    return found


# -- Periods -------------------------------------------------------------------------------------------------------


def test_period_is_due_at_its_multiples_at_any_time_of_the_call():
    timetable = Every(period_ms=5_000)

    assert [timetable.after(now) for now in (0, 1, 4_999.9, 5_000, 12_345)] == [5_000, 5_000, 5_000, 10_000, 15_000]


def test_each_tick_follows_from_the_one_before_without_drift():
    timetable, tick = Every(period_ms=1_500), ms("2026-01-01")

    for _ in range(1000):
        tick = timetable.after(tick)

    assert tick == ms("2026-01-01") + 1000 * 1_500


def test_period_of_hours_does_not_notice_that_the_clocks_change():
    found = local_times(Every(12 * HOUR_MS), "2026-03-28T00:00", "2026-03-30T00:00", "Europe/Berlin")

    assert found == ["28. 01:00 +1", "28. 13:00 +1", "29. 02:00 +1", "29. 14:00 +2"] or found == [
        "28. 01:00 +1",
        "28. 13:00 +1",
        "29. 01:00 +1",
        "29. 14:00 +2",
    ]


# -- Cron expressions ----------------------------------------------------------------------------------------------


def test_cron_expression_is_read_in_its_time_zone():
    timetable = Cron("30 7 * * MON", "Asia/Kolkata")

    assert timetable.after(ms("2026-07-01")) == ms("2026-07-06T02:00")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("30 1 * * *", ["28. 01:30 +1", "29. 01:30 +1", "30. 01:30 +2"]),
        # There is no 02:30 on the 29th: the job runs when the clock has been put forward.
        ("30 2 * * *", ["28. 02:30 +1", "29. 03:00 +2", "30. 02:30 +2"]),
        ("0 */8 * * *", ["28. 00:00 +1", "28. 08:00 +1", "28. 16:00 +1", "29. 00:00 +1", "29. 08:00 +2"]),
    ],
)
def test_berlin_puts_its_clocks_forward(expression: str, expected: list[str]):
    found = local_times(Cron(expression, "Europe/Berlin"), "2026-03-28T00:00", "2026-03-30T23:00", "Europe/Berlin")

    assert found[: len(expected)] == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # 02:30 comes twice on the 25th: the job runs once.
        ("30 2 * * *", ["24. 02:30 +2", "25. 02:30 +2", "26. 02:30 +1"]),
        # With a star it follows the time that passes.
        ("*/30 2 * * *", ["24. 02:00 +2", "24. 02:30 +2", "25. 02:00 +2", "25. 02:30 +2", "25. 02:00 +1"]),
        ("0 3 * * *", ["24. 03:00 +2", "25. 03:00 +1", "26. 03:00 +1"]),
    ],
)
def test_berlin_puts_its_clocks_back(expression: str, expected: list[str]):
    found = local_times(Cron(expression, "Europe/Berlin"), "2026-10-24T00:00", "2026-10-26T23:00", "Europe/Berlin")

    assert found[: len(expected)] == expected


def test_new_york_changes_its_clocks_on_other_days():
    nightly, zone = Cron("30 2 * * *", "America/New_York"), "America/New_York"

    spring = local_times(nightly, "2026-03-07T00:00", "2026-03-09T23:00", zone)
    fall = local_times(Cron("30 1 * * *", zone), "2026-10-31T00:00", "2026-11-02T23:00", zone)

    assert spring == ["07. 02:30 -5", "08. 03:00 -4", "09. 02:30 -4"]
    assert fall == ["31. 01:30 -4", "01. 01:30 -4", "02. 01:30 -5"]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "UTC"])
@pytest.mark.parametrize("expression", ["30 2 * * *", "*/20 * * * *", "15 1-3 * * *", "0 0 * * SUN", "*/10 * * * * *"])
def test_reading_backwards_finds_the_same_events_as_reading_forwards(zone: str, expression: str):
    timetable = Cron(expression, zone)
    for day in ("2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01"):
        ahead, tick = [], ms(day) - 12 * HOUR_MS
        for _ in range(60):
            ahead.append(tick := timetable.after(tick))

        back = [tick for tick, _ in zip(timetable.back_from(ahead[-1]), range(60), strict=False)]

        assert back[::-1] == ahead


@pytest.mark.parametrize("text", ["", "* * * *", "61 * * * *", "0 0 31 2 *", "every day", "* * * * * * *", None, 7])
def test_invalid_cron_expressions_are_recognised(text: object):
    assert not is_cron(text)


def test_time_zones_are_recognised():
    assert is_zone("UTC")
    assert is_zone("America/New_York")
    assert not any(map(is_zone, ["Europe/Nowhere", "", "../etc/passwd", None, 3, "a\0b"]))


# -- What was missed -----------------------------------------------------------------------------------------------


def test_ticks_within_the_grace_are_late_and_older_ones_are_missed():
    missed, late = missed_and_late(Every(60_000), planned_ms=600_000, now_ms=910_000, missed_after_ms=120_000)

    assert (missed, late) == ([600_000, 660_000, 720_000, 780_000], [840_000, 900_000])


def test_outage_of_a_year_costs_no_more_than_a_thousand_steps():
    now_ms = ms("2026-06-01")

    missed, late = missed_and_late(
        Cron("* * * * *", "Europe/Berlin"), planned_ms=ms("2025-06-01"), now_ms=now_ms, missed_after_ms=60_000
    )

    assert len(missed) + len(late) == MAX_TICKS
    assert late[-1] == now_ms


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "5 s"), (1.5, "1.5 s"), (60, "1 min"), (5400, "90 min"), (7200, "2 h"), (172_800, "2 d")]
)
def test_periods_are_put_in_words(seconds: float, words: str):
    assert in_words(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (119, "119 s"), (125, "2 min"), (7199, "119 min"), (89_204, "24 h"), (200_000, "2 d")],
)
def test_spans_are_put_in_whole_units(seconds: float, words: str):
    assert about_in_words(seconds) == words
