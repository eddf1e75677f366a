"""Connections: accepted URLs, sharing, and no password in any text."""

import asyncio
import logging
import socket
import subprocess
import sys
import textwrap
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import (
    ConnectionFailed,
    InvalidValue,
    OutcomeUnknown,
    PermissionDenied,
    RsmqError,
    ServerRefused,
)
from rsmq_django.core.transport.wire import Wire
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until

SECRET = "s3cret-pa55"


@pytest.fixture
def user(server: PrivateServer) -> Iterator[str]:
    """A user of the server whose password is SECRET."""
    server.redis.execute_command("ACL", "SETUSER", "ann", "reset", "on", f">{SECRET}", "~*", "&*", "+@all")
    yield "ann"
    server.redis.execute_command("ACL", "DELUSER", "ann")


@pytest.mark.parametrize("timeout_s", [0, -1, 1e9, float("inf"), float("nan")])
def test_timeout_that_no_socket_takes_is_refused_before_there_is_one(timeout_s: float):
    with pytest.raises(InvalidValue, match="it must be above 0, and at most 86400 seconds"):
        Connection("redis://localhost", timeout_s=timeout_s)


# -- URLs ----------------------------------------------------------------------------------------------------------


def test_unix_sockets_and_tcp_lead_to_the_same_queue(server: PrivateServer, proxy: FaultProxy, queue: Queue):
    by_socket = Queue("jobs", Client(Connection(server.url, timeout_s=15)))
    by_tcp = Queue("jobs", Client(Connection(proxy.url, timeout_s=15)))
    assert server.url.startswith("unix://") and proxy.url.startswith("redis://")

    by_socket.send(b"x")

    message = by_tcp.receive()
    assert message is not None and message.body == b"x"


def test_url_selects_the_database(server: PrivateServer, proxy: FaultProxy):
    by_socket = Queue("jobs", Client(Connection(f"{server.url}?db=3", timeout_s=15)))
    by_tcp = Queue("jobs", Client(Connection(f"{proxy.url}/3", timeout_s=15)))

    by_socket.create()

    assert by_tcp.attributes().messages == 0
    assert server.redis.keys() == []


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "", "redis", "file:///etc/passwd"])
def test_url_of_another_kind_is_refused_with_the_kinds_there_are(url: str):
    with pytest.raises(ValueError, match="redis://"):
        Connection(url, timeout_s=15)


def test_making_a_connection_does_no_io(proxy: FaultProxy):
    connection = Connection(proxy.url, timeout_s=15)
    Queue("jobs", Client(connection))

    assert proxy.connections == 0


@pytest.mark.parametrize("option", ["decode_responses=True", "decode_responses=true", "encoding=latin-1", "protocol=3"])
def test_options_in_the_url_do_not_change_how_replies_are_read(server: PrivateServer, queue: Queue, option: str):
    ours = Queue("jobs", Client(Connection(f"{server.url}?{option}", timeout_s=15)))

    ours.send(b"\xff\x00")

    message = ours.receive()
    assert message is not None and message.body == b"\xff\x00"
    assert ours.attributes().messages == 1


def test_queue_works_with_user_and_password(server: PrivateServer, proxy: FaultProxy, queue: Queue, user: str):
    by_socket = Queue(
        "jobs", Client(Connection(server.url.replace("unix://", f"unix://{user}:{SECRET}@"), timeout_s=15))
    )
    by_tcp = Queue("jobs", Client(Connection(proxy.url.replace("redis://", f"redis://{user}:{SECRET}@"), timeout_s=15)))

    by_socket.send(b"x")

    assert by_tcp.attributes().messages == 1


# -- Passwords -----------------------------------------------------------------------------------------------------


def texts(error: BaseException) -> str:
    """Return all that a log line with a traceback would show of an error."""
    chain: list[str] = []
    current: BaseException | None = error
    while current is not None:
        chain += [str(current), repr(current)]
        current = current.__cause__ or current.__context__
    return "\n".join(chain)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://ann:{SECRET}@127.0.0.1:1/0",
        f"redis://:{SECRET}@127.0.0.1:1/0",
        f"rediss://ann:{SECRET}@127.0.0.1:1/0",
        f"unix://ann:{SECRET}@/nowhere/s?db=0",
        f"unix:///nowhere/s?db=0&password={SECRET}",
        f"redis://127.0.0.1:1/0?username=ann&password={SECRET}",
        f"redis://ann:p@ss:{SECRET}@127.0.0.1:1/0",
        f"redis://{SECRET}@127.0.0.1:1/0",
        f"unix://{SECRET}@/nowhere/s",
    ],
)
def test_password_is_never_shown(url: str):
    connection = Connection(url, timeout_s=15)
    client = Client(connection)

    shown = [repr(connection), str(connection), f"{connection}", repr(client), str(client), repr(Queue("q", client))]
    with pytest.raises(RsmqError) as failure:
        Queue("jobs", client).send(b"x")

    assert not [text for text in shown if SECRET in text]
    assert SECRET not in texts(failure.value)


def test_password_in_a_url_of_another_kind_is_not_shown():
    with pytest.raises(ValueError) as refusal:
        Connection(f"http://ann:{SECRET}@host/", timeout_s=15)

    assert SECRET not in str(refusal.value)


def test_password_is_never_logged(server: PrivateServer, queue: Queue, user: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    ours = Queue("jobs", Client(Connection(server.url.replace("unix://", f"unix://{user}:{SECRET}@"), timeout_s=15)))

    ours.send(b"x")

    assert SECRET not in caplog.text


def test_wrong_password_is_refused_without_being_shown(server: PrivateServer, queue: Queue, user: str):
    wrong = Queue("jobs", Client(Connection(server.url.replace("unix://", f"unix://{user}:wr0ng@"), timeout_s=15)))

    with pytest.raises(PermissionDenied, match="password") as refusal:
        wrong.send(b"x")

    assert "wr0ng" not in texts(refusal.value)
    assert queue.attributes().messages == 0


def test_password_in_the_place_of_the_user_is_explained(server: PrivateServer, queue: Queue, user: str):
    wrong = Queue("jobs", Client(Connection(server.url.replace("unix://", f"unix://{SECRET}@"), timeout_s=15)))

    with pytest.raises(PermissionDenied, match=r"a password without a user is written redis://:password@host"):
        wrong.send(b"x")


async def test_wrong_password_is_refused_in_async_calls_too(server: PrivateServer, queue: Queue, user: str):
    wrong = Queue("jobs", Client(Connection(server.url.replace("unix://", f"unix://{user}:wr0ng@"), timeout_s=15)))

    with pytest.raises(PermissionDenied, match="password"):
        await wrong.asend(b"x")

    await wrong.client.connection.aclose()


def test_missing_password_is_a_refusal_and_no_lost_reply(server: PrivateServer, queue: Queue):
    with server.redis.client() as admin:  # one authenticated socket, to undo it with
        admin.execute_command("ACL", "SETUSER", "default", "resetpass", f">{SECRET}")
        try:
            with pytest.raises(PermissionDenied):
                Queue("jobs", Client(Connection(server.url, timeout_s=15))).send(b"x")
        finally:
            admin.execute_command("ACL", "SETUSER", "default", "nopass")

    assert queue.attributes().messages == 0


# -- Unreachable ---------------------------------------------------------------------------------------------------


def test_missing_socket_is_a_failed_connection(tmp_path: Path):
    queue = Queue("jobs", Client(Connection(f"unix://{tmp_path}/nobody")))

    with pytest.raises(ConnectionFailed, match="nothing was sent"):
        queue.send(b"x")


def test_closed_port_is_a_failed_connection():
    with pytest.raises(ConnectionFailed, match="127.0.0.1:1"):
        Queue("jobs", Client(Connection("redis://127.0.0.1:1"))).receive()


def test_connection_can_be_lost_any_number_of_times(server: PrivateServer, queue: Queue, tmp_path: Path):
    path = tmp_path / "s"
    ours = Queue("jobs", Client(Connection(f"unix://{path}?max_connections=5", timeout_s=15)))
    for _ in range(120):
        with pytest.raises(ConnectionFailed):
            ours.send(b"x")

    path.symlink_to(server.url.removeprefix("unix://"))

    assert ours.send(b"x")


async def test_answer_that_is_not_a_reply_counts_as_a_lost_reply(tmp_path: Path):
    def answer(link: socket.socket) -> None:
        with link:
            while asked := link.recv(65536):
                greetings = asked.count(b"\r\nCLIENT\r\n")
                link.sendall(b"+OK\r\n" * greetings if greetings else b"HTTP/1.1 400 Bad Request\r\n\r\n")

    def serve() -> None:
        for _ in range(2):
            threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/s")
        server.listen()
        threading.Thread(target=serve, daemon=True).start()
        ours = Queue("jobs", Client(Connection(f"unix://{tmp_path}/s", timeout_s=15)))

        with pytest.raises(OutcomeUnknown, match="Protocol error"):
            ours.send(b"x")
        with pytest.raises(OutcomeUnknown, match="Protocol error"):
            await ours.asend(b"x")


async def test_closed_port_is_a_failed_connection_in_async_calls_too():
    with pytest.raises(ConnectionFailed):
        await Queue("jobs", Client(Connection("redis://127.0.0.1:1"))).areceive()


def test_server_with_too_many_clients_stores_nothing_and_returns_an_error(server: PrivateServer, queue: Queue):
    with server.redis.client() as admin:  # one open socket, to undo it with
        admin.config_set("maxclients", 1)
        try:
            # It says why and hangs up at once, so that its words do not always arrive.
            with pytest.raises((ServerRefused, ConnectionFailed)):
                Queue("jobs", Client(Connection(server.url, timeout_s=15))).send(b"x")
        finally:
            admin.config_set("maxclients", 1000)

    assert queue.attributes().messages == 0


@pytest.mark.slow
def test_queue_works_as_soon_as_the_server_is_back(server: PrivateServer, queue: Queue):
    queue.send(b"before")
    server.kill()
    with pytest.raises(RsmqError):
        queue.send(b"while it is down")

    server.start()

    queue.send(b"after")
    assert [message.body for message in queue.receive_many(10)] == [b"before", b"after"]


# -- Sharing -------------------------------------------------------------------------------------------------------


def test_calls_one_after_another_use_one_socket(proxy: FaultProxy, queue: Queue):
    ours = Queue("jobs", Client(Connection(proxy.url, timeout_s=15)))

    for _ in range(20):
        ours.send(b"x")

    assert proxy.connections == 1


async def test_async_calls_one_after_another_use_one_socket(proxy: FaultProxy, queue: Queue):
    ours = Queue("jobs", Client(Connection(proxy.url, timeout_s=15)))

    for _ in range(20):
        await ours.asend(b"x")

    assert proxy.connections == 1
    await ours.client.connection.aclose()


def test_threads_share_a_connection_and_each_gets_its_own_replies(server: PrivateServer, queue: Queue):
    shared = Queue("jobs", Client(Connection(server.url, timeout_s=10)))
    bodies = [f"body {number}".encode() for number in range(800)]

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(shared.send, bodies))

    assert server.redis.hmget("rsmq:jobs:Q", ids) == bodies


async def test_tasks_share_a_connection_and_each_gets_its_own_replies(server: PrivateServer, queue: Queue):
    shared = Queue("jobs", Client(Connection(server.url, timeout_s=10)))
    bodies = [f"body {number}".encode() for number in range(200)]

    ids = await asyncio.gather(*(shared.asend(body) for body in bodies))

    assert server.redis.hmget("rsmq:jobs:Q", ids) == bodies
    await shared.client.connection.aclose()


def test_socket_that_another_thread_takes_at_this_moment_is_not_there(queue: Queue):
    class Emptied(deque[object]):
        """Is empty when somebody who has seen a socket wants it."""

        def __len__(self) -> int:
            return 1

    connection = Connection(queue.client.connection.url)
    connection._idle = Emptied()

    assert not connection.has_open_socket
    assert connection.open_server is None


def test_one_connection_serves_event_loops_one_after_another(queue: Queue):
    for number in range(3):
        asyncio.run(queue.asend(str(number)))

    assert [message.body for message in queue.receive_many(3)] == [b"0", b"1", b"2"]


def test_closed_connection_opens_again(proxy: FaultProxy, queue: Queue):
    ours = Queue("jobs", Client(Connection(proxy.url, timeout_s=15)))
    ours.send(b"a")

    ours.client.connection.close()
    ours.send(b"b")

    assert proxy.connections == 2
    assert queue.attributes().messages == 2


def test_connection_survives_a_fork(server: PrivateServer, queue: Queue):
    program = textwrap.dedent(f"""
        import os
        from rsmq_django.core import Client, Connection, Queue

        queue = Queue("jobs", Client(Connection({server.url!r}, timeout_s=15)))
        queue.send(b"parent before")
        child = os.fork()
        who = "parent" if child else "child"
        sent = {{queue.send(f"{{who}} {{number}}"): f"{{who}} {{number}}" for number in range(200)}}
        for message in queue.receive_many(1, visibility_timeout_s=0):
            assert message.body
        queue.client.connection.close()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            assert len(sent) == 200
    """)

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=180)

    assert done.returncode == 0, done.stderr
    assert queue.attributes().total_sent == 401


def test_other_timeout_is_another_connection_to_the_same_server(server: PrivateServer, queue: Queue):
    patient = queue.client.connection.with_timeout(5)

    Queue("jobs", Client(patient)).send(b"x")

    assert patient is not queue.client.connection
    assert queue.attributes().messages == 1


def test_subscription_has_a_socket_of_its_own(server: PrivateServer, proxy: FaultProxy, queue: Queue):
    connection = Connection(proxy.url, timeout_s=15)
    loud = Queue("jobs", Client(connection), realtime=True)

    subscriber = connection.subscriber([loud.keys.channel])
    wait_until(lambda: server.redis.pubsub_numsub(loud.keys.channel)[0][1])
    loud.send(b"x")

    heard = wait_until(lambda: subscriber.get_message(ignore_subscribe_messages=True, timeout=0.01))
    assert heard["data"] == b"1"
    assert proxy.connections == 2
    subscriber.close()


@pytest.fixture
def replica(server: PrivateServer) -> Iterator[Callable[[], object]]:
    """Return the function that turns the server into a replica, as a failover does with what was the primary."""
    yield lambda: server.redis.execute_command("REPLICAOF", "127.0.0.1", "1")
    server.redis.execute_command("REPLICAOF", "NO", "ONE")


def test_error_of_a_replica_says_that_the_url_should_name_the_primary(queue: Queue, replica: Callable[[], object]):
    replica()

    with pytest.raises(ServerRefused, match="the server is a replica.*URL should name the primary, or its sentinels"):
        queue.send(b"a")


async def test_sockets_to_a_server_that_became_a_replica_are_closed(queue: Queue, replica: Callable[[], object]):
    connection, who = queue.client.connection, ("CLIENT", "ID")
    before, abefore = connection.exchange([who]), await connection.aexchange([who])
    replica()

    with pytest.raises(ServerRefused, match="nothing was changed, try again later"):
        queue.send(b"a")
    with pytest.raises(ServerRefused, match="nothing was changed, try again later"):
        await queue.asend(b"a")

    # Its name may lead to another server by now, which only a new socket finds.
    assert connection.exchange([who]) != before and await connection.aexchange([who]) != abefore
    await connection.aclose()


def test_server_with_too_many_clients_reports_the_limit_to_raise(tmp_path: Path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening, ThreadPoolExecutor(1) as pool:
        listening.bind(str(path))
        listening.listen()
        full = Connection(f"unix://{path}", timeout_s=15)
        asked = pool.submit(full.exchange, [("PING",)])
        client, _ = listening.accept()
        with client:
            client.recv(1)
            client.sendall(b"-ERR max number of clients reached\r\n")
            with pytest.raises(ServerRefused, match="maximum number of clients; raise maxclients"):
                asked.result(30)


def test_socket_is_asked_whether_it_is_open_by_one_thread_at_a_time(
    server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    connection, asked, is_readable = Connection(server.url), list[Wire](), Wire.is_readable
    connection.exchange([("PING",)])

    def in_another_thread_meanwhile(wire: Wire) -> bool:
        asked.append(wire)
        if len(asked) == 1:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(connection.exchange, [("PING",)]).result()
        return is_readable(wire)

    monkeypatch.setattr(Wire, "is_readable", in_another_thread_meanwhile)

    assert not connection.must_connect
    assert asked.count(asked[0]) == 1
