"""Invalid arguments are refused with an error that has the remedy, and no message is lost by it."""

from typing import Any

import pytest

from rsmq_django.core import Client, Connection
from rsmq_django.core.errors import (
    BrokenQueue,
    InvalidMessageId,
    InvalidName,
    InvalidValue,
    MessageNotBytes,
    MessageTooLong,
    QueueFull,
    QueueNotFound,
)
from rsmq_django.core.keys import RELIABLE_PARTS
from rsmq_django.core.limits import MAX_BODY_BYTES
from rsmq_django.core.reliable import ReliableQueue
from tests.redis_server import PrivateServer

from .conftest import MakeQueue


@pytest.mark.parametrize("name", ["", "a:b", "QUEUES", "rt", "with blank", "{tag}", "x" * 161, 7, None])
def test_impossible_name_is_refused(make: MakeQueue, name: Any):
    with pytest.raises(InvalidName, match="queue name"):
        make(name)


@pytest.mark.parametrize("consumer", ["two\nlines", "x" * 201, "\0", 5])
def test_impossible_consumer_is_refused(make: MakeQueue, consumer: Any):
    with pytest.raises(InvalidName, match="invalid consumer"):
        make("jobs", consumer=consumer)


@pytest.mark.parametrize("count", [-1, 1001, 10**30, 1.5, "5", None, True])
def test_impossible_count_takes_nothing(jobs: ReliableQueue, count: Any):
    jobs.push("a")

    for attempt in (
        lambda: jobs.pop(count),
        lambda: jobs.recover(count, 0),
        lambda: jobs.inspect(0, count),
        lambda: jobs.redrive(count=count),
    ):
        with pytest.raises(InvalidValue, match="count is"):
            attempt()

    assert jobs.info() == ["undelivered", 1, "delivered", 0]


@pytest.mark.parametrize(
    ("what", "attempt"),
    [
        ("block_ms", lambda queue: queue.pop(1, "50")),
        ("block_ms", lambda queue: queue.pop(1, 0.5)),
        ("elapsed_ms", lambda queue: queue.recover(1, -1)),
        ("elapsed_ms", lambda queue: queue.recover(1, "1")),
        ("start", lambda queue: queue.inspect("0", 1)),
        ("kind", lambda queue: queue.messages("lost")),
        ("body_bytes", lambda queue: queue.messages("dead", body_bytes=-1)),
        ("delay_s", lambda queue: queue.push("b", delay_s=-1)),
        ("delay_s", lambda queue: queue.nack("1-1", delay_s=float("nan"))),
        ("seconds", lambda queue: queue.extend("1-1", seconds=10**9)),
        ("max_deliveries", lambda queue: queue.configure(max_deliveries=-1)),
        ("1 to 1000", lambda queue: queue.push()),
        ("1 to 1000", lambda queue: queue.push(*["x"] * 1001)),
        ("at most 100", lambda queue: queue.pop(1, 0, *[f"q{n}" for n in range(100)])),
        ("no id", lambda queue: queue.ack()),
        ("not both", lambda queue: queue.redrive("1-1", count=1)),
    ],
)
def test_impossible_argument_is_named(jobs: ReliableQueue, what: str, attempt: Any):
    jobs.push("a")

    with pytest.raises(InvalidValue, match=what):
        attempt(jobs)

    assert [row[1] for row in jobs.inspect(0, 10)] == [b"a"]


@pytest.mark.parametrize("wrong", [None, 5, b"1-1", "", ["1-1"]])
def test_invalid_id_is_refused_before_any_settlement(jobs: ReliableQueue, wrong: Any):
    jobs.push("a")
    [[_, message_id, _]] = jobs.pop() or []

    for settle in (jobs.ack, jobs.nack, jobs.extend):
        with pytest.raises(InvalidMessageId, match="not a message id"):
            settle(message_id, wrong)

    assert jobs.info() == ["undelivered", 0, "delivered", 1]


def test_message_of_another_queue_is_not_settled_here(make: MakeQueue):
    here, there = make("here"), make("there")
    here.push("x")
    there.push("x")
    here.pop()
    [message] = there.pop_messages()

    with pytest.raises(InvalidMessageId, match="'there'"):
        here.ack(message)

    assert here.info()[3] == there.info()[3] == 1


def test_body_that_is_neither_bytes_nor_text_or_too_long_is_refused_with_all_others(jobs: ReliableQueue):
    with pytest.raises(MessageNotBytes):
        jobs.push("good", 5)  # type: ignore[arg-type]
    with pytest.raises(MessageTooLong, match="'jobs'"):
        jobs.push("good", b"x" * (MAX_BODY_BYTES + 1))

    with pytest.raises(QueueNotFound):
        jobs.info()


def test_pop_from_another_connection_is_refused(jobs: ReliableQueue, server: PrivateServer):
    elsewhere = ReliableQueue("mail", Client(Connection(server.url, timeout_s=15), namespace="other"))

    with pytest.raises(InvalidName, match="one namespace"):
        jobs.pop(1, 0, elsewhere)


@pytest.mark.parametrize("part", RELIABLE_PARTS)
def test_key_of_a_wrong_type_changes_nothing(make: MakeQueue, server: PrivateServer, part: str):
    good, broken = make("good"), make("broken")
    good.push("a")
    key = f"rsmq::reliable:broken:{part}"
    server.redis.set(key, "foreign")

    for attempt in (
        lambda: broken.push("x"),
        lambda: good.pop(5, 0, broken),
        lambda: broken.pop(),
        lambda: broken.ack("1-1"),
        lambda: broken.recover(1, 0),
        lambda: broken.nack("1-1"),
        lambda: broken.extend("1-1"),
        lambda: broken.inspect(0, 1),
        broken.info,
        broken.statistics,
        lambda: broken.configure(max_deliveries=1),
    ):
        with pytest.raises(BrokenQueue, match="wrong type"):
            attempt()

    assert good.info() == ["undelivered", 1, "delivered", 0]
    assert sorted(server.redis.keys("rsmq::reliable:broken*")) == [key.encode()]


@pytest.mark.parametrize("garbage", ["many", "1.5", "9223372036854775807"])
def test_total_that_is_not_a_number_restarts_and_does_not_block_sends(
    jobs: ReliableQueue, server: PrivateServer, garbage: str
):
    jobs.push("a")
    totals = dict.fromkeys(("pushed", "popped", "acked", "recovered", "nacked", "buried"), garbage)
    server.redis.hset("rsmq::reliable:jobs:state", mapping=totals)

    jobs.push("b")
    first, second = jobs.pop_messages(2)
    jobs.nack(second)
    jobs.ack(first)

    seen = jobs.statistics()
    assert (seen.depth.total_sent, seen.total_popped, seen.total_acked, seen.total_nacked) == (1, 2, 1, 1)
    assert jobs.info() == ["undelivered", 1, "delivered", 0]


def test_missing_queue_is_distinguished_from_an_empty_one(jobs: ReliableQueue):
    assert jobs.pop() == []
    assert [jobs.ack("1-1"), jobs.nack("1-1"), jobs.extend("1-1"), jobs.recover(1, 0)] == [None] * 4
    for look in (jobs.info, jobs.statistics, jobs.delete_queue, lambda: jobs.inspect(0, 1)):
        with pytest.raises(QueueNotFound, match="the first push creates it"):
            look()


def test_full_server_takes_no_push_and_lets_everything_be_drained(jobs: ReliableQueue, server: PrivateServer):
    jobs.push(*"abcdef")
    jobs.pop(2)
    jobs.configure(max_deliveries=50)
    server.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(QueueFull):
            jobs.push("x", "y")
        taken = jobs.pop_messages(3)
        given_back = jobs.nack(taken[0], taken[1])
        delayed = jobs.nack(taken[2], delay_s=60)
        recovered = jobs.recover_messages(10, 0)
        extended = jobs.extend(recovered[0], seconds=5)
        assert given_back and delayed and extended and len(recovered) == 2
        rest = jobs.pop_messages(10)
        assert [message.body for message in rest] == [b"c", b"d", b"f"]
        assert len(jobs.ack(*recovered, *rest) or []) == 5
    finally:
        server.redis.config_set("maxmemory", 0)

    assert [message.body for message in jobs.messages("delayed")] == [b"e"]
    assert jobs.statistics().depth.total_sent == 6


def test_pop_takes_from_a_hundred_queues(jobs: ReliableQueue):
    jobs.push("a")

    assert len(jobs.pop(1, 0, *[f"q{number}" for number in range(99)])) == 1
