"""A proxy in front of a server, which then answers no faster than it is told to.

Each command and each byte, of requests and replies, takes a given time, one after the other for all clients, as in a
server with one thread. Commands are really carried out by the server behind it, at the end of their time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass

CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a server takes."""

    command_s: float
    byte_s: float


class Entrance:
    """Takes connections on a free port and passes on what they say; use it from one thread."""

    def __init__(self, server_port: int) -> None:
        #: None: as fast as the server is.
        self.pace: Pace | None = None
        self._server_port = server_port
        self._busy_until = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="entrance", daemon=True)
        self._thread.start()
        opening = asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._listening = asyncio.run_coroutine_threadsafe(opening, self._loop).result()
        self.port: int = self._listening.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Drop all connections and end the thread."""
        asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            replies, server = await asyncio.open_connection("127.0.0.1", self._server_port)
            await asyncio.gather(
                self._carry(reader, server, is_request=True), self._carry(replies, writer, is_request=False)
            )

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool) -> None:
        """Pass on what arrives until the connection ends, and end the other one then."""
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                # Each command is an array of texts; the bodies of messages have no ends of lines.
                commands = chunk.startswith(b"*") + chunk.count(b"\r\n*") if is_request else 0
                await self._take_time(commands, len(chunk))
                writer.write(chunk)
                await writer.drain()
        finally:
            writer.transport.abort()

    async def _take_time(self, commands: int, size: int) -> None:
        if (pace := self.pace) is None:
            return
        now = self._loop.time()
        self._busy_until = max(self._busy_until, now) + commands * pace.command_s + size * pace.byte_s
        await asyncio.sleep(self._busy_until - now)

    async def _shut_down(self) -> None:
        self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks)
