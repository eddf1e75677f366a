"""Messages on their way from one structure to another: none is lost when another program uses a key of the target."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.errors import BrokenQueue, RsmqError, TopicBroken
from rsmq_django.core.queue.browse import page
from rsmq_django.core.queue.bulk import Job, Stage
from rsmq_django.core.queue.drain import Drain
from rsmq_django.core.queue.moves import redrive
from rsmq_django.core.topic import Bridge, Topic
from rsmq_django.core.topic.entries import packed_entry
from tests.redis_server import PrivateServer


def damage(server: PrivateServer, key: str) -> None:
    server.redis.delete(key)
    server.redis.set(key, "of another program")


def bodies_in(queue: Queue) -> list[bytes]:
    return [message.body for message in queue.receive_many(100, visibility_timeout_s=0)]


def test_bridge_moves_nothing_into_a_damaged_queue(client: Client, queue: Queue, server: PrivateServer):
    topic = Topic("orders", client)
    topic.publish("a", "b")
    bridge = Bridge(topic.group("to-jobs"), queue)
    damage(server, "rsmq:jobs")

    with pytest.raises(RsmqError):
        bridge.forward(10)

    assert topic.group("to-jobs").status().position == 0
    server.redis.delete("rsmq:jobs")
    assert bridge.forward(10).moved == 2
    assert bodies_in(queue) == [b"a", b"b"]


def test_bulk_job_publishes_nothing_into_a_damaged_queue(client: Client, queue: Queue, server: PrivateServer):
    job, name = Job("rsmq", "import"), Stage.new_name("run", "0", "queue", "jobs")
    assert client.run(job.stage(name, first_us=1, rows=[("A" * 22, 0, b"a"), ("B" * 22, 0, b"b")])) == 2
    damage(server, "rsmq:jobs")

    with pytest.raises(BrokenQueue):
        client.run(job.publish(name))

    server.redis.delete("rsmq:jobs")
    assert client.run(job.publish(name)) == 2
    assert bodies_in(queue) == [b"a", b"b"]


def test_bulk_job_publishes_nothing_into_a_damaged_topic(client: Client, server: PrivateServer):
    job, name = Job("rsmq", "import"), Stage.new_name("run", "0", "topic+", "orders")
    rows = [(letter * 22, 0, packed_entry(letter.encode(), None, {"a": "b"})) for letter in "ab"]
    assert client.run(job.stage(name, first_us=1, rows=rows)) == 2
    topic = Topic("orders", client)
    damage(server, topic.keys.headers)

    for _ in range(2):
        with pytest.raises(TopicBroken):
            client.run(job.publish(name))

    server.redis.delete(topic.keys.headers)
    assert client.run(job.publish(name)) == 2
    assert [message.body for message in topic.group("g").read(10)] == [b"a", b"b"]


@pytest.mark.parametrize("lease_ms", [0, 60_000])
@pytest.mark.parametrize("part", [0, 1])
def test_drain_takes_nothing_into_a_damaged_journal(
    client: Client, queue: Queue, server: PrivateServer, part: int, lease_ms: int
):
    queue.send_many(["a", "b"])
    drain: Any = Drain("rsmq", "lake", "jobs")
    damage(server, drain._own[part])

    with pytest.raises(BrokenQueue):
        client.run(drain.claim(lease_ms=lease_ms))

    assert bodies_in(queue) == [b"a", b"b"]


@pytest.mark.parametrize("key", ["rsmq::dead:jobs", "rsmq::released:jobs", "rsmq::released:other", "rsmq:other"])
def test_redrive_changes_nothing_when_a_key_is_damaged(client: Client, queue: Queue, server: PrivateServer, key: str):
    other = Queue("other", client)
    other.create()
    queue.send_many(["a", "b"])
    seen = client.run(page("rsmq", "jobs", count=10, body_bytes=10)).messages
    damage(server, key)

    with pytest.raises(BrokenQueue):
        client.run(redrive("rsmq", "jobs", "other", seen))

    assert bodies_in(queue) == [b"a", b"b"]
    assert server.redis.hget("rsmq:other:Q", "totalsent") in (None, b"0")
