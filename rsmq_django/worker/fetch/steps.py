"""The steps of one exchange with Redis: outcomes, renewals, starts and a fetch. Each is a call and its reader."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core import Message, RsmqError, SettleResult
from ...core.errors import ConnectionFailed, OutcomeUnknown, RedisFailure
from ...core.keys import paused_key, queues_key
from ...core.log_lines import get_logger
from ...core.queue.replies import first_received_ms, read_message_id
from ...core.transport.call import Argument, Call
from ..delivery import Delivery, TooLong
from ..lease.inflight import BEAT_EVERY_S, beat_call
from ..lease.pending import Settlement
from ..lease.settle import SettleCall, start, unhold
from ..outcomes import Postponed, Released, RetryIn
from ..report.event_log import RecentStep
from ..report.statistics import ReportStep
from .queue_selector import FetchOrder
from .queues import SHORTEST_LEASE_S

if TYPE_CHECKING:
    from ..sources.queues import QueueSource

logger = get_logger(__name__)


def is_damage(error: RsmqError) -> bool:
    """Return whether an error concerns one queue only, so that other queues of the server can continue."""
    return not isinstance(error, RedisFailure)


@dataclass(slots=True)
class SettleStep:
    """Sends outcomes."""

    source: QueueSource
    settle_call: SettleCall

    @property
    def settlements(self) -> list[Settlement]:
        """Return the outcomes."""
        return self.settle_call.settlements

    @property
    def call(self) -> Call[list[SettleResult]]:
        """Return the call."""
        return self.settle_call.call

    def done(self, verdicts: Sequence[SettleResult]) -> None:
        """Forget settled messages, and report lost leases."""
        self.source.pending.have_arrived()
        self.source.is_drained = False  # tasks that have ended may have sent messages since the last fetch
        self.source.forget(
            [settlement.execution.delivery for settlement in self.settlements], struck=self.settle_call.over
        )
        if self.source.statistics is not None:
            self.source.statistics.settled(self.settlements, verdicts)
        outcome = self.settlements[0].outcome  # a step with several outcomes has one kind only
        if isinstance(outcome, (RetryIn, Postponed)):
            self.source.poll_schedule.look_within(outcome.after_s)
        if SettleResult.LEASE_LOST in verdicts and not isinstance(outcome, Released):
            for settlement, verdict in zip(self.settlements, verdicts, strict=True):
                if verdict is SettleResult.LEASE_LOST:
                    self.source.notifier.lost(settlement.delivery)
        # MISSING: the reply to an earlier try was lost, or the message was deleted. In both cases it is gone.

    def failed(self, error: RsmqError) -> None:
        """Keep the outcomes for a later exchange."""
        if is_damage(error):
            self.source.pending.refuse(self.settlements, error)
        else:
            self.source.pending.put_back(self.settlements)


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

    source: QueueSource
    deliveries: list[Delivery]
    call: Call[list[SettleResult]]

    def done(self, verdicts: Sequence[SettleResult]) -> None:
        """Note the new leases."""
        for lost in self.source.leases.renewed(self.deliveries, verdicts, time.monotonic()):
            logger.warning(
                "the lease of message %s of queue %s is lost; its task is notified and its result will be discarded",
                lost.message.id,
                lost.work_queue.name,
            )
        gone = [
            each for each, verdict in zip(self.deliveries, verdicts, strict=True) if verdict is SettleResult.MISSING
        ]
        self.source.cancellations.suspect(gone)

    def failed(self, _error: RsmqError) -> None:
        """Leave the renewal to the next exchange: the leases are still due."""


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

    source: QueueSource
    deliveries: list[Delivery]
    over: list[str]
    call: Call[None] = field(init=False)

    def __post_init__(self) -> None:
        self.call = unhold(self.source.inflight_key, self.deliveries, self.over)

    def done(self, _reply: None) -> None:
        """Do nothing more: the leases expire."""

    def failed(self, _error: RsmqError) -> None:
        """Try again at the next exchange."""
        self.source.pending.abandon(self.deliveries, self.over)


@dataclass(slots=True)
class BeatStep:
    """Sends the worker's own heartbeat, in case its supervisor cannot."""

    source: QueueSource
    call: Call[object] = field(init=False)

    def __post_init__(self) -> None:
        self.call = beat_call(self.source.client, [self.source.notifier.worker_id])

    def done(self, _reply: object) -> None:
        """Send the next one later."""
        self.source.next_beat_at = time.monotonic() + BEAT_EVERY_S

    def failed(self, error: RsmqError) -> None:
        """Send it with the next exchange; after a refusal, later: the supervisor logs it."""
        if not isinstance(error, ConnectionFailed | OutcomeUnknown):
            self.source.next_beat_at = time.monotonic() + BEAT_EVERY_S


@dataclass(slots=True)
class AskStep:
    """Asks whether messages were cancelled."""

    source: QueueSource
    ids: list[str]
    call: Call[list[bool]]

    def done(self, flags: Sequence[bool]) -> None:
        """Store the answer; the worker stops cancelled tasks."""
        self.source.cancellations.answered(self.ids, flags)

    def failed(self, error: RsmqError) -> None:
        """Ask again at the next exchange; if the key is damaged, at the next suspicion."""
        if is_damage(error):
            self.source.cancellations.refused(error)
        else:
            self.source.cancellations.ask_again(self.ids)


@dataclass(slots=True)
class QueueFetch:
    """The messages of a fetch from one queue."""

    #: Position of the queue.
    position: int
    ids: list[str]
    bodies: list[bytes]
    #: How long each message had been ready (ms). For a message that was received before, or whose body is too long,
    #: this follows the other things that the script reports about it.
    pasts: list[int | bytes]


@dataclass(slots=True)
class Fetched:
    """The reply to a fetch."""

    server_ms: int
    #: Time until the next message becomes visible; negative when there is none at all.
    next_ms: float
    #: How many queues Redis has, of this project and of others.
    queue_count: int
    #: Positions of queues that do not exist or whose attributes cannot be read.
    unreadable: list[int]
    portions: list[QueueFetch]


@dataclass(slots=True)
class FetchStep:
    """Fetches messages."""

    source: QueueSource
    #: The number of calls, and the maximum number of messages of all of them.
    room: int
    at_most: int
    call: Call[Fetched] = field(init=False)
    look: FetchOrder = field(init=False)
    deliveries: list[Delivery] = field(default_factory=list)
    #: The leases do not begin before this time, on the monotonic clock.
    sent_at: float = field(default_factory=time.monotonic)
    _number: int = field(init=False)

    def __post_init__(self) -> None:
        self.look = self.source.selector.look(self.room)
        self._number = self.source.next_fetch_number()
        namespace = self.source.client.namespace
        keys = [self.source.inflight_key, queues_key(namespace), paused_key(namespace)]
        args: list[Argument] = [self.room, round(SHORTEST_LEASE_S * 1000), self._number]
        for work_queue, quota in zip(self.look.queues, self.look.limits, strict=True):
            queue = work_queue.queue
            keys += (queue.keys.messages, queue.keys.settings, queue.keys.releases, queue.keys.phantoms)
            args += (queue.vt_unit, queue.name, work_queue.base_name, quota)
        if self.look.batches:
            args += (self.at_most, *self.look.batches)
        self.call = Call("tasks/worker/fetch", tuple(keys), tuple(args), read_fetched)

    def done(self, fetched: Fetched) -> None:
        """Hold the received messages."""
        self.source.clock.set(fetched.server_ms, asked_at=self.sent_at)
        # A lease begins at the server some time after the request was sent: counting from the request is conservative.
        for portion in fetched.portions:
            self._take(portion, fetched.server_ms)
        self.source.leases.hold(self.deliveries)
        self.source.looked(fetched, self.look)
        if len(self.deliveries) < self.look.room and fetched.next_ms != 0 and not self.look.is_partial:
            self.source.poll_schedule.note_drained(self.sent_at)

    def _take(self, portion: QueueFetch, server_ms: int) -> None:
        work_queue, sent_at, add = self.look.queues[portion.position - 1], self.sent_at, self.deliveries.append
        batch = f"{self._number} {work_queue.name}"
        for message_id, body, past in zip(portion.ids, portion.bodies, portion.pasts, strict=True):
            if isinstance(past, int):
                message, attempt, crashes, waited_ms = Message(message_id, body, 1, server_ms), 1, 0, past
                too_long = None
            else:
                too_long, past = _read_refusal(past)
                receive_count, released, crashes, first_ms, waited_ms = _read_history(past)
                message, attempt = Message(message_id, body, receive_count, first_ms), receive_count - released
            wait_us = waited_ms * 1000 if waited_ms >= 0 else None
            add(Delivery(work_queue, message, attempt, sent_at, batch, crashes, wait_us, too_long))

    def failed(self, _error: RsmqError) -> None:
        """Fetch again at the next exchange."""
        self.source.poll_schedule.look_within(0)


Step = (
    SettleStep
    | CleanupStep
    | RenewStep
    | StartStep
    | AbandonStep
    | BeatStep
    | AskStep
    | FetchStep
    | ReportStep
    | RecentStep
)


def read_fetched(reply: list[Any]) -> Fetched:
    """Read the reply of worker/fetch."""
    portions, at = list[QueueFetch](), 4
    while at < len(reply):
        position, count, first = reply[at], reply[at + 1], at + 2
        at = first + 3 * count
        ids, bodies, pasts = (reply[first + part : at : 3] for part in range(3))
        portions.append(QueueFetch(position, _read_ids(ids), bodies, pasts))
    return Fetched(int(reply[0]), reply[1], reply[2], [int(position) for position in reply[3].split()], portions)


def _read_ids(raw_ids: list[bytes]) -> list[str]:
    try:
        return list(map(bytes.decode, raw_ids))
    except UnicodeDecodeError:
        return list(map(read_message_id, raw_ids))


def _read_refusal(text: bytes) -> tuple[TooLong | None, bytes]:
    """Return why a body was omitted, and the rest of the text."""
    if not text.startswith(b"too_long "):
        return None, text
    _, size, limit, rest = text.split(b" ", 3)
    return TooLong(int(size), int(limit)), rest


def _read_history(text: bytes) -> tuple[int, int, int, int | None, int]:
    history, _, waited_ms = text.rpartition(b" ")
    receive_count, released, crashes, first_received = history.split(b" ", 3)
    return int(receive_count), int(released), int(crashes), first_received_ms(first_received), int(waited_ms)
