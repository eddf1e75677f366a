"""Where a seek may go: what people write, as the kind and value that the script knows."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from ..errors import InvalidValue

#: An index, "earliest", "latest", "+10" or "-10" from where the group is, a time, or how long ago.
Target = int | str | datetime | timedelta

MAX_INDEX = 99_999_999_999_999
_SHIFT = re.compile(r"[+-]\d{1,14}")


def seek_words(target: Target) -> tuple[str, int | str]:
    """Return kind and value. Raises InvalidValue."""
    if isinstance(target, str) and target in ("earliest", "latest"):
        return target, ""
    if isinstance(target, str) and _SHIFT.fullmatch(target):
        return "shift", int(target)
    if isinstance(target, int) and not isinstance(target, bool) and 0 <= target <= MAX_INDEX:
        return "index", target
    if isinstance(target, datetime):
        return "time", _epoch_ms(target)
    if isinstance(target, timedelta) and target >= timedelta(0):
        return "ago", int(target / timedelta(milliseconds=1))
    raise InvalidValue(
        f"cannot seek to {target!r}; give an index from 0 to {MAX_INDEX}, 'earliest', 'latest', '+10' or '-10' for "
        "messages from here, a datetime, or a timedelta for how long ago"
    )


def _epoch_ms(moment: datetime) -> int:
    try:
        return max(0, int(moment.timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        raise InvalidValue(f"cannot seek to {moment!r}: {error}") from error
