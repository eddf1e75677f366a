"""A bridge from a topic to an RSMQ queue: each message arrives once, in order, for clients in any language."""

import pytest

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import InvalidValue, QueueNotFound
from rsmq_django.core.topic import Bridge, Topic
from tests.core.topic.conftest import PassTime, bodies
from tests.redis_server import PrivateServer


@pytest.fixture
def bridge(topic: Topic, queue: Queue) -> Bridge:
    """A bridge from "orders" to the queue "jobs"."""
    return Bridge(topic.group("to-jobs"), queue)


def test_messages_arrive_once_and_in_order(topic: Topic, queue: Queue, bridge: Bridge):
    topic.publish(*"abcde")

    moved = [bridge.forward(2).moved for _ in range(4)]

    assert moved == [2, 2, 1, 0]
    received = queue.receive_many(10)
    assert [message.body for message in received] == [b"a", b"b", b"c", b"d", b"e"]
    assert queue.attributes().total_sent == 5
    assert [queue.delete(message) for message in received] == [True] * 5
    assert bodies(topic.group("other").read(10)) == [b"a", b"b", b"c", b"d", b"e"]


def test_bridge_is_a_consumer_of_its_group(topic: Topic, bridge: Bridge, server: PrivateServer):
    topic.publish("a")

    bridge.forward()

    assert server.redis.zrange(bridge.group.keys.consumers, 0, -1) == [bridge.group.consumer.encode()]
    assert bridge.group.status().live_consumers == 1


def test_message_that_is_too_long_for_the_queue_is_not_lost(topic: Topic, client: Client):
    small = Queue("small", client)
    small.create(max_size_bytes=1024)
    topic.publish("a", "x" * 2000, "b")

    done = Bridge(topic.group("g"), small).forward(10)

    assert (done.moved, done.dead_lettered, done.left) == (2, 1, 0)
    (dead,) = Topic("orders.dlt", client).group("look").read()
    assert dead.body == b"x" * 2000
    assert dead.headers["queue"] == "small" and dead.headers["reason"] == "longer than maxsize"


@pytest.mark.parametrize("is_async", [False, True])
async def test_bridge_reports_what_it_moved_beside_a_dead_letter_although_the_server_is_full(
    topic: Topic, queue: Queue, bridge: Bridge, server: PrivateServer, is_async: bool
):
    queue.set_attributes(max_size_bytes=1024)
    topic.publish("a", "x" * 2000)

    server.redis.config_set("maxmemory", 1)
    try:
        done = await bridge.aforward() if is_async else bridge.forward()
    finally:
        server.redis.config_set("maxmemory", 0)

    assert (done.moved, done.dead_lettered) == (1, 1)


def test_without_a_queue_nothing_moves(topic: Topic, client: Client):
    topic.publish("a")
    bridge = Bridge(topic.group("g"), Queue("nowhere", client))

    with pytest.raises(QueueNotFound, match="'nowhere'; create it, nothing was moved"):
        bridge.forward()

    Queue("nowhere", client).create()
    assert bridge.forward().moved == 1


def test_bridge_waits_for_messages(topic: Topic, bridge: Bridge, client: Client):
    bridge.forward()
    topic.publish("a")

    assert bridge.forward(block_ms=60_000).moved == 1
    assert bridge.forward(block_ms=50).moved == 0


def test_bridge_that_waits_does_not_ask_again_and_again(topic: Topic, bridge: Bridge, server: PrivateServer):
    def calls() -> int:
        return int(server.redis.info("commandstats")["cmdstat_evalsha"]["calls"])

    bridge.forward()
    before = calls()

    assert bridge.forward(block_ms=300).moved == 0

    assert calls() <= before + 3


def test_bridge_is_set_back_like_any_group(topic: Topic, queue: Queue, bridge: Bridge, pass_time: PassTime):
    topic.publish(*"ab")
    bridge.forward()
    pass_time(bridge.group, 20)

    bridge.group.replay()

    assert bridge.forward().moved == 2 and queue.attributes().messages == 4


def test_full_server_still_moves(topic: Topic, bridge: Bridge, server: PrivateServer, queue: Queue):
    topic.publish("a")
    server.redis.config_set("maxmemory", 1)
    try:
        assert bridge.forward().moved == 1
    finally:
        server.redis.config_set("maxmemory", 0)
    assert queue.attributes().messages == 1


def test_other_server_is_refused(topic: Topic, queue: Queue):
    elsewhere = Topic("orders", Client(Connection("redis://127.0.0.1:1")))

    with pytest.raises(InvalidValue, match="different servers"):
        Bridge(elsewhere.group("g"), queue)


async def test_async_twin_does_the_same(topic: Topic, bridge: Bridge):
    await topic.apublish("a")

    assert (await bridge.aforward(block_ms=1000)).moved == 1
