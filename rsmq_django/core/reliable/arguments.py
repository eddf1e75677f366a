"""Validation of the arguments of reliable queue operations."""

from __future__ import annotations

from ..errors import InvalidMessageId, InvalidName, InvalidValue, MessageTooLong
from ..limits import MAX_BATCH, MAX_BODY_BYTES, Body, encoded
from ..numbers import is_whole
from .records import KINDS, Kind, ReliableMessage

#: Identifies a delivery: the message or its receipt; or an id, for any delivery.
Receipt = ReliableMessage | str

MAX_DELIVERIES = 1_000_000
#: About three hundred years.
MAX_MS = 10_000_000_000_000
MAX_LABEL_LENGTH = 200


def receipt_word(queue: str, message: Receipt) -> str:
    """Return a receipt for the scripts. Raises InvalidMessageId."""
    if isinstance(message, ReliableMessage):
        if message.queue != queue:
            raise InvalidMessageId(
                f"message {message.id!r} is of queue {message.queue!r}, not of {queue!r}; ids are unique in one queue "
                "only, so settle it there"
            )
        return message.receipt
    if isinstance(message, str) and message:
        return message
    raise InvalidMessageId(
        f"not a message id: {message!r}; give the id as push() or pop() returned it, the receipt, or the message"
    )


def checked_body(queue: str, body: Body) -> bytes:
    """Return the body as bytes. Raises MessageNotBytes, MessageTooLong."""
    data = encoded(body)
    if len(data) > MAX_BODY_BYTES:
        raise MessageTooLong(
            f"body is {len(data)} bytes, this client pushes at most {MAX_BODY_BYTES}; "
            f"store it elsewhere and push a reference to queue {queue!r}",
            queue_name=queue,
            size_bytes=len(data),
            limit_bytes=MAX_BODY_BYTES,
        )
    return data


def checked_kind(kind: Kind) -> Kind:
    """Return `kind`, or raise InvalidValue."""
    if kind not in KINDS:
        raise InvalidValue(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    return kind


def checked_whole(what: str, value: int, least: int, most: int) -> int:
    """Return `value`, or raise InvalidValue."""
    if not is_whole(value) or not least <= value <= most:
        raise InvalidValue(f"{what} is {value!r}; it must be a whole number from {least} to {most}")
    return value


def checked_room(count: int) -> int:
    """Return the number of messages, or raise InvalidValue."""
    return checked_whole("count", count, 0, MAX_BATCH)


def checked_block_ms(block_ms: int) -> int:
    """Return the blocking time of a pop, or raise InvalidValue."""
    return checked_whole("block_ms", block_ms, -MAX_MS, MAX_MS)


def checked_label(what: str, text: str) -> str:
    """Return a name or reason to store with a message, or raise InvalidName."""
    if not isinstance(text, str) or len(text) > MAX_LABEL_LENGTH or not (text + "x").isprintable():
        raise InvalidName(f"invalid {what}: {text!r}; use up to {MAX_LABEL_LENGTH} printable characters")
    return text
