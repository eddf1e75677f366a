"""Queues on a server that is full, has lost its scripts, was restarted, or holds the leftovers of other clients."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rsmq_django.core import Client, Queue, list_queues
from rsmq_django.core.errors import BrokenQueue, QueueExists, QueueFull, QueueNotFound, RsmqError
from tests.redis_server import PrivateServer


@contextmanager
def full_memory(server: PrivateServer) -> Iterator[None]:
    """Leave the server no memory for new data, as `noeviction` at its limit does."""
    server.redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        server.redis.config_set("maxmemory", 0)


# -- A full server -------------------------------------------------------------------------------------------------


def test_send_to_a_full_server_is_refused_and_stores_nothing(server: PrivateServer, queue: Queue):
    queue.send(b"before")

    with full_memory(server):
        with pytest.raises(QueueFull, match="jobs"):
            queue.send(b"too much")
        with pytest.raises(QueueFull):
            queue.send_many([b"too", b"much"])

    attributes = queue.attributes()
    assert (attributes.messages, attributes.total_sent) == (1, 1)
    assert len(server.redis.hgetall("rsmq:jobs:Q")) == 7


def test_full_server_can_be_drained(server: PrivateServer, queue: Queue):
    queue.send_many([b"a", b"b", b"c"])

    with full_memory(server):
        first, second = queue.receive_many(2)
        assert queue.delete(first) is True
        assert queue.change_visibility(second, 0) is True
        assert queue.attributes().messages == 2
        assert queue.delete_many([second]) == [1]
        popped = queue.pop()

    assert popped is not None and popped.body == b"c"
    assert queue.attributes().messages == 0


def test_full_server_without_our_scripts_can_be_drained(server: PrivateServer, queue: Queue):
    queue.send(b"a")
    server.redis.script_flush()

    with full_memory(server):
        message = queue.receive()
        assert message is not None
        assert queue.delete(message) is True


def test_server_that_is_full_refuses_new_queues_and_can_lose_old_ones(
    server: PrivateServer, client: Client, queue: Queue
):
    with full_memory(server):
        with pytest.raises(QueueFull):
            Queue("another", client).create()
        queue.delete_queue()

    assert server.redis.keys() == []


def test_empty_queue_of_a_full_server_is_just_empty(server: PrivateServer, queue: Queue):
    with full_memory(server):
        assert queue.receive() is None
        assert queue.pop() is None


def test_sending_works_again_when_there_is_memory(server: PrivateServer, queue: Queue):
    with full_memory(server), pytest.raises(QueueFull):
        queue.send(b"x")

    queue.send(b"x")

    assert queue.attributes().messages == 1


# -- Lost scripts and restarts -------------------------------------------------------------------------------------


def test_every_operation_survives_the_loss_of_the_scripts(server: PrivateServer, client: Client, queue: Queue):
    flush = server.redis.script_flush
    flush()
    queue.send(b"a")
    flush()
    queue.send_many([b"b", b"c", b"d"])
    flush()
    message = queue.receive()
    assert message is not None and message.body == b"a"
    flush()
    assert queue.change_visibility(message, 60) is True
    flush()
    assert queue.delete(message) is True
    flush()
    assert [each.body for each in queue.receive_many(2)] == [b"b", b"c"]
    flush()
    popped = queue.pop()
    assert popped is not None and popped.body == b"d"
    flush()
    assert queue.set_attributes(delay_s=0).messages == 2
    flush()
    assert list_queues(client) == ["jobs"]
    flush()
    queue.delete_queue()
    flush()
    queue.create()


def test_batch_of_calls_survives_the_loss_of_the_scripts(server: PrivateServer, client: Client, queue: Queue):
    calls = [queue._send([str(number)], None) for number in range(20)]
    server.redis.script_flush()

    results = client.run_many(calls)

    assert not any(isinstance(result, RsmqError) for result in results)
    assert [message.body for message in queue.receive_many(20)] == [str(number).encode() for number in range(20)]
    assert queue.attributes().total_sent == 20


def test_failed_call_of_a_batch_does_not_spoil_the_others(client: Client, queue: Queue):
    missing = Queue("nowhere", client)

    results = client.run_many([queue._send([b"a"], None), missing._send([b"b"], None), queue._send([b"c"], None)])

    assert isinstance(results[1], QueueNotFound)
    assert results[0] != results[2]
    assert [message.body for message in queue.receive_many(3)] == [b"a", b"c"]


def test_batch_of_no_calls_does_nothing(client: Client):
    assert client.run_many([]) == []


def test_messages_and_leases_survive_a_restart_of_the_server(server: PrivateServer, queue: Queue):
    queue.send_many([b"taken", b"waiting"])
    taken = queue.receive()
    assert taken is not None

    server.restart()

    waiting = queue.receive()
    assert waiting is not None and waiting.body == b"waiting"
    assert queue.delete(taken) is True
    assert queue.attributes().messages == 1


# -- Leftovers of other clients ------------------------------------------------------------------------------------


def test_ghost_queue_is_not_taken_for_a_queue(server: PrivateServer, client: Client):
    # The queue was deleted between the two steps of a foreign send: body and score are there, the attributes are not.
    ghost_id = "g73zkl38qz" + "x" * 22
    server.redis.hset("rsmq:ghost:Q", mapping={ghost_id: "lost", "totalsent": 1})
    server.redis.zadd("rsmq:ghost", {ghost_id: 1})
    queue = Queue("ghost", client)

    for operation in (
        queue.receive,
        queue.pop,
        queue.attributes,
        lambda: queue.send(b"x"),
        lambda: queue.delete(ghost_id),
    ):
        with pytest.raises(QueueNotFound):
            operation()

    assert server.redis.zcard("rsmq:ghost") == 1
    assert list_queues(client) == []


def test_ghost_queue_can_be_deleted(server: PrivateServer, client: Client):
    server.redis.hset("rsmq:ghost:Q", mapping={"x" * 32: "lost", "totalsent": 1})
    server.redis.zadd("rsmq:ghost", {"x" * 32: 1})

    Queue("ghost", client).delete_queue()

    assert server.redis.keys() == []


def test_listed_name_without_a_queue_is_taken_off_the_list(server: PrivateServer, client: Client):
    server.redis.sadd("rsmq:QUEUES", "gone")

    with pytest.raises(QueueNotFound):
        Queue("gone", client).delete_queue()

    assert list_queues(client) == []


def test_queue_that_is_not_listed_works(server: PrivateServer, client: Client, queue: Queue):
    server.redis.srem("rsmq:QUEUES", "jobs")

    queue.send(b"x")

    message = queue.receive()
    assert message is not None
    assert queue.delete(message) is True
    assert list_queues(client) == []


def test_create_fills_the_gaps_of_a_half_created_queue(server: PrivateServer, client: Client):
    server.redis.hset("rsmq:half:Q", mapping={"vt": 5, "modified": 1_600_000_000})
    queue = Queue("half", client)

    with pytest.raises(QueueExists):
        queue.create()

    attributes = queue.attributes()
    assert (attributes.visibility_timeout_s, attributes.delay_s, attributes.max_size_bytes) == (5, 0, 65536)
    assert attributes.modified_s == 1_600_000_000
    assert list_queues(client) == ["half"]


def test_queue_that_lost_its_visibility_timeout_is_missing_until_it_is_created_again(
    server: PrivateServer, client: Client, queue: Queue
):
    queue.send(b"x")
    server.redis.hdel("rsmq:jobs:Q", "vt")  # one client's delete of the id "vt" does this

    with pytest.raises(QueueNotFound, match="jobs"):
        queue.receive()

    assert list_queues(client) == ["jobs"]
    queue.create()
    message = queue.receive()
    assert message is not None and message.body == b"x"


@pytest.mark.parametrize("key", ["rsmq:jobs", "rsmq:jobs:Q"])
@pytest.mark.parametrize("operation", ["receive", "pop", "attributes", "send", "delete", "change_visibility"])
def test_key_of_the_wrong_type_is_reported_as_a_broken_queue(
    server: PrivateServer, queue: Queue, key: str, operation: str
):
    message_id = queue.send(b"x")
    arguments = {"send": (b"y",), "delete": (message_id,), "change_visibility": (message_id, 5)}.get(operation, ())
    server.redis.delete(key)
    server.redis.set(key, "not yours")

    with pytest.raises(BrokenQueue, match="jobs"):
        getattr(queue, operation)(*arguments)

    assert server.redis.get(key) == b"not yours"


def test_send_to_a_queue_with_a_key_of_the_wrong_type_writes_nothing(server: PrivateServer, queue: Queue):
    server.redis.set("rsmq:jobs", "not yours")
    before = server.redis.hgetall("rsmq:jobs:Q")

    with pytest.raises(BrokenQueue):
        queue.send(b"x")

    assert server.redis.hgetall("rsmq:jobs:Q") == before


def test_list_of_the_wrong_type_is_reported(server: PrivateServer, client: Client):
    server.redis.set("rsmq:QUEUES", "not yours")

    with pytest.raises(BrokenQueue):
        list_queues(client)
