"""Which queues are paused is stored in Redis, for every worker."""

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.errors import InvalidName, InvalidValue
from rsmq_django.core.queue.pause import pause, paused, resume
from tests.redis_server import PrivateServer


def test_paused_queues_are_known_until_they_are_resumed(client: Client):
    assert client.run(pause("rsmq", "mail", "jobs")) == 2
    assert client.run(pause("rsmq", "mail")) == 0
    assert client.run(paused("rsmq")) == {"mail", "jobs"}

    assert client.run(resume("rsmq", "mail", "other")) == 1

    assert client.run(paused("rsmq")) == {"jobs"}


async def test_pause_works_asynchronously(client: Client):
    await client.arun(pause("rsmq", "mail"))

    assert await client.arun(paused("rsmq")) == {"mail"}


def test_resuming_wakes_idle_workers_of_the_queue(client: Client, server: PrivateServer):
    client.run(pause("rsmq", "mail"))
    with client.connection.subscriber(["rsmq:rt:mail"]) as waiting:
        assert waiting.get_message(timeout=60)["type"] == "subscribe"

        client.run(resume("rsmq", "mail"))

        assert waiting.get_message(timeout=60)["type"] == "message"


def test_pause_does_not_affect_clients_that_receive_without_a_worker(client: Client, queue: Queue):
    client.run(pause("rsmq", queue.name))

    queue.send(b"hello")

    assert queue.pop().body == b"hello"


def test_impossible_names_are_refused():
    with pytest.raises(InvalidName, match="a:b"):
        pause("rsmq", "a:b")
    with pytest.raises(InvalidValue, match="0 queues"):
        resume("rsmq")


def test_a_queue_that_was_paused_deleted_and_created_again_is_not_paused(client: Client, queue: Queue):
    client.run(pause("rsmq", queue.name, "mail"))

    queue.delete_queue()
    queue.create()

    assert client.run(paused("rsmq")) == {"mail"}
