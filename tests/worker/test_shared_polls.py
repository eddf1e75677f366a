"""Idle polls of many connections to one server: one request asks which of them have messages."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.core import Connection
from rsmq_django.queues import get_queue
from rsmq_django.worker.side_by_side import SideBySide
from rsmq_django.worker.sources import queues as source_module
from rsmq_django.worker.sources.queues import QueueSource
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, new_worker

SHARDS = 4


def idle_sources() -> list[QueueSource]:
    """Return the sources of a worker on all shards, each with an open socket and a poll that is due."""
    sources = [source for source in new_worker(poll_interval_s=3600).sources if isinstance(source, QueueSource)]
    for source in sources:
        wait_until(lambda source=source: source.exchange(1) == [] and source.is_empty)  # type: ignore[misc]
        make_due(source)
    return sources


def make_due(source: QueueSource) -> None:
    """Let the poll interval of a source be over."""
    source.poll_schedule._fetch_at = source.poll_schedule._idle_poll_at = 0.0


def turn(sources: list[QueueSource], room: int = 1, side_by_side: SideBySide | None = None) -> dict[int, int]:
    """Return how many messages each shard with an exchange in this turn gave."""
    side_by_side = side_by_side or SideBySide()
    return {
        sources.index(source): len(source.exchange(side_by_side.room_of(source)))
        for source in side_by_side.exchange(sources, room, at_most=100)
        if isinstance(source, QueueSource)
    }


@pytest.fixture
def sharded(project: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project with one queue of four shards, whose idle polls never fetch."""
    project(default={"SHARDS": SHARDS})
    monkeypatch.setattr(source_module, "POLLS_PER_FETCH", 10**9)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the requests that are sent without waiting for the reply of the one before."""
    begin, sent = Connection.begin, list[bytes]()

    def noted(connection: Connection, request: bytes) -> Any:
        sent.append(request)
        return begin(connection, request)

    monkeypatch.setattr(Connection, "begin", noted)
    return sent


def send_in_silence(shard: int) -> None:
    """Send a message as a client that does not publish."""
    queue = get_queue("default", shard=shard)
    queue.client.ask([("ZADD", queue.keys.messages, 0, "a" * 32), ("HSET", queue.keys.settings, "a" * 32, "{}")])


def test_idle_polls_of_all_shards_are_one_request(sharded: None, requests: list[bytes]):
    sources = idle_sources()

    assert turn(sources) == {}

    assert len(requests) == 1 and requests[0].count(b"EVALSHA") == SHARDS
    assert all(source.next_exchange_at(1) for source in sources)
    assert turn(sources) == {} and len(requests) == 1


def test_only_a_worker_on_several_connections_polls_them_together(sharded: None, settings: Any):
    times = {source.poll_schedule._polls_from for source in idle_sources()}
    assert len(times) == 1 and times != {None}

    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"default": {}}}

    assert [source.poll_schedule._polls_from for source in idle_sources()] == [None]


def test_message_of_a_sender_that_does_not_publish_is_found_by_an_idle_poll(sharded: None):
    sources = idle_sources()
    send_in_silence(2)

    assert turn(sources) == {}
    assert [source.is_fetch_due for source in sources] == [False, False, True, False]
    assert turn(sources) == {2: 1}


def test_delayed_message_is_waited_for_after_an_idle_poll(sharded: None):
    sources = idle_sources()
    get_queue("default", shard=1).send("{}", delay_s=1800)

    turn(sources)

    first, second = (sources[at].next_exchange_at(1) for at in (0, 1))
    assert first is not None and second is not None and 1000 < first - second < 3600


def test_shard_with_a_new_priority_is_fetched_from(sharded: None):
    sources = idle_sources()
    queue = get_queue("default", shard=1)
    queue.client.ask([("SADD", f"{queue.client.namespace}:QUEUES", "default-p9")])

    turn(sources)

    assert [source.is_fetch_due for source in sources] == [False, True, False, False]


def test_some_idle_polls_of_each_shard_fetch(sharded: None, requests: list[bytes], monkeypatch: pytest.MonkeyPatch):
    sources = idle_sources()
    monkeypatch.setattr(source_module, "POLLS_PER_FETCH", SHARDS)
    fetched = list[int]()
    for _ in range(SHARDS):
        for source in sources:
            make_due(source)
        fetched += turn(sources)

    assert sorted(fetched) == list(range(SHARDS))


def test_publish_is_fetched_for_instead_of_asking(sharded: None):
    sources = idle_sources()
    for source in sources:
        source.poll_schedule.has_wakeup = True

    assert turn(sources, room=SHARDS) == dict.fromkeys(range(SHARDS), 0)


def test_worker_without_room_asks_nothing(sharded: None, requests: list[bytes]):
    sources = idle_sources()

    assert turn(sources, room=0) == {} and requests == []


def test_shards_without_a_common_socket_fetch_each_for_itself(sharded: None, monkeypatch: pytest.MonkeyPatch):
    sources = idle_sources()
    monkeypatch.setattr(Connection, "begin", lambda connection, request: None)

    turn(sources)

    assert all(source.is_fetch_due for source in sources)


@pytest.fixture
def proxied(settings: Any, server: PrivateServer, sharded: None) -> Any:
    """The same project behind a proxy."""
    with FaultProxy(server.url) as proxy:
        connection = {**settings.RSMQ["CONNECTIONS"]["default"], "URL": proxy.url, "TIMEOUT_S": 15}
        settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": connection}}
        yield proxy


def test_server_that_does_not_answer_is_waited_for_once(proxied: FaultProxy, monkeypatch: pytest.MonkeyPatch):
    sources = idle_sources()
    for source in sources:
        monkeypatch.setattr(source.client.connection, "timeout_s", 0.2)
    proxied.black_hole()
    reads = list[Connection]()
    monkeypatch.setattr(Connection, "finish", lambda connection, *_: reads.append(connection))

    assert turn(sources) == {}

    assert all(source.is_unavailable and not source.client.connection.has_open_socket for source in sources)
    assert reads == []


def test_messages_are_received_after_the_server_has_closed_its_sockets(proxied: FaultProxy):
    sources = idle_sources()
    send_in_silence(3)
    proxied.hold_replies()
    side_by_side = SideBySide()
    proxied.refuse()
    proxied.reset_connections()
    list(side_by_side.exchange(sources, 1, at_most=100))
    proxied.release()

    found = dict[int, int]()

    def is_received() -> bool:
        for source in sources:
            source.fetch_now()
        for at, number in turn(sources, SHARDS, side_by_side).items():
            found[at] = found.get(at, 0) + number
        return found.get(3) == 1

    wait_until(is_received)
