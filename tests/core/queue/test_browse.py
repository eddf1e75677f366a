"""Reading queues: pages in order, single messages, counts and statistics, without any change."""

import json
import random
from functools import partial
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.errors import InvalidValue, QueueNotFound
from rsmq_django.core.queue.browse import (
    START,
    WHOLE_BODY,
    Page,
    Position,
    State,
    count,
    depth_call,
    page,
    pick,
    read_failure,
)
from tests.redis_server import PrivateServer
from tests.support import pass_time

RECORD = {
    "reason": "gave_up",
    "queue": "mail",
    "task": "shop.tasks.send",
    "task_id": "t1",
    "attempts": 3,
    "error": "builtins.ValueError",
    "message": "no",
    "traceback": "Traceback ...",
    "died_ms": 1795190076663,
    "worker": "web1-4711",
}


def read_all(client: Client, name: str = "jobs", **choices: Any) -> list[str]:
    """Read a queue page by page and return all ids."""
    ids: list[str] = []
    after: Position | None = START
    while after is not None:
        part = client.run(page(client.namespace, name, after=after, **choices))
        ids += [message.id for message in part.messages]
        after = part.end
    return ids


# -- Pages ------------------------------------------------------------------------------------------------------------


def test_page_shows_messages_in_the_order_in_which_they_become_visible(client: Client, queue: Queue):
    late = queue.send(b"late", delay_s=60)
    first, second = queue.send(b"first"), queue.send(b"second")

    seen = client.run(page("rsmq", "jobs", body_bytes=WHOLE_BODY)).messages

    assert [message.id for message in seen] == [first, second, late]
    assert [message.body for message in seen] == [b"first", b"second", b"late"]
    assert [message.receive_count for message in seen] == [0, 0, 0]
    assert seen[0].sent_ms == pytest.approx(seen[0].visible_at_ms, abs=1)


def test_pages_follow_each_other_without_gap_or_overlap(client: Client, queue: Queue):
    ids = queue.send_many(f"{n}" for n in range(95))

    assert read_all(client, count=10) == ids


def test_next_page_begins_at_the_right_position_although_messages_were_deleted_meanwhile(client: Client, queue: Queue):
    ids = queue.send_many(f"{n}" for n in range(30))
    first = client.run(page("rsmq", "jobs", count=10))
    queue.delete_many(ids[:10])  # also the one that the position names

    assert first.end is not None
    second = client.run(page("rsmq", "jobs", count=10, after=first.end))

    assert [message.id for message in second.messages] == ids[10:20]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    members=st.dictionaries(
        st.binary(min_size=1, max_size=4),
        st.sampled_from([1.0, 2.0, 2.5, 1795190076663.0, 1795190076664.0]),
        min_size=1,
        max_size=40,
    ),
    size=st.integers(1, 7),
)
def test_pages_show_any_members_in_the_servers_own_order(
    server: PrivateServer, client: Client, members: dict[bytes, float], size: int
):
    server.empty()
    Queue("jobs", client).create()
    server.redis.zadd("rsmq:jobs", members)

    found: list[bytes] = []
    after: Position | None = START
    while after is not None:
        part = client.run(page("rsmq", "jobs", count=size, after=after))
        found += [message.position.message_id for message in part.messages]
        after = part.end

    assert found == server.redis.zrange("rsmq:jobs", 0, -1)


def test_page_up_to_now_leaves_out_hidden_messages(client: Client, queue: Queue):
    ready = queue.send(b"ready")
    queue.send(b"delayed", delay_s=60)

    assert read_all(client, until_ms=None) == [ready]


def test_page_after_a_time_begins_with_messages_that_become_visible_later(client: Client, queue: Queue):
    queue.send_many([b"ready"] * 5)
    delayed = queue.send(b"delayed", delay_s=60)
    now_ms = client.run(count("rsmq", "jobs")).now_ms

    behind = client.run(page("rsmq", "jobs", after=Position.behind_all_of(now_ms)))

    assert [message.id for message in behind.messages] == [delayed]


def test_page_cuts_bodies_to_the_requested_length_and_has_their_size(client: Client, queue: Queue):
    queue.send(b"x" * 5000)

    (cut,) = client.run(page("rsmq", "jobs", body_bytes=10)).messages
    (without,) = client.run(page("rsmq", "jobs")).messages

    assert (cut.body, cut.size_bytes) == (b"x" * 10, 5000)
    assert (without.body, without.size_bytes) == (b"", 5000)


def test_body_too_large_to_cut_is_not_copied_for_a_preview(client: Client, queue: Queue):
    queue.set_attributes(max_size_bytes=-1)
    queue.send(b"x" * 100_000)

    (message,) = client.run(page("rsmq", "jobs", body_bytes=200)).messages

    assert (message.body, message.size_bytes) == (b"", 100_000)


def test_page_of_large_messages_ends_early_and_the_next_page_continues(client: Client, queue: Queue):
    ids = queue.send_many([b"x" * 60_000] * 50)

    first = client.run(page("rsmq", "jobs", count=50, body_bytes=WHOLE_BODY))

    assert 10 < len(first.messages) < 25, "about a megabyte"
    assert read_all(client, count=50, body_bytes=WHOLE_BODY) == ids


def test_empty_body_and_missing_body_are_distinguished(client: Client, queue: Queue, server: PrivateServer):
    queue.send(b"")
    server.redis.zadd("rsmq:jobs", {"p" * 32: 1})

    phantom, empty = client.run(page("rsmq", "jobs", body_bytes=10)).messages

    assert (phantom.id, phantom.size_bytes, phantom.body) == ("p" * 32, None, b"")
    assert (empty.size_bytes, empty.body) == (0, b"")


def test_page_reads_messages_of_other_clients(client: Client, queue: Queue, server: PrivateServer):
    server.redis.zadd("rsmq:jobs", {b"\xff\xfe": 1, "short": 2})
    server.redis.hset("rsmq:jobs:Q", mapping={"short": "x", "short:rc": "many", "short:fr": "2026"})

    odd, short = client.run(page("rsmq", "jobs")).messages

    assert odd.id == "\\xff\\xfe"
    assert odd.position.message_id == b"\xff\xfe"
    assert (short.receive_count, short.sent_ms) == (0, None)


@pytest.mark.parametrize("wrong", [0, 1001])
def test_page_of_an_impossible_size_is_refused_before_anything_is_sent(wrong: int):
    with pytest.raises(InvalidValue, match="between 1 and 1000"):
        page("rsmq", "jobs", count=wrong)


# -- States -----------------------------------------------------------------------------------------------------------


def test_states_distinguish_ready_delayed_and_in_flight(client: Client, queue: Queue):
    queue.send(b"in flight")
    queue.receive()
    queue.send(b"ready")
    queue.send(b"delayed", delay_s=60)

    seen = client.run(page("rsmq", "jobs", body_bytes=20))

    assert {message.body: message.state(seen.now_ms) for message in seen.messages} == {
        b"in flight": State.IN_FLIGHT,
        b"ready": State.READY,
        b"delayed": State.DELAYED,
    }


# -- Single messages --------------------------------------------------------------------------------------------------


def test_pick_reads_messages_by_id_in_the_order_given_and_leaves_out_strangers(client: Client, queue: Queue):
    one, two = queue.send(b"one"), queue.send(b"two")

    picked = client.run(pick("rsmq", "jobs", [two, "nobody", "vt", one])).messages

    assert [(message.id, message.body) for message in picked] == [(two, b"two"), (one, b"one")]


def test_pick_reads_many_messages_with_long_records(client: Client, queue: Queue, server: PrivateServer):
    ids = queue.send_many([b"dead"] * 250)
    server.redis.hset("rsmq::dead:jobs", mapping={i: json.dumps({**RECORD, "traceback": "x" * 8192}) for i in ids})

    picked = client.run(pick("rsmq", "jobs", ids, body_bytes=0)).messages

    assert [message.id for message in picked] == ids


# -- Counts and statistics --------------------------------------------------------------------------------------------


def test_counts_are_exact_to_the_millisecond(client: Client, queue: Queue):
    queue.send_many([b"x"] * 3)
    queue.send(b"x", delay_s=60)

    counts = client.run(count("rsmq", "jobs"))

    assert (counts.messages, counts.ready, counts.hidden) == (4, 3, 1)


def test_statistics_have_ready_delayed_and_in_flight_messages(client: Client, queue: Queue):
    queue.send_many([b"x"] * 5)
    queue.receive_many(2)
    queue.send_many([b"x"] * 4, delay_s=100)
    pass_time(queue, seconds=20)

    seen = client.run(depth_call("rsmq", "jobs"))

    assert (seen.messages, seen.ready, seen.delayed, seen.in_flight) == (9, 3, 4, 2)
    assert (seen.total_sent, seen.total_received, seen.is_estimated) == (9, 2, False)
    assert seen.oldest_ready_s is not None
    assert 20 <= seen.oldest_ready_s < 50
    assert seen.size_bytes is not None
    assert seen.size_bytes > 500


def test_statistics_of_an_empty_queue(client: Client, queue: Queue):
    seen = client.run(depth_call("rsmq", "jobs"))

    assert (seen.messages, seen.oldest_ready_s, seen.total_sent, seen.is_estimated) == (0, None, 0, False)


def test_statistics_estimate_the_shares_when_many_messages_are_hidden(client: Client, queue: Queue):
    queue.send_many([b"x"] * 3000)
    for _ in range(3):
        queue.receive_many(1000, visibility_timeout_s=random.randint(100, 200))
    queue.send_many([b"x"] * 3000, delay_s=random.randint(100, 200))

    seen = client.run(depth_call("rsmq", "jobs"))

    assert seen.is_estimated
    assert seen.delayed + seen.in_flight == 6000
    assert seen.in_flight == pytest.approx(3000, abs=100)


def test_statistics_without_permission_for_memory_have_the_rest(queue: Queue, server: PrivateServer):
    server.redis.execute_command("ACL", "SETUSER", "viewer", "reset", "on", ">secret", "~rsmq:*", "+@all", "-memory")
    queue.send(b"x")
    viewer = Client(Connection(server.url.replace("unix://", "unix://viewer:secret@"), timeout_s=15))

    seen = viewer.run(depth_call("rsmq", "jobs"))

    assert (seen.messages, seen.size_bytes) == (1, None)


# -- All of them ------------------------------------------------------------------------------------------------------

LOOKS = {
    "page": partial(page, "rsmq", with_failures=True, body_bytes=10),
    "pick": lambda name: pick("rsmq", name, ["x" * 32]),
    "count": partial(count, "rsmq"),
    "statistics": partial(depth_call, "rsmq"),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_reading_a_missing_queue_reports_that_it_is_missing(client: Client, look: Any):
    with pytest.raises(QueueNotFound, match="'nowhere'"):
        client.run(look("nowhere"))


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_reading_leaves_no_trace(client: Client, queue: Queue, server: PrivateServer, look: Any):
    queue.send_many([b"x"] * 20)
    queue.receive_many(5)
    before = {key: server.redis.dump(key) for key in server.redis.keys()}

    client.run(look("jobs"))

    assert {key: server.redis.dump(key) for key in server.redis.keys()} == before


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_reading_works_on_a_read_only_server(client: Client, queue: Queue, server: PrivateServer, look: Any):
    queue.send(b"x")
    server.redis.config_set("min-replicas-to-write", 1)
    try:
        with pytest.raises(redis.ResponseError):
            server.redis.set("x", 1)
        client.run(look("jobs"))
    finally:
        server.redis.config_set("min-replicas-to-write", 0)


def test_names_that_only_other_clients_allow_can_be_viewed(client: Client, server: PrivateServer):
    name = "für alle"
    server.redis.hset(f"rsmq:{name}:Q", mapping={"vt": 30, "delay": 0, "maxsize": 65536, "a": "hello"})
    server.redis.zadd(f"rsmq:{name}", {"a": 1})

    seen: Page = client.run(page("rsmq", name, body_bytes=10))

    assert [message.body for message in seen.messages] == [b"hello"]


# -- Failure records --------------------------------------------------------------------------------------------------


def test_page_brings_failure_records_when_they_are_wanted(client: Client, queue: Queue, server: PrivateServer):
    message_id = queue.send(b"dead")
    server.redis.hset("rsmq::dead:jobs", message_id, json.dumps(RECORD))

    (with_record,) = client.run(page("rsmq", "jobs", with_failures=True)).messages
    (without,) = client.run(page("rsmq", "jobs")).messages

    failure = with_record.failure()
    assert failure is not None
    assert (failure.reason, failure.queue, failure.task_id, failure.attempts) == ("gave_up", "mail", "t1", 3)
    assert without.failure() is None


@pytest.mark.parametrize("record", [b"", b"no json", b"[]", b"\xff", b"1", b"[" * 100_000])
def test_invalid_failure_record_counts_as_missing(record: bytes):
    assert read_failure(record) is None


def test_failure_record_with_missing_and_wrong_fields_is_read_as_far_as_it_goes():
    failure = read_failure(b'{"reason": "x", "attempts": "three", "died_ms": "yesterday", "task": null, "queue": 7}')

    assert failure is not None
    assert (failure.reason, failure.attempts, failure.died_ms, failure.task, failure.queue) == ("x", 0, None, "", "7")
