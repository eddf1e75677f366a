"""Names of sockets in CLIENT LIST: the program and process that a connection belongs to."""

import os
import socket
from collections.abc import Iterator

import pytest

from rsmq_django import __version__
from rsmq_django.core import Connection
from rsmq_django.core.transport import handshake
from rsmq_django.core.transport.handshake import connection_name, set_process_role
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer


@pytest.fixture
def nameless(server: PrivateServer) -> Iterator[str]:
    """The address for a user who may not name its connections."""
    rules = ("reset", "on", ">secret", "~*", "&*", "+@all", "-client")
    server.redis.execute_command("ACL", "SETUSER", "nameless", *rules)
    yield server.url.replace("unix://", "unix://nameless:secret@")
    server.redis.execute_command("ACL", "DELUSER", "nameless")


def own_entry(connection: Connection) -> dict[str, str]:
    """Return the connection's entry in CLIENT LIST."""
    (identity,) = connection.exchange([("CLIENT", "ID")])
    (listed,) = connection.exchange([("CLIENT", "LIST", "ID", identity)])
    return dict(part.partition("=")[::2] for part in listed.decode().split())


@pytest.mark.needs_redis(7, 2)
def test_socket_has_the_role_host_and_process_in_its_name(server: PrivateServer):
    connection = Connection(server.url, timeout_s=15)

    entry = own_entry(connection)

    assert entry["name"] == connection_name(None) == f"rsmq:app:{socket.gethostname()}:{os.getpid()}"
    assert (entry["lib-name"], entry["lib-ver"]) == ("rsmq-django", __version__)
    connection.close()


def test_role_of_the_process_and_of_the_connection(server: PrivateServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(handshake, "_process_role", "app")
    set_process_role("worker")
    ours, special = Connection(server.url, timeout_s=15), Connection(server.url, timeout_s=15, role="pipeline")

    names = [own_entry(connection)["name"] for connection in (ours, special, special.with_timeout(5))]

    assert [name.split(":")[1] for name in names] == ["worker", "pipeline", "pipeline"]
    ours.close()
    special.close()


async def test_async_socket_and_subscription_have_the_name_too(server: PrivateServer):
    connection = Connection(server.url, timeout_s=15)
    subscriber = connection.subscriber(["rsmq:rt:x"])
    listener = connection.listener(["rsmq:rt:x"])

    (listed,) = await connection.aexchange([("CLIENT", "LIST")])

    assert listed.decode().count(f" name={connection_name(None)} ") == 3
    await connection.aclose()
    subscriber.connection_pool.disconnect()
    subscriber.close()
    listener.close()


def test_name_of_the_host_is_made_valid(server: PrivateServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "Ann's Mac\n" + "x" * 200)
    connection = Connection(server.url, timeout_s=15)

    assert own_entry(connection)["name"].startswith("rsmq:app:Ann-s-Mac-xxx")
    connection.close()


async def test_user_without_the_command_has_connections_without_a_name(nameless: str, server: PrivateServer):
    connection = Connection(nameless, timeout_s=15)

    assert connection.exchange([("PING",)]) == [b"PONG"]
    assert await connection.aexchange([("PING",)]) == [b"PONG"]

    entries = server.redis.client_list()
    assert {entry["name"] for entry in entries if entry["user"] == "nameless"} == {""}
    connection.close()
    await connection.aclose()


def test_names_take_one_round_trip_for_each_socket_and_none_later(proxy: FaultProxy):
    connection = Connection(proxy.url, timeout_s=15)
    for _ in range(3):
        connection.exchange([("PING",)])

    assert proxy.times_seen(b"SETNAME") == proxy.times_seen(b"LIB-NAME") == 1
    assert len(proxy.requests) == 4
    connection.close()
