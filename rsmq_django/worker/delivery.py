"""What a worker holds: a queue it works on, and one message that it has received from there."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..conf import QueueSettings, get_settings
from ..core import Message, Queue
from ..core.bands import split_band


@dataclass(slots=True)
class WorkQueue:
    """A queue that this worker takes messages from."""

    settings: QueueSettings
    queue: Queue
    #: How long a received message stays hidden; as stored in Redis, read when the worker starts.
    lease_s: float
    #: Key of the record of what this worker holds.
    holds_key: str
    #: The configured queue that this is, or whose priority band it is.
    base_name: str = field(init=False)

    def __post_init__(self) -> None:
        base, priority = split_band(self.name)
        self.base_name = base if priority and base in get_settings().queues else self.name

    @property
    def name(self) -> str:
        """Return the queue's name."""
        return self.settings.name


@dataclass(slots=True, eq=False)
class Delivery:
    """One received message. It is held until its outcome has reached Redis."""

    work_queue: WorkQueue
    message: Message
    #: 1 for the first run; deliveries that were given back unused do not count.
    attempt: int
    #: When the lease was last known to be good, on this process's monotonic clock.
    renewed_at: float
    #: How many processes died while they ran this message.
    crashes: int = 0
    #: Set when somebody else may hold the message by now: the result will be discarded.
    lease_lost: bool = False
    #: Server time at which the function was called, in epoch milliseconds.
    started_ms: float | None = field(default=None)
    start_noted: bool = False

    @property
    def receipt(self) -> tuple[str, int]:
        """Return what proves to Redis that we hold the message."""
        return self.message.id, self.message.receive_count
