"""The values that a reliable queue returns: plain, frozen, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from ..stats.depth import Depth

#: The states of a message, in the words of the original library.
Kind = Literal["undelivered", "delayed", "delivered", "dead"]
#: The kinds of messages, as the original library names two of them, and their states, as a Depth names them.
STATES: Mapping[Kind, str] = MappingProxyType(
    {"undelivered": "ready", "delayed": "delayed", "delivered": "in_flight", "dead": "dead"}
)
#: All kinds, in the order in which a message goes through them.
KINDS: tuple[Kind, ...] = tuple(STATES)


@dataclass(slots=True, unsafe_hash=True)  # not frozen, as Message
class ReliableMessage:
    """A delivered message, never changed."""

    #: Name of its queue.
    queue: str
    id: str
    body: bytes
    #: Number of deliveries, including this one.
    deliveries: int
    #: How many of them were released unused.
    unused: int = 0

    @property
    def attempt(self) -> int:
        """Return the number of this delivery, without unused deliveries: 1 for the first."""
        return self.deliveries - self.unused

    @property
    def receipt(self) -> str:
        """Return the receipt, which is valid for this delivery only."""
        return f"{self.id}:{self.deliveries}"

    def text(self) -> str:
        """Return the body as text; bytes that are not UTF-8 become U+FFFD."""
        return self.body.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class StoredReliableMessage:
    """A stored message of the queue."""

    id: str
    body: bytes
    #: Server time of the last delivery, the end of the delay, or the final failure; None for a ready message.
    at_ms: int | None
    #: Milliseconds since then; negative for a time in the future.
    elapsed_ms: int | None
    deliveries: int
    #: Consumer of a message in flight, or reason of a dead message; "" if unknown.
    consumer: str
    #: Size of the whole body.
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReliableStatistics:
    """Statistics of a queue at one moment."""

    #: Without `oldest_ready_s`.
    depth: Depth
    #: Age of the oldest unacknowledged delivery; None without one.
    oldest_delivery_ms: int | None
    total_popped: int
    total_acked: int
    total_recovered: int
    total_nacked: int
    #: Total number of messages that became dead.
    total_buried: int
    #: 0: no limit.
    max_deliveries: int
    #: Number of deliveries -> messages, of the thousand oldest messages in flight.
    deliveries: Mapping[int, int]
    #: Consumer -> its messages in flight, of the thousand oldest.
    consumers: Mapping[str, int]
