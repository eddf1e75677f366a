"""`ack="each"`: nothing begins before Redis knows how the run before it went."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from rsmq_django.core import Message
from rsmq_django.queues import get_queue
from rsmq_django.reliable_queues import get_reliable_queue
from rsmq_django.tasks import BatchCall, consumer
from rsmq_django.worker.delivery import AckWaiter
from rsmq_django.worker.execute.execution import Execution
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, new_worker, queue_source, work, working

COUNT = 12


def left() -> int:
    return get_queue("default").attributes().messages


def function() -> None:
    """Do nothing."""


async def coroutine() -> None:
    """Do nothing."""


@pytest.mark.parametrize("run", [function, coroutine])
def test_slot_of_a_run_is_free_when_its_outcome_is_settled(project: Configure, run: Any):
    declare(ack="each")(run).enqueue()
    worker = new_worker(threads=1, async_tasks=1)
    source = queue_source(worker)
    worker.pool.start()

    (delivery,) = wait_until(lambda: source.exchange(1))
    worker.pool.submit(Execution(delivery, sink=source, notifier=worker.notifier))
    wait_until(lambda: delivery.ack_waiter.is_awaited)
    assert not worker.pool.is_idle
    assert left() == 1

    source.exchange(0)
    assert left() == 0
    wait_until(lambda: worker.pool.is_idle)
    worker.pool.stop()


def test_batches_are_acknowledged_before_the_next_begins(project: Configure):
    seen: list[int] = []

    def run(calls: list[BatchCall]) -> None:
        seen.append(left())

    declare(ack="each", batch=4)(run).enqueue_many([[]] * COUNT)

    work(threads=1)

    assert seen == [12, 8, 4]


def test_failed_run_is_settled_before_the_next_begins(project: Configure):
    seen: list[int] = []

    def run() -> None:
        seen.append(get_queue("default-dead").attributes().messages)
        raise OSError

    declare(ack="each", max_attempts=1)(run).enqueue_many([[]] * 3)

    work(threads=1)

    assert seen == [0, 1, 2]


def test_message_of_a_reliable_queue_is_acknowledged_before_the_next_begins(project: Configure, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "RELIABLE": {"orders": {}}}
    queue, ran, acked = get_reliable_queue("orders"), list[Message](), list[bool]()

    def run(messages: list[Message]) -> None:
        acked.append(queue.statistics().total_acked == len(ran))
        ran.extend(messages)

    consumer("orders", ack="each", batch=2)(run)
    queue.push(*[b"%d" % number for number in range(6)])

    work("orders", threads=1)

    assert len(ran) == 6
    assert all(acked)


def test_damaged_queue_does_not_block_waiting_consumers_of_other_queues(project: Configure, server: PrivateServer):
    project(default={}, mended={})
    ran = threading.Event()

    def damage() -> None:
        server.redis.set("rsmq:default", "a text")

    declare(ack="each")(damage).enqueue()
    with working(threads=1) as worker:
        wait_until(lambda: server.redis.type("rsmq:default") == b"string")
        declare(queue_name="mended")(lambda: ran.set()).enqueue()
        wait_until(ran.is_set)
        worker.stop(within_s=0)


def test_waiting_calls_wait_for_one_lease_at_most():
    ack_waiter = AckWaiter(most_s=0.01)

    ack_waiter.wait()
    asyncio.run(ack_waiter.await_release())


async def test_coroutine_that_is_cancelled_while_it_waits_has_ended():
    ack_waiter = AckWaiter(most_s=60)
    waiting = asyncio.ensure_future(ack_waiter.await_release())
    await asyncio.sleep(0)

    waiting.cancel()

    await waiting


@pytest.mark.parametrize("ack", ["all", "", None, True])
def test_invalid_way_to_acknowledge_is_refused(ack: Any):
    with pytest.raises(ValueError, match="ack is .* must be 'batch' or 'each'"):
        declare(ack=ack)(lambda: None)


def test_attempt_that_only_waits_for_redis_when_a_shutdown_ends_is_not_released(
    project: Configure, server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    declare(ack="each")(function).enqueue()
    worker = new_worker(threads=1)
    source = queue_source(worker)
    worker.pool.start()
    (delivery,) = wait_until(lambda: source.exchange(1))
    worker.pool.submit(Execution(delivery, sink=source, notifier=worker.notifier))
    wait_until(lambda: delivery.ack_waiter.is_awaited)

    assert worker._release_the_rest(), "everything has ended"

    assert left() == 0
    assert server.redis.hgetall("rsmq::released:default") == {}
    assert "unfinished" not in caplog.text
    worker.pool.stop()
    worker.wakeup.close()
