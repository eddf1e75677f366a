"""Waiting for messages: one publish wakes every group, no wake-up is lost, a time-out is a time-out."""

import asyncio
import threading
import time

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import InvalidValue, RsmqError
from rsmq_django.core.topic import Topic, TopicBatch
from tests.core.topic.conftest import bodies
from tests.redis_server import PrivateServer
from tests.support import wait_until


def test_one_publish_wakes_readers_of_all_groups(topic: Topic, server: PrivateServer):
    got: dict[str, TopicBatch] = {}

    def wait(name: str) -> None:
        got[name] = topic.group(name).read(10, block_ms=60_000)

    readers = [threading.Thread(target=wait, args=(name,)) for name in "abc"]
    for reader in readers:
        reader.start()
    wait_until(lambda: server.redis.info("clients")["blocked_clients"] == 3)

    topic.publish("now")
    for reader in readers:
        reader.join(90)

    assert {name: bodies(batch) for name, batch in got.items()} == dict.fromkeys("abc", [b"now"])


def test_no_wake_up_is_lost_between_reading_and_waiting(topic: Topic, server: PrivateServer):
    total = 300
    got: list[bytes] = []

    def consume() -> None:
        group = Topic("orders", Client(Connection(server.url, timeout_s=15))).group("g")
        while len(got) < total:
            got.extend(bodies(group.read(1, block_ms=60_000)))

    consumer = threading.Thread(target=consume)
    consumer.start()
    for n in range(total):
        topic.publish(str(n))
    consumer.join(90)

    assert got == [str(n).encode() for n in range(total)]


def test_read_without_a_message_ends_in_time(topic: Topic):
    begin = time.monotonic()

    batch = topic.group("g").read(block_ms=300)

    assert not batch
    assert time.monotonic() - begin >= 0.29


def test_waiting_reader_gets_messages_due_for_redelivery(topic: Topic):
    topic.publish("a")
    group = topic.group("g", at_least_once=True, visibility_timeout_s=0.2)
    group.read()

    (again,) = group.read(block_ms=60_000)

    assert again.deliveries == 2


@pytest.mark.slow
def test_reader_outlives_a_restart_of_its_server(topic: Topic, server: PrivateServer):
    got: list[bytes] = []
    is_over = threading.Event()
    group = Topic("orders", Client(Connection(server.url, timeout_s=15))).group("g")
    group.read()

    def consume() -> None:
        while not got and not is_over.is_set():
            try:
                got.extend(bodies(group.read(block_ms=60_000)))
            except RsmqError:  # the server is away for a moment; anything else ends the thread, and fails the test
                is_over.wait(0.001)

    consumer = threading.Thread(target=consume)
    consumer.start()
    wait_until(lambda: server.redis.info("clients")["blocked_clients"] == 1)
    server.restart()
    topic.publish("after")
    consumer.join(90)
    is_over.set()

    assert got == [b"after"]


@pytest.mark.parametrize("block_ms", [-1, 1.5, "1", None, True, 10**12])
def test_impossible_waits_are_refused(topic: Topic, block_ms: object):
    with pytest.raises(InvalidValue, match="block_ms"):
        topic.group("g").read(block_ms=block_ms)


# -- Async -------------------------------------------------------------------------------------------------------------


async def test_async_reader_waits_without_holding_the_loop(topic: Topic):
    waiting = asyncio.create_task(topic.group("g").aread(10, block_ms=60_000))
    other = asyncio.create_task(topic.group("h").aread(10, block_ms=60_000))
    await asyncio.sleep(0)

    await topic.apublish("now")

    assert bodies(await waiting) == bodies(await other) == [b"now"]


async def test_async_twins_do_the_same(topic: Topic):
    await topic.apublish(*"abc")
    group = topic.group("g", at_least_once=True)

    batch = await group.aread(2)
    assert bodies(batch) == [b"a", b"b"]
    assert await group.aretry(batch.messages[1]) == 1 and await group.aack(1) == 1
    assert (await group.astatus()).held == 1 and await group.alag() == 1
    assert (await group.aseek("latest", dry_run=True)).after == 4
    await group.aleave()
    assert (await group.areplay()).after == 1
    assert (await topic.aread_range(2, 1)).messages[0].body == b"b"
    assert (await topic.astatus()).length == 3 and [name for name, _ in await topic.agroups()] == ["g"]
    assert await topic.atrim(keep=1) == 2 and await topic.acompact() == 0
    assert await group.adrop() and await topic.aprune(idle_s=0) == []
