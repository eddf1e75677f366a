"""Results of operations: plain, frozen values without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ..ids import sent_ms


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which would cost a microsecond: workers make many
class Message:
    """One received message, never changed. Its `id` and `receive_count` are the receipt, the proof of its lease."""

    id: str
    body: bytes
    receive_count: int
    #: Server time of the first receive in epoch milliseconds; None when another client left it out.
    first_received_ms: int | None

    @property
    def sent_ms(self) -> float | None:
        """Return the server time of the send in epoch milliseconds, or None when the id does not carry it."""
        return sent_ms(self.id)

    def text(self) -> str:
        """Return the body as text; bytes that are not UTF-8 become U+FFFD."""
        return self.body.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class QueueAttributes:
    """The settings and counters of a queue as they are stored at this moment."""

    visibility_timeout_s: float
    delay_s: float
    #: -1 means unlimited.
    max_size_bytes: int
    #: Deliveries, not messages: a message delivered three times adds three.
    total_received: int
    total_sent: int
    #: Epoch seconds; None when another client stored a value that is not a time.
    created_s: float | None
    modified_s: float | None
    #: All messages: ready, delayed and in flight.
    messages: int
    #: Messages that cannot be received now: delayed or in flight.
    hidden_messages: int

    @property
    def ready_messages(self) -> int:
        """Return how many messages can be received now."""
        return self.messages - self.hidden_messages


class SettleResult(IntEnum):
    """The result for one message of a batch that ends or changes leases."""

    DONE = 1
    #: No such message: it was deleted before.
    MISSING = 0
    #: It was delivered to another consumer; nothing was changed.
    LEASE_LOST = -1
