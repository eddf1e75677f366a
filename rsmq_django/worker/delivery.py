"""A queue that a worker works on, one message received from it, and the waiter for its acknowledgement."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..conf.settings import QueueSettings, get_settings
from ..core import Message, Queue
from ..core.queue.bands import lane_of, split_band
from ..core.reliable import ReliableQueue

if TYPE_CHECKING:
    from .execute.execution import Execution

#: The lane number of messages without a lane: they come before the lanes and have a turn like one of them.
NO_LANE = -1


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
    execution: Execution | None = None

    @property
    def body_bytes(self) -> int:
        """Return the size of the body as it is in Redis."""
        return len(self.message.body) if self.too_long is None else self.too_long.size_bytes

    def tell_outcome(self) -> None:
        """Release the waiter for the outcome, if there is one."""
        if self.ack_waiter is not None:
            self.ack_waiter.tell()

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

    def __init__(self, *, patience_s: float) -> None:
        self._patience_s = patience_s
        self._is_known = threading.Event()
        self._tell_loop: Callable[[], object] | None = None
        #: Whether the outcome is decided and on its way.
        self.is_awaited = False

    def tell(self) -> None:
        """Release the waiter: Redis knows the outcome, or a damaged queue refuses it."""
        self._is_known.set()
        if self._tell_loop is not None:
            self._tell_loop()

    def wait(self) -> None:
        """Wait for tell() on this thread."""
        self._is_known.wait(self._patience_s)

    async def await_it(self) -> None:
        """See wait(); a coroutine that is cancelled meanwhile has ended anyway."""
        loop, told = asyncio.get_running_loop(), asyncio.Event()

        def tell_loop() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no coroutine waits any more
                loop.call_soon_threadsafe(told.set)

        self._tell_loop = tell_loop  # before the check: a concurrent tell() sees one or the other
        if not self._is_known.is_set():
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(self._patience_s):
                    await told.wait()
