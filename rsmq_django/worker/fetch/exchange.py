"""The fetch as a step of an exchange, exchanges sent and not read yet, and the prepared fetch of an idle worker.

Other steps are in `lease/steps.py` and in `report/`.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ...core import Client, Message, RsmqError
from ...core.keys import paused_key, queues_key
from ...core.queue.replies import first_received_ms, read_message_id
from ...core.transport.call import Argument, Call
from ...core.transport.prepared_calls import ReadiedCalls
from ..delivery import SHORTEST_LEASE_S, Delivery, TooLong
from ..lease.leases import Leases
from ..lease.steps import Step
from ..report.clock import ServerClock
from .polling import PollSchedule
from .queue_selector import FetchOrder, QueueSelector
from .waiting import WaitingNote


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


@dataclass(frozen=True, slots=True)
class FetchParts:
    """What the fetches of one source use."""

    client: Client
    #: Key of the worker's in-flight record.
    inflight_key: str
    selector: QueueSelector
    poll_schedule: PollSchedule
    leases: Leases
    clock: ServerClock
    waiting: WaitingNote
    #: Called with each reply, when its messages are held.
    on_fetched: Callable[[Fetched, FetchOrder], None]
    #: Numbers of fetches, each unique in this worker.
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))


@dataclass(slots=True)
class FetchStep:
    """Fetches messages."""

    parts: FetchParts
    #: The number of calls, and the maximum number of messages of all of them.
    room: int
    at_most: int
    #: How many messages the process holds.
    held: int = 0
    call: Call[Fetched] = field(init=False)
    order: FetchOrder = field(init=False)
    deliveries: list[Delivery] = field(default_factory=list)
    #: The leases do not begin before this time, on the monotonic clock.
    sent_at: float = field(default_factory=time.monotonic)
    _number: int = field(init=False)

    def __post_init__(self) -> None:
        parts, namespace = self.parts, self.parts.client.namespace
        self.order = parts.selector.choose(self.room)
        self._number = next(parts.numbers)
        keys = [parts.inflight_key, queues_key(namespace), paused_key(namespace)]
        args: list[Argument] = [self.room, round(SHORTEST_LEASE_S * 1000), self._number]
        if self.order.is_partial:  # it cannot find out that nothing is ready
            args += (0, "", 0, 0)
        else:
            keys += parts.waiting.keys()
            args += parts.waiting.words(self.held)
        for work_queue, quota in zip(self.order.queues, self.order.limits, strict=True):
            queue = work_queue.queue
            keys += (queue.keys.messages, queue.keys.settings, queue.keys.releases, queue.keys.phantoms)
            args += (queue.vt_unit, queue.name, work_queue.base_name, quota)
        if self.order.batches:
            args += (self.at_most, *self.order.batches)
        self.call = Call("tasks/worker/fetch", tuple(keys), tuple(args), read_fetched)

    def done(self, fetched: Fetched) -> None:
        """Hold the received messages."""
        parts = self.parts
        parts.clock.set(fetched.server_ms, asked_at=self.sent_at)
        if not self.order.is_partial:
            parts.waiting.fetched(fetched.next_ms)
        # A lease begins at the server some time after the request was sent: counting from the request is conservative.
        for portion in fetched.portions:
            self._take(portion, fetched.server_ms)
        parts.leases.add(self.deliveries)
        parts.on_fetched(fetched, self.order)
        if len(self.deliveries) < self.order.room and fetched.next_ms != 0 and not self.order.is_partial:
            parts.poll_schedule.note_drained(self.sent_at)

    def _take(self, portion: QueueFetch, server_ms: int) -> None:
        work_queue, sent_at, add = self.order.queues[portion.position - 1], self.sent_at, self.deliveries.append
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
        if not self.order.is_partial:
            self.parts.waiting.is_noted = self.parts.waiting.is_wanted
        self.parts.poll_schedule.fetch_within(0)


@dataclass(slots=True)
class PendingExchange:
    """A request that was sent, or is ready to be sent at once and without waiting."""

    client: Client
    steps: Sequence[Step]
    #: The step that fetches, if any does.
    fetch: FetchStep | None
    #: When the replies are overdue, on the monotonic clock.
    overdue_at: float = math.inf
    _calls: ReadiedCalls = field(init=False)

    def __post_init__(self) -> None:
        self._calls = ReadiedCalls(self.client, [step.call for step in self.steps])

    def begin(self) -> bool:
        """Send the request; return False when there is no open socket, and nothing was sent.

        Raises OutcomeUnknown when it may have been sent or not.
        """
        sent_at = time.monotonic()
        self.overdue_at = sent_at + self.client.connection.timeout_s
        if self.fetch is not None:
            self.fetch.sent_at = sent_at
        return self._calls.send()

    def fileno(self) -> int:
        """Return the descriptor on which the replies arrive."""
        return self._calls.fileno()

    def give_up(self) -> NoReturn:
        """Close the socket instead of waiting any longer; raises OutcomeUnknown."""
        self._calls.give_up()

    def results(self) -> list[Any]:
        """Wait for the replies and return what each step reads. Raises as Client.run_many() does."""
        return self._calls.results()


class PreparedFetch:
    """A fetch that is ready to be sent, or none.

    It is put together before the worker falls asleep, and sent as soon as a message is published. Otherwise an idle
    worker would do this work between the wake-up and the request, and the task would start later. It is only for a
    worker that holds nothing, so that nothing else has to go along; any other fetch is an ordinary step of an exchange.
    """

    def __init__(self, parts: FetchParts) -> None:
        self._parts = parts
        self._ready: PendingExchange | None = None
        #: Whether the prepared fetch may be sent: it is not kept current while the worker is busy.
        self._is_current = False

    def prepare_fetch(self, room: int, at_most: int) -> None:
        """Prepare a fetch unless a current one exists."""
        if not self._fits(room, at_most):
            step = FetchStep(self._parts, min(room, at_most), at_most)
            self._ready = PendingExchange(self._parts.client, [step], step)
        self._is_current = True

    def put_aside(self) -> None:
        """Send nothing until prepare_fetch() is called again."""
        self._is_current = False

    def _fits(self, room: int, at_most: int) -> bool:
        if self._ready is None:
            return False
        step = self._ready.fetch
        assert step is not None
        is_same = step.order.queues is self._parts.selector.queues  # bands appear and disappear, shares change
        return is_same and (step.room, step.at_most) == (min(room, at_most), at_most)

    def send(self) -> PendingExchange | None:
        """Send the prepared fetch and return it; None when there is none, or no open socket.

        Raises OutcomeUnknown when it may have been sent or not.
        """
        if self._ready is None or not self._is_current:
            return None
        pending_exchange, self._ready = self._ready, None
        return pending_exchange if pending_exchange.begin() else None


# -- The reply of tasks/worker/fetch ----------------------------------------------------------------------------------


def read_fetched(reply: list[Any]) -> Fetched:
    """Read the reply of tasks/worker/fetch."""
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
