"""Exchanges of many connections at a time: one request for those that lead to the same server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import OutcomeUnknown, RsmqError
from rsmq_django.core.transport.call import Call
from rsmq_django.core.transport.shared_exchanges import MOST_SHARED, Exchanges, run_side_by_side
from tests.exchanges import note_connections
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer

NAMESPACES = ("a", "b", "c")


@pytest.fixture
def proxies(server: PrivateServer) -> Iterator[list[FaultProxy]]:
    with ExitStack() as stack:
        yield [stack.enter_context(FaultProxy(server.url)) for _ in range(2)]


def clients_at(proxy: FaultProxy, *, timeout_s: float = 15) -> list[Client]:
    """Return clients with connections of their own to one server."""
    return [Client(Connection(proxy.url, timeout_s=timeout_s), namespace=name) for name in NAMESPACES]


def add(client: Client, member: str, read: Any = int) -> Call[int]:
    """Return the call that adds a member to a set of the namespace; the result is 1 if it was not there."""
    return Call("SADD", (f"{client.namespace}:set",), (member,), read, repeatable=True)


def added(client: Client, *members: str, found: dict[Client, list[Any]], read: Any = int) -> Exchanges[None]:
    """Add each member in an exchange of its own, and note the results, or the error that ended it."""
    try:
        for member in members:
            (result,) = yield [add(client, member, read)]
            found.setdefault(client, []).append(result)
    except Exception as error:
        found.setdefault(client, []).append(error)


@pytest.fixture
def exchanged(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    return note_connections(monkeypatch)


def test_calls_of_all_connections_to_a_server_are_one_request(proxies: list[FaultProxy], exchanged: list[Connection]):
    clients, found = clients_at(proxies[0]), dict[Client, list[Any]]()

    run_side_by_side((each, added(each, each.namespace, "x", found=found)) for each in clients)

    assert found == dict.fromkeys(clients, [1, 1])
    assert exchanged == [clients[0].connection] * 2
    assert proxies[0].connections == 1


def test_exchanges_may_differ_in_their_number_and_in_that_of_their_calls(server: PrivateServer):
    clients = [Client(Connection(server.url), namespace=name) for name in NAMESPACES]
    found = list[list[int]]()

    def steps(client: Client, count: int) -> Exchanges[None]:
        for size in range(count):
            found.append((yield [add(client, f"{size}-{number}") for number in range(size)]))

    run_side_by_side((each, steps(each, count)) for each, count in zip(clients, (0, 2, 4), strict=True))

    assert found == [[], [], [1], [1], [1, 1], [1, 1, 1]]
    assert [server.redis.scard(f"{name}:set") for name in NAMESPACES] == [0, 1, 6]


def test_very_many_calls_are_several_requests(server: PrivateServer, exchanged: list[Connection]):
    clients = [Client(Connection(server.url), namespace=name) for name in NAMESPACES]

    def steps(client: Client) -> Exchanges[None]:
        assert (yield [add(client, str(number)) for number in range(MOST_SHARED)]) == [1] * MOST_SHARED

    run_side_by_side((each, steps(each)) for each in clients)

    assert len(exchanged) == len(clients)


def test_single_connection_makes_its_exchanges_itself(server: PrivateServer, exchanged: list[Connection]):
    client, found = Client(Connection(server.url)), dict[Client, list[Any]]()

    run_side_by_side([(client, added(client, "x", "y", found=found))])

    assert found == {client: [1, 1]} and exchanged == [client.connection] * 2


def test_refused_call_is_made_once_more_on_its_own_connection(server: PrivateServer, exchanged: list[Connection]):
    clients, found = [Client(Connection(server.url), namespace=name) for name in NAMESPACES], dict[Client, list[Any]]()
    server.redis.set("b:set", "not a set")

    run_side_by_side((each, added(each, "x", found=found)) for each in clients)

    first, refused, last = (found[each] for each in clients)
    assert first == last == [1] and isinstance(refused[0], RsmqError)
    assert exchanged == [clients[0].connection, clients[1].connection]


def test_reply_that_cannot_be_read_ends_only_the_exchanges_that_asked_for_it(server: PrivateServer):
    clients, found = [Client(Connection(server.url), namespace=name) for name in NAMESPACES], dict[Client, list[Any]]()
    readers = (int, lambda reply: int("x"), int)

    run_side_by_side(
        (each, added(each, "x", "y", found=found, read=read)) for each, read in zip(clients, readers, strict=True)
    )

    assert found[clients[0]] == found[clients[2]] == [0, 1], "the first members were added by the shared request"
    assert [type(each) for each in found[clients[1]]] == [ValueError]


def test_server_that_does_not_answer_is_waited_for_once_and_others_are_used(
    proxies: list[FaultProxy], exchanged: list[Connection]
):
    silent, well = clients_at(proxies[0], timeout_s=0.2), clients_at(proxies[1])
    found = dict[Client, list[Any]]()
    proxies[0].black_hole()

    run_side_by_side((each, added(each, "x", "y", found=found)) for each in (*silent, *well))

    assert all(isinstance(error, RsmqError) for each in silent for error in found[each])
    assert found | dict.fromkeys(silent, []) == dict.fromkeys((*silent, *well), []) | dict.fromkeys(well, [1, 1])
    assert [each for each in exchanged if each in [client.connection for client in silent]] == [silent[0].connection]


def test_shared_request_is_repeated_once_when_its_socket_breaks(proxies: list[FaultProxy]):
    clients, found = clients_at(proxies[0]), dict[Client, list[Any]]()
    run_side_by_side((each, added(each, "x", found=found)) for each in clients)
    proxies[0].lose_reply_to(b"SADD")

    run_side_by_side((each, added(each, "y", found=found)) for each in clients)

    assert found == dict.fromkeys(clients, [1, 0])


def test_shared_request_that_gets_no_reply_twice_has_an_unknown_outcome(proxies: list[FaultProxy]):
    clients, found = clients_at(proxies[0]), dict[Client, list[Any]]()
    proxies[0].lose_reply_to(b"SADD", times=2)

    run_side_by_side((each, added(each, "x", found=found)) for each in clients)

    assert [type(found[each][0]) for each in clients] == [OutcomeUnknown] * len(clients)


def test_connections_with_other_users_or_timeouts_share_nothing(server: PrivateServer):
    first = Connection(server.url)

    assert first.server == Connection(server.url).server
    assert first.server != Connection(server.url, timeout_s=2).server
    assert first.server != Connection(server.url, credential_provider=object()).server


def test_each_connection_asks_for_the_nodes_where_a_cluster_is_expected(server: PrivateServer):
    clients = [Client(Connection(server.url), namespace=f"{{{name}}}") for name in NAMESPACES]
    assert len({each.connection.server for each in clients}) == len(clients)

    for each in clients:
        each.ask([("PING",)])

    assert len({each.connection.server for each in clients}) == 1
