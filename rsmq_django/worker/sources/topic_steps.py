"""The steps of an exchange with the topics of one connection: a call each, and what follows from its reply."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ...core import RsmqError, SettleResult
from ...core.errors import QueueNotFound
from ...core.topic import TopicBatch
from ...core.topic.bridge import Forwarded
from ...core.topic.lag import MOST_GROUPS, note_lag_call
from ...core.topic.topic import Topic
from ...core.transport.backoff import ReconnectBackoff
from ...core.transport.call import Call
from ...queues import ensure_queue
from ..delivery import Delivery
from ..lease.leases import Leases
from ..outcomes import NOTHING_RETURNED, Dead, Postponed, Released, RetryIn, Settlement, Succeeded
from .topic_group import BridgeState, ConsumerState, GroupState, ReadPlan

#: Most messages that a bridge moves in one step.
BRIDGE_BATCH = 100


class TopicStep(Protocol):
    """A call and what follows from its reply."""

    @property
    def call(self) -> Call[Any]:
        """Return the call."""

    def done(self, reply: Any) -> None:
        """Act on the reply."""

    def failed(self, error: RsmqError) -> None:
        """Act on an error of this call alone."""

    def lost(self) -> None:
        """Act on the failure of the whole exchange: the call may have been carried out or not."""


# -- Outcomes ---------------------------------------------------------------------------------------------------------


def kind_of(settlement: Settlement) -> tuple[object, ...]:
    """Return the key of outcomes that one call settles: those of one read, with the same next step."""
    delivery, outcome = settlement.execution.delivery, settlement.outcome
    released = delivery.given.released if delivery.given is not None else 0
    if outcome is NOTHING_RETURNED:
        return delivery.batch, Succeeded, released
    match outcome:
        case RetryIn() | Dead():
            return delivery.batch, delivery.message.id
        case Postponed(after_s):
            return delivery.batch, type(outcome), after_s, outcome.has_run, released
    return delivery.batch, type(outcome), released


def settle_call_of(state: ConsumerState, settlements: Sequence[Settlement]) -> Call[list[bool]]:
    """Return the call that settles outcomes of one kind; its reply tells which messages the group still held."""
    deliveries = [each.execution.delivery for each in settlements]
    given = [each.given for each in deliveries if each.given is not None]
    group, outcome = state.group, settlements[0].outcome
    match outcome:
        case RetryIn(after_s):
            (call,) = group.retry_calls(given, after_s=after_s)
        case Dead():  # due at once: the next read moves it to the dead-letter topic
            (call,) = group.retry_calls(given, after_s=0)
        case Postponed(after_s):
            call = group.release_call(given, after_s=after_s)
        case Released():
            call = group.release_call(given)
        case _:
            (call,) = group.ack_calls(given)
    return call


def _verdicts(were_held: Sequence[bool]) -> list[SettleResult]:
    if all(were_held):
        return [SettleResult.DONE] * len(were_held)
    return [SettleResult.DONE if was_held else SettleResult.LEASE_LOST for was_held in were_held]


@dataclass(slots=True)
class TopicSettleStep:
    """Settles messages of one read."""

    state: ConsumerState
    settlements: list[Settlement]
    #: Called with the verdict on each message.
    on_settled: Callable[[ConsumerState, Sequence[Settlement], Sequence[SettleResult]], None]
    #: Called with outcomes that are to be sent again; whether they may have been carried out.
    on_refused: Callable[[ConsumerState, Sequence[Settlement], RsmqError | None], None]
    #: Whether an earlier call of these may have been carried out.
    is_repeat: bool
    call: Call[list[bool]] = field(init=False)

    def __post_init__(self) -> None:
        self.call = settle_call_of(self.state, self.settlements)
        # After a lost reply it is repeated here, where a message that is not in flight any more does not count as lost.
        self.call.repeatable = False

    def done(self, were_held: list[bool]) -> None:
        """Note which messages were settled; of a repeated call it is unknown, and each counts as settled."""
        verdicts = _verdicts([True] * len(were_held) if self.is_repeat else were_held)
        self.on_settled(self.state, self.settlements, verdicts)

    def failed(self, error: RsmqError) -> None:
        """Keep the outcomes until the group can be used again."""
        self.on_refused(self.state, self.settlements, error)

    def lost(self) -> None:
        """Send them again."""
        self.on_refused(self.state, self.settlements, None)


@dataclass(slots=True)
class TopicRenewStep:
    """Renews the leases of messages of one group."""

    state: ConsumerState
    leases: Leases
    deliveries: list[Delivery]
    call: Call[list[bool]] = field(init=False)

    def __post_init__(self) -> None:
        given = [each.given for each in self.deliveries if each.given is not None]
        (self.call,) = self.state.group.retry_calls(given, after_s=self.state.work_queue.lease_s)

    def done(self, were_held: list[bool]) -> None:
        """Note the new leases."""
        self.leases.renewed(self.deliveries, _verdicts(were_held), time.monotonic())

    def failed(self, error: RsmqError) -> None:
        """Leave the renewal to a later exchange: the leases are still due."""
        self.state.damage.note(error)
        self.leases.put_off(time.monotonic())

    def lost(self) -> None:
        """Leave the renewal to the next exchange."""


@dataclass(slots=True)
class BeatStep:
    """Sends a heartbeat of a group, so that it counts as read while its messages run, or says that this ends."""

    state: GroupState
    call: Call[int]

    def done(self, _reply: int) -> None:
        """Do nothing more."""

    def failed(self, error: RsmqError) -> None:
        """Leave it to the next one."""

    def lost(self) -> None:
        """Leave it to the next one."""


@dataclass(slots=True)
class RegisterStep:
    """Adds topics to the list of topics. A server at its memory limit refuses that, and readers continue."""

    call: Call[int]
    names: set[str]
    name: str

    def done(self, _reply: int) -> None:
        """Do not add it again."""
        self.names.discard(self.name)

    def failed(self, error: RsmqError) -> None:
        """Add it later."""

    def lost(self) -> None:
        """Add it later."""


# -- Reads ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ReadStep:
    """Reads messages of a group."""

    state: ConsumerState
    plan: ReadPlan
    on_read: Callable[[ConsumerState, ReadPlan, TopicBatch, float], None]
    call: Call[TopicBatch] = field(init=False)
    #: The leases do not begin before this time, on the monotonic clock.
    sent_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.call = self.state.read_call(self.plan)

    def done(self, batch: TopicBatch) -> None:
        """Hold the messages."""
        self.on_read(self.state, self.plan, batch, self.sent_at)

    def failed(self, error: RsmqError) -> None:
        """Read again later; the other groups continue."""
        self.state.is_drained = self.state.is_empty = False
        self.state.damage.note(error)

    def lost(self) -> None:
        """Read again: messages that this may have read are delivered again after the visibility timeout."""
        self.state.read_soon()


@dataclass(slots=True)
class ForwardStep:
    """Moves messages of a group to a queue."""

    state: BridgeState
    on_forwarded: Callable[[BridgeState, Forwarded], None]
    call: Call[Forwarded | None] = field(init=False)

    def __post_init__(self) -> None:
        call = self.state.bridge.forward_call(BRIDGE_BATCH)
        self.call = Call(call.script, call.keys, call.args, partial(_forwarded, call), subject=call.subject)

    def done(self, forwarded: Forwarded | None) -> None:
        """Note what was moved; create the queue if it is missing, then nothing was."""
        if forwarded is not None:
            self.on_forwarded(self.state, forwarded)
            return
        self.state.is_drained = self.state.is_empty = False
        try:
            ensure_queue(self.state.bridge.queue.name)
        except RsmqError as error:
            self.state.damage.note(error)

    def failed(self, error: RsmqError) -> None:
        """Move again later; nothing was moved."""
        self.state.is_drained = self.state.is_empty = False
        self.state.damage.note(error)

    def lost(self) -> None:
        """Move again: nothing is moved twice."""
        self.state.read_soon()


def _forwarded(call: Call[Forwarded], reply: Any) -> Forwarded | None:
    try:
        return call.read(reply)
    except QueueNotFound:
        return None


# -- Upkeep -----------------------------------------------------------------------------------------------------------

#: Yields calls and receives their replies, errors among them.
Rounds = Generator[Sequence[Call[Any]], Sequence[Any], None]


def trim(topic: Topic) -> Rounds:
    """Apply the retention of a topic, and forget its idle groups."""
    has_more = True
    while has_more:
        ((_dropped, has_more),) = _results((yield [topic.sweep_call()]))
    (status,) = _results((yield [topic.status_call()]))
    idle_s = status.retention.group_ttl_s
    if idle_s is None:
        return
    (groups,) = _results((yield [topic.groups_call()]))
    if idle := [name for name, seconds in groups if seconds >= idle_s]:
        yield [topic.drop_idle_call(name, idle_s) for name in idle]


def note_lags(topic: Topic) -> Rounds:
    """Record the lag of all groups of a topic for charts, including groups without a consumer in this process."""
    (named,) = _results((yield [topic.groups_call()]))
    if not named:
        return
    statuses = yield [topic.group(name).status_call() for name, _idle_s in named[-MOST_GROUPS:]]
    lags = {status.name: status.lag for status in statuses if not isinstance(status, RsmqError)}
    if lags:
        yield [note_lag_call(topic, lags, at_s=time.time())]


def _results(replies: Iterable[Any]) -> list[Any]:
    found = list(replies)
    for reply in found:
        if isinstance(reply, RsmqError):
            raise reply
    return found


class Upkeep:
    """Work on a topic that is done every so often, in the exchanges of its connection."""

    def __init__(self, what: str, topic: Topic, rounds: Callable[[Topic], Rounds], *, every_s: float) -> None:
        self._topic, self._rounds, self._every_s = topic, rounds, every_s
        self._backoff = ReconnectBackoff(f"{what} of {topic!r}", server=topic.client.connection)
        self._running: Rounds | None = None
        self._calls: Sequence[Call[Any]] = ()
        #: When the next calls are due, on the monotonic clock. Not at once: a process that soon ends leaves it out.
        self.due_at = time.monotonic() + 1.0

    def steps(self, now: float) -> list[UpkeepStep]:
        """Return the calls that are due."""
        if now < self.due_at:
            return []
        if self._running is None:
            self._running = self._rounds(self._topic)
            self._calls = next(self._running)
        replies: list[Any] = []
        return [UpkeepStep(self, call, replies) for call in self._calls]

    def replied(self, replies: list[Any]) -> None:
        """Note a reply; after the last one of a round the next round is due."""
        if self._running is None or len(replies) < len(self._calls):
            return
        try:
            self._calls = self._running.send(replies)
            self.due_at = 0.0
        except StopIteration:
            self._backoff.over()
            self.end()
        except RsmqError as error:
            self._backoff.note(error)
            self.end()

    def end(self) -> None:
        """Begin anew when it is time."""
        self._running, self._calls = None, ()
        self.due_at = time.monotonic() + self._every_s


@dataclass(slots=True)
class UpkeepStep:
    """One call of some upkeep."""

    upkeep: Upkeep
    call: Call[Any]
    replies: list[Any]

    def done(self, reply: Any) -> None:
        """Note the reply."""
        self.replies.append(reply)
        self.upkeep.replied(self.replies)

    def failed(self, error: RsmqError) -> None:
        """Note the error."""
        self.done(error)

    def lost(self) -> None:
        """Begin anew later."""
        self.upkeep.end()


def run_rounds(topic: Topic, rounds: Rounds) -> None:
    """Do some upkeep now, in round trips of its own."""
    calls = next(rounds, None)
    while calls is not None:
        try:
            calls = rounds.send(topic.client.run_many(calls))
        except StopIteration:
            return
