"""Faults while a worker consumes a topic: every message is processed, and acknowledged ones stay acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.topic import Topic, TopicMessage
from rsmq_django.core.transport.call import load_script
from rsmq_django.tasks import fixed, topic_task
from tests.chaos.silence import Silence
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, working

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(configure: Configure, server: PrivateServer) -> Iterator[FaultProxy]:
    """A way to the server that breaks; the worker goes through it."""
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        for name in ("lease", "ack", "retry", "forward"):
            server.redis.script_load(load_script(f"topic/{name}").source)
        yield proxy


@pytest.fixture
def orders(server: PrivateServer) -> Topic:
    """The topic "orders", past the proxy."""
    return Topic("orders", Client(Connection(server.url, timeout_s=15)))


def let_lost_reads_be_delivered_again(server: PrivateServer, orders: Topic) -> None:
    """Let the visibility timeout of all messages in flight pass."""
    due = orders.group("billing").keys.due
    for index in server.redis.zrange(due, 0, -1):
        server.redis.zincrby(due, -40_000, index)


def test_worker_gets_through_a_storm_of_resets(proxy: FaultProxy, server: PrivateServer, orders: Topic):
    done: list[int] = []

    @topic_task("orders", group="billing", max_deliveries=0, backoff=fixed(0), consumers=2)
    def bill(message: TopicMessage) -> None:
        threading.Event().wait(0.002)
        done.append(message.index)

    orders.publish(*map(str, range(100)))
    silence = Silence()

    def is_done(count: int) -> bool:
        if silence.has_lasted(len(done)):
            let_lost_reads_be_delivered_again(server, orders)
        return len(set(done)) >= count

    with working(threads=4):
        for count in range(10, 101, 10):
            wait_until(lambda: is_done(count))  # noqa: B023
            proxy.reset_connections()
        wait_until(lambda: is_done(100) and acknowledged(orders) == 100)

    assert set(done) == set(range(1, 101))
    assert Topic("orders.dlt", orders.client).status().last == 0


def acknowledged(orders: Topic) -> int:
    """Return the last delivered index when the group has no message in flight; else 0."""
    status = orders.group("billing").status()
    return 0 if status.held else status.position


@pytest.mark.parametrize("script", ["ack", "retry"])
def test_lost_reply_to_an_outcome_changes_nothing(proxy: FaultProxy, server: PrivateServer, orders: Topic, script: str):
    attempts: list[int] = []

    @topic_task("orders", group="billing", max_deliveries=2, backoff=fixed(3600))
    def bill(message: TopicMessage) -> None:
        attempts.append(message.attempt)
        if script == "retry" and message.attempt == 1:
            raise OSError

    proxy.lose_reply_to(load_script(f"topic/{script}").sha1.encode())
    orders.publish("a")
    with working() as worker:
        wait_until(lambda: attempts and all(source.is_idle for source in worker.sources))
        if script == "retry":
            orders.group("billing").retry(1)  # its backoff is over
        wait_until(lambda: acknowledged(orders) == 1 and all(source.is_idle for source in worker.sources))

    assert not any(getattr(source, "_uncertain", ()) for source in worker.sources), "nothing is kept of it"
    assert attempts == ([1] if script == "ack" else [1, 2])
    assert Topic("orders.dlt", orders.client).status().last == 0


def test_messages_of_a_read_whose_reply_was_lost_are_delivered_after_the_visibility_timeout(
    proxy: FaultProxy, server: PrivateServer, orders: Topic
):
    got: list[tuple[bytes, int]] = []
    topic_task("orders", group="billing")(lambda message: got.append((message.body, message.deliveries)))
    proxy.lose_reply_to(load_script("topic/lease").sha1.encode())
    orders.publish("a", "b")

    with working():
        wait_until(lambda: got and orders.group("billing").status().held == 1)
        assert got == [(b"b", 1)]
        let_lost_reads_be_delivered_again(server, orders)
        wait_until(lambda: acknowledged(orders) == 2)

    assert got == [(b"b", 1), (b"a", 2)]


def test_outcome_that_could_not_be_sent_is_sent_when_the_network_is_back(proxy: FaultProxy, orders: Topic):
    done: list[int] = []
    began, release = threading.Event(), threading.Event()

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        began.set()
        release.wait(60)
        done.append(message.index)

    orders.publish("a")
    with working() as worker:
        assert began.wait(60)
        proxy.refuse()
        proxy.reset_connections()
        release.set()
        wait_until(lambda: any(source.is_unavailable for source in worker.sources))
        proxy.release()
        wait_until(lambda: acknowledged(orders) == 1)

    assert done == [1]


def test_function_that_runs_during_a_restart_of_the_server_runs_once(
    configure: Configure, server: PrivateServer, orders: Topic
):
    configure()
    done: list[int] = []
    began, release = threading.Event(), threading.Event()

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        began.set()
        release.wait(60)
        done.append(message.index)

    orders.publish("a", "b")
    with working():
        assert began.wait(60)
        server.restart()
        release.set()
        wait_until(lambda: acknowledged(orders) == 2)

    assert done == [1, 2]
