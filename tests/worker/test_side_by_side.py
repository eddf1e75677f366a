"""Exchanges on several connections in one turn: all are sent before the first reply is read."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from rsmq_django.core import Connection
from rsmq_django.worker.fetch.wakeup import Wakeup
from rsmq_django.worker.side_by_side import SideBySide, can_overlap
from rsmq_django.worker.sources.queues import QueueSource
from rsmq_django.worker.worker import Worker
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, new_worker, work

SHARDS = 4
FETCH = b"EVALSHA"


@pytest.fixture
def proxies(server: PrivateServer) -> Iterator[list[FaultProxy]]:
    with ExitStack() as stack:
        yield [stack.enter_context(FaultProxy(server.url)) for _ in range(3)]


@pytest.fixture
def spread(settings: Any, proxies: list[FaultProxy]) -> None:
    """A project with a queue on each of three connections, which lead to one server."""
    names = ("a", "b", "c")
    settings.RSMQ = {
        "CONNECTIONS": {
            name: {"URL": proxy.url, "NAMESPACE": name, "TIMEOUT_S": 15}
            for name, proxy in zip(names, proxies, strict=True)
        },
        "QUEUES": {name: {"CONNECTION": name} for name in names},
        "TASKS": {"ENQUEUE_ON_COMMIT": False},
    }


def connected(worker: Worker) -> list[QueueSource]:
    """Return the sources of a worker, each after its first exchanges: it has an open socket, and fetches again."""
    sources = [source for source in worker.sources if isinstance(source, QueueSource)]
    for source in sources:
        wait_until(lambda source=source: source.exchange(1) == [] and source.is_empty)  # type: ignore[misc]
        source.fetch_now()
    return sources


def send_to_all(sources: list[QueueSource]) -> None:
    for source in sources:
        source.queues[0].queue.send("{}")


def test_requests_of_all_connections_are_sent_before_the_first_reply_is_read(spread: None, proxies: list[FaultProxy]):
    sources = connected(new_worker())
    before = [proxy.times_seen(FETCH) for proxy in proxies]
    for proxy in proxies:
        proxy.hold_replies()
    turn = SideBySide().exchange(sources, 3, at_most=100)

    proxies[2].release()
    first = next(turn)

    assert first is sources[2]
    wait_until(lambda: all(proxy.times_seen(FETCH) > seen for proxy, seen in zip(proxies, before, strict=True)))
    for proxy in proxies:
        proxy.release()
    assert {id(each) for each in turn} == {id(each) for each in sources[:2]}
    assert [source.exchange(1) for source in sources] == [[]] * 3


def test_server_that_does_not_answer_keeps_no_message_of_the_others_and_costs_one_timeout(
    spread: None, proxies: list[FaultProxy], monkeypatch: pytest.MonkeyPatch
):
    sources = connected(new_worker())
    send_to_all(sources[2:])
    for source in sources[:2]:
        monkeypatch.setattr(source.client.connection, "timeout_s", 0.2)
    reads: list[Connection] = []
    finish = Connection.finish

    def noted(connection: Connection, link: Any, commands: Any) -> Any:
        reads.append(connection)
        return finish(connection, link, commands)

    monkeypatch.setattr(Connection, "finish", noted)
    for proxy in proxies[:2]:
        proxy.black_hole()

    side_by_side = SideBySide()
    received = [
        (source, len(source.exchange(side_by_side.room_of(source), at_most=100)))
        for source in side_by_side.exchange(sources, 3, at_most=100)
    ]

    assert received == [(sources[2], 1)]
    assert [source.is_unavailable for source in sources] == [True, True, False]
    assert reads == [sources[2].client.connection]  # no other one was waited for on its own


def test_room_is_divided_between_those_that_fetch_and_goes_round(spread: None):
    sources = connected(new_worker())
    side_by_side = SideBySide()

    def rooms(room: int) -> list[int]:
        side_by_side._divide(sources, room)
        return [side_by_side.room_of(source) for source in sources]

    assert rooms(5) == [2, 2, 1]
    assert [rooms(1) for _ in range(4)] == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    sources[1].poll_schedule.begin()
    sources[1].poll_schedule._fetch_at = float("inf")
    assert rooms(4) == [2, 0, 2]


def turn(side_by_side: SideBySide, sources: list[QueueSource]) -> dict[QueueSource, int]:
    """Return how many messages each source with an exchange in this turn received."""
    return {
        source: len(source.exchange(side_by_side.room_of(source)))
        for source in side_by_side.exchange(sources, 3, at_most=100)
        if isinstance(source, QueueSource)
    }


def test_server_that_does_not_answer_is_connected_to_by_another_thread_and_keeps_no_turn_waiting(
    spread: None, proxies: list[FaultProxy], monkeypatch: pytest.MonkeyPatch
):
    sources = connected(new_worker())
    send_to_all(sources)
    silent, *others = sources
    silent.client.connection.close()
    proxies[0].black_hole()
    connect, by = Connection._connect, list[str]()

    def noted(connection: Connection, link: Any) -> None:
        by.append(threading.current_thread().name)
        connect(connection, link)

    monkeypatch.setattr(Connection, "_connect", noted)
    side_by_side = SideBySide()

    assert turn(side_by_side, sources) == dict.fromkeys(others, 1)
    send_to_all(others)
    for source in others:
        source.fetch_now()
    assert turn(side_by_side, sources) == dict.fromkeys(others, 1)
    assert silent.next_exchange_at(1) is None

    proxies[0].release()
    wait_until(lambda: turn(side_by_side, sources).get(silent) == 1)
    assert set(by) == {f"connect {silent.client.connection!r}"}


def test_servers_that_close_their_sockets_and_are_silent_then_keep_no_turn_waiting(
    spread: None, proxies: list[FaultProxy], monkeypatch: pytest.MonkeyPatch
):
    sources = connected(new_worker())
    send_to_all(sources[2:])
    for proxy in proxies[:2]:
        proxy.reset_connections()
        proxy.black_hole()
    wait_until(lambda: all(source.client.connection.must_connect for source in sources[:2]))
    connect, by = Connection._connect, list[str]()

    def noted(connection: Connection, link: Any) -> None:
        by.append(threading.current_thread().name)
        connect(connection, link)

    monkeypatch.setattr(Connection, "_connect", noted)

    assert turn(SideBySide(), sources) == {sources[2]: 1}
    wait_until(lambda: len(by) == 2)
    assert set(by) == {f"connect {source.client.connection!r}" for source in sources[:2]}


def test_worker_that_can_start_no_thread_connects_by_itself(spread: None, monkeypatch: pytest.MonkeyPatch):
    sources = connected(new_worker())
    send_to_all(sources)
    for source in sources:
        source.client.connection.close()

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    side_by_side = SideBySide()

    assert turn(side_by_side, sources) == {}
    wait_until(lambda: turn(side_by_side, sources) == dict.fromkeys(sources, 1))


def test_messages_of_servers_that_were_unavailable_are_received_afterwards(spread: None, proxies: list[FaultProxy]):
    sources = connected(new_worker())
    send_to_all(sources)
    for proxy in proxies:
        proxy.refuse()
        proxy.reset_connections()
    side_by_side = SideBySide()

    def all_are_unavailable() -> bool:
        return not turn(side_by_side, sources) and all(source.is_unavailable for source in sources)

    wait_until(all_are_unavailable)
    for proxy in proxies:
        proxy.release()
    received = Counter[QueueSource]()

    def all_are_received() -> bool:
        received.update(turn(side_by_side, sources))
        return received == dict.fromkeys(sources, 1)

    wait_until(all_are_received)
    assert not any(source.is_unavailable for source in sources)


def test_channels_are_subscribed_to_only_on_servers_that_answer(
    spread: None, proxies: list[FaultProxy], monkeypatch: pytest.MonkeyPatch
):
    proxies[1].refuse()
    worker, listener, subscribed = new_worker(), Connection.listener, list[str]()

    def noted(connection: Connection, *channels: Any, **options: Any) -> Any:
        subscribed.append(connection.url)
        return listener(connection, *channels, **options)

    monkeypatch.setattr(Connection, "listener", noted)
    sources = [source for source in worker.sources if isinstance(source, QueueSource)]
    for source in sources:
        source.start(worker.wakeup, lambda: True)
        source.exchange(1)
        assert source._subscription is not None
        source._subscription.reconnect_if_due()
        source.stop()

    assert subscribed == [proxies[0].url, proxies[2].url]


@pytest.mark.parametrize("options", [{}, {"max_tasks": 7}])
def test_queue_with_shards_is_drained_whether_exchanges_overlap_or_not(project: Configure, options: dict[str, Any]):
    project(default={"SHARDS": SHARDS})
    seen: list[int] = []
    declared = declare(lambda number: seen.append(number))
    declared.enqueue_many([[number] for number in range(7)])

    assert (new_worker(**options)._side_by_side is None) is bool(options)
    assert work(**options)

    assert sorted(seen) == list(range(7))


def test_worker_on_one_connection_has_nothing_to_overlap(project: Configure):
    assert not can_overlap(new_worker().sources)


@pytest.mark.parametrize("number", [1, 2])
def test_publishes_of_several_connections_are_read_although_a_turn_is_due_at_once(number: int):
    """A worker on one connection fetches in that turn anyway."""
    wakeup, reads = Wakeup(), list[int]()
    with ExitStack() as stack:
        stack.callback(wakeup.close)
        for _ in range(number):
            reader, writer = os.pipe()
            stack.callback(os.close, reader)
            stack.callback(os.close, writer)
            os.write(writer, b".")
            subscription: Any = SimpleNamespace(
                descriptor=reader,
                reconnect_if_due=lambda: None,
                read_and_fetch=lambda reader=reader: reads.append(reader),
            )
            wakeup.subscribe(subscription)

        wakeup.sleep(lambda: 0.0, at_most_s=5)

    assert len(reads) == (number if number > 1 else 0)
