"""What a worker has of one message: its queue, the delivery, the function that it asks for, and the attempt at it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..conf.settings import QueueSettings, get_settings
from ..core import Message, Queue
from ..core.queue.bands import lane_of, split_band
from ..core.reliable import ReliableQueue
from ..core.topic import ConsumerGroup, TopicMessage
from ..queues import get_queue
from ..tasks.compat import TaskResult
from ..tasks.converters import Converter
from ..tasks.envelope import Envelope
from ..tasks.membership import Membership
from ..tasks.options import TaskOptions
from ..tasks.registry import Function
from ..tasks.task import Task
from ..tasks.typed_arguments import TypedArguments

#: The lane number of messages without a lane: they come before the lanes and have a turn like one of them.
NO_LANE = -1
#: Messages of a queue with a visibility timeout of 0 are leased, too.
SHORTEST_LEASE_S = 1.0

#: Names of reliable queues in the slots of limits; the lease in milliseconds and the name follow.
RELIABLE = "reliable:"


class WorkQueue:
    """A queue that this worker takes messages from."""

    def __init__(self, settings: QueueSettings, queue: Queue, lease_s: float, inflight_key: str) -> None:
        self.settings = settings
        self.queue = queue
        #: How long a received message stays invisible; as stored in Redis, read when the worker starts.
        self.lease_s = lease_s
        #: Key of the worker's in-flight record.
        self.inflight_key = inflight_key
        self.name = settings.name
        #: The name of the configured queue, which is this queue or the base of this priority band.
        self.base_name = get_settings().base_name(self.name)
        is_part = self.base_name != self.name
        #: Queue and priority, common to all its lanes. The name of a configured queue may look like a lane.
        self.band = split_band(self.name) if is_part else (self.name, 0)
        lane = lane_of(self.name) if is_part else None
        self.lane = NO_LANE if lane is None else lane
        #: Whether bodies are signed or encrypted.
        self.is_sealed = settings.is_sealed
        #: The reliable queue, if this is one: `queue` is only used for its name then.
        self.reliable: ReliableQueue | None = None
        #: The group of a topic, if this is one, and the function of all its messages.
        self.group: ConsumerGroup | None = None
        self.handler: Handler | None = None

    @property
    def signed_namespace(self) -> str:
        """Return the namespace that signatures name: of a shard, that of the first one."""
        queue = get_queue(self.name, shard=0) if self.settings.shard else self.queue
        return queue.client.namespace

    @property
    def name_in_limits(self) -> str:
        """Return the name with which a slot of a limit finds the lease of its message, see limits/parts/places.lua."""
        return self.name if self.reliable is None else f"{RELIABLE}{round(self.lease_s * 1000)}:{self.name}"


@dataclass(frozen=True, slots=True)
class TooLong:
    """A body that is longer than its queue allows. The server did not send it: the message has an empty body."""

    size_bytes: int
    #: The limit of the queue, or the maximum that a worker reads.
    limit_bytes: int


@dataclass(slots=True, eq=False)
class Delivery:
    """One received message. It is held until its outcome has reached Redis."""

    work_queue: WorkQueue
    message: Message
    #: 1 for the first run; released deliveries do not count.
    attempt: int
    #: When the lease was last known to be valid, on this process's monotonic clock.
    renewed_at: float
    #: The name of its batch in the in-flight record: messages of the same fetch and queue.
    batch: str = ""
    #: How many processes died while they ran this message.
    crashes: int = 0
    #: How long it was ready before it was received (latency); None when its score is not a time.
    wait_us: int | None = None
    #: Why the body is missing; None if its length is within the limit.
    too_long: TooLong | None = None
    #: Set when another worker may hold the message by now: the result will be discarded.
    lease_lost: bool = False
    #: Set when the task was cancelled: its message is gone, and its result says so.
    cancelled: bool = False
    #: Server time at which the function was called, in epoch milliseconds.
    started_ms: float | None = None
    start_noted: bool = False
    #: Its slot in the shared state, while it runs.
    slot: int | None = None
    #: The waiter for the outcome; None unless a thread or coroutine waits for it.
    ack_waiter: AckWaiter | None = None
    #: The attempt at it, from its begin until Redis knows its outcome.
    execution: AttemptState | None = None
    #: The message as its function gets it, if it is one of a topic.
    given: TopicMessage | None = None

    @property
    def body_bytes(self) -> int:
        """Return the size of the body as it is in Redis."""
        return len(self.message.body) if self.too_long is None else self.too_long.size_bytes

    def release_waiter(self) -> None:
        """Release the waiter for the outcome, if there is one."""
        if self.ack_waiter is not None:
            self.ack_waiter.release()

    @property
    def receipt(self) -> tuple[str, int]:
        """Return the receipt, which proves the lease to Redis."""
        return self.message.id, self.message.receive_count


class AckWaiter:
    """Waits until a message with `ack="each"` is settled: only then its slot runs the next message.

    So a process that is killed repeats no more messages than it runs at a time. A slot waits for at most one lease:
    after that another worker may receive the message, and waiting would prevent no repetition. It is told by the
    worker's main thread and awaited by the thread or coroutine that ran the message.
    """

    def __init__(self, *, most_s: float) -> None:
        self._most_s = most_s
        self._is_released = threading.Event()
        self._release_on_loop: Callable[[], object] | None = None
        #: Whether the outcome is decided and on its way.
        self.is_awaited = False

    def release(self) -> None:
        """Release the waiter: Redis knows the outcome, or a damaged queue refuses it."""
        self._is_released.set()
        if self._release_on_loop is not None:
            self._release_on_loop()

    def wait(self) -> None:
        """Wait for release() on this thread."""
        self._is_released.wait(self._most_s)

    async def await_release(self) -> None:
        """See wait(); a coroutine that is cancelled meanwhile has ended anyway."""
        loop, released = asyncio.get_running_loop(), asyncio.Event()

        def release_on_loop() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no coroutine waits any more
                loop.call_soon_threadsafe(released.set)

        self._release_on_loop = release_on_loop  # before the check: a concurrent release() sees one or the other
        if not self._is_released.is_set():
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(self._most_s):
                    await released.wait()


class TimeLimit:
    """A deadline for a call on a thread. The pool reads it from another thread, and interrupts overdue functions.

    Nothing wakes the pool when a call begins: it never sleeps for longer than the shortest limit of the calls that it
    has handed out and that have not begun.
    """

    __slots__ = ("deadline", "timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        #: Monotonic time; infinite before the call began, after it has ended, and once the interruption was raised.
        self.deadline = math.inf

    def begin(self) -> None:
        """Note that the call begins."""
        self.deadline = time.monotonic() + self.timeout_s


@dataclass(frozen=True, slots=True)
class Handler:
    """The function that a message asks for, and the properties common to all its messages."""

    #: Its dotted path.
    path: str
    func: Function
    options: TaskOptions
    is_async: bool
    #: None for the consumer of a raw queue.
    task: Task[..., Any] | None = None
    #: How long a finished result is kept; 0 for messages without one.
    keep_result_s: int = 0
    #: Its queue is signed or encrypted: a message from a queue without keys must not run it.
    is_sealed: bool = False
    #: A call needs nothing around it, unless the message itself asks for a feature.
    is_plain: bool = False
    #: The converters of arguments and return values; None where they travel as they are.
    arguments: TypedArguments | None = None
    returned: Converter | None = None


class Notifications(Protocol):
    """What an attempt needs of the notifications of its worker."""

    worker_id: str

    def task_result(self, attempt: AttemptState) -> TaskResult[..., Any]:
        """Return the result of the task that signals are sent with."""


class AttemptState:
    """The state of one attempt at one message; `Execution` runs it."""

    __slots__ = (
        "args",
        "asked_to_end_with",
        "began_at",
        "delivery",
        "ended_at",
        "envelope",
        "finished_ms",
        "handler",
        "interrupted",
        "is_worker_stopping",
        "keep_result_s",
        "kwargs",
        "max_attempts",
        "meta",
        "notifier",
        "path",
        "places",
        "run_us",
        "takes_from",
        "task_result",
        "thread_id",
        "time_limit",
        "was_interrupted",
    )

    delivery: Delivery
    notifier: Notifications
    #: The function; None when the message cannot be read.
    handler: Handler | None
    #: Arguments of the function; set when the message has a handler.
    args: list[Any]
    kwargs: dict[str, Any]
    #: The dotted path of the function; "" when the message does not name one.
    path: str
    #: The task call; None when the message could not be decoded as one.
    envelope: Envelope | None
    #: Options of features for the call; None when it uses none.
    meta: dict[str, Any] | None
    #: The membership of a call whose workflow provides its first argument when it runs; else None.
    takes_from: Membership | None
    max_attempts: int
    #: Keys of the limits in which it may hold a slot until it ends; see execute/limits.py.
    places: tuple[str, ...]
    #: How long the finished result is kept; 0 for messages without one.
    keep_result_s: int
    #: When the function was called and when it ended, on the monotonic clock.
    began_at: float
    ended_at: float | None
    #: Run time of the function; None until it has ended.
    run_us: int | None
    #: Server time at which its outcome was known.
    finished_ms: float | None
    #: Limits the time of the function on a thread; None without a limit.
    time_limit: TimeLimit | None
    #: The thread that runs the function, and the exception to interrupt it with; see execute/interrupt.py.
    thread_id: int | None
    asked_to_end_with: type[BaseException] | None
    was_interrupted: bool
    #: Set when the worker begins to stop: the message is given back if its function has not been called.
    is_worker_stopping: bool
    #: Set when the worker is stopping and does not wait for it any more.
    interrupted: bool
    #: Made when a signal or the task's context first asks for it.
    task_result: TaskResult[..., Any] | None

    @property
    def shares_call_with(self) -> Sequence[AttemptState]:
        """Return the attempts that the call of the function is for: this one, or all of a batch."""
        return (self,)

    @property
    def task_id(self) -> str:
        """Return the id of the task, which all its attempts share; without one, the id of the message."""
        envelope = self.envelope
        return envelope.id if envelope is not None else self.delivery.message.id

    @property
    def dead_letter_queue(self) -> str | None:
        """Return the dead-letter queue of the message; None if the message is deleted when it fails for good.

        This is the task's own dead-letter queue, or that of its queue. A message that came from the former, or from a
        queue that follows it in the chain of dead-letter queues, moves to the next one. So no message goes in circles.
        """
        options = self.handler.options if self.handler is not None else None
        following = self.delivery.work_queue.settings.dead_letter
        if options is None or options.dead_letter_queue is None:
            return following
        own = options.named_dead_letters
        is_there = own is not None and self.delivery.work_queue.base_name in get_settings().dead_letter_chain(own)
        return following if is_there else own

    def check_reading(self) -> None:
        """End the attempt while its argument is being read if it was interrupted or the worker is stopping."""
        if self.asked_to_end_with is not None:
            raise self.asked_to_end_with
        if self.is_worker_stopping:
            self.interrupted = True
            raise _WorkerStops


class _WorkerStops(Exception):
    """The worker began to stop before the function was called."""
