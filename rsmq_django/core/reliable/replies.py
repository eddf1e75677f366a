"""Parsing of the raw replies of reliable queue scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..queue.replies import read_message_id
from ..stats.depth import Depth
from .records import ReliableMessage, ReliableStatistics, StoredReliableMessage

#: Number of values before the messages in a reply of pop.lua.
HEAD = 4


@dataclass(frozen=True, slots=True)
class Popped:
    """The result of one pop."""

    messages: list[ReliableMessage]
    #: Milliseconds until a delayed message is due; None without one.
    next_due_ms: int | None
    server_ms: int
    #: How many messages were delivered and not acknowledged before.
    in_flight: int
    #: Positions of queues that do not exist, from 1.
    missing: list[int]


def read_popped(reply: list[Any]) -> Popped:
    """Return the result of a reply of pop.lua."""
    messages = [
        ReliableMessage(reply[at].decode(), reply[at + 1].decode("utf-8", "surrogateescape"), *reply[at + 2 : at + 5])
        for at in range(HEAD, len(reply), 5)
    ]
    server_ms, next_due_ms, in_flight, missing = reply[:HEAD]
    positions = [int(position) for position in missing.split()]
    return Popped(messages, None if next_due_ms < 0 else next_due_ms, server_ms, in_flight, positions)


class Recovered(list[ReliableMessage]):
    """Recovered messages."""

    #: Ids of the messages that became dead instead.
    dead: list[str]


def read_recovered(queue: str) -> Callable[[list[Any] | None], Recovered | None]:
    """Return a parser of the reply of recover.lua; its result is None if the queue does not exist."""

    def read(reply: list[Any] | None) -> Recovered | None:
        if reply is None:
            return None
        recovered = Recovered(
            ReliableMessage(queue, read_message_id(reply[at]), *reply[at + 1 : at + 4])
            for at in range(1, len(reply), 4)
        )
        recovered.dead = read_message_id(reply[0]).split(" ") if reply[0] else []
        return recovered

    return read


def read_ids_or_none(reply: list[bytes] | None) -> list[str] | None:
    """Return ids in order; None if the queue does not exist."""
    return None if reply is None else [read_message_id(message_id) for message_id in reply]


def read_moved(reply: list[bytes] | None) -> dict[str, str] | None:
    """Return old id -> new id; None if the queue does not exist."""
    ids = read_ids_or_none(reply)
    return None if ids is None else dict(zip(ids[::2], ids[1::2], strict=True))


def read_stored(reply: list[Any]) -> list[StoredReliableMessage]:
    """Return the messages of a reply of inspect.lua."""
    messages = []
    for at in range(0, len(reply), 7):
        message_id, body, at_ms, elapsed_ms, deliveries, consumer, size = reply[at : at + 7]
        if not at_ms:  # a ready message
            at_ms = elapsed_ms = None
        name = consumer.decode("utf-8", "replace")
        rest = (at_ms, elapsed_ms, deliveries, name, size)
        messages.append(StoredReliableMessage(read_message_id(message_id), body, *rest))
    return messages


def read_info(reply: list[Any]) -> list[str | int]:
    """Return a mapping from alternating names and numbers."""
    return [word.decode() if isinstance(word, bytes) else word for word in reply]


def read_statistics(reply: list[Any]) -> ReliableStatistics:
    """Return the statistics of a reply of statistics.lua."""
    ready, delayed, in_flight, dead, oldest_ms, pushed, popped, acked, recovered, nacked, buried, most, *held = reply
    return ReliableStatistics(
        Depth(
            ready=ready,
            hidden=delayed + in_flight,
            in_flight=in_flight,
            dead=dead,
            total_sent=pushed,
            total_received=popped + recovered,
        ),
        oldest_delivery_ms=None if oldest_ms < 0 else oldest_ms,
        total_popped=popped,
        total_acked=acked,
        total_recovered=recovered,
        total_nacked=nacked,
        total_buried=buried,
        max_deliveries=most,
        deliveries=dict(sorted(Counter[int](held[::2]).items())),
        consumers=dict(Counter(name.decode("utf-8", "replace") for name in held[1::2])),
    )
