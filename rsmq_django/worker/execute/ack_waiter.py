"""Waits for acknowledgements with `ack="each"`: a slot runs the next message after Redis has settled the previous one.

So a process that is killed repeats no more messages than it runs at a time. A slot waits for at most one lease: after
that another worker may receive the message, and waiting would prevent no repetition.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable


class AckWaiter:
    """Told by the worker's main thread, awaited by the thread or coroutine that ran the message."""

    def __init__(self, *, patience_s: float) -> None:
        self._patience_s = patience_s
        self._is_known = threading.Event()
        self._tell_loop: Callable[[], object] | None = None
        #: Whether the outcome is decided and on its way.
        self.is_awaited = False

    def tell(self) -> None:
        """Release the waiter: Redis knows the outcome, or a damaged queue refuses it."""
        self._is_known.set()
        if self._tell_loop is not None:
            self._tell_loop()

    def wait(self) -> None:
        """Wait for tell() on this thread."""
        self._is_known.wait(self._patience_s)

    async def await_it(self) -> None:
        """See wait(); a coroutine that is cancelled meanwhile has ended anyway."""
        loop, told = asyncio.get_running_loop(), asyncio.Event()

        def tell_loop() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no coroutine waits any more
                loop.call_soon_threadsafe(told.set)

        self._tell_loop = tell_loop  # before the check: a concurrent tell() sees one or the other
        if not self._is_known.is_set():
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(self._patience_s):
                    await told.wait()
