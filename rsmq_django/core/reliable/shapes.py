"""Shapes of answers: the plain lists of RedisRQ, made of our records, and one answer of those to several calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .records import ReliableMessage, StoredMessage

#: [queue, id, body], [id, body], or a row of the pending ones.
Row = list[Any]


def as_rows(messages: Sequence[ReliableMessage]) -> list[Row]:
    """Return what pop answers."""
    return [[message.queue, message.id, message.body] for message in messages]


def as_inspected(messages: Sequence[StoredMessage]) -> list[Row]:
    """Return what inspect answers."""
    return [
        [message.id, message.body]
        if message.at_ms is None
        else [message.id, message.body, message.at_ms, message.elapsed_ms, message.deliveries]
        for message in messages
    ]


def joined(parts: Sequence[list[str] | None]) -> list[str] | None:
    """Return the answers to the parts of one operation as one; None when there was no such queue."""
    if all(part is None for part in parts):
        return None
    return [message_id for part in parts for message_id in part or ()]


def merged(parts: Sequence[dict[str, str] | None]) -> dict[str, str] | None:
    """Return the same of answers that say which message became which."""
    if all(part is None for part in parts):
        return None
    return {old: new for part in parts for old, new in (part or {}).items()}
