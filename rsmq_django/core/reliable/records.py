"""The values that a reliable queue returns: plain, frozen, and free of I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

#: Where a message can be: waiting in line, waiting for its time, with a consumer, or given up.
Kind = Literal["undelivered", "delayed", "delivered", "dead"]
KINDS: tuple[Kind, ...] = ("undelivered", "delayed", "delivered", "dead")


@dataclass(frozen=True, slots=True)
class ReliableMessage:
    """One delivered message."""

    #: Name of the queue that it came from.
    queue: str
    id: str
    body: bytes
    #: This delivery included.
    deliveries: int
    #: How many of them were given back unused.
    unused: int = 0

    @property
    def attempt(self) -> int:
        """Return the number of this delivery without those that were given back unused: 1 for the first."""
        return self.deliveries - self.unused

    @property
    def receipt(self) -> str:
        """Return what is good for this delivery only: not any more when the message was delivered again."""
        return f"{self.id}:{self.deliveries}"

    def text(self) -> str:
        """Return the body as text; bytes that are not UTF-8 become U+FFFD."""
        return self.body.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message as it lies in the queue."""

    id: str
    body: bytes
    #: Server time of the last delivery, of the end of the delay, or of the death; None for an undelivered one.
    at_ms: int | None
    #: Milliseconds since then; negative when that is still to come.
    elapsed_ms: int | None
    deliveries: int
    #: Who holds a delivered one, or why a dead one was buried; "" when nobody said.
    consumer: str


@dataclass(frozen=True, slots=True)
class ReliableStatistics:
    """What there is to know about a queue at this moment."""

    undelivered: int
    delayed: int
    delivered: int
    dead: int
    #: How long ago the oldest delivery was that nobody acknowledged; None without one.
    oldest_delivery_ms: int | None
    total_pushed: int
    total_popped: int
    total_acked: int
    total_recovered: int
    total_nacked: int
    #: How many went to the dead ones.
    total_buried: int
    #: 0: as often as it takes.
    max_deliveries: int
    #: Number of deliveries -> messages, of the thousand oldest delivered ones.
    deliveries: Mapping[int, int]
    #: Consumer -> messages it holds, of the thousand oldest delivered ones.
    consumers: Mapping[str, int]
