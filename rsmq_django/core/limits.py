"""The limits of RSMQ and of this client, each checked in one place before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal, TypeVar

from .errors import InvalidValue, MessageNotBytes
from .numbers import is_number, is_whole

T = TypeVar("T")
Body = bytes | str
#: The unit of a queue's stored visibility timeout and delay. RSMQ's is "s"; rsmq_async (Rust) stores milliseconds.
TimeUnit = Literal["s", "ms"]
TIME_UNITS: tuple[TimeUnit, ...] = ("s", "ms")

MAX_SECONDS = 9_999_999
#: 366 days, for what is kept or repeats.
YEAR_S = 31_622_400
MIN_MAX_SIZE_BYTES = 1024
MAX_MAX_SIZE_BYTES = 65536
UNLIMITED = -1
#: How many messages one script handles; more would block the server's other clients, and Lua's stack is limited.
MAX_BATCH = 1000
#: Maximum size of one round trip, unless a single message is longer: a slow network must carry it within TIMEOUT_S.
MAX_TRIP_BYTES = 1024 * 1024
#: A longer body would block all other clients of the server while it is copied.
MAX_BODY_BYTES = 16 * 1024 * 1024
#: Shards of a queue: each costs each worker process two sockets and a poll.
MOST_SHARDS = 100


#: Names of arguments in the error messages of the reference implementation.
_RSMQ_WORDS = {"visibility_timeout_s": "vt", "delay_s": "delay", "max_size_bytes": "maxsize"}


def whole_seconds(what: str, seconds: int) -> int:
    """Return `seconds`, or raise InvalidValue: attributes of a queue are whole seconds, as other clients expect."""
    if not is_whole(seconds) or not 0 <= seconds <= MAX_SECONDS:
        raise _outside(what, seconds, "whole seconds between 0 and 9999999", f"must be between 0 and {MAX_SECONDS}")
    return seconds


def checked_unit(unit: TimeUnit) -> TimeUnit:
    """Return `unit`, or raise InvalidValue."""
    if unit not in TIME_UNITS:
        raise _outside("vt_unit", unit, "'s' or 'ms'", "must be s or ms")
    return unit


def stored_time(what: str, seconds: int, unit: TimeUnit) -> int:
    """Return whole seconds as they are stored in `unit`, or raise InvalidValue."""
    return whole_seconds(what, seconds) * (1000 if unit == "ms" else 1)


def stored_seconds(stored: float, unit: TimeUnit) -> float:
    """Return a stored time in seconds; whole numbers stay integers."""
    if unit == "s":
        return stored
    seconds = stored / 1000
    return int(seconds) if seconds.is_integer() else seconds


def milliseconds_or_own(what: str, seconds: float | None, unit: TimeUnit) -> int | str:
    """Return seconds as milliseconds, or for None the unit of the queue's own value; or raise InvalidValue."""
    return unit if seconds is None else milliseconds(what, seconds)


def milliseconds(what: str, seconds: float) -> int:
    """Return seconds as milliseconds, or raise InvalidValue."""
    if not is_number(seconds) or not 0 <= seconds <= MAX_SECONDS:
        raise _outside(what, seconds, "seconds between 0 and 9999999", f"must be between 0 and {MAX_SECONDS}")
    # Rounded up, so that nothing becomes visible early; not by the last digit of a float (2.007 * 1000 > 2007).
    return math.ceil(round(seconds * 1000, 6))


def checked_max_size(size_bytes: int) -> int:
    """Return `size_bytes`, or raise InvalidValue."""
    limits = f"between {MIN_MAX_SIZE_BYTES} and {MAX_MAX_SIZE_BYTES}"
    if not is_whole(size_bytes):
        raise _outside("max_size_bytes", size_bytes, f"a whole number {limits}, or -1", f"must be {limits}")
    if size_bytes != UNLIMITED and not MIN_MAX_SIZE_BYTES <= size_bytes <= MAX_MAX_SIZE_BYTES:
        raise _outside("max_size_bytes", size_bytes, f"{limits}, or -1 for no limit", f"must be {limits}")
    return size_bytes


def checked_count(count: int) -> int:
    """Return `count`, or raise InvalidValue."""
    if not is_whole(count) or not 1 <= count <= MAX_BATCH:
        raise _outside("count", count, f"between 1 and {MAX_BATCH}", f"must be between 1 and {MAX_BATCH}")
    return count


def encoded(body: Body) -> bytes:
    """Return the body as bytes; text becomes UTF-8. Raises MessageNotBytes."""
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise MessageNotBytes(f"a body of text must be Unicode: {error}; send its bytes instead") from error
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    raise MessageNotBytes(f"a body is bytes or text, not {type(body).__name__}; encode it first, for example as JSON")


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Cut `items` into lists of at most MAX_BATCH."""
    rest = iter(items)
    while batch := list(islice(rest, MAX_BATCH)):
        yield batch


def _outside(what: str, value: object, allowed: str, rsmq_rule: str) -> InvalidValue:
    error = InvalidValue(f"{what} is {value!r}; it must be {allowed}")
    error.rsmq_message = f"{_RSMQ_WORDS.get(what, what)} {rsmq_rule}"
    return error
