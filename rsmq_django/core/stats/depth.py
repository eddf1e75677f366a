"""The depth of a queue, a reliable queue or a topic group: its messages by state, and the age of the oldest one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """The depth of one structure at one moment. Fields that a call does not read have their defaults."""

    #: The server's time, in epoch milliseconds; 0 when it was not read.
    now_ms: int = 0
    #: Messages that can be received now.
    ready: int = 0
    #: Messages that cannot be received now: delayed or in flight.
    hidden: int = 0
    #: Hidden messages that were received before: running, or delayed until the next attempt. None: not read.
    in_flight: int | None = None
    #: Whether `in_flight` was estimated from a sample, because many messages are hidden.
    is_estimated: bool = False
    #: Messages that failed for good. Those of a queue are in its dead-letter queue, and are counted there.
    dead: int = 0
    #: Age of the first ready message in seconds; None without ready messages, or when it is not recorded.
    oldest_ready_s: float | None = None
    #: All messages that any client ever sent, and all deliveries.
    total_sent: int = 0
    total_received: int = 0
    #: When the queue was created, in epoch seconds; None when its client did not record it.
    created_s: int | None = None
    #: Memory in the server, estimated by the server; None when it gives no estimate.
    size_bytes: int | None = None

    @property
    def messages(self) -> int:
        """Return the number of messages that are ready, delayed or in flight."""
        return self.ready + self.hidden

    @property
    def delayed(self) -> int | None:
        """Return the number of hidden messages that were never received; None when that was not read."""
        return None if self.in_flight is None else self.hidden - self.in_flight


def together(seen: Sequence[Depth]) -> Depth:
    """Return the sums of several depths, and the greatest age."""
    is_split = all(each.in_flight is not None for each in seen)
    return Depth(
        ready=sum(each.ready for each in seen),
        hidden=sum(each.hidden for each in seen),
        in_flight=sum(each.in_flight or 0 for each in seen) if is_split else None,
        is_estimated=any(each.is_estimated for each in seen),
        dead=sum(each.dead for each in seen),
        oldest_ready_s=max((each.oldest_ready_s for each in seen if each.oldest_ready_s is not None), default=None),
        total_sent=sum(each.total_sent for each in seen),
        total_received=sum(each.total_received for each in seen),
    )


def peak(before: Depth, later: Depth) -> Depth:
    """Return the largest numbers of two depths of one structure, and the later totals."""
    ready, oldest = max(before.ready, later.ready), (before.oldest_ready_s, later.oldest_ready_s)
    return Depth(
        ready=ready,
        hidden=max(before.messages, later.messages) - ready,
        oldest_ready_s=max((age for age in oldest if age is not None), default=None),
        total_sent=later.total_sent,
        total_received=later.total_received,
    )


def sent_between(before: int | None, now: int | None) -> int | None:
    """Return how many messages were sent between two samples of a total; None when one is missing."""
    if before is None or now is None:
        return None
    # The totals of a queue that was deleted and created again start from 0.
    return now - before if now >= before else now
