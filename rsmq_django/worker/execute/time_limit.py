"""How long a function may run on its thread, and interrupting it then, until it ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from ...tasks.retry import TaskTimeout

#: A function that was interrupted has this long to clean up; then it is interrupted again, until it has ended.
INTERRUPT_EVERY_S = 1.0


class TimeLimit:
    """A deadline for the block it guards. The pool reads it from another thread, and interrupts overdue functions."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        #: Monotonic time; infinite before the block began, after it has ended, and once it was heeded.
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
    """The functions of one pool that were interrupted and have not ended. Only the main thread uses it."""

    def __init__(self, on_first: Callable[[Call], None]) -> None:
        self._on_first = on_first
        #: With what, and when it is to be repeated.
        self._open: dict[Call, tuple[type[BaseException], float]] = {}

    def interrupt(self, call: Call, kind: type[BaseException]) -> None:
        """Interrupt a call, and have that repeated until it has ended."""
        is_first = call not in self._open
        if not call.interrupt(kind):  # it has ended, or has not begun and never will
            self._open.pop(call, None)
            return
        self._open[call] = kind, time.monotonic() + INTERRUPT_EVERY_S
        if is_first:
            self._on_first(call)

    def repeat(self, running: Sequence[Call]) -> None:
        """Interrupt functions that are over their time limit, and again functions that were interrupted and go on."""
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
