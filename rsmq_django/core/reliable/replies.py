"""How to read the raw replies of the scripts of reliable queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..replies import read_message_id
from .records import ReliableMessage, ReliableStatistics, StoredMessage

#: The first numbers in the reply of statistics.lua.
_STATISTICS = (
    "undelivered",
    "delayed",
    "delivered",
    "dead",
    "oldest_delivery_ms",
    "total_pushed",
    "total_popped",
    "total_acked",
    "total_recovered",
    "total_nacked",
    "total_buried",
    "max_deliveries",
)


@dataclass(frozen=True, slots=True)
class Popped:
    """What one look at the queues gave."""

    messages: list[ReliableMessage]
    #: Milliseconds until a delayed message may be delivered; None when there is none.
    next_due_ms: int | None


def read_popped(reply: list[Any]) -> Popped:
    """Read the reply of pop.lua."""
    messages = [
        ReliableMessage(reply[at].decode(), read_message_id(reply[at + 1]), *reply[at + 2 : at + 5])
        for at in range(1, len(reply), 5)
    ]
    return Popped(messages, None if reply[0] < 0 else reply[0])


def read_recovered(queue: str) -> Callable[[list[Any] | None], list[ReliableMessage] | None]:
    """Return a reader of the reply of recover.lua; None when there is no such queue."""

    def read(reply: list[Any] | None) -> list[ReliableMessage] | None:
        if reply is None:
            return None
        return [
            ReliableMessage(queue, read_message_id(reply[at]), *reply[at + 1 : at + 4])
            for at in range(0, len(reply), 4)
        ]

    return read


def read_ids_or_none(reply: list[bytes] | None) -> list[str] | None:
    """Read ids in order; None when there is no such queue."""
    return None if reply is None else [read_message_id(message_id) for message_id in reply]


def read_moved(reply: list[bytes] | None) -> dict[str, str] | None:
    """Read old and new ids in turn; None when there is no such queue."""
    ids = read_ids_or_none(reply)
    return None if ids is None else dict(zip(ids[::2], ids[1::2], strict=True))


def read_stored(reply: list[Any]) -> list[StoredMessage]:
    """Read the reply of inspect.lua."""
    messages = []
    for at in range(0, len(reply), 6):
        message_id, body, at_ms, elapsed_ms, deliveries, consumer = reply[at : at + 6]
        if not at_ms:  # an undelivered one
            at_ms = elapsed_ms = None
        name = consumer.decode("utf-8", "replace")
        messages.append(StoredMessage(read_message_id(message_id), body, at_ms, elapsed_ms, deliveries, name))
    return messages


def read_info(reply: list[Any]) -> list[str | int]:
    """Read names and numbers in turn."""
    return [word.decode() if isinstance(word, bytes) else word for word in reply]


def read_statistics(reply: list[Any]) -> ReliableStatistics:
    """Read the reply of statistics.lua."""
    numbers, held = dict(zip(_STATISTICS, reply, strict=False)), reply[len(_STATISTICS) :]
    if numbers["oldest_delivery_ms"] < 0:
        numbers["oldest_delivery_ms"] = None
    deliveries = Counter[int](held[::2])
    consumers = Counter(name.decode("utf-8", "replace") for name in held[1::2])
    return ReliableStatistics(**numbers, deliveries=dict(sorted(deliveries.items())), consumers=dict(consumers))
