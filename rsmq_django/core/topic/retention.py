"""Validation of retention settings, and their stored form."""

from __future__ import annotations

import math

from ..errors import InvalidValue
from ..numbers import is_number, is_whole
from ..transport.call import Argument
from .records import Retention

MAX_NUMBER = 10**15
#: Ten years.
MAX_AGE_S = 315_360_000


def retention_words(retention: Retention) -> tuple[Argument, ...]:
    """Return name and value of each setting, "" for a removed one. Raises InvalidValue."""
    return (
        "max_count",
        _whole("max_count", retention.max_count),
        "max_age_ms",
        _milliseconds("max_age_s", retention.max_age_s),
        "max_bytes",
        _whole("max_bytes", retention.max_bytes),
        "wait_for_groups",
        1 if retention.wait_for_groups else "",
        "group_ttl_ms",
        _milliseconds("group_ttl_s", retention.group_ttl_s),
    )


def milliseconds(what: str, seconds: float) -> int:
    """Return seconds as milliseconds, or raise InvalidValue."""
    if not is_number(seconds) or not 0 <= seconds <= MAX_AGE_S:
        raise InvalidValue(f"{what} is {seconds!r}; it must be seconds between 0 and {MAX_AGE_S}")
    return math.ceil(seconds * 1000)


def _milliseconds(what: str, seconds: float | None) -> Argument:
    return "" if seconds is None else milliseconds(what, seconds)


def _whole(what: str, number: int | None) -> Argument:
    if number is None:
        return ""
    if not is_whole(number) or not 1 <= number <= MAX_NUMBER:
        raise InvalidValue(f"{what} is {number!r}; it must be a whole number between 1 and {MAX_NUMBER}, or None")
    return number
