"""Reads for lists: many queues at once, messages by position, searches, reasons of dead letters."""

import json
from typing import Any

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.errors import InvalidValue, QueueNotFound
from rsmq_django.core.queue.browse import ALL, Position
from rsmq_django.core.queue.listing import MAX_QUEUES, SearchTerms, digest, message_range, overview, search
from tests.core.queue.test_browse import RECORD
from tests.redis_server import PrivateServer
from tests.support import pass_time


def ids_in(client: Client, **choices: Any) -> list[str]:
    return [message.id for message in client.run(message_range("rsmq", "jobs", **choices)).messages]


def found_in(client: Client, *words: str, **choices: Any) -> list[bytes]:
    return [m.body for m in client.run(search("rsmq", "jobs", SearchTerms(words, **choices), body_bytes=1000)).messages]


@pytest.fixture
def five(queue: Queue) -> list[str]:
    """Three ready messages, one that was received, one that is delayed, in the order in which they become visible."""
    held = queue.send(b"held")
    queue.receive(visibility_timeout_s=60)
    ready = queue.send_many([b"first", b"second", b"third"])
    return [*ready, held, queue.send(b"late", delay_s=600)]


# -- Queues -----------------------------------------------------------------------------------------------------------


def test_overview_reads_many_queues_in_the_order_given(client: Client, queue: Queue):
    other = Queue("other", client, vt_unit="ms")
    other.create(visibility_timeout_s=5)
    queue.send(b"ready")
    pass_time(queue, seconds=3)
    queue.send(b"hidden", delay_s=60)

    jobs, others = client.run(overview("rsmq", ["jobs", "other"], units={"other": "ms"}))

    assert (jobs.name, others.name) == ("jobs", "other")
    assert jobs.attributes == queue.attributes() and others.attributes == other.attributes()
    assert jobs.depth.oldest_ready_s is not None and jobs.depth.oldest_ready_s >= 3
    assert others.depth.oldest_ready_s is None


def test_overview_counts_failure_records(client: Client, queue: Queue, server: PrivateServer):
    server.redis.hset("rsmq::dead:jobs", mapping={"a": "{}", "b": "{}"})

    (jobs,) = client.run(overview("rsmq", ["jobs"]))

    assert jobs.failures == 2


def test_a_broken_queue_hides_no_other(client: Client, queue: Queue, server: PrivateServer):
    server.redis.set("rsmq:broken", "a text")
    server.redis.hset("rsmq:broken:Q", "vt", 30)
    server.redis.set("rsmq:odd:Q", "a text")

    broken, odd, missing, jobs = client.run(overview("rsmq", ["broken", "odd", "missing", "jobs"]))

    assert broken.attributes is None and odd.attributes is None and missing.attributes is None
    assert jobs.attributes is not None


def test_overview_refuses_more_queues_than_the_maximum_of_one_script(client: Client):
    with pytest.raises(InvalidValue, match="301 queues"):
        overview("rsmq", ["jobs"] * (MAX_QUEUES + 1))
    assert len(client.run(overview("rsmq", ["jobs"] * MAX_QUEUES))) == MAX_QUEUES


# -- By their place ---------------------------------------------------------------------------------------------------


def test_messages_are_read_by_their_position_among_ready_or_hidden_ones(client: Client, five: list[str]):
    assert ids_in(client) == five
    assert ids_in(client, offset=1, count=2) == five[1:3]
    assert ids_in(client, which="ready") == five[:3]
    assert ids_in(client, which="hidden") == five[3:]
    assert ids_in(client, which="hidden", offset=1) == five[4:]
    assert ids_in(client, which="ready", offset=3) == []


def test_the_order_can_be_reversed(client: Client, five: list[str]):
    assert ids_in(client, is_reversed=True) == five[::-1]
    assert ids_in(client, is_reversed=True, which="ready", offset=1) == [five[1], five[0]]
    assert ids_in(client, is_reversed=True, which="hidden", count=1) == [five[4]]


def test_a_range_has_the_number_of_all_messages_of_its_kind(client: Client, five: list[str]):
    totals = [
        client.run(message_range("rsmq", "jobs", which=which, count=0)).total for which in ("all", "ready", "hidden")
    ]

    assert totals == [5, 3, 2]


def test_a_range_comes_with_failure_records_up_to_the_traceback(client: Client, queue: Queue, server: PrivateServer):
    message_id = queue.send(b"x")
    server.redis.hset("rsmq::dead:jobs", message_id, json.dumps(RECORD))

    (message,) = client.run(message_range("rsmq", "jobs")).messages

    failure = message.failure()
    assert failure is not None and (failure.task, failure.message) == ("shop.tasks.send", "no")
    assert failure.traceback == ""


def test_bodies_behind_a_megabyte_are_left_out(client: Client):
    queue = Queue("large", client)
    queue.create(max_size_bytes=-1)
    queue.send_many([b"x" * 60_000] * 25)

    bodies = [message.body for message in client.run(message_range("rsmq", "large", body_bytes=60_000)).messages]

    assert len(bodies) == 25
    assert bodies[0] and not bodies[-1]


def test_a_range_of_a_missing_queue_is_refused(client: Client, server: PrivateServer):
    with pytest.raises(QueueNotFound):
        client.run(message_range("rsmq", "jobs"))


# -- Searches ---------------------------------------------------------------------------------------------------------


def test_search_wants_every_word_in_any_case(client: Client, queue: Queue):
    queue.send_many([b"Flight UA1545 to Houston", b"flight ua1545", b"to houston"])

    assert found_in(client, "ua1545", "HOUSTON") == [b"Flight UA1545 to Houston"]
    assert found_in(client, "100%") == []


def test_search_finds_ids_and_failure_records(client: Client, queue: Queue, server: PrivateServer):
    first, second = queue.send(b"a"), queue.send(b"b")
    server.redis.hset("rsmq::dead:jobs", second, json.dumps(RECORD | {"message": "no route to host"}))

    assert found_in(client, first) == [b"a"]
    assert found_in(client, "route") == [b"b"]


def test_search_can_be_kept_out_of_bodies(client: Client, queue: Queue):
    body = b'{"task": "shop.tasks.send_receipt", "args": ["secret"]}'
    queue.send(body)

    assert found_in(client, "receipt", everywhere=False) == [body]
    assert found_in(client, "secret", everywhere=False) == []
    assert found_in(client, "secret") == [body]


def test_search_can_be_limited_to_received_or_new_messages(client: Client, five: list[str]):
    assert found_in(client, which="received") == [b"held"]
    assert found_in(client, which="new") == [b"first", b"second", b"third", b"late"]


def test_search_continues_after_its_end(client: Client, queue: Queue):
    queue.send_many([b"needle %d" % n for n in range(5)])

    first = client.run(search("rsmq", "jobs", SearchTerms(["needle"]), count=3))
    rest = client.run(search("rsmq", "jobs", SearchTerms(["needle"]), count=3, after=first.end))
    last = client.run(search("rsmq", "jobs", SearchTerms(["needle"]), count=3, after=rest.end))

    assert (first.looked_at, rest.looked_at) == (3, 2)
    assert len(first.messages) + len(rest.messages) == 5
    assert last.end is None and last.looked_at == 0


def test_search_stops_early_when_bodies_are_large(client: Client):
    queue = Queue("large", client)
    queue.create(max_size_bytes=-1)
    queue.send_many([b"x" * 1_000_000] * 8)

    found = client.run(search("rsmq", "large", SearchTerms(["y"])))

    assert 0 < found.looked_at < 8 and found.end is not None


# -- Why messages died ------------------------------------------------------------------------------------------------


def test_digest_reads_records_without_bodies_and_tracebacks(client: Client, queue: Queue, server: PrivateServer):
    whole, odd, long = queue.send(b"1"), queue.send(b"2"), queue.send(b"3")
    server.redis.hset("rsmq::dead:jobs", whole, json.dumps(RECORD))
    server.redis.hset("rsmq::dead:jobs", odd, "no JSON")
    server.redis.hset("rsmq::dead:jobs", long, "x" * 20_000)

    page = client.run(digest("rsmq", "jobs"))

    assert [message.body for message in page.messages] == [b"", b"", b""]
    assert page.messages[0].failure().error == "builtins.ValueError"
    assert [message.failure_json for message in page.messages[1:]] == [b"no JSON", b""]


def test_digest_reads_on_behind_a_position_up_to_a_time(client: Client, five: list[str]):
    page = client.run(digest("rsmq", "jobs", count=2))
    rest = client.run(digest("rsmq", "jobs", after=page.end, until_ms=ALL))
    none = client.run(digest("rsmq", "jobs", after=Position.behind_all_of(page.now_ms), until_ms=page.now_ms))

    assert [message.id for message in page.messages + rest.messages] == five
    assert none.messages == []
