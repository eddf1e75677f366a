"""Connections of a worker on a reliable queue break at the worst moment: every message is processed and settled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.transport.call import load_script
from rsmq_django.reliable_queues import get_reliable_queue, task_body
from rsmq_django.tasks import TaskContext, fixed
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import declare, working

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(server: PrivateServer) -> Iterator[FaultProxy]:
    """A way to the server that breaks."""
    with FaultProxy(server.url) as proxy:
        for name in ("pop", "recover", "ack", "nack", "bury", "extend"):
            server.redis.script_load(load_script(f"reliable/{name}").source)
        yield proxy


@pytest.fixture
def orders(settings: Any, proxy: FaultProxy) -> ReliableQueue:
    """A reliable queue behind the proxy, with a short lease."""
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": proxy.url, "TIMEOUT_S": 15}},
        "RELIABLE": {"orders": {"LEASE_S": 5, "MAX_DELIVERIES": 0}},
        "TASKS": {"ENQUEUE_ON_COMMIT": False},
    }
    return get_reliable_queue("orders")


def left(server: PrivateServer) -> int:
    """Return how many messages are stored, past the proxy."""
    return int(server.redis.hlen("rsmq::reliable:orders:bodies"))


def test_worker_gets_through_a_storm_of_resets(orders: ReliableQueue, proxy: FaultProxy, server: PrivateServer):
    done: list[int] = []

    def toil(number: int) -> None:
        threading.Event().wait(0.002)
        done.append(number)

    task = declare(max_attempts=1000)(toil)
    orders.push(*[task_body(task, number) for number in range(200)])

    with working("orders", threads=4):
        while len(set(done)) < 200:
            before = len(done)
            wait_until(lambda: len(done) > before + 20 or len(set(done)) == 200)  # noqa: B023
            proxy.reset_connections()
        wait_until(lambda: left(server) == 0)

    assert set(done) == set(range(200))
    assert server.redis.zcard("rsmq::reliable:orders:dead") == 0


@pytest.mark.parametrize("script", ["pop", "ack", "nack", "bury"])
def test_outcome_whose_reply_was_lost_is_settled_once(
    orders: ReliableQueue,
    proxy: FaultProxy,
    server: PrivateServer,
    caplog: pytest.LogCaptureFixture,
    script: str,
):
    attempts: dict[str, list[int]] = {"good": [], "flaky": [], "bad": []}

    def run(context: TaskContext, kind: str) -> None:
        attempts[kind].append(context.attempt)
        if kind == "bad":
            raise ValueError
        if kind == "flaky" and len(attempts[kind]) == 1:
            raise OSError

    # A delivery whose pop has lost its reply counts, too: it may have been an attempt of a process that died.
    task = declare(takes_context=True, max_attempts=20, give_up_on=ValueError, backoff=fixed(0))(run)
    orders.push(*[task_body(task, kind) for kind in attempts])
    proxy.lose_reply_to(load_script(f"reliable/{script}").sha1.encode())

    with working("orders", threads=1):
        wait_until(lambda: server.redis.zcard("rsmq::reliable:orders:dead") == 1 == left(server))

    totals = orders.statistics()
    assert (totals.total_acked, totals.total_buried) == (2, 1)
    assert "the result is discarded" not in caplog.text, "nobody else has received a message"
    assert {kind: len(runs) for kind, runs in attempts.items()} == {"good": 1, "flaky": 2, "bad": 1}


def test_messages_of_a_pop_whose_reply_was_lost_are_recovered(orders: ReliableQueue, proxy: FaultProxy):
    seen: list[int] = []
    task = declare(lambda number: seen.append(number))
    orders.push(*[task_body(task, number) for number in range(20)])
    proxy.lose_reply_to(load_script("reliable/pop").sha1.encode())

    with working("orders"):
        wait_until(lambda: orders.statistics().total_acked == 20)

    assert sorted(seen) == list(range(20)), "no other delivery than the recovery"
    assert orders.statistics().total_recovered > 0
