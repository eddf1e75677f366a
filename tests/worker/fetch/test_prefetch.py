"""A busy worker asks for the next messages before it hands out what has arrived: nothing gets lost by that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from rsmq_django.core.errors import ServerRefused
from rsmq_django.core.stats.history import read_totals
from rsmq_django.core.transport.call import load_script
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import consumer
from rsmq_django.worker.delivery import Delivery
from rsmq_django.worker.execute.execution import Execution
from rsmq_django.worker.execute.pool import MOST_AHEAD_BYTES
from rsmq_django.worker.outcomes import NOTHING_RETURNED, Dead, Released
from rsmq_django.worker.sources.queues import QueueSource
from rsmq_django.worker.worker import Worker
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer, without_its_disk
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, new_worker, send_raw, work, working


def worker_that_holds(held: int, *, of: int) -> tuple[Worker, QueueSource, list[Delivery]]:
    """Return a worker that has just fetched so many of the messages, and did nothing with them yet."""
    worker = new_worker()
    source = worker.sources[0]
    assert isinstance(source, QueueSource)
    wait_until(lambda: source.exchange(held) == [] and source.is_drained)  # from now on it knows its queues
    for _ in range(of):
        send_raw(b"hello")
    source.fetch_now()
    return worker, source, source.exchange(held)


def ready_messages() -> int:
    return get_queue("default").attributes().ready_messages


# -- What it asks ----------------------------------------------------------------------------------------------------


def test_next_messages_are_under_way_while_the_first_are_handed_out(project: Configure):
    _worker, source, held = worker_that_holds(2, of=5)

    source.fetch_ahead(2, at_most=1000)

    assert source.is_fetch_pending
    assert source.next_exchange_at(0) == 0.0
    arrived = source.exchange(0)
    assert len({delivery.message.id for delivery in [*held, *arrived]}) == 4


def test_outcomes_go_along(project: Configure):
    worker, source, (first, _) = worker_that_holds(2, of=4)
    source.settle(Execution(first, sink=source, notifier=worker.notifier), NOTHING_RETURNED)

    source.fetch_ahead(2, at_most=1000)

    assert len(source.exchange(0)) == 2
    assert get_queue("default").attributes().messages == 3


def test_outcomes_wait_up_to_the_allowed_time(project: Configure):
    worker, source, (first, _) = worker_that_holds(2, of=2)
    source.settle(Execution(first, sink=source, notifier=worker.notifier), NOTHING_RETURNED)
    source.statistics = None  # what it has counted is due at once

    assert source.next_exchange_at(0) == 0.0
    assert source.next_exchange_at(0, settle_within_s=60.0) != 0.0


@pytest.mark.parametrize(("held", "of", "room"), [(2, 4, 1), (2, 1, 2)], ids=["no room for as much", "no more there"])
def test_next_exchange_is_sent_early_only_when_there_may_be_as_many_messages_again(
    project: Configure, held: int, of: int, room: int
):
    _worker, source, _held = worker_that_holds(held, of=of)

    source.fetch_ahead(room, at_most=1000)

    assert not source.is_fetch_pending


# -- When something happens meanwhile --------------------------------------------------------------------------------


def test_worker_holds_few_long_messages_at_a_time(configure: Configure, monkeypatch: pytest.MonkeyPatch):
    configure(default={"MAX_SIZE_BYTES": -1})
    seen: list[int] = []
    held: list[int] = []
    consumer("default")(lambda message: seen.append(len(message.body)))
    for size, count in ((1, 1000), (500_000, 100)):
        for at in range(0, count, 50):
            ensure_queue("default").send_many([b"x" * size] * min(50, count - at))
    exchange = QueueSource.exchange

    def noting(source: QueueSource, room: int, **options: Any) -> list[Delivery]:
        found = exchange(source, room, **options)
        held.append(sum(delivery.body_bytes for delivery in source.leases.held()))
        return found

    monkeypatch.setattr(QueueSource, "exchange", noting)
    assert work(threads=4)

    assert len(seen) == 1100
    assert max(held) < 2 * MOST_AHEAD_BYTES + 5 * 500_000


def test_lost_answer_costs_neither_outcome_nor_attempt(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        worker, source, (first, _) = worker_that_holds(2, of=4)
        source.settle(Execution(first, sink=source, notifier=worker.notifier), NOTHING_RETURNED)
        proxy.lose_reply_to(load_script("tasks/worker/fetch").sha1.encode())

        source.fetch_ahead(2, at_most=1000)
        assert source.exchange(0) == []

        arrived = wait_until(lambda: source.exchange(2))
        assert [delivery.attempt for delivery in arrived] == [1, 1]
        assert get_queue("default").attributes().messages == 3


def test_broken_connection_costs_nothing(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        worker, source, (first, _) = worker_that_holds(2, of=4)
        source.settle(Execution(first, sink=source, notifier=worker.notifier), NOTHING_RETURNED)
        proxy.reset_connections()

        source.fetch_ahead(2, at_most=1000)

        assert len(wait_until(lambda: source.exchange(2))) == 2
        assert get_queue("default").attributes().messages == 3


def test_outcome_that_went_along_is_counted_when_the_worker_stops(project: Configure):
    worker, source, (first, _) = worker_that_holds(2, of=4)
    source.settle(Execution(first, sink=source, notifier=worker.notifier), NOTHING_RETURNED)
    source.fetch_ahead(2, at_most=1000)

    source.flush()

    (counts,) = read_totals(get_client(), ["default"])["default"].values()
    assert counts.succeeded == 1
    assert ready_messages() == 2


def test_messages_that_arrive_in_a_stopping_worker_are_released(project: Configure):
    worker, source, held = worker_that_holds(2, of=4)
    for delivery in held:
        source.settle(Execution(delivery, sink=source, notifier=worker.notifier), Released())
    source.fetch_ahead(2, at_most=1000)

    worker.stop(within_s=0)
    worker.run()

    assert ready_messages() == 4


# -- Coroutines ------------------------------------------------------------------------------------------------------


def test_coroutines_wait_for_a_slot_and_are_released_when_none_becomes_free(
    project: Configure, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.worker.execute.pool.STUCK_AFTER_S", 0.5)
    begun: list[int] = []
    gate = threading.Event()

    async def waits(number: int) -> None:
        begun.append(number)
        await asyncio.to_thread(gate.wait, 60)

    declared = declare(waits)
    with working(threads=1, async_tasks=1) as worker:
        worker.pool._sync_share = 0.0  # what a worker learns from many quick coroutines: it fetches ahead
        for _ in range(200):
            worker.pool._async_pace.note(0.0001)
        declared.enqueue_many([[number] for number in range(3)])

        wait_until(lambda: worker.taken == 3)
        wait_until(lambda: ready_messages() == 2)
        assert len(begun) == 1
        gate.set()
        wait_until(lambda: sorted(begun) == [0, 1, 2])


def test_nothing_is_fetched_ahead_while_a_damaged_queue_refuses_outcomes(project: Configure, server: PrivateServer):
    worker, source, (first, _) = worker_that_holds(2, of=4)
    server.redis.set("rsmq:default-dead", "not a sorted set")
    execution = Execution(first, sink=source, notifier=worker.notifier)
    source.settle(execution, Dead("crashed", OSError("no disk")))
    source.exchange(0)
    assert source.pending.refused and not source.backoff.is_on
    source._filled = 2  # what the last look found

    source.fetch_ahead(2, at_most=1000)
    assert source.next_exchange_at(0) != 0.0, "nothing is under way"

    server.redis.delete("rsmq:default-dead")
    wait_until(lambda: not source.exchange(0) and not source.pending.refused)
    source._filled = 2
    source.fetch_ahead(2, at_most=1000)
    assert source.is_fetch_pending
    source.flush()


def test_server_without_its_replicas_is_an_outage_and_no_damaged_queue(project: Configure, server: PrivateServer):
    worker, source, (first, _) = worker_that_holds(2, of=2)
    source.settle(Execution(first, sink=source, notifier=worker.notifier), NOTHING_RETURNED)
    server.redis.config_set("min-replicas-to-write", 1)
    try:
        source.exchange(0)
        assert source.backoff.is_on and not source.pending.refused
        with pytest.raises(ServerRefused, match="cannot run the command now .NOREPLICAS.* try again later"):
            get_queue("default").send("refused")
    finally:
        server.redis.config_set("min-replicas-to-write", 0)

    wait_until(lambda: source.exchange(0) == [] and not source.pending.count)
    assert get_queue("default").attributes().messages == 1


@contextmanager
def without_replicas(server: PrivateServer) -> Iterator[None]:
    server.redis.config_set("min-replicas-to-write", 1)
    try:
        yield
    finally:
        server.redis.config_set("min-replicas-to-write", 0)


@contextmanager
def as_a_replica(server: PrivateServer) -> Iterator[None]:
    server.redis.replicaof("127.0.0.1", 1)
    try:
        yield
    finally:
        server.redis.replicaof("NO", "ONE")


@pytest.mark.parametrize("refusing", [without_replicas, as_a_replica, without_its_disk])
def test_fetch_that_the_server_refuses_is_an_outage_and_no_damaged_queue(
    project: Configure,
    server: PrivateServer,
    caplog: pytest.LogCaptureFixture,
    refusing: Callable[[PrivateServer], AbstractContextManager[None]],
):
    _worker, source, _ = worker_that_holds(1, of=2)

    with refusing(server):
        source.fetch_now()
        assert source.exchange(1) == []
        assert source.backoff.is_on
        assert "missing or damaged" not in caplog.text

    wait_until(lambda: source.exchange(1))
