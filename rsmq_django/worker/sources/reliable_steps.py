"""The steps of an exchange for reliable queues: outcomes, extensions, recovery, pop, and events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from ...core import Message, RsmqError, SettleResult
from ...core.errors import ConnectionFailed
from ...core.log_lines import get_logger
from ...core.reliable import Popped, ReliableMessage, ReliableQueue
from ...core.reliable.replies import Recovered, read_ids_or_none
from ...core.texts import counted
from ...core.transport.call import Call
from ..delivery import Delivery
from ..lease.leases import Leases
from ..lease.settle import SettleCall
from ..lease.steps import SettleStep, is_damage, log_lost
from ..outcomes import NOTHING_RETURNED, Dead, Discarded, Outcome, Postponed, Released, RetryIn, Settlement, Succeeded
from ..report.notifications import one_line
from .reliable_queue import ReliableQueueState

logger = get_logger(__name__)

MAX_REASON_LENGTH = 200


# -- Outcomes ---------------------------------------------------------------------------------------------------------


def settle_calls(settlements: Iterable[Settlement], uncertain: Set[Delivery]) -> list[SettleCall]:
    """Return the calls that settle these outcomes; `uncertain` are messages that an earlier try may have settled."""
    groups: dict[tuple[str, object], list[Settlement]] = {}
    for settlement in settlements:
        name, outcome = settlement.execution.delivery.work_queue.name, settlement.outcome
        key = (name, Succeeded) if outcome is NOTHING_RETURNED else _group_of(name, outcome)
        groups.setdefault(key, []).append(settlement)
    return [SettleCall(group, [], _settle_call(group, uncertain)) for group in groups.values()]


def _group_of(name: str, outcome: Outcome) -> tuple[str, object]:
    """Return the key of outcomes that can be sent together."""
    match outcome:
        case RetryIn(after_s) | Postponed(after_s):
            return name, f"{type(outcome).__name__} {after_s}"
        case Dead(reason, error):
            return name, f"{type(outcome).__name__} {reason}: {one_line(error)}"
    return name, type(outcome)


def _settle_call(group: Sequence[Settlement], uncertain: Set[Delivery]) -> Call[list[SettleResult]]:
    deliveries = [settlement.execution.delivery for settlement in group]
    queue = deliveries[0].work_queue.reliable
    assert queue is not None
    (call,) = _calls(queue, group[0].outcome, [receipt_of(delivery) for delivery in deliveries])
    return replace(call, read=_read_verdicts(deliveries, uncertain))  # type: ignore[return-value,arg-type]


def _calls(queue: ReliableQueue, outcome: Outcome, receipts: Sequence[str]) -> list[Call[list[str] | None]]:
    match outcome:
        case RetryIn(after_s):
            return queue.nack_calls(receipts, after_s)
        case Postponed(after_s):
            return queue.nack_calls(receipts, after_s, is_unused=True)
        case Released():
            return queue.nack_calls(receipts, is_unused=True)
        case Dead(reason, error) if not isinstance(outcome, Discarded):
            return queue.bury_calls(receipts, _printable(f"{reason}: {one_line(error)}"))
    return queue.ack_calls(receipts)  # succeeded, or discarded: the message is deleted


def _read_verdicts(deliveries: Sequence[Delivery], uncertain: Set[Delivery]) -> Callable[[Any], list[SettleResult]]:
    def read(reply: list[bytes] | None) -> list[SettleResult]:
        if reply is not None and len(reply) == len(deliveries):  # each receipt ends one message at most
            return [SettleResult.DONE] * len(reply)
        ended = set(read_ids_or_none(reply) or ())
        return [_verdict(delivery, ended, uncertain) for delivery in deliveries]

    return read


def _verdict(delivery: Delivery, ended: Set[str], uncertain: Set[Delivery]) -> SettleResult:
    if delivery.message.id in ended:
        return SettleResult.DONE
    return SettleResult.MISSING if delivery in uncertain else SettleResult.LEASE_LOST


def receipt_of(delivery: Delivery) -> str:
    """Return the receipt of a delivery, as the scripts of reliable queues read it."""
    message = delivery.message
    return f"{message.id}:{message.receive_count}"


def _printable(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return shown[:MAX_REASON_LENGTH]


@dataclass(slots=True)
class ReliableSettleStep(SettleStep):
    """Sends outcomes."""

    #: Messages that this step may have settled although its reply was lost.
    uncertain: set[Delivery]

    def failed(self, error: RsmqError) -> None:
        """Keep the outcomes for a later exchange."""
        if not is_damage(error):
            self.uncertain.update(settlement.delivery for settlement in self.settle_call.settlements)
        SettleStep.failed(self, error)  # super() without arguments fails in a dataclass with slots


# -- Held messages ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ExtendStep:
    """Extends the messages held of one queue."""

    state: ReliableQueueState
    leases: Leases
    deliveries: list[Delivery]
    call: Call[list[str] | None] = field(init=False)

    def __post_init__(self) -> None:
        (self.call,) = self.state.queue.extend_calls([receipt_of(delivery) for delivery in self.deliveries])

    def done(self, extended: list[str] | None) -> None:
        """Note the new leases."""
        ids = set(extended or ())
        self._renewed(
            [SettleResult.DONE if each.message.id in ids else SettleResult.LEASE_LOST for each in self.deliveries]
        )

    def failed(self, error: RsmqError) -> None:
        """Leave it to the next exchange; messages of a damaged queue may be delivered again when it is repaired."""
        if is_damage(error):
            self.state.damage.note(error)
            self._renewed([SettleResult.LEASE_LOST] * len(self.deliveries))

    def _renewed(self, verdicts: Sequence[SettleResult]) -> None:
        log_lost(self.leases.renewed(self.deliveries, verdicts, time.monotonic()))


# -- Fetching ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ReliableFetch:
    """One fetch: messages that unresponsive consumers left behind, and ready ones."""

    states: Sequence[ReliableQueueState]
    room: int
    #: The messages, once the exchange is read.
    deliveries: list[Delivery] = field(default_factory=list)
    #: Whether one of the steps returned as much as it could.
    is_filled: bool = False
    #: The leases do not begin before this time, on the monotonic clock.
    sent_at: float = field(default_factory=time.monotonic)

    def take(self, messages: Sequence[ReliableMessage], room: int, *, crashes: int = 0) -> list[Delivery]:
        """Return messages of one step as deliveries; `crashes` is how many processes may have died with each."""
        queues = {state.settings.name: state.work_queue for state in self.states}
        taken = [
            Delivery(
                queues[each.queue],
                Message(each.id, each.body, each.deliveries, None),
                each.deliveries - each.unused,
                self.sent_at,
                batch=each.queue,  # the messages of a queue share one lease
                crashes=crashes,
            )
            for each in messages
        ]
        self.deliveries += taken
        self.is_filled |= len(taken) >= room
        return taken


#: A recovered message may have killed its process. It runs alone, so a process takes one at a time.
RECOVERED_AT_ONCE = 1


@dataclass(slots=True)
class RecoverStep:
    """Takes a message that its consumer has not extended for a whole lease."""

    state: ReliableQueueState
    fetch: ReliableFetch
    leases: Leases
    #: Called with the ids of messages that became dead.
    on_dead: Callable[[ReliableQueueState, Sequence[str]], None]
    call: Call[Recovered | None] = field(init=False)

    def __post_init__(self) -> None:
        self.call = self.state.queue.recover_call(RECOVERED_AT_ONCE, self.state.settings.lease_s * 1000)

    def done(self, recovered: Recovered | None) -> None:
        """Hold the message, and plan the next recovery: at once when there may be more."""
        self.state.damage.over()
        if recovered is not None and recovered.dead:
            self.on_dead(self.state, recovered.dead)
        found: Sequence[ReliableMessage] = recovered or ()
        self.leases.add(self.fetch.take(found, RECOVERED_AT_ONCE, crashes=1))
        if len(found) < RECOVERED_AT_ONCE:
            self.state.choose_recovery()
        if found:
            text = "queue %s: recovered %s from unresponsive consumers"
            logger.warning(text, self.state.queue.name, counted(len(found)))

    def failed(self, error: RsmqError) -> None:
        """Try again later."""
        if is_damage(error):
            self.state.damage.note(error)


@dataclass(slots=True)
class PopStep:
    """Pops messages, from the first queue first; with a room of 0 it returns a token that was taken."""

    fetch: ReliableFetch
    room: int
    leases: Leases
    #: Called with the reply when its messages are held, and with the error of a damaged queue.
    on_popped: Callable[[ReliableFetch, Popped], None]
    on_damage: Callable[[RsmqError], None]
    call: Call[Popped] = field(init=False)

    def __post_init__(self) -> None:
        first, *others = [state.queue for state in self.fetch.states]
        self.call = first.pop_call(self.room, others)

    def done(self, popped: Popped) -> None:
        """Hold the messages."""
        for state in self.fetch.states:
            state.damage.over()  # the script has checked all keys of all of them
        self.leases.add(self.fetch.take(popped.messages, self.room))
        self.on_popped(self.fetch, popped)

    def failed(self, error: RsmqError) -> None:
        """Find the damaged queue: the script checks all queues before it pops, and does not say which one it is."""
        if is_damage(error):
            self.on_damage(error)


# -- Events -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class EventStep:
    """Writes events of messages that an earlier exchange settled."""

    call: Call[int]
    queue_name: str
    keep: Callable[[EventStep], None]

    def done(self, _count: int) -> None:
        """Do nothing more."""

    def failed(self, error: RsmqError) -> None:
        """Write them later if they were certainly not written; otherwise leave them out."""
        if isinstance(error, ConnectionFailed):
            self.keep(self)
        else:
            logger.warning("events of queue %s are not in the log: %s", self.queue_name, error)
