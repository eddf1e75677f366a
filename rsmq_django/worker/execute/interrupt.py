"""Interrupts a function on its thread, from another one: when it was cancelled or exceeds its time limit.

Python cannot stop a thread, but it can raise an exception in one, at its next step in Python. That may be any step,
also one between acquiring a lock and the `try` that releases it: after an interruption nothing on the thread, and no
lock of the process, can be relied on. See docs/decisions/0020-an-interruption-costs-the-process.md.

It must never be raised in the worker's own code around the function. Both threads write before they read: the
interrupting thread sets `asked_to_end_with` and then reads `thread_id`; the function's thread clears `thread_id` and
then reads `asked_to_end_with`. So one of them always sees the other, and a call without an interruption needs no lock.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from ...tasks.retry import TaskTimeout
from ..delivery import TimeLimit

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc
_interrupting = threading.RLock()


class _Replaced(BaseException):
    """Raised and caught instead of an interruption that comes too late.

    To withdraw it would leave a mark at the interpreter that only a raised one removes. Until then, Python 3.11 repeats
    the first instruction of each traced function without end: in a debugger, a profiler, or a measurement of coverage.
    """


class Interruptible(Protocol):
    """One call of a function that another thread may interrupt with an exception."""

    #: None until it was asked to end.
    asked_to_end_with: type[BaseException] | None
    #: None while the function does not run.
    thread_id: int | None
    #: Whether an exception was raised in its thread.
    was_interrupted: bool


Run = TypeVar("Run", bound=Interruptible)


def call_interruptibly(function: Callable[[Run], Any], run: Run) -> Any:
    """Call `function(run)` on this thread; raises the exception of an interruption, also of one before the call."""
    thread_id = threading.get_ident()
    try:
        run.thread_id = thread_id
        if run.asked_to_end_with is not None:
            raise run.asked_to_end_with
        return function(run)
    finally:
        # Python does not raise it between the end of the call and the end of this assignment.
        run.thread_id = None
        is_over = run.asked_to_end_with is None
        while not is_over:
            try:
                with _interrupting:  # an exception in transit has been raised by now, or is replaced by this one
                    _raise_in_thread(ctypes.c_ulong(thread_id), ctypes.py_object(_Replaced))
            except _Replaced:
                is_over = True
            except BaseException:  # noqa: S112 - it was raised here: the function had ended
                continue


def interrupt(run: Interruptible, kind: type[BaseException]) -> bool:
    """Raise an exception in the call at the next Python step of its thread; return whether the call is running.

    A call that has not begun raises when it begins, which damages nothing. May be repeated.
    """
    with _interrupting:
        run.asked_to_end_with = kind
        thread_id = run.thread_id  # read once: the call may end at any moment
        if thread_id is None:
            return False
        run.was_interrupted = True
        _raise_in_thread(ctypes.c_ulong(thread_id), ctypes.py_object(kind))
        return True


def forget_interruption(run: Interruptible) -> None:
    """Forget an interruption of a call that has ended: another one follows on its thread, with the same time limit."""
    with _interrupting:  # one that began before the end of the call is over now
        run.asked_to_end_with = None


# -- Time limits ------------------------------------------------------------------------------------------------------

#: An interrupted function has this long to clean up; then it is interrupted again, until it has ended.
INTERRUPT_EVERY_S = 1.0


class LimitedCall(Protocol):
    """A call of a function on a thread."""

    time_limit: TimeLimit | None

    def interrupt(self, kind: type[BaseException]) -> bool:
        """Interrupt the function on its thread; return whether it is running."""


Call = TypeVar("Call", bound=LimitedCall)


class Interruptions(Generic[Call]):
    """The interrupted functions of one pool that have not ended. Only the main thread uses it."""

    def __init__(self, on_first: Callable[[Call], None]) -> None:
        self._on_first = on_first
        #: The exception, and when to raise it again.
        self._open: dict[Call, tuple[type[BaseException], float]] = {}

    def interrupt(self, call: Call, kind: type[BaseException], limit: TimeLimit | None = None) -> None:
        """Interrupt a call, and repeat that until it has ended. With a limit: if that is still exceeded."""
        is_first = call not in self._open
        with _interrupting:
            if limit is not None:
                if limit.deadline > time.monotonic():
                    return
                limit.deadline = math.inf
            is_running = call.interrupt(kind)
        if not is_running:  # it has ended, or will never begin
            self._open.pop(call, None)
            return
        self._open[call] = kind, time.monotonic() + INTERRUPT_EVERY_S
        if is_first:
            self._on_first(call)

    def repeat(self, running: Sequence[Call]) -> None:
        """Interrupt functions that exceed their time limit, and again functions that continue after an interruption."""
        now = time.monotonic()
        for call in running:
            limit = call.time_limit
            if limit is not None and limit.deadline <= now:
                self.interrupt(call, TaskTimeout, limit)
        for call, (kind, again_at) in list(self._open.items()):
            if again_at <= now:
                self.interrupt(call, kind)

    def next_at(self, deadlines: Iterable[float]) -> float | None:
        """Return when to call repeat() again, with these deadlines of running calls; None when nothing has a limit."""
        return min([*deadlines, *(again_at for _, again_at in self._open.values())], default=None)
