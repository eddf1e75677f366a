"""The one JSON of values that are equal: `Decimal("1.50")` and `Decimal("1.5")`, one moment in two time zones.

Keys of calls are made of it. Messages are not: a task gets the value as it was sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

#: Smaller numbers have an exponent in Python's text; so have larger ones here, which could be longer than the memory.
_LEAST_EXPONENT, _LARGEST_EXPONENT = -6, 100


def decimal_text(number: Decimal) -> str:
    """Return the text of a finite number, the same for equal numbers."""
    if not number:
        return "0"
    if _LEAST_EXPONENT <= number.adjusted() <= _LARGEST_EXPONENT:
        text = f"{number:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits)).rstrip("0")
    return str(Decimal((sign, tuple(map(int, shown)), exponent + len(digits) - len(shown))))


def moment_text(moment: datetime) -> str:
    """Return the ISO text of a datetime, in UTC if it has a time zone."""
    with suppress(OverflowError):  # a moment of the year 0 in UTC
        moment = moment if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.isoformat()


def number_as(kind: type, value: Any) -> Any:
    """Return a number as one of this kind if it is equal to one: for int, 1.0 and True are 1. Others as they are."""
    if isinstance(value, (int, float)):
        with suppress(OverflowError, ValueError):  # infinity
            same = kind(value or 0)  # -0.0 is 0
            return same if same == value else value
    return value


def canonical_dump(written: Any, value: Any) -> Any:
    """Return what Pydantic wrote as JSON, `written`, in the form that is the same for equal values."""
    if isinstance(value, Mapping) and isinstance(written, dict) and len(value) == len(written):
        pairs = zip(written.items(), value.values(), strict=True)
        return {key: canonical_dump(each, of) for (key, each), of in pairs}
    if isinstance(value, (set, frozenset)) and isinstance(written, list):
        return sorted(written, key=lambda each: json.dumps(each, sort_keys=True))
    if isinstance(value, Sequence) and isinstance(written, list) and len(value) == len(written):
        return [canonical_dump(each, of) for each, of in zip(written, value, strict=True)]
    if isinstance(value, Decimal) and isinstance(written, str) and value.is_finite():
        return decimal_text(value)
    if isinstance(value, datetime) and value.utcoffset() and isinstance(written, str):
        return moment_text(value).replace("+00:00", "Z")  # as Pydantic writes it
    return written
