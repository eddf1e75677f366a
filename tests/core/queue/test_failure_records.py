"""The failure record of a dead letter is deleted with the message, in every way it can leave its queue."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.queue.moves import discard, purge
from tests.redis_server import PrivateServer

LEAVES = {
    "deleted by ID": lambda queue, message_id: queue.delete(message_id),
    "deleted by its receiver": lambda queue, _: queue.delete(queue.receive()),
    "deleted with others": lambda queue, message_id: queue.delete_many([queue.send(b"x"), message_id]),
    "received and deleted with others": lambda queue, _: queue.delete_many([*queue.receive_many(2)]),
    "popped": lambda queue, _: queue.pop(),
    "purged": lambda queue, _: purge(queue.client, queue.name),
    "discarded": lambda queue, message_id: queue.client.run(discard("rsmq", queue.name, [message_id])),
}


def dead_letter(server: PrivateServer, queue: Queue) -> str:
    """Make a message a dead letter as tasks/worker/bury leaves it: received once, with its record."""
    message_id = queue.send(b"invoice 7")
    server.redis.hset("rsmq:jobs:Q", mapping={f"{message_id}:rc": 1, f"{message_id}:fr": 1})
    server.redis.hset("rsmq::dead:jobs", mapping={message_id: '{"reason": "failed"}'})
    server.redis.hset("rsmq::released:jobs", mapping={message_id: 1, f"{message_id}:lives": "[]"})
    return message_id


@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES.keys())
def test_dead_letter_that_leaves_takes_its_failure_record_with_it(
    server: PrivateServer, queue: Queue, leave: Callable[[Queue, str], object]
):
    message_id = dead_letter(server, queue)

    leave(queue, message_id)

    assert server.redis.zscore("rsmq:jobs", message_id) is None
    assert not server.redis.exists("rsmq::dead:jobs", "rsmq::released:jobs")


def test_record_of_a_dead_letter_leased_by_another_worker_stays(server: PrivateServer, queue: Queue):
    dead_letter(server, queue)
    first = queue.receive(visibility_timeout_s=0)
    queue.receive()

    assert first is not None
    queue.delete_many([first])

    assert server.redis.hlen("rsmq::dead:jobs") == 1


def test_damaged_record_does_not_keep_the_message(server: PrivateServer, client: Client, queue: Queue):
    dead_letter(server, queue)
    server.redis.delete("rsmq::dead:jobs", "rsmq::released:jobs")
    server.redis.set("rsmq::dead:jobs", "a text")
    server.redis.set("rsmq::released:jobs", "a text")

    assert queue.pop() is not None
    assert queue.delete(dead_letter_id(server, queue)) is True


def dead_letter_id(server: PrivateServer, queue: Queue) -> str:
    message_id = queue.send(b"x")
    server.redis.hset("rsmq:jobs:Q", f"{message_id}:rc", 1)
    return message_id
