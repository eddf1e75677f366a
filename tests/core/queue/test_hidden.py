"""Many queues at once: the numbers of delayed messages and of messages in flight."""

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.queue.listing import depths, find
from rsmq_django.core.stats.depth import Depth
from tests.redis_server import PrivateServer


def depths_of(client: Client, *names: str) -> dict[str, Depth]:
    return client.run(depths("rsmq", names, with_in_flight=True))


def test_delayed_messages_and_those_in_flight_are_distinguished(client: Client, queue: Queue):
    other = Queue("other", client)
    other.create()
    queue.send_many([b"x"] * 5)
    queue.receive_many(2, visibility_timeout_s=600)
    queue.send_many([b"x"] * 4, delay_s=60)

    found = depths_of(client, "jobs", "other", "missing")

    assert list(found) == ["jobs"], "empty queues are left out"
    assert (found["jobs"].messages, found["jobs"].ready) == (9, 3)
    assert (found["jobs"].delayed, found["jobs"].in_flight, found["jobs"].is_estimated) == (4, 2, False)


def test_hidden_messages_are_not_read_for_the_depths_alone(client: Client, queue: Queue):
    queue.send_many([b"x"] * 5)
    queue.receive_many(2, visibility_timeout_s=600)

    found = client.run(depths("rsmq", ["jobs"]))["jobs"]

    assert (found.ready, found.hidden, found.delayed, found.in_flight) == (3, 2, None, None)
    assert found.oldest_ready_s is not None


def test_a_few_leases_before_many_delays_are_not_overlooked(client: Client, queue: Queue):
    queue.send_many([b"x"] * 7)
    queue.receive_many(7, visibility_timeout_s=30)
    queue.send_many([b"x"] * 3000, delay_s=3600)

    found = depths_of(client, "jobs")["jobs"]

    assert (found.in_flight, found.delayed, found.is_estimated) == (7, 3000, True)


def test_the_share_of_many_is_estimated(client: Client, queue: Queue):
    queue.send_many([b"x"] * 1000)
    queue.receive_many(1000, visibility_timeout_s=30)
    queue.send_many([b"x"] * 3000, delay_s=3600)

    found = depths_of(client, "jobs")["jobs"]

    assert found.is_estimated and found.in_flight + found.delayed == 4000
    assert found.in_flight == pytest.approx(1000, rel=0.15)


def test_a_queue_that_another_program_broke_hides_no_other(client: Client, queue: Queue, server: PrivateServer):
    server.redis.set("rsmq:broken", "no zset")
    queue.send(b"x", delay_s=60)

    assert depths_of(client, "broken", "jobs") == {"jobs": Depth(hidden=1, in_flight=0)}


def test_a_message_is_found_in_each_queue_that_has_it(client: Client, queue: Queue, server: PrivateServer):
    other = Queue("other", client)
    other.create()
    message_id = queue.send(b"x")
    server.redis.set("rsmq:broken", "no zset")

    assert client.run(find("rsmq", ["other", "broken", "jobs"], message_id)) == ["jobs"]
    assert client.run(find("rsmq", ["other", "jobs"], "nothing\udcff")) == []
