"""Time limits of coroutines: one timer of the event loop serves all coroutines that run in it.

`asyncio.timeout()` makes and drops a timer for each call, which takes as many instructions as the rest of a short
task. Nearly all coroutines end long before their limit, so here a call only notes its deadline. The timer is set
anew when a call has an earlier deadline than all others, and when it is over.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable
from contextvars import Context
from typing import Any

from ...tasks.retry import TaskTimeout


class CoroutineLimit:
    """The deadline of one coroutine."""

    __slots__ = ("cancelling", "deadline", "is_exceeded", "task")

    def __init__(self, task: asyncio.Task[Any], timeout_s: float) -> None:
        self.task = task
        #: Cancellations of the task that others have asked for before.
        self.cancelling = task.cancelling()
        #: On the monotonic clock; infinite after the coroutine was cancelled for it.
        self.deadline = time.monotonic() + timeout_s
        #: Whether the coroutine was cancelled because of this limit.
        self.is_exceeded = False


class LoopLimits:
    """The limits of the coroutines that run in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._open: dict[CoroutineLimit, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def begin(self, limit: CoroutineLimit) -> None:
        """Watch a limit."""
        self._open[limit] = None
        if limit.deadline < self._timer_at:
            self._set_timer(limit.deadline)

    def end(self, limit: CoroutineLimit) -> bool:
        """Forget a limit; return whether a CancelledError that leaves its coroutine now is due to this limit alone."""
        self._open.pop(limit, None)
        if not limit.is_exceeded:
            return False
        limit.is_exceeded = False
        return limit.task.uncancel() <= limit.cancelling

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        # In an empty context: that of the coroutine which happens to set the timer would be kept until the timer ends.
        delay_s = max(0.0, at - time.monotonic())
        self._timer = self.loop.call_later(delay_s, self._cancel_overdue, context=Context())

    def _cancel_overdue(self) -> None:
        self._timer, self._timer_at, now = None, math.inf, time.monotonic()
        for limit in list(self._open):
            if limit.deadline <= now:
                limit.is_exceeded, limit.deadline = True, math.inf
                limit.task.cancel()
        earliest = min((limit.deadline for limit in self._open), default=math.inf)
        if earliest < math.inf:
            self._set_timer(earliest)


class _Here(threading.local):
    #: Of the event loop in which a coroutine of this thread last began with a limit.
    limits: LoopLimits | None = None


_here = _Here()


async def within(timeout_s: float, call: Awaitable[Any]) -> Any:
    """Return what a coroutine returns within this time; raises TaskTimeout, as `asyncio.timeout()` does TimeoutError.

    At the deadline it is cancelled once. If it goes on, what it returns or raises counts.
    """
    task, loop, limits = asyncio.current_task(), asyncio.get_running_loop(), _here.limits
    assert task is not None
    if limits is None or limits.loop is not loop:
        limits = _here.limits = LoopLimits(loop)
    limit = CoroutineLimit(task, timeout_s)
    limits.begin(limit)
    try:
        return await call
    except asyncio.CancelledError:
        if not limits.end(limit):
            raise
    finally:
        limits.end(limit)
    raise TaskTimeout
