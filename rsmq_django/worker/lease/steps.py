"""The steps of an exchange that concern messages held here: outcomes, renewals, starts, heartbeats, cancellations.

Each step is a call and what follows from its reply.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...core import RsmqError, SettleResult
from ...core.errors import ConnectionFailed, OutcomeUnknown, PermissionDenied, RedisFailure
from ...core.log_lines import get_logger
from ...core.transport.call import Call
from ..delivery import Delivery
from ..outcomes import Settlement
from .inflight import HEARTBEAT_EVERY_S, Heartbeat
from .leases import Cancellations, Leases
from .pending import PendingSettlements
from .settle import SettleCall, remove_inflight, start

logger = get_logger(__name__)


class Step(Protocol):
    """A part of an exchange: a call, and what follows from its reply."""

    @property
    def call(self) -> Call[Any]:
        """Return the call."""

    def done(self, reply: Any, /) -> None:
        """Take the result of the call."""

    def failed(self, error: RsmqError, /) -> None:
        """Note that the call was refused, or that its outcome is unknown."""


def is_damage(error: RsmqError) -> bool:
    """Return whether an error concerns one queue only, so that other queues of the server can continue."""
    return not isinstance(error, RedisFailure)


def is_of_outcome(error: RsmqError) -> bool:
    """Return whether an error may concern one outcome only: the user may have no right to its dead-letter queue."""
    return is_damage(error) or isinstance(error, PermissionDenied)


@dataclass(slots=True)
class SettleStep:
    """Sends outcomes."""

    settle_call: SettleCall
    pending: PendingSettlements
    #: Called with the verdicts of Redis.
    on_settled: Callable[[SettleCall, Sequence[SettleResult]], None]
    #: Whether the server has carried it out.
    is_done: bool = field(default=False, init=False)

    @property
    def call(self) -> Call[list[SettleResult]]:
        """Return the call."""
        return self.settle_call.call

    def done(self, verdicts: Sequence[SettleResult]) -> None:
        """Note that the outcomes were delivered."""
        self.is_done = True
        self.pending.have_arrived()
        self.on_settled(self.settle_call, verdicts)

    def failed(self, error: RsmqError) -> None:
        """Keep the outcomes for a later exchange."""
        if is_of_outcome(error):
            self.pending.refuse(self.settle_call.settlements, error)
        else:
            self.pending.put_back(self.settle_call.settlements)


@dataclass(slots=True)
class CleanupStep:
    """Removes locks and tags of settled messages."""

    call: Call[Any]

    def done(self, _reply: object) -> None:
        """Do nothing more."""

    def failed(self, error: RsmqError) -> None:
        """Leave locks and tags to their expiry."""
        logger.warning("cleanup failed; locks and tags of the message will expire: %s", error)


@dataclass(slots=True)
class RenewStep:
    """Renews leases."""

    leases: Leases
    cancellations: Cancellations
    deliveries: list[Delivery]
    call: Call[list[SettleResult]]

    def done(self, verdicts: Sequence[SettleResult]) -> None:
        """Note the new leases."""
        log_lost(self.leases.renewed(self.deliveries, verdicts, time.monotonic()))
        gone = [
            each for each, verdict in zip(self.deliveries, verdicts, strict=True) if verdict is SettleResult.MISSING
        ]
        self.cancellations.suspect(gone)

    def failed(self, error: RsmqError) -> None:
        """Leave the renewal to the next exchange, or of a damaged queue to a later one: the leases are still due."""
        if is_damage(error):
            self.leases.put_off(time.monotonic())


def log_lost(deliveries: Sequence[Delivery]) -> None:
    """Log messages whose leases are lost."""
    for lost in deliveries:
        logger.warning(
            "the lease of message %s of queue %s is lost; its task is notified and its result will be discarded",
            lost.message.id,
            lost.work_queue.name,
        )


@dataclass(slots=True)
class StartStep:
    """Notes in the result record that an attempt began."""

    settlement: Settlement
    call: Call[list[SettleResult]] = field(init=False)

    def __post_init__(self) -> None:
        self.call = start(self.settlement)

    def done(self, verdicts: Sequence[SettleResult]) -> None:
        """Do not note it again."""
        self.settlement.delivery.start_noted = True

    def failed(self, _error: RsmqError) -> None:
        """Leave it to the next exchange."""


@dataclass(slots=True)
class AbandonStep:
    """Removes messages without an outcome from the in-flight record, and batches without remaining messages."""

    pending: PendingSettlements
    inflight_key: str
    deliveries: list[Delivery]
    over: list[str]
    call: Call[None] = field(init=False)

    def __post_init__(self) -> None:
        self.call = remove_inflight(self.inflight_key, self.deliveries, self.over)

    def done(self, _reply: None) -> None:
        """Do nothing more: the leases expire."""

    def failed(self, _error: RsmqError) -> None:
        """Try again at the next exchange."""
        self.pending.abandon(self.deliveries, self.over)


@dataclass(slots=True)
class HeartbeatStep:
    """Sends the worker's own heartbeat, in case its supervisor cannot."""

    heartbeat: Heartbeat
    call: Call[object] = field(init=False)

    def __post_init__(self) -> None:
        self.call = self.heartbeat.call()

    def done(self, _reply: object) -> None:
        """Send the next one later."""
        self.heartbeat.next_at = time.monotonic() + HEARTBEAT_EVERY_S

    def failed(self, error: RsmqError) -> None:
        """Send it with the next exchange; after a refusal, later: the supervisor logs it."""
        if not isinstance(error, ConnectionFailed | OutcomeUnknown):
            self.heartbeat.next_at = time.monotonic() + HEARTBEAT_EVERY_S


@dataclass(slots=True)
class CancellationStep:
    """Asks whether messages were cancelled."""

    cancellations: Cancellations
    ids: list[str]
    call: Call[list[bool]]

    def done(self, flags: Sequence[bool]) -> None:
        """Store the answer; the worker stops cancelled tasks."""
        self.cancellations.answered(self.ids, flags)

    def failed(self, error: RsmqError) -> None:
        """Ask again at the next exchange; if the key is damaged, at the next suspicion."""
        if is_damage(error):
            self.cancellations.refused(error)
        else:
            self.cancellations.ask_again(self.ids)
