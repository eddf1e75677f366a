"""Queues shared with clients that store times in milliseconds: our methods use seconds throughout."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.errors import BrokenQueue, InvalidValue
from tests.redis_server import PrivateServer

#: What rsmq_async (Rust) writes for 30 seconds.
RUST: dict[Any, Any] = {
    "vt": "30000",
    "delay": "1500",
    "maxsize": "65536",
    "totalrecv": "0",
    "totalsent": "0",
    "created": "1645019600",
}


@pytest.fixture
def rust_queue(server: PrivateServer, client: Client) -> Queue:
    server.redis.hset("rsmq:rust:Q", mapping={**RUST, "modified": "1645019600"})
    server.redis.sadd("rsmq:QUEUES", "rust")
    return Queue("rust", client, vt_unit="ms")


def test_times_of_a_queue_in_milliseconds_are_read_as_seconds(rust_queue: Queue):
    attributes = rust_queue.attributes()

    assert (attributes.visibility_timeout_s, attributes.delay_s) == (30, 1.5)


def test_queue_in_milliseconds_is_created_as_rust_reads_it(server: PrivateServer, client: Client):
    Queue("new", client, vt_unit="ms").create(visibility_timeout_s=60, delay_s=2)

    assert server.redis.hmget("rsmq:new:Q", "vt", "delay", "maxsize") == [b"60000", b"2000", b"65536"]


def test_longest_times_fit_in_milliseconds(server: PrivateServer, client: Client):
    queue = Queue("new", client, vt_unit="ms")

    queue.create(visibility_timeout_s=9_999_999, delay_s=9_999_999)

    assert queue.attributes().visibility_timeout_s == 9_999_999
    assert server.redis.hget("rsmq:new:Q", "vt") == b"9999999000"


def test_attributes_of_a_queue_in_milliseconds_are_set_in_seconds(server: PrivateServer, rust_queue: Queue):
    attributes = rust_queue.set_attributes(visibility_timeout_s=5, max_size_bytes=2048)

    assert (attributes.visibility_timeout_s, attributes.max_size_bytes) == (5, 2048)
    assert server.redis.hmget("rsmq:rust:Q", "vt", "delay", "maxsize") == [b"5000", b"1500", b"2048"]


def test_delay_of_a_queue_in_milliseconds_applies_to_its_messages(server: PrivateServer, rust_queue: Queue):
    message_id = rust_queue.send(b"x")

    assert server.redis.zscore("rsmq:rust", message_id) == int(message_id[:10], 36) // 1000 + 1500


def test_visibility_timeout_of_a_queue_in_milliseconds_applies_to_its_messages(
    server: PrivateServer, rust_queue: Queue
):
    rust_queue.send(b"x", delay_s=0)

    message = rust_queue.receive()

    assert message is not None and message.first_received_ms is not None
    assert server.redis.zscore("rsmq:rust", message.id) == message.first_received_ms + 30_000


def test_times_that_the_caller_gives_are_seconds_in_either_unit(server: PrivateServer, rust_queue: Queue):
    message_id = rust_queue.send(b"x", delay_s=0.25)

    assert server.redis.zscore("rsmq:rust", message_id) == int(message_id[:10], 36) // 1000 + 250


async def test_async_calls_keep_the_unit(server: PrivateServer, rust_queue: Queue):
    message_id = await rust_queue.asend(b"x")
    attributes = await rust_queue.aattributes()

    assert server.redis.zscore("rsmq:rust", message_id) == int(message_id[:10], 36) // 1000 + 1500
    assert attributes.delay_s == 1.5
    await rust_queue.client.connection.aclose()


@pytest.mark.parametrize("stored", ["abc", "nan", "inf", "-5", "1e300", ""])
@pytest.mark.parametrize("unit", ["s", "ms"])
def test_invalid_stored_time_removes_no_message_from_the_queue(
    server: PrivateServer, client: Client, queue: Queue, stored: str, unit: str
):
    queue.send(b"x")
    server.redis.hset("rsmq:jobs:Q", "vt", stored)

    with pytest.raises(BrokenQueue, match="jobs"):
        Queue("jobs", client, vt_unit=unit).receive()  # type: ignore[arg-type]

    message = queue.receive(visibility_timeout_s=30)
    assert message is not None and message.receive_count == 1


@pytest.mark.parametrize("unit", ["S", "seconds", "", None, 1])
def test_unknown_unit_is_refused(client: Client, unit: str):
    with pytest.raises(InvalidValue, match="'s' or 'ms'"):
        Queue("jobs", client, vt_unit=unit)  # type: ignore[arg-type]
