"""Host names: looked up anew for each socket, within the time-out, and sockets with keepalive."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rsmq_django.core import Connection
from rsmq_django.core.errors import ConnectionFailed
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until

NAME = "redis.example"
Answer = Callable[[], list[str]]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, Answer]:
    """The name server: a function for each name, which returns addresses."""
    answers: dict[str, Answer] = {}
    ask = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host not in answers or socket.AI_NUMERICHOST in (*args, *options.values()):
            return ask(host, port, *args, **options)
        return [found for address in answers[host]() for found in ask(address, port, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return answers


@pytest.fixture
def hanging(names: dict[str, Answer]) -> Iterator[list[str]]:
    """A name server that does not answer until the test ends; the lookups so far."""
    is_over, seen = threading.Event(), list[str]()

    def answer() -> list[str]:
        seen.append(NAME)
        is_over.wait(300)
        return []

    names[NAME] = answer
    yield seen
    is_over.set()
    wait_until(lambda: not [each for each in threading.enumerate() if each.name == "rsmq-name-lookup"])


@pytest.fixture
def proxy(server: PrivateServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.url) as proxy:
        yield proxy


def at(proxy: FaultProxy, *, timeout_s: float = 30) -> Connection:
    return Connection(proxy.url.replace("127.0.0.1", NAME), timeout_s=timeout_s)


@pytest.mark.parametrize("url", [f"redis://{NAME}:1", f"rediss://{NAME}:1", f"redis+sentinel://{NAME}:1/mymaster"])
def test_name_server_that_does_not_answer_delays_a_call_by_the_time_out_only(hanging: list[str], url: str):
    connection = Connection(url, timeout_s=0.2)

    for _ in range(3):
        with pytest.raises(ConnectionFailed, match=f"the name '{NAME}' was not resolved in time"):
            connection.exchange([("PING",)])

    assert hanging == [NAME]  # all of them wait for one lookup


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_event_loop_does_not_wait_for_a_name_server_that_does_not_answer(hanging: list[str], scheme: str):
    async def ask() -> None:
        with pytest.raises(ConnectionFailed):
            await Connection(f"{scheme}://{NAME}:1", timeout_s=0.2).aexchange([("PING",)])

    asyncio.run(ask())

    assert hanging == [NAME]


async def test_name_is_looked_up_again_for_each_socket(names: dict[str, Answer], proxy: FaultProxy):
    names[NAME] = lambda: ["127.0.0.1"]
    connection = at(proxy)
    assert connection.exchange([("PING",)]) == await connection.aexchange([("PING",)]) == [b"PONG"]

    names[NAME] = list
    assert connection.exchange([("PING",)]) == [b"PONG"]  # an open socket needs no name
    proxy.reset_connections()
    connection.close()
    await connection.aclose()
    for _ in range(2):
        with pytest.raises(ConnectionFailed, match="The name has no address"):
            connection.exchange([("PING",)])
        with pytest.raises(ConnectionFailed):
            await connection.aexchange([("PING",)])

    names[NAME] = lambda: ["127.0.0.1"]
    assert connection.exchange([("PING",)]) == await connection.aexchange([("PING",)]) == [b"PONG"]
    await connection.aclose()


async def test_addresses_of_a_name_are_tried_one_after_the_other(names: dict[str, Answer], proxy: FaultProxy):
    names[NAME] = lambda: ["::1", "127.0.0.1"]
    connection = at(proxy)

    assert connection.exchange([("PING",)]) == await connection.aexchange([("PING",)]) == [b"PONG"]
    await connection.aclose()


async def test_name_is_looked_up_where_the_system_starts_no_more_threads(
    names: dict[str, Answer], proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
):
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    names[NAME] = lambda: ["127.0.0.1"]
    connection = at(proxy)
    monkeypatch.setattr(threading.Thread, "start", start)

    assert connection.exchange([("PING",)]) == await connection.aexchange([("PING",)]) == [b"PONG"]
    await connection.aclose()


async def test_unknown_name_is_named_in_the_error(names: dict[str, Answer]):
    def answer() -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    names[NAME] = answer
    connection = Connection(f"redis://{NAME}:1")
    with pytest.raises(ConnectionFailed, match=f"{NAME}.*Name or service not known"):
        connection.exchange([("PING",)])
    with pytest.raises(ConnectionFailed, match="Name or service not known"):
        await connection.aexchange([("PING",)])


def test_sockets_have_keepalive(names: dict[str, Answer], proxy: FaultProxy):
    names[NAME] = lambda: ["127.0.0.1"]
    connection = at(proxy)
    connection.exchange([("PING",)])
    (link,) = connection._idle

    assert link.host == NAME
    assert link._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    if hasattr(socket, "TCP_KEEPIDLE"):
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [link._sock.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [30, 10, 3]
    connection.close()
