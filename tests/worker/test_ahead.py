"""A busy worker asks for the next messages before it hands out what has arrived: nothing gets lost by that."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rsmq_django.core.call import load_script
from rsmq_django.core.errors import ServerRefused
from rsmq_django.queues import get_queue
from rsmq_django.worker.delivery import Delivery
from rsmq_django.worker.execution import Execution
from rsmq_django.worker.fetcher import Fetcher
from rsmq_django.worker.outcomes import NOTHING_RETURNED, Dead, Released
from rsmq_django.worker.worker import Worker
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, new_worker, send_raw, working


def worker_that_holds(held: int, *, of: int) -> tuple[Worker, Fetcher, list[Delivery]]:
    """Return a worker that has just fetched so many of the messages, and did nothing with them yet."""
    worker = new_worker()
    fetcher = worker.fetchers[0]
    assert isinstance(fetcher, Fetcher)
    wait_until(lambda: fetcher.exchange(held) == [] and fetcher.is_drained)  # from now on it knows its queues
    for _ in range(of):
        send_raw(b"hello")
    fetcher.look_now()
    return worker, fetcher, fetcher.exchange(held)


def ready_messages() -> int:
    return get_queue("default").attributes().ready_messages


# -- What it asks ----------------------------------------------------------------------------------------------------


def test_next_messages_are_under_way_while_the_first_are_handed_out(project: Configure):
    _worker, fetcher, held = worker_that_holds(2, of=5)

    fetcher.ask_ahead(2, at_most=1000)

    assert fetcher.is_looking
    assert fetcher.next_exchange_at(0) == 0.0
    arrived = fetcher.exchange(0)
    assert len({delivery.message.id for delivery in [*held, *arrived]}) == 4


def test_outcomes_go_along(project: Configure):
    worker, fetcher, (first, _) = worker_that_holds(2, of=4)
    fetcher.settle(Execution(first, desk=fetcher, announcer=worker.announcer), NOTHING_RETURNED)

    fetcher.ask_ahead(2, at_most=1000)

    assert len(fetcher.exchange(0)) == 2
    assert get_queue("default").attributes().messages == 3


def test_outcomes_wait_as_long_as_they_are_allowed_to(project: Configure):
    worker, fetcher, (first, _) = worker_that_holds(2, of=2)
    fetcher.settle(Execution(first, desk=fetcher, announcer=worker.announcer), NOTHING_RETURNED)
    fetcher.statistics = None  # what it has counted is due at once

    assert fetcher.next_exchange_at(0) == 0.0
    assert fetcher.next_exchange_at(0, patience_s=60.0) != 0.0


@pytest.mark.parametrize(("held", "of", "room"), [(2, 4, 1), (2, 1, 2)], ids=["no room for as much", "no more there"])
def test_it_asks_only_when_there_may_be_as_much_again(project: Configure, held: int, of: int, room: int):
    _worker, fetcher, _held = worker_that_holds(held, of=of)

    fetcher.ask_ahead(room, at_most=1000)

    assert not fetcher.is_looking


# -- When something happens meanwhile --------------------------------------------------------------------------------


def test_lost_answer_costs_neither_outcome_nor_attempt(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        worker, fetcher, (first, _) = worker_that_holds(2, of=4)
        fetcher.settle(Execution(first, desk=fetcher, announcer=worker.announcer), NOTHING_RETURNED)
        proxy.lose_reply_to(load_script("worker/fetch").sha1.encode())

        fetcher.ask_ahead(2, at_most=1000)
        assert fetcher.exchange(0) == []

        arrived = wait_until(lambda: fetcher.exchange(2))
        assert [delivery.attempt for delivery in arrived] == [1, 1]
        assert get_queue("default").attributes().messages == 3


def test_broken_connection_costs_nothing(configure: Configure, server: PrivateServer):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        worker, fetcher, (first, _) = worker_that_holds(2, of=4)
        fetcher.settle(Execution(first, desk=fetcher, announcer=worker.announcer), NOTHING_RETURNED)
        proxy.reset_connections()

        fetcher.ask_ahead(2, at_most=1000)

        assert len(wait_until(lambda: fetcher.exchange(2))) == 2
        assert get_queue("default").attributes().messages == 3


def test_what_arrives_in_a_worker_that_stops_is_given_back(project: Configure):
    worker, fetcher, held = worker_that_holds(2, of=4)
    for delivery in held:
        fetcher.settle(Execution(delivery, desk=fetcher, announcer=worker.announcer), Released())
    fetcher.ask_ahead(2, at_most=1000)

    worker.stop(within_s=0)
    worker.run()

    assert ready_messages() == 4


# -- Coroutines ------------------------------------------------------------------------------------------------------


def test_coroutines_wait_for_a_place_and_are_given_back_when_none_becomes_free(project: Configure):
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
    worker, fetcher, (first, _) = worker_that_holds(2, of=4)
    server.redis.set("rsmq:default-dead", "not a sorted set")
    execution = Execution(first, desk=fetcher, announcer=worker.announcer)
    fetcher.settle(execution, Dead("crashed", OSError("no disk")))
    fetcher.exchange(0)
    assert fetcher.tray.refused and not fetcher.outage.is_on
    fetcher._filled = 2  # what the last look found

    fetcher.ask_ahead(2, at_most=1000)
    assert fetcher.next_exchange_at(0) != 0.0, "nothing is under way"

    server.redis.delete("rsmq:default-dead")
    wait_until(lambda: not fetcher.exchange(0) and not fetcher.tray.refused)
    fetcher._filled = 2
    fetcher.ask_ahead(2, at_most=1000)
    assert fetcher.is_looking
    fetcher.flush()


def test_server_without_its_replicas_is_an_outage_and_no_damaged_queue(project: Configure, server: PrivateServer):
    worker, fetcher, (first, _) = worker_that_holds(2, of=2)
    fetcher.settle(Execution(first, desk=fetcher, announcer=worker.announcer), NOTHING_RETURNED)
    server.redis.config_set("min-replicas-to-write", 1)
    try:
        fetcher.exchange(0)
        assert fetcher.outage.is_on and not fetcher.tray.refused
        with pytest.raises(ServerRefused, match="cannot do it now .NOREPLICAS.* try again later"):
            get_queue("default").send("refused")
    finally:
        server.redis.config_set("min-replicas-to-write", 0)

    wait_until(lambda: fetcher.exchange(0) == [] and not fetcher.tray.count)
    assert get_queue("default").attributes().messages == 1
