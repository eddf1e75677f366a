"""Bodies that are longer than their queue allows: they become dead letters inside Redis, and no worker reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rsmq_django.core import Message
from rsmq_django.core.limits import MAX_BODY_BYTES
from rsmq_django.core.stats.history import read_totals
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.redrive import redrive
from rsmq_django.signals import message_dead_lettered
from rsmq_django.tasks import consumer
from rsmq_django.worker.fetch.queues import work_queues_by_client
from rsmq_django.worker.supervise.recovery import Death, recover
from tests.redis_server import PrivateServer
from tests.worker.report.test_event_log import events
from tests.worker.workshop import (
    Configure,
    dead_letters,
    declare,
    failure_record,
    new_worker,
    queue_source,
    send_raw,
    work,
)

LONG = 24 * 1024 * 1024


def send_as_another_program(body: bytes, queue_name: str = "default") -> str:
    """Write a message as a program does that looks at no limit; returns its id."""
    message_id = send_raw(b"{}", queue_name)
    get_client().connection.exchange([("HSET", f"rsmq:{queue_name}:Q", message_id, body)])
    return message_id


def a_call(path: str, size_bytes: int, padding: bytes = b"x") -> bytes:
    """Return a call of a task that is about so long."""
    head, tail = json.dumps({"task": path}).encode()[:-1] + b', "args": ["', b'"]}'
    return head + padding * ((size_bytes - len(head) - len(tail)) // len(padding)) + tail


def bytes_sent_by(server: PrivateServer) -> int:
    return int(server.redis.info("stats")["total_net_output_bytes"])


@pytest.fixture
def bounded(project: Configure) -> Configure:
    """A project whose queue allows the most that RSMQ allows, 64 KiB."""
    project(default={"MAX_SIZE_BYTES": 65536})
    return project


def test_body_above_the_limit_of_its_queue_is_a_dead_letter_that_no_worker_reads(
    bounded: Configure, server: PrivateServer
):
    seen = []
    good = declare(lambda text="": seen.append(text))
    body = a_call(good.module_path, LONG)
    bad_ids = [send_as_another_program(body) for _ in range(4)]
    good.enqueue("good")

    sent_before = bytes_sent_by(server)
    assert work()

    assert bytes_sent_by(server) - sent_before < 1024 * 1024
    assert seen == ["good"]
    records = [failure_record(message_id) for message_id in bad_ids]
    assert [(record["reason"], record["attempts"], record["traceback"]) for record in records] == [
        ("too_long", 1, "")
    ] * 4
    assert records[0]["message"] == f"the body is {len(body)} bytes, queue 'default' allows 65536"
    assert [server.redis.hstrlen("rsmq:default-dead:Q", message_id) for message_id in bad_ids] == [len(body)] * 4
    assert get_queue("default").attributes().messages == 0
    assert not [field for field in server.redis.hkeys("rsmq:default:Q") if field.decode().partition(":")[0] in bad_ids]


def test_body_as_long_as_the_limit_is_delivered(bounded: Configure):
    seen = []
    note = declare(lambda text: seen.append(len(text)))
    at_the_limit = a_call(note.module_path, 65536)
    assert len(at_the_limit) == 65536
    send_as_another_program(at_the_limit)
    too_long_id = send_as_another_program(at_the_limit + b" ")

    work()

    assert len(seen) == 1
    assert failure_record(too_long_id)["reason"] == "too_long"


@pytest.mark.parametrize("character", ["€", "😀"])
def test_clients_that_count_characters_may_send_more_bytes(bounded: Configure, character: str):
    seen = []
    note = declare(lambda text: seen.append(text[:1]))
    longest = a_call(note.module_path, 100, character.encode()).decode()
    longest = longest.replace(character, character * (65536 - len(longest) + 1), 1)
    assert len(longest) == 65536
    send_as_another_program(longest.encode())
    too_long_id = send_as_another_program((longest + " ").encode())

    work()

    assert seen == [character]
    assert failure_record(too_long_id)["reason"] == "too_long"


def test_queue_without_a_limit_delivers_up_to_sixteen_mebibytes(project: Configure):
    project(default={"MAX_SIZE_BYTES": -1})
    seen = []
    note = declare(lambda text: seen.append(len(text)))
    send_as_another_program(a_call(note.module_path, MAX_BODY_BYTES))
    too_long_id = send_as_another_program(a_call(note.module_path, MAX_BODY_BYTES) + b" ")

    work()

    assert len(seen) == 1
    assert failure_record(too_long_id)["message"] == (
        f"the body is {MAX_BODY_BYTES + 1} bytes; a worker reads at most {MAX_BODY_BYTES}"
    )


def test_maxsize_that_another_program_wrote_lets_nothing_longer_through(project: Configure, server: PrivateServer):
    ensure_queue("default")
    for stored in ("1e300", "nan", "x", "-7", ""):
        server.redis.hset("rsmq:default:Q", "maxsize", stored)
        message_id = send_as_another_program(b"x" * (MAX_BODY_BYTES + 1))

        work()

        assert failure_record(message_id)["reason"] == "too_long"


def test_consumer_of_a_raw_queue_gets_no_body_that_is_too_long(bounded: Configure):
    seen: list[bytes] = []

    @consumer("default")
    def note(message: Message) -> None:
        seen.append(message.body)

    too_long_id = send_as_another_program(b"x" * 300_000)
    send_raw(b"good")

    work()

    assert seen == [b"good"]
    assert failure_record(too_long_id)["reason"] == "too_long"


def test_signed_queue_looks_at_the_length_first(project: Configure, server: PrivateServer):
    project(default={"MAX_SIZE_BYTES": 65536, "SIGNING_KEYS": ["k" * 32]})
    seen = []
    note = declare(lambda text: seen.append(len(text)))
    note.enqueue("x" * 60_000)
    too_long_id = send_as_another_program(b'{"signed": "' + b"x" * LONG)

    sent_before = bytes_sent_by(server)
    work()

    assert bytes_sent_by(server) - sent_before < 1024 * 1024
    assert seen == [60_000]
    assert failure_record(too_long_id)["reason"] == "too_long"


def test_body_that_is_too_long_is_deleted_where_there_are_no_dead_letters(project: Configure):
    project(default={"MAX_SIZE_BYTES": 65536, "DEAD_LETTER": None})
    send_as_another_program(b"x" * 300_000)

    assert work()

    assert get_queue("default").attributes().messages == 0


def test_it_is_counted_logged_and_announced_like_other_dead_letters(
    bounded: Configure, settings: Any, caplog: pytest.LogCaptureFixture
):
    settings.RSMQ = {**settings.RSMQ, "EVENTS": {"RECORD": "all"}}
    told: list[dict[str, Any]] = []
    hear = lambda **said: told.append(said)  # noqa: E731 - a receiver that ends with the test
    message_dead_lettered.connect(hear)
    message_id = send_as_another_program(b"x" * 300_000)

    try:
        work()
    finally:
        message_dead_lettered.disconnect(hear)

    (event,) = events()
    assert (event.kind, event.message_id, event.body_bytes) == ("dead", message_id, 300_000)
    assert [(said["reason"], said["message"].id, said["message"].body) for said in told] == [
        ("too_long", message_id, b"")
    ]
    assert "failed for good (too_long) on attempt 1, moved to its dead-letter queue: the body is 300000" in caplog.text
    assert read_totals(get_client(), ["default"])["default"][""].dead == 1


def test_earlier_deliveries_count_as_before(bounded: Configure):
    message_id = send_as_another_program(b"x" * 300_000)
    assert get_queue("default").receive(visibility_timeout_s=0) is not None

    work()

    assert failure_record(message_id)["attempts"] == 2


def test_redriving_to_a_queue_that_does_not_allow_it_leaves_the_dead_letter(bounded: Configure):
    message_id = send_as_another_program(b"x" * 300_000)
    work()

    assert redrive("default-dead").stayed == {"too_long": 1}
    assert [message.id for message, _ in dead_letters()] == [message_id]


def test_plain_client_still_receives_and_pops_it(bounded: Configure):
    body = b"x" * 300_000
    send_as_another_program(body)
    send_as_another_program(body)
    queue = get_queue("default")

    popped, received = queue.pop(), queue.receive()

    assert popped is not None and popped.body == body
    assert received is not None and received.body == body


def test_recovery_reads_no_body_that_is_too_long(bounded: Configure, server: PrivateServer):
    declare(lambda: None).enqueue()
    source = queue_source(new_worker(worker_id="w-dead"))
    (delivery,) = source.exchange(1)
    server.redis.hset("rsmq:default:Q", delivery.message.id, b"x" * LONG)
    ((client, queues),) = work_queues_by_client([each.settings for each in source.queues], "w-dead")
    sent_before = bytes_sent_by(server)

    recover(client, queues, Death(worker_id="w-dead", how="signal 9", running={delivery.message.id}), max_crashes=1)

    assert bytes_sent_by(server) - sent_before < 1024 * 1024
    assert failure_record(delivery.message.id)["reason"] == "crashed"


def test_short_bodies_run_with_any_limit_that_another_program_wrote(project: Configure, server: PrivateServer):
    got: list[int] = []

    @declare()
    def count(text: str) -> None:
        got.append(len(text))

    server.redis.hset("rsmq:default:Q", "maxsize", 100)
    for length in (5000, 300):  # the first one is too long for the smallest limit of RSMQ, too
        send_as_another_program(json.dumps({"task": count.module_path, "args": ["x" * length]}).encode())

    work()

    assert got == [300]
