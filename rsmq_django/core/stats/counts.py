"""Outcomes of attempts: counts of one task, of one queue in a span of time, and sums of such counts.

Plain values without I/O; `history.py` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .depth import Depth, peak, together
from .histogram import Histogram

#: Messages that a worker was the first to receive are `sent`; the others say how attempts begin and end: `dead` went to
#: the dead-letter queue, `discarded` were deleted instead, `released` were given back unrun or unfinished, `lost` died
#: with their process or lost their lease. `interrupted` counts functions that were interrupted, with any outcome.
COUNTERS = (
    "sent",
    "started",
    "interrupted",
    "succeeded",
    "retried",
    "dead",
    "discarded",
    "released",
    "lost",
    "cancelled",
)
#: The durations that are counted in buckets: from ready to received, and of the function.
HISTOGRAMS = ("wait", "run")


@dataclass(slots=True)
class Counts:
    """Counts of messages and of the outcomes of their attempts."""

    #: Messages of any sender that a worker was the first to receive; messages not yet received are not counted.
    sent: int = 0
    started: int = 0
    #: Functions in which an exception was raised from outside; after each of them the worker process is replaced.
    interrupted: int = 0
    succeeded: int = 0
    retried: int = 0
    dead: int = 0
    discarded: int = 0
    released: int = 0
    lost: int = 0
    cancelled: int = 0
    #: Latencies: from the time when a message could be received to its receive.
    wait: Histogram = field(default_factory=Histogram)
    #: Run times of functions.
    run: Histogram = field(default_factory=Histogram)

    @property
    def failed(self) -> int:
        """Return the number of failed attempts: retried, dead, discarded and lost."""
        return self.retried + self.dead + self.discarded + self.lost

    @property
    def handled(self) -> int:
        """Return how many attempts succeeded or failed."""
        return self.succeeded + self.failed

    @property
    def ended(self) -> int:
        """Return how many attempts ended, with any outcome."""
        return self.handled + self.released + self.cancelled

    def add(self, other: Counts) -> None:
        """Add other counts."""
        # A page adds thousands of them: a loop over COUNTERS takes three times as long.
        self.sent += other.sent
        self.started += other.started
        self.interrupted += other.interrupted
        self.succeeded += other.succeeded
        self.retried += other.retried
        self.dead += other.dead
        self.discarded += other.discarded
        self.released += other.released
        self.lost += other.lost
        self.cancelled += other.cancelled
        self.wait.add(other.wait)
        self.run.add(other.run)


@dataclass(slots=True)
class Slot:
    """One queue in one span of time."""

    begins_s: int
    span_s: int
    #: By dotted path of the task; "" are messages that no task understood.
    tasks: dict[str, Counts] = field(default_factory=dict)
    #: The most of all samples: see `peak()`. None without a sample.
    depth: Depth | None = None
    #: How many messages any client sent; None when that is unknown, because this or the previous sample is missing.
    sent: int | None = None

    @property
    def counts(self) -> Counts:
        """Return the counts of all tasks together."""
        every = Counts()
        for counts in self.tasks.values():
            every.add(counts)
        return every

    def add(self, other: Slot) -> None:
        """Add a later span of the same queue."""
        self._add_numbers(other)
        if other.depth is not None:
            self.depth = peak(self.depth or Depth(), other.depth)

    def add_beside(self, other: Slot) -> None:
        """Add the same span of another queue."""
        self._add_numbers(other)
        if other.depth is not None:
            self.depth = together([self.depth or Depth(), other.depth])

    def _add_numbers(self, other: Slot) -> None:
        for task, counts in other.tasks.items():
            self.tasks.setdefault(task, Counts()).add(counts)
        if other.sent is not None:
            self.sent = (self.sent or 0) + other.sent


def side_by_side(series: Iterable[Sequence[Slot]]) -> list[Slot]:
    """Return one series that holds everything of several queues, read with the same times and step."""
    every: list[Slot] = []
    for slots in series:
        every = every or [Slot(slot.begins_s, slot.span_s) for slot in slots]
        for total, slot in zip(every, slots, strict=True):
            total.add_beside(slot)
    return every


def merged(slots: Iterable[Slot]) -> Slot:
    """Return one slot that holds everything of a series of one queue."""
    every: Slot | None = None
    for slot in slots:
        if every is None:
            every = Slot(slot.begins_s, 0)
        every.add(slot)
        every.span_s += slot.span_s
    return every or Slot(0, 0)
