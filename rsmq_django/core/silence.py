"""A timeout that starts again with any received data, for sockets of asyncio: blocking sockets have it by default.

redis-py limits how long a whole reply takes, so one of 30 MB never arrives over a slow line. Only the wait for a server
that says nothing has to end.
"""

from __future__ import annotations

import asyncio
from typing import Any

#: Of the time-out: it is put off when so much of it is over, not for each of the pieces that come one after the other.
WORTH_IT = 0.1


class Silence:
    """How long one socket may say nothing while replies are awaited."""

    __slots__ = ("_timeout", "_timeout_s")

    def __init__(self) -> None:
        self._timeout: asyncio.Timeout | None = None
        self._timeout_s = 0.0

    def listen_to(self, reader: asyncio.StreamReader) -> None:
        """Hear what arrives for a reader, which may be one that is heard already."""
        if "feed_data" in vars(reader):
            return
        feed_data, heard = reader.feed_data, self._heard

        def feed_and_note(data: Any) -> None:
            heard()
            feed_data(data)

        reader.feed_data = feed_and_note  # type: ignore[method-assign]

    def begin(self, timeout: asyncio.Timeout, timeout_s: float) -> None:
        """Let the silence last for `timeout_s` from now on; then `timeout` ends the wait."""
        self._timeout, self._timeout_s = timeout, timeout_s
        self._heard()

    def end(self) -> None:
        """Let what arrives mean nothing any more."""
        self._timeout = None

    def _heard(self) -> None:
        timeout = self._timeout
        if timeout is None or timeout.expired():
            return
        until = asyncio.get_running_loop().time() + self._timeout_s
        if until - (timeout.when() or 0) > self._timeout_s * WORTH_IT:
            timeout.reschedule(until)
