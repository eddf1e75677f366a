"""Stopping a function that runs too long, on the thread that runs it.

Python cannot stop a thread, but it can raise an exception in one. A call into C that never returns is not interrupted
by that: limits of tasks that do such things belong into the called library.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable
from types import TracebackType

from ..tasks.retry import TaskTimeout

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc


class TimeLimit:
    """A deadline for the block it guards. `expire()` is called by another thread, as often as it likes."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        #: Monotonic time; infinite before the block began and after it was told to end.
        self.deadline = math.inf
        #: Called when the deadline is known, so that whoever calls expire() does not sleep past it.
        self.on_start: Callable[[], None] | None = None

    def __enter__(self) -> None:
        self._thread_id = threading.get_ident()
        self.deadline = time.monotonic() + self._timeout_s
        if self.on_start is not None:
            self.on_start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            if self._thread_id is not None:
                # Take back an exception that was asked for and has not arrived yet: the block is over.
                _raise_in_thread(ctypes.c_ulong(self._thread_id), None)
            self._thread_id, self.deadline = None, math.inf

    def expire(self, now: float) -> None:
        """Raise TaskTimeout in the guarded block when its deadline has passed."""
        if now < self.deadline:
            return
        with self._lock:
            if self._thread_id is not None:
                self.deadline = math.inf
                _raise_in_thread(ctypes.c_ulong(self._thread_id), ctypes.py_object(TaskTimeout))
