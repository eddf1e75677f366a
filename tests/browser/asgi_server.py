"""A small ASGI server for tests: GET requests, answers in parts, one connection for each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any


@contextmanager
def serving(application: Any) -> Iterator[str]:
    """Serve an application on a thread until the block ends; the value is the address of its site."""
    begun, stops = threading.Event(), list[Callable[[], object]]()
    addresses: list[str] = []

    async def serve() -> None:
        ended = asyncio.Event()
        stops.append(partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set))

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await _answer(application, reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(handle, "localhost", 0)
        addresses.append(f"http://localhost:{server.sockets[0].getsockname()[1]}")
        begun.set()
        await ended.wait()
        server.close()

    # At its end it cancels what is still answered, and closes the sockets to Redis.
    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="asgi server of a test")
    thread.start()
    assert begun.wait(60)
    try:
        yield addresses[0]
    finally:
        stops[0]()
        thread.join(60)
        assert not thread.is_alive()


async def _answer(application: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _version = head[0].split(" ")
    path, _, query = target.partition("?")
    headers = [line.split(": ", 1) for line in head[1:] if line]
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
    }
    scope |= {"path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": ""}
    scope |= {"headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]}
    scope |= {"client": writer.get_extra_info("peername"), "server": writer.get_extra_info("sockname")[:2]}
    told: list[dict[str, Any]] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if told:
            return told.pop()
        await reader.read()
        return {"type": "http.disconnect"}

    async def send(event: dict[str, Any]) -> None:
        if event["type"] == "http.response.start":
            lines = [b"HTTP/1.1 %d OK" % event["status"], *(b": ".join(each) for each in event["headers"])]
            writer.write(b"\r\n".join([*lines, b"Connection: close", b"\r\n"]))
        else:
            writer.write(event.get("body", b""))
        await writer.drain()

    await application(scope, receive, send)
