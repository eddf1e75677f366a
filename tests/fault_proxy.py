"""A TCP proxy in front of a Redis server that misbehaves when a test tells it to.

It knows connections and bytes, and nothing of the Redis protocol: a request is picked by bytes that occur in it. Every
fault is a named method, takes effect at once and needs neither root nor a tool of the operating system.

    with FaultProxy("unix:///tmp/private/server.sock") as proxy:
        connection = Connection(proxy.url, timeout_s=15)
        proxy.lose_reply_to(b"EVALSHA")     # the server runs it, the client never hears of it
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

#: asyncio makes the transport of a connection, tells its protocol and starts the task in a turn of the loop each.
TURNS_TO_ACCEPT = 10
CHUNK_BYTES = 65_536


class FaultProxy:
    """Listens on a free port, of 127.0.0.1 unless told otherwise, and forwards to the server of `upstream_url`."""

    def __init__(self, upstream_url: str, *, host: str = "127.0.0.1") -> None:
        self.requests: list[bytes] = []  # every chunk a client has sent, held or forwarded
        self.connections = 0  # how many have ever been accepted
        self.delay_s = 0.0  # one-way latency of each chunk, in both directions
        self.request_bytes_per_s: float | None = None  # how fast requests move; None: as fast as they can
        self._upstream = urlsplit(upstream_url)
        self._host = f"[{host}]" if ":" in host else host
        self._gates = {"request": asyncio.Event(), "reply": asyncio.Event()}  # set: chunks may pass
        self._refuses = False
        self._is_closing = False
        self._lost_replies: tuple[bytes, int] = (b"", 0)
        self._forged_replies: dict[bytes, list[bytes]] = {}
        self._reply_bytes_left: int | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        self._open_gates()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._accept, host, 0), self._loop
        ).result()
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Return the URL of the same database and user, by way of this proxy."""
        user, at, _ = self._upstream.netloc.rpartition("@")
        database = self._upstream.path if self._upstream.scheme == "redis" else ""
        return f"redis://{user}{at}{self._host}:{self.port}{database}"

    def times_seen(self, needle: bytes) -> int:
        """Count how often these bytes occur in all that clients have sent."""
        return sum(chunk.count(needle) for chunk in self.requests)

    # -- Faults -----------------------------------------------------------------------------------------------------

    def black_hole(self) -> None:
        """Move nothing from now on: a half-open network, of which neither side hears an end."""
        for gate in self._gates.values():
            self._in_loop(gate.clear)

    def hold_replies(self) -> None:
        """Forward requests, keep their replies until release()."""
        self._in_loop(self._gates["reply"].clear)

    def refuse(self) -> None:
        """Reset every new connection as soon as it is made."""
        self._refuses = True

    def release(self) -> None:
        """End a black hole, held replies and refusals; what was held moves on."""
        self._refuses = False
        self._in_loop(self._open_gates)

    def lose_reply_to(self, needle: bytes, *, times: int = 1) -> None:
        """Forward the next `times` requests that contain `needle`, swallow their replies and reset."""
        self._lost_replies = (needle, times)

    def cut_next_reply(self, *, after_bytes: int) -> None:
        """Forward that many bytes of the next reply and reset."""
        self._reply_bytes_left = after_bytes

    def answer_instead(self, needle: bytes, reply: bytes, *, times: int = 1) -> None:
        """Answer the next `times` requests that contain `needle` with these bytes; the server never sees them."""
        self._forged_replies[needle] = [reply] * times

    def reset_connections(self) -> None:
        """Reset every connection that is open now."""
        asyncio.run_coroutine_threadsafe(self._reset_all(), self._loop).result()

    def close(self) -> None:
        """Stop listening, drop all connections and end the thread."""
        asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- Traffic ----------------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)  # close() waits for it
        self._clients.add(writer)
        try:
            await self._carry(reader, writer)
        finally:
            self._clients.discard(writer)
            self._tasks.discard(task)
            _reset(writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._refuses or self._is_closing:
            return
        try:
            upstream_reader, upstream_writer = await self._open_upstream()
        except OSError:  # the server is down, so this client sees it down
            return
        lost = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward_requests(reader, writer, upstream_writer, lost))
                group.create_task(self._forward_replies(upstream_reader, writer, lost))
        except* (OSError, asyncio.IncompleteReadError):
            pass  # a peer that vanishes is what this file is for
        finally:
            self._close_upstream(upstream_writer)

    def _close_upstream(self, writer: asyncio.StreamWriter) -> None:
        if self._is_closing:
            writer.transport.abort()  # what it has not sent would keep it open
        writer.close()

    async def _open_upstream(self) -> Streams:
        if self._upstream.scheme == "unix":
            return await asyncio.open_unix_connection(self._upstream.path)
        return await asyncio.open_connection(self._upstream.hostname, self._upstream.port)

    async def _forward_requests(
        self,
        client: asyncio.StreamReader,
        answers: asyncio.StreamWriter,
        server: asyncio.StreamWriter,
        lost: asyncio.Event,
    ) -> None:
        while chunk := await client.read(CHUNK_BYTES):
            self.requests.append(chunk)
            await self._pass("request")
            if self.request_bytes_per_s is not None:
                await asyncio.sleep(len(chunk) / self.request_bytes_per_s)
            needle, times = self._lost_replies
            if times and needle in chunk:
                self._lost_replies = (needle, times - 1)
                lost.set()
            elif forged := self._forged(chunk):
                answers.write(forged)
                continue
            server.write(chunk)
            await server.drain()
        server.close()

    async def _forward_replies(
        self, server: asyncio.StreamReader, client: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        while chunk := await server.read(CHUNK_BYTES):
            await self._pass("reply")
            if lost.is_set():
                break
            if self._reply_bytes_left is not None:
                chunk, self._reply_bytes_left = chunk[: self._reply_bytes_left], None
                await _deliver(client, chunk)
                break
            client.write(chunk)
            await client.drain()
        _reset(client)

    def _forged(self, chunk: bytes) -> bytes | None:
        for needle, replies in self._forged_replies.items():
            if replies and needle in chunk:
                return replies.pop()
        return None

    async def _pass(self, direction: str) -> None:
        """Wait as long as the faults of this direction say."""
        await self._gates[direction].wait()
        if self._is_closing:  # what is held must not reach the server of the next test
            raise ConnectionAbortedError
        if self.delay_s:
            await asyncio.sleep(self.delay_s)

    # -- The thread -------------------------------------------------------------------------------------------------

    def _open_gates(self) -> None:
        for gate in self._gates.values():
            gate.set()

    def _in_loop(self, action: Callable[[], object]) -> None:
        """Run `action` in the proxy's thread and wait until it is done, so that a fault takes effect at once."""

        async def run() -> None:
            action()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    async def _reset_all(self) -> None:
        for client in self._clients:
            _reset(client)
        await asyncio.sleep(0)  # the sockets close in the next turn of the loop

    async def _shut_down(self) -> None:
        self._is_closing = True
        self._open_gates()
        await close_server(self._server)
        while self._tasks:
            for client in list(self._clients):
                _reset(client)
            await asyncio.wait(self._tasks, timeout=0.1)
        await self._server.wait_closed()
        await abort_transports(self._loop)


async def close_server(server: asyncio.Server) -> None:
    """Close a server when the connections that it has accepted have their transports and tasks.

    Python 3.11 leaves the socket of an accepted connection open when its server closes before it has a transport.
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(TURNS_TO_ACCEPT):
        await asyncio.sleep(0)
    server.close()


async def abort_transports(loop: asyncio.AbstractEventLoop) -> None:
    """Close every connection of a loop that ends, also those that asyncio has accepted and told no task."""
    for _ in range(TURNS_TO_ACCEPT):
        for transport in list(loop._transports.values()):  # type: ignore[attr-defined]
            if transport._sock is not None:  # else it has closed
                transport.abort()
        await asyncio.sleep(0)


async def _deliver(client: asyncio.StreamWriter, chunk: bytes) -> None:
    """Send the bytes and let them leave: a reset throws away what is still in the send buffer."""
    client.write(chunk)
    await client.drain()
    await asyncio.sleep(0.01)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN: SO_LINGER with a zero time-out."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):  # closed already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
