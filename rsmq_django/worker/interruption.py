"""Interrupting a function on the thread that runs it, from another thread, at any moment and nowhere else.

Python cannot stop a thread, but it can raise an exception in one, at its next step in Python. It must not be raised in
the worker's own code around the function. Both sides write before they read: the one that interrupts sets
`asked_to_end_with` and then looks where the function runs; the function's thread clears that place and then looks
whether it was asked. So one of them always sees the other, and undisturbed runs, which are nearly all, need no lock.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc
_interrupting = threading.Lock()


class Interruptible(Protocol):
    """One call of a function that another thread may interrupt with an exception. Both are None at first."""

    asked_to_end_with: type[BaseException] | None
    thread_id: int | None


Run = TypeVar("Run", bound=Interruptible)


def call_interruptibly(function: Callable[[Run], Any], run: Run) -> Any:
    """Call `function(run)` on this thread; raises what it was interrupted with, also before it began."""
    run.thread_id = threading.get_ident()
    try:
        if run.asked_to_end_with is not None:
            raise run.asked_to_end_with
        return function(run)
    finally:
        thread_id, run.thread_id = run.thread_id, None
        if run.asked_to_end_with is not None:
            with _interrupting:  # one that is on its way has been raised, or can be taken back
                _raise_in_thread(ctypes.c_ulong(thread_id or 0), None)


def interrupt(run: Interruptible, kind: type[BaseException]) -> None:
    """Raise in the call, as soon as its thread comes to its next step in Python; nothing when it is over."""
    with _interrupting:
        run.asked_to_end_with = kind
        if run.thread_id is not None:
            _raise_in_thread(ctypes.c_ulong(run.thread_id), ctypes.py_object(kind))
