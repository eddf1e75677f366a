"""What a worker holds: a queue it works on, and one message that it has received from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...conf import QueueSettings, get_settings
from ...core import Message, Queue
from ...core.bands import lane_of, split_band
from ...core.reliable import ReliableQueue
from ..execute.ack_waiter import AckWaiter

if TYPE_CHECKING:
    from ..execute.execution import Execution


#: What is in no lane stands before the lanes and has its turns like one of them.
NO_LANE = -1


class WorkQueue:
    """A queue that this worker takes messages from."""

    def __init__(self, settings: QueueSettings, queue: Queue, lease_s: float, inflight_key: str) -> None:
        self.settings = settings
        self.queue = queue
        #: How long a received message stays hidden; as stored in Redis, read when the worker starts.
        self.lease_s = lease_s
        #: Key of the record of what this worker holds.
        self.inflight_key = inflight_key
        self.name = settings.name
        #: The configured queue that this is, or whose priority band it is.
        self.base_name = get_settings().base_name(self.name)
        is_part = self.base_name != self.name
        #: Queue and priority, which its lanes have in common. A configured queue may be called like a lane of none.
        self.band = split_band(self.name) if is_part else (self.name, 0)
        lane = lane_of(self.name) if is_part else None
        self.lane = NO_LANE if lane is None else lane
        #: Whether bodies are signed or encrypted.
        self.is_sealed = settings.is_sealed
        #: The reliable queue that this stands for: `queue` gives nothing but the name then.
        self.reliable: ReliableQueue | None = None


@dataclass(frozen=True, slots=True)
class TooLong:
    """A body that is longer than its queue allows. The server kept it: the message has an empty one."""

    size_bytes: int
    #: What the queue allows, or what a worker reads at most.
    limit_bytes: int


@dataclass(slots=True, eq=False)
class Delivery:
    """One received message. It is held until its outcome has reached Redis."""

    work_queue: WorkQueue
    message: Message
    #: 1 for the first run; deliveries that were given back unused do not count.
    attempt: int
    #: When the lease was last known to be good, on this process's monotonic clock.
    renewed_at: float
    #: Under which name the record of what this worker holds lists it, with others of the same fetch and queue.
    batch: str = ""
    #: How many processes died while they ran this message.
    crashes: int = 0
    #: How long it could have been received before it was; None when its score tells no time.
    wait_us: int | None = None
    #: Why its body is not here; None for all bodies of a length that the queue allows.
    too_long: TooLong | None = None
    #: Set when somebody else may hold the message by now: the result will be discarded.
    lease_lost: bool = False
    #: Set when somebody has cancelled the task: its message is gone, and its result says so.
    cancelled: bool = False
    #: Server time at which the function was called, in epoch milliseconds.
    started_ms: float | None = None
    start_noted: bool = False
    #: Where the board says that it runs.
    slot: int | None = None
    #: Told when Redis knows the outcome; None unless somebody waits for that.
    ack_waiter: AckWaiter | None = None
    #: The attempt at it, from its begin until Redis knows its outcome.
    execution: Execution | None = None

    @property
    def body_bytes(self) -> int:
        """Return the size of the body as it is in Redis."""
        return len(self.message.body) if self.too_long is None else self.too_long.size_bytes

    def tell_outcome(self) -> None:
        """Let go on who waits for Redis to know the outcome."""
        if self.ack_waiter is not None:
            self.ack_waiter.tell()

    @property
    def receipt(self) -> tuple[str, int]:
        """Return what proves to Redis that we hold the message."""
        return self.message.id, self.message.receive_count
