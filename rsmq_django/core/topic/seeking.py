"""Parsing of seek targets into kind and value for the script."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from ..errors import InvalidValue
from ..numbers import is_whole

#: An index, "earliest", "latest", "+10" or "-10" relative to the position, a time, or an age.
Target = int | str | datetime | timedelta

MAX_INDEX = 99_999_999_999_999
_SHIFT = re.compile(r"[+-]\d{1,14}")


def seek_words(target: Target) -> tuple[str, int | str]:
    """Return kind and value. Raises InvalidValue."""
    if isinstance(target, str) and target in ("earliest", "latest"):
        return target, ""
    if isinstance(target, str) and _SHIFT.fullmatch(target):
        return "shift", int(target)
    if is_whole(target) and 0 <= target <= MAX_INDEX:
        return "index", target
    if isinstance(target, datetime):
        return "time", _epoch_ms(target)
    if isinstance(target, timedelta) and target >= timedelta(0):
        return "ago", int(target / timedelta(milliseconds=1))
    raise InvalidValue(
        f"cannot seek to {target!r}; give an index from 0 to {MAX_INDEX}, 'earliest', 'latest', '+10' or '-10' "
        "relative to the position, a datetime, or a timedelta as an age"
    )


def _epoch_ms(moment: datetime) -> int:
    try:
        return max(0, int(moment.timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        raise InvalidValue(f"cannot seek to {moment!r}: {error}") from error
