"""Time limits of functions on threads: interrupts a function at its deadline, and again until it ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from ...tasks.retry import TaskTimeout

#: An interrupted function has this long to clean up; then it is interrupted again, until it has ended.
INTERRUPT_EVERY_S = 1.0


class TimeLimit:
    """A deadline for the block it guards. The pool reads it from another thread, and interrupts overdue functions."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        #: Monotonic time; infinite before the block began, after it has ended, and once the interruption was raised.
        self.deadline = math.inf
        #: Called when the deadline is known, so that the pool does not sleep past it.
        self.on_start: Callable[[], None] | None = None

    def __enter__(self) -> None:
        self.deadline = time.monotonic() + self._timeout_s
        if self.on_start is not None:
            self.on_start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.deadline = math.inf


class LimitedCall(Protocol):
    """A call of a function on a thread."""

    time_limit: TimeLimit | None

    def interrupt(self, kind: type[BaseException]) -> bool: ...


Call = TypeVar("Call", bound=LimitedCall)


class Interruptions(Generic[Call]):
    """The interrupted functions of one pool that have not ended. Only the main thread uses it."""

    def __init__(self, on_first: Callable[[Call], None]) -> None:
        self._on_first = on_first
        #: The exception, and when to raise it again.
        self._open: dict[Call, tuple[type[BaseException], float]] = {}

    def interrupt(self, call: Call, kind: type[BaseException]) -> None:
        """Interrupt a call, and repeat that until it has ended."""
        is_first = call not in self._open
        if not call.interrupt(kind):  # it has ended, or will never begin
            self._open.pop(call, None)
            return
        self._open[call] = kind, time.monotonic() + INTERRUPT_EVERY_S
        if is_first:
            self._on_first(call)

    def repeat(self, running: Sequence[Call]) -> None:
        """Interrupt functions that exceed their time limit, and again functions that continue after an interruption."""
        now = time.monotonic()
        for call in running:
            if call.time_limit is not None and call.time_limit.deadline <= now:
                call.time_limit.deadline = math.inf
                self.interrupt(call, TaskTimeout)
        for call, (kind, again_at) in list(self._open.items()):
            if again_at <= now:
                self.interrupt(call, kind)

    def next_at(self, running: Sequence[Call]) -> float | None:
        """Return when to call repeat() again; None when nothing has a limit."""
        times = [call.time_limit.deadline for call in running if call.time_limit is not None]
        times += [again_at for _, again_at in self._open.values()]
        return min(times, default=None)
