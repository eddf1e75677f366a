"""Readers of the raw replies of the scripts. Tolerant: no value that another client stored may raise here."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from ..errors import QueueExists
from ..limits import TimeUnit, stored_seconds
from ..numbers import read_finite
from .records import Message, QueueAttributes, SettleResult

#: Larger numbers are milliseconds, smaller ones seconds: some clients write `modified` in milliseconds.
_MILLISECONDS_FROM = 1e11
#: First-receive times above this are microseconds.
_MICROSECONDS_FROM = 1e14
#: A lookup is much faster than a call of the class.
_SETTLEMENTS = {int(settlement): settlement for settlement in SettleResult}


def read_nothing(_reply: Any) -> None:
    """Return None for a reply that only reports success."""


def read_queue_created(name: str) -> Callable[[Any], None]:
    """Return a reader that raises QueueExists when the queue existed before."""

    def read(reply: Any) -> None:
        if not reply:
            said = f"queue exists: {name!r}; its attributes were not changed, set_attributes() changes them"
            raise QueueExists(said, queue_name=name)

    return read


def read_names(reply: list[bytes]) -> list[str]:
    """Return queue names, sorted."""
    return sorted(name.decode("utf-8", "backslashreplace") for name in reply)


def read_ids(reply: list[bytes] | bytes) -> list[str]:
    """Return message ids in order; scripts that send one message reply with its id alone."""
    if isinstance(reply, bytes):
        return [reply.decode("ascii")]
    return [message_id.decode("ascii") for message_id in reply]


def read_message_id(raw: bytes) -> str:
    """Return the id of any client. Bytes that are not UTF-8 become surrogates, which turn into the same bytes again."""
    return raw.decode("utf-8", "surrogateescape")


def read_settlements(reply: list[int] | int) -> list[SettleResult]:
    """Return the result of each message of a batch, or of the only one."""
    if isinstance(reply, int):
        return [_SETTLEMENTS[reply]]
    return [_SETTLEMENTS[number] for number in reply]


def read_message(reply: list[Any]) -> Message | None:
    """Return the message of a reply, or None."""
    messages = read_messages(reply)
    return messages[0] if messages else None


def read_messages(reply: list[Any]) -> list[Message]:
    """Return the messages of a flat list of id, body, receive count, first receive."""
    return [
        Message(
            read_message_id(reply[at]),
            reply[at + 1],
            int(reply[at + 2]),
            first_received_ms(reply[at + 3]),
        )
        for at in range(0, len(reply), 4)
    ]


def read_attributes(unit: TimeUnit) -> Callable[[list[Any]], QueueAttributes]:
    """Return a reader of the nine values of parts/attributes.lua; times are stored in `unit`."""

    def read(reply: list[Any]) -> QueueAttributes:
        vt, delay, max_size, received, sent, created, modified, messages, hidden = reply
        return QueueAttributes(
            visibility_timeout_s=stored_seconds(number(vt), unit),
            delay_s=stored_seconds(number(delay), unit),
            max_size_bytes=int(number(max_size, -1)),
            total_received=int(number(received)),
            total_sent=int(number(sent)),
            created_s=_time_s(created),
            modified_s=_time_s(modified),
            messages=messages,
            hidden_messages=hidden,
        )

    return read


def first_received_ms(raw: bytes) -> int | None:
    """Return a time of first receive; None when another client left it out or stored a value that is not a time."""
    if len(raw) == 13 and raw.isdigit():  # what RSMQ writes
        return int(raw)
    milliseconds = number(raw, math.nan)
    if math.isnan(milliseconds):
        return None
    return int(milliseconds / 1000 if milliseconds > _MICROSECONDS_FROM else milliseconds)


def number(raw: bytes, default: float = 0) -> float:
    """Return the number in a text; whole numbers are integers, anything else is the default (see numbers.py)."""
    value = read_finite(raw)
    return default if value is None else value


def _time_s(raw: bytes) -> float | None:
    """Return epoch seconds from epoch seconds, epoch milliseconds or an RFC 3339 text."""
    value = number(raw, math.nan)
    if not math.isnan(value):
        return value / 1000 if value > _MILLISECONDS_FROM else value
    try:
        return datetime.fromisoformat(raw.decode("ascii")).timestamp()
    except ValueError:
        return None
