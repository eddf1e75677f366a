"""What counts as a number: of a caller, and in Redis, where any program may have written it."""

from __future__ import annotations

import math
import re
from typing import TypeGuard

#: The largest number that Redis counts to.
LARGEST = 2**63 - 1
#: The end of the year 9999, the last one that Python's times support.
LAST_MS = 253_402_300_799_999
_LONGEST_TEXT = 40
_WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_FINITE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)

Raw = bytes | str | float | None


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number. True and False are not, although Python counts them as integers."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number. True and False are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def read_whole(raw: Raw) -> int | None:
    """Return a whole number between -LARGEST and LARGEST; None for anything else."""
    if isinstance(raw, (int, float)):
        number = read_finite(raw)
        return None if number is None or number % 1 else int(number)
    text = _text(raw)
    if not _WHOLE.fullmatch(text):
        return None
    whole = int(text)
    return whole if abs(whole) <= LARGEST else None


def read_count(raw: Raw) -> int:
    """Return a whole number between 0 and LARGEST; 0 for anything else."""
    return max(0, read_whole(raw) or 0)


def read_finite(raw: Raw) -> float | None:
    """Return a number between -LARGEST and LARGEST; None for anything else. Whole numbers are integers."""
    if isinstance(raw, (int, float)):
        number: float = raw
    else:
        text = _text(raw)
        if not _FINITE.fullmatch(text):
            return None
        number = float(text)
    if not math.isfinite(number) or abs(number) > LARGEST:
        return None
    return number if number % 1 else int(number)


def read_epoch_ms(raw: Raw) -> float | None:
    """Return a time between 1970 and 9999 in epoch milliseconds; None for anything else."""
    number = read_finite(raw)
    return number if number is not None and 0 <= number <= LAST_MS else None


def bounded(raw: Raw) -> float:
    """Return the score of a message as a number between -LARGEST and LARGEST, the nearest one for a score outside."""
    try:
        score = float(raw or 0)
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(score) else max(-float(LARGEST), min(float(LARGEST), score))


def _text(raw: bytes | str | None) -> str:
    if not raw or len(raw) > _LONGEST_TEXT:
        return ""
    return raw.decode("ascii", "replace") if isinstance(raw, bytes) else raw
