"""A timeout that starts again with any received data, for sockets of asyncio: blocking sockets have it by default.

redis-py limits how long a whole reply takes, so one of 30 MB never arrives over a slow line. Only the wait for a server
that sends nothing has to end.
"""

from __future__ import annotations

import asyncio
from typing import Any

#: The timer restarts only after this share of the timeout, and not with each part of a reply.
WORTH_IT = 0.1


class Silence:
    """The timeout of one socket for replies without any received data."""

    __slots__ = ("_timeout", "_timeout_s")

    def __init__(self) -> None:
        self._timeout: asyncio.Timeout | None = None
        self._timeout_s = 0.0

    def listen_to(self, reader: asyncio.StreamReader) -> None:
        """Observe the data that arrives for a reader, which may be observed already."""
        if "feed_data" in vars(reader):
            return
        feed_data, heard = reader.feed_data, self._heard

        def feed_and_note(data: Any) -> None:
            heard()
            feed_data(data)

        reader.feed_data = feed_and_note  # type: ignore[method-assign]

    def begin(self, timeout: asyncio.Timeout, timeout_s: float) -> None:
        """Start the timeout: after `timeout_s` without data, `timeout` ends the wait."""
        self._timeout, self._timeout_s = timeout, timeout_s
        self._heard()

    def end(self) -> None:
        """Stop the timeout; arriving data is ignored."""
        self._timeout = None

    def _heard(self) -> None:
        timeout = self._timeout
        if timeout is None or timeout.expired():
            return
        until = asyncio.get_running_loop().time() + self._timeout_s
        if until - (timeout.when() or 0) > self._timeout_s * WORTH_IT:
            timeout.reschedule(until)
