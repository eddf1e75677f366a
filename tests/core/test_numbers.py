"""Numbers from Redis are finite and bounded, or rejected."""

import pytest

from rsmq_django.core.numbers import (
    LARGEST,
    LAST_MS,
    bounded,
    read_count,
    read_epoch_ms,
    read_finite,
    read_whole,
)


@pytest.mark.parametrize("raw", ["0", "-1", "7", str(LARGEST), f"-{LARGEST}", b"12", 12, 12.0])
def test_whole_numbers_are_read_from_texts_and_replies(raw: str | bytes | float):
    assert read_whole(raw) == int(raw) and isinstance(read_whole(raw), int)


@pytest.mark.parametrize(
    "raw",
    [None, "", "-", "1.5", "1e5", " 7", "7 ", "1_000", "0x10", "٣", "²", "\x00", b"\xff", "9" * 400, "9" * 5000, "inf"]
    + [str(LARGEST + 1), LARGEST + 1, 1.5, float("nan"), float("inf")],
)
def test_other_values_are_not_whole_numbers(raw: str | bytes | float | None):
    assert read_whole(raw) is None
    assert read_count(raw) == 0


def test_counts_are_never_negative():
    assert [read_count(raw) for raw in ("-5", "5")] == [0, 5]


@pytest.mark.parametrize(("raw", "number"), [("1.5", 1.5), (b"1.7e+12", 1_700_000_000_000), ("-.5", -0.5), (2.0, 2)])
def test_numbers_may_have_fractions_and_exponents(raw: str | bytes | float, number: float):
    assert read_finite(raw) == number


@pytest.mark.parametrize("raw", [None, "", "nan", "inf", "-inf", "infinity", "1e400", "1e308", "9" * 30, "1_0", 1e300])
def test_numbers_without_bounds_are_unreadable(raw: str | float | None):
    assert read_finite(raw) is None


def test_times_are_between_1970_and_9999():
    assert [read_epoch_ms(raw) for raw in ("-1", "0", str(LAST_MS), str(LAST_MS + 1))] == [None, 0, LAST_MS, None]


@pytest.mark.parametrize(("raw", "score"), [("inf", 2.0**63), ("-inf", -(2.0**63)), (b"1e308", 2.0**63), ("5.5", 5.5)])
def test_scores_outside_the_bounds_are_the_nearest_one_inside(raw: str | bytes, score: float):
    assert bounded(raw) == score
    assert bounded("nan") == bounded("of another program") == bounded(b"") == 0
