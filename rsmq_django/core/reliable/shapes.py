"""Conversion of records to the plain lists of RedisRQ, and merging of the results of several calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .records import ReliableMessage, StoredReliableMessage

#: [queue, id, body], [id, body], or a row of a message in flight.
Row = list[Any]


def as_rows(messages: Sequence[ReliableMessage]) -> list[Row]:
    """Return the list for pop."""
    return [[message.queue, message.id, message.body] for message in messages]


def as_inspected(messages: Sequence[StoredReliableMessage]) -> list[Row]:
    """Return the list for inspect."""
    return [
        [message.id, message.body]
        if message.at_ms is None
        else [message.id, message.body, message.at_ms, message.elapsed_ms, message.deliveries]
        for message in messages
    ]


def joined(parts: Sequence[list[str] | None]) -> list[str] | None:
    """Return the merged lists of the parts of one operation; None if the queue did not exist."""
    if all(part is None for part in parts):
        return None
    return [message_id for part in parts for message_id in part or ()]


def merged(parts: Sequence[dict[str, str] | None]) -> dict[str, str] | None:
    """Return the merged mappings of the parts of one operation; None if the queue did not exist."""
    if all(part is None for part in parts):
        return None
    return {old: new for part in parts for old, new in (part or {}).items()}
