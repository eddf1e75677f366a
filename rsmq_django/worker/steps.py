"""The parts of one exchange with Redis: endings, renewals, starts and a fetch. Each is a call and how to read it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core import Message, RsmqError, Settlement
from ..core.call import Argument, Call
from ..core.errors import ConnectionFailed, OutcomeUnknown, RedisFailure
from ..core.keys import paused_key, queues_key
from ..core.replies import first_received_ms, read_message_id
from ..log_lines import get_logger
from .delivery import Delivery, TooLong
from .endings import Ending, EndingCall, start, unhold
from .holds import BEAT_EVERY_S, beat_call
from .lineup import Look
from .outcomes import Postponed, Released, RetryIn
from .provision import SHORTEST_LEASE_S
from .recent_successes import RecentStep
from .statistics import ReportStep

if TYPE_CHECKING:
    from .fetcher import Fetcher

logger = get_logger(__name__)


def is_damage(error: RsmqError) -> bool:
    """Say whether an error is about one queue, which others of the same server need not wait for."""
    return not isinstance(error, RedisFailure)


@dataclass(slots=True)
class EndStep:
    """Carries outcomes out."""

    fetcher: Fetcher
    ending_call: EndingCall

    @property
    def endings(self) -> list[Ending]:
        """Return the outcomes."""
        return self.ending_call.endings

    @property
    def call(self) -> Call[list[Settlement]]:
        """Return the call."""
        return self.ending_call.call

    def done(self, verdicts: Sequence[Settlement]) -> None:
        """Forget what has ended, and tell what was lost."""
        self.fetcher.tray.have_arrived()
        self.fetcher.is_drained = False  # what has ended may have sent more since the last look
        self.fetcher.forget([ending.execution.delivery for ending in self.endings], struck=self.ending_call.over)
        if self.fetcher.statistics is not None:
            self.fetcher.statistics.settled(self.endings, verdicts)
        outcome = self.endings[0].outcome  # of many at once, all are of one kind
        if isinstance(outcome, (RetryIn, Postponed)):
            self.fetcher.lookout.look_within(outcome.after_s)
        if Settlement.LEASE_LOST in verdicts and not isinstance(outcome, Released):
            for ending, verdict in zip(self.endings, verdicts, strict=True):
                if verdict is Settlement.LEASE_LOST:
                    self.fetcher.announcer.lost(ending.delivery)
        # MISSING: the reply to an earlier try was lost, or somebody deleted the message. Either way it is gone.

    def failed(self, error: RsmqError) -> None:
        """Keep the outcomes for a later exchange."""
        if is_damage(error):
            self.fetcher.tray.refuse(self.endings, error)
        else:
            self.fetcher.tray.put_back(self.endings)


@dataclass(slots=True)
class AftermathStep:
    """Tidies up after messages that have ended; see aftermath.py."""

    call: Call[Any]

    def done(self, _reply: object) -> None:
        """Nothing remains to be done."""

    def failed(self, error: RsmqError) -> None:
        """Leave it to the time limit of what it would have removed."""
        logger.warning("what a message has left behind stays until it expires: %s", error)


@dataclass(slots=True)
class RenewStep:
    """Hides messages for another lease."""

    fetcher: Fetcher
    deliveries: list[Delivery]
    call: Call[list[Settlement]]

    def done(self, verdicts: Sequence[Settlement]) -> None:
        """Note the new leases."""
        for lost in self.fetcher.leases.renewed(self.deliveries, verdicts, time.monotonic()):
            logger.warning(
                "the lease of message %s of queue %s is lost; its task is told and its result will be discarded",
                lost.message.id,
                lost.work_queue.name,
            )
        gone = [each for each, verdict in zip(self.deliveries, verdicts, strict=True) if verdict is Settlement.MISSING]
        self.fetcher.cancellations.suspect(gone)

    def failed(self, _error: RsmqError) -> None:
        """Leave it to the next exchange: the leases are still due."""


@dataclass(slots=True)
class StartStep:
    """Notes in a result record that an attempt began."""

    ending: Ending
    call: Call[list[Settlement]] = field(init=False)

    def __post_init__(self) -> None:
        self.call = start(self.ending)

    def done(self, verdicts: Sequence[Settlement]) -> None:
        """Do not note it again."""
        self.ending.delivery.start_noted = True

    def failed(self, _error: RsmqError) -> None:
        """Leave it to the next exchange."""


@dataclass(slots=True)
class LetGoStep:
    """Strikes messages off the record that will have no outcome here, and batches of which nothing is left."""

    fetcher: Fetcher
    deliveries: list[Delivery]
    over: list[str]
    call: Call[None] = field(init=False)

    def __post_init__(self) -> None:
        self.call = unhold(self.fetcher.holds_key, self.deliveries, self.over)

    def done(self, _reply: None) -> None:
        """Nothing remains to be done: their leases run out."""

    def failed(self, _error: RsmqError) -> None:
        """Try it again at the next exchange."""
        self.fetcher.tray.let_go(self.deliveries, self.over)


@dataclass(slots=True)
class BeatStep:
    """Sends the worker's own heartbeat, for the case that its supervisor cannot."""

    fetcher: Fetcher
    call: Call[object] = field(init=False)

    def __post_init__(self) -> None:
        self.call = beat_call(self.fetcher.client, [self.fetcher.announcer.worker_id])

    def done(self, _reply: object) -> None:
        """Send the next one later."""
        self.fetcher.next_beat_at = time.monotonic() + BEAT_EVERY_S

    def failed(self, error: RsmqError) -> None:
        """Send it with the next exchange; when it was refused, later: the supervisor says so."""
        if not isinstance(error, ConnectionFailed | OutcomeUnknown):
            self.fetcher.next_beat_at = time.monotonic() + BEAT_EVERY_S


@dataclass(slots=True)
class AskStep:
    """Asks whether messages were cancelled."""

    fetcher: Fetcher
    ids: list[str]
    call: Call[list[bool]]

    def done(self, flags: Sequence[bool]) -> None:
        """Take over the answer; the worker stops what was cancelled."""
        self.fetcher.cancellations.answered(self.ids, flags)

    def failed(self, error: RsmqError) -> None:
        """Ask again at the next exchange; when nobody can answer, at the next suspicion."""
        if is_damage(error):
            self.fetcher.cancellations.refused(error)
        else:
            self.fetcher.cancellations.ask_again(self.ids)


@dataclass(slots=True)
class Portion:
    """What a look took from one queue."""

    #: Position of the queue.
    position: int
    ids: list[str]
    bodies: list[bytes]
    #: For how long each could have been received (ms). Of one that was received before, or whose body is too long, that
    #: is the end of what else the script says about it.
    pasts: list[int | bytes]


@dataclass(slots=True)
class Fetched:
    """What a look at the queues found."""

    server_ms: int
    #: Time until the next message becomes visible; negative when none is waiting at all.
    next_ms: float
    #: How many queues Redis has, our own and others.
    queue_count: int
    #: Positions of queues that do not exist or whose attributes cannot be read.
    unreadable: list[int]
    portions: list[Portion]


@dataclass(slots=True)
class FetchStep:
    """Takes messages."""

    fetcher: Fetcher
    #: How many calls it is for, and how many messages these may take in all.
    room: int
    at_most: int
    call: Call[Fetched] = field(init=False)
    look: Look = field(init=False)
    deliveries: list[Delivery] = field(default_factory=list)
    #: Its leases begin not earlier, on the monotonic clock.
    sent_at: float = field(default_factory=time.monotonic)
    _number: int = field(init=False)

    def __post_init__(self) -> None:
        self.look = self.fetcher.lineup.look(self.room)
        self._number = self.fetcher.next_fetch_number()
        namespace = self.fetcher.client.namespace
        keys = [self.fetcher.holds_key, queues_key(namespace), paused_key(namespace)]
        args: list[Argument] = [self.room, round(SHORTEST_LEASE_S * 1000), self._number]
        for work_queue, quota in zip(self.look.queues, self.look.limits, strict=True):
            queue = work_queue.queue
            keys += (queue.keys.messages, queue.keys.settings, queue.keys.releases, queue.keys.phantoms)
            args += (queue.vt_unit, queue.name, work_queue.base_name, quota)
        if self.look.batches:
            args += (self.at_most, *self.look.batches)
        self.call = Call("worker/fetch", tuple(keys), tuple(args), read_fetched)

    def done(self, fetched: Fetched) -> None:
        """Hold what came."""
        self.fetcher.clock.set(fetched.server_ms, asked_at=self.sent_at)
        # The lease began at the server some time after the request was sent: counting from then errs on the safe side.
        for portion in fetched.portions:
            self._take(portion, fetched.server_ms)
        self.fetcher.leases.hold(self.deliveries)
        self.fetcher.looked(fetched, self.look)
        if len(self.deliveries) < self.look.room and fetched.next_ms != 0 and not self.look.is_partial:
            self.fetcher.lookout.note_drained(self.sent_at)

    def _take(self, portion: Portion, server_ms: int) -> None:
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
        """Look at the next exchange."""
        self.fetcher.lookout.look_within(0)


Step = (
    EndStep
    | AftermathStep
    | RenewStep
    | StartStep
    | LetGoStep
    | BeatStep
    | AskStep
    | FetchStep
    | ReportStep
    | RecentStep
)


def read_fetched(reply: list[Any]) -> Fetched:
    """Read the reply of worker/fetch."""
    portions, at = list[Portion](), 4
    while at < len(reply):
        position, count, first = reply[at], reply[at + 1], at + 2
        at = first + 3 * count
        ids, bodies, pasts = (reply[first + part : at : 3] for part in range(3))
        portions.append(Portion(position, _read_ids(ids), bodies, pasts))
    return Fetched(int(reply[0]), reply[1], reply[2], [int(position) for position in reply[3].split()], portions)


def _read_ids(raw_ids: list[bytes]) -> list[str]:
    try:
        return list(map(bytes.decode, raw_ids))
    except UnicodeDecodeError:
        return list(map(read_message_id, raw_ids))


def _read_refusal(text: bytes) -> tuple[TooLong | None, bytes]:
    """Return why a body was left out, and the rest of the text."""
    if not text.startswith(b"too_long "):
        return None, text
    _, size, limit, rest = text.split(b" ", 3)
    return TooLong(int(size), int(limit)), rest


def _read_history(text: bytes) -> tuple[int, int, int, int | None, int]:
    history, _, waited_ms = text.rpartition(b" ")
    receive_count, released, crashes, first_received = history.split(b" ", 3)
    return int(receive_count), int(released), int(crashes), first_received_ms(first_received), int(waited_ms)
