"""Interrupting a function on the thread that runs it, from another thread, at any moment and nowhere else.

Python cannot stop a thread, but it can raise an exception in one, at its next step in Python. It must not be raised in
the worker's own code around the function. Both sides write before they read: the one that interrupts sets `asked` and
then looks where the function runs; the function's thread clears that place and then looks whether it was asked. So
one of them always sees the other, and undisturbed runs, which are nearly all, need no lock.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

_raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc
_interrupting = threading.Lock()


class Interruptible:
    """One call of a function that another thread may interrupt with an exception."""

    # Of the class, so that making one, as each message does, costs next to nothing.
    _asked: type[BaseException] | None = None
    _thread_id: int | None = None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function on this thread; raises what it was interrupted with, also before it began."""
        self._thread_id = threading.get_ident()
        try:
            if self._asked is not None:
                raise self._asked
            return function(*arguments)
        finally:
            thread_id, self._thread_id = self._thread_id, None
            if self._asked is not None:
                with _interrupting:  # one that is on its way has been raised, or can be taken back
                    _raise_in_thread(ctypes.c_ulong(thread_id or 0), None)

    def interrupt(self, kind: type[BaseException]) -> None:
        """Raise in the call, as soon as its thread comes to its next step in Python; nothing when it is over."""
        with _interrupting:
            self._asked = kind
            if self._thread_id is not None:
                _raise_in_thread(ctypes.c_ulong(self._thread_id), ctypes.py_object(kind))
