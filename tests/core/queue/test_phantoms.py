"""A bounded record of removed phantoms, from which the client that loses bodies can be found."""

from __future__ import annotations

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.doctor import examine
from tests.redis_server import PrivateServer

TRACE = "rsmq::phantoms:jobs"


def add_phantoms(server: PrivateServer, count: int, *, overdue_s: float = 60) -> list[str]:
    ids = [f"{number:032d}" for number in range(count)]
    now_ms = server.redis.time()[0] * 1000
    server.redis.zadd("rsmq:jobs", dict.fromkeys(ids, now_ms - overdue_s * 1000))
    return ids


@pytest.mark.parametrize("operation", ["receive", "pop"])
def test_removed_phantom_is_counted_and_named(server: PrivateServer, queue: Queue, operation: str):
    (phantom,) = add_phantoms(server, 1)

    getattr(queue, operation)()

    assert server.redis.hget(TRACE, "removed") == b"1"
    removed_ms, _, name = server.redis.hget(TRACE, "1").decode().partition(" ")
    assert name == phantom
    assert abs(int(removed_ms) / 1000 - server.redis.time()[0]) < 60


def test_trace_has_a_bound_however_many_were_removed(server: PrivateServer, queue: Queue):
    phantoms = add_phantoms(server, 1000)

    queue.receive_many(1000)

    assert server.redis.hget(TRACE, "removed") == b"1000"
    assert server.redis.hlen(TRACE) == 101
    named = {value.decode().partition(" ")[2] for value in server.redis.hvals(TRACE)}
    assert named - {""} == set(phantoms[-100:])


def test_young_phantom_leaves_no_trace(server: PrivateServer, queue: Queue):
    add_phantoms(server, 1, overdue_s=1)

    queue.receive()

    assert not server.redis.exists(TRACE)


def test_message_without_phantoms_leaves_no_trace(server: PrivateServer, queue: Queue):
    queue.send(b"x")

    queue.receive()

    assert not server.redis.exists(TRACE)


def test_phantoms_are_removed_and_noted_on_a_full_server(server: PrivateServer, queue: Queue):
    queue.send(b"real")
    add_phantoms(server, 3)

    server.redis.config_set("maxmemory", 1)
    try:
        message = queue.receive()
    finally:
        server.redis.config_set("maxmemory", 0)

    assert message is not None and message.body == b"real"
    assert server.redis.hget(TRACE, "removed") == b"3"


def test_trace_is_deleted_with_its_queue(server: PrivateServer, queue: Queue):
    add_phantoms(server, 1)
    queue.receive()

    queue.delete_queue()

    assert server.redis.keys() == []


def test_doctor_reports_the_trace(server: PrivateServer, client: Client, queue: Queue):
    phantoms = add_phantoms(server, 3)
    queue.receive()

    (finding,) = [one for one in examine(client) if one.subject == "jobs"]

    assert finding.id == "phantoms-removed"
    assert finding.what.startswith("3 ids") and finding.examples == (phantoms[-1],)


MANY = 200_000


@pytest.mark.parametrize("operation", ["receive", "pop"])
def test_message_behind_many_phantoms_is_reached_in_a_few_calls(server: PrivateServer, queue: Queue, operation: str):
    add_phantoms(server, MANY)
    queue.send(b"real")

    calls = 0
    while (message := getattr(queue, operation)()) is None and calls < 100:
        calls += 1

    assert message is not None and message.body == b"real"
    assert calls <= MANY / 5_000
    assert server.redis.hget(TRACE, "removed") == str(MANY).encode()


def test_one_call_removes_a_bounded_number_of_phantoms(server: PrivateServer, queue: Queue):
    add_phantoms(server, 50_000)

    queue.receive_many(1000)

    assert 5_000 <= int(server.redis.hget(TRACE, "removed")) <= 7_000


def test_message_without_a_body_for_a_moment_is_kept_among_many_phantoms(server: PrivateServer, queue: Queue):
    add_phantoms(server, 4500)
    young = f"{'y':0>32}"
    server.redis.zadd("rsmq:jobs", {young: server.redis.time()[0] * 1000 - 1000})
    queue.send(b"real")

    message = queue.receive()

    assert message is not None and message.body == b"real"
    assert server.redis.zscore("rsmq:jobs", young) is not None
    assert server.redis.hget(TRACE, "removed") == b"4500"


def test_messages_between_phantoms_keep_their_order(server: PrivateServer, queue: Queue):
    ids = [queue.send(str(number).encode()) for number in range(3)]
    now_ms = server.redis.time()[0] * 1000
    phantoms = {f"{number:032d}": now_ms - 100_000 + number for number in range(4500)}
    server.redis.zadd("rsmq:jobs", phantoms)
    places = zip(ids, (500, 1999.5, 4000), strict=True)
    server.redis.zadd("rsmq:jobs", {each: now_ms - 100_000 + place for each, place in places})

    found = queue.receive_many(3)

    assert [message.id for message in found] == ids
    assert queue.attributes().messages == 3 + 4500 - int(server.redis.hget(TRACE, "removed"))
