"""Replies that take long: a wait ends when nothing arrives, and not while something does.

The clock of the event loop is put forward, so nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import OutcomeUnknown

TIMEOUT_S = 1000.0
BODY = b"x" * 300_000
MESSAGE = [b"a" * 32, BODY, b"1", b"1795372934000"]
REPLY = b"*%d\r\n%b" % (len(MESSAGE), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in MESSAGE))


class SlowServer:
    """Answers the first script with nothing, until the test lets a piece of the reply out."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        try:
            while chunk := await reader.read(65_536):
                writer.write(b"+OK\r\n" * chunk.count(b"\r\nCLIENT\r\n"))
                if b"EVALSHA" in chunk:
                    self.is_asked.set()
        finally:
            writer.close()

    async def let_out(self, piece: bytes) -> None:
        assert self._writer is not None
        self._writer.write(piece)
        await self._writer.drain()


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes have arrived at clients of this event loop and at servers in it."""
    arrived = [0]
    feed_data = asyncio.StreamReader.feed_data

    def count(self: asyncio.StreamReader, data: bytes) -> None:
        arrived[0] += len(data)
        feed_data(self, data)

    monkeypatch.setattr(asyncio.StreamReader, "feed_data", count)
    return arrived


@pytest.fixture
async def slow(received: list[int], tmp_path: Any) -> AsyncIterator[SlowServer]:
    slow = SlowServer()
    server = await asyncio.start_unix_server(slow.answer, tmp_path / "s")
    yield slow
    server.close()


@pytest.fixture
async def pass_loop_time(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the function that puts the clock of the event loop forward."""
    loop = asyncio.get_running_loop()
    real, shift_s = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: real() + shift_s[0])

    def forward(seconds: float) -> None:
        shift_s[0] += seconds

    return forward


async def arrive(received: list[int], count: int) -> None:
    while received[0] < count:  # noqa: ASYNC110 - the bytes come from a socket
        await asyncio.sleep(0.001)


def asked(slow: SlowServer, tmp_path: Any) -> asyncio.Task[Any]:
    queue = Queue("jobs", Client(Connection(f"unix://{tmp_path}/s", timeout_s=TIMEOUT_S)))
    return asyncio.create_task(queue.areceive())


async def test_async_reply_may_take_longer_than_the_timeout_while_data_arrives(
    slow: SlowServer, received: list[int], pass_loop_time: Any, tmp_path: Any
):
    receiving = asked(slow, tmp_path)
    await slow.is_asked.wait()
    size = len(REPLY) // 5 + 1

    for at in range(0, len(REPLY), size):
        pass_loop_time(0.8 * TIMEOUT_S)
        piece, before = REPLY[at : at + size], received[0]
        await slow.let_out(piece)
        await arrive(received, before + len(piece))

    message = await receiving
    assert message is not None and message.body == BODY


async def test_async_call_ends_when_a_reply_stops_arriving(
    slow: SlowServer, received: list[int], pass_loop_time: Any, tmp_path: Any
):
    receiving = asked(slow, tmp_path)
    await slow.is_asked.wait()
    pass_loop_time(0.8 * TIMEOUT_S)
    before = received[0]
    await slow.let_out(REPLY[:1000])
    await arrive(received, before + 1000)

    pass_loop_time(1.1 * TIMEOUT_S)

    with pytest.raises(OutcomeUnknown):
        await receiving


async def test_async_call_ends_when_no_reply_arrives(slow: SlowServer, pass_loop_time: Any, tmp_path: Any):
    receiving = asked(slow, tmp_path)
    await slow.is_asked.wait()

    pass_loop_time(1.1 * TIMEOUT_S)

    with pytest.raises(OutcomeUnknown):
        await receiving
