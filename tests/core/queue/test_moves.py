"""Moving and removing messages: none is lost or duplicated, and none is taken from its worker."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from rsmq_django.core import Client, Connection, Queue, SettleResult
from rsmq_django.core.errors import InvalidName, InvalidValue, OutcomeUnknown, QueueNotFound
from rsmq_django.core.queue import moves, transfers
from rsmq_django.core.queue.browse import StoredMessage, page
from rsmq_django.core.queue.moves import (
    MAX_SLICE,
    REDRIVEN_RESULT_TTL_S,
    Verdict,
    change_visibility,
    discard,
    move,
    purge,
    purge_as_seen,
    redrive,
    remove,
    reschedule,
)
from rsmq_django.core.queue.transfers import Transfer
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until

FOREIGN_ID = "short-id-of-a-go-client"


@pytest.fixture
def other(client: Client) -> Queue:
    """An empty queue named "other"."""
    other = Queue("other", client)
    other.create()
    return other


def seen_in(queue: Queue) -> list[StoredMessage]:
    """Return all messages as browse sees them."""
    call = page("rsmq", queue.name, count=1000, body_bytes=1000, with_failures=True)
    return queue.client.run(call).messages


def bury(server: PrivateServer, queue: Queue, message_id: str, **fields: Any) -> None:
    """Write a failure record as a worker does."""
    record = {"reason": "gave_up", "queue": "other", "task": "shop.tasks.send", "task_id": "", **fields}
    server.redis.hset(f"rsmq::dead:{queue.name}", message_id, json.dumps(record))


# -- Purge ------------------------------------------------------------------------------------------------------------


def test_purge_removes_all_messages_and_keeps_the_queue(client: Client, queue: Queue, server: PrivateServer):
    queue.set_attributes(visibility_timeout_s=7, delay_s=0, max_size_bytes=2000)
    queue.send_many([b"x"] * 20)
    queue.receive_many(5)
    server.redis.hset("rsmq::dead:jobs", "a", "{}")
    server.redis.hset("rsmq::released:jobs", "a", 1)
    before = queue.attributes()

    removed = purge(client, "jobs")

    after = queue.attributes()
    assert removed == 20
    assert (after.messages, after.hidden_messages) == (0, 0)
    assert (after.visibility_timeout_s, after.max_size_bytes, after.created_s) == (7, 2000, before.created_s)
    assert (after.total_sent, after.total_received) == (20, 5)
    assert sorted(server.redis.keys()) == [b"rsmq:QUEUES", b"rsmq:jobs:Q"]
    assert server.redis.hlen("rsmq:jobs:Q") == 7


def test_purge_makes_a_late_delete_harmless(client: Client, queue: Queue):
    queue.send(b"x")
    held = queue.receive()
    assert held is not None

    purge(client, "jobs")

    assert queue.delete(held) is False


def test_purge_of_an_empty_queue_adds_no_counters(client: Client, queue: Queue, server: PrivateServer):
    assert purge(client, "jobs") == 0
    assert server.redis.hlen("rsmq:jobs:Q") == 5


def test_purge_works_at_the_memory_limit(client: Client, queue: Queue, server: PrivateServer):
    queue.send_many([b"x" * 1000] * 100)
    server.redis.config_set("maxmemory", 1)
    try:
        assert purge(client, "jobs") == 100
    finally:
        server.redis.config_set("maxmemory", 0)


def test_removing_from_a_missing_queue_reports_that_and_creates_nothing(client: Client, server: PrivateServer):
    with pytest.raises(QueueNotFound):
        purge(client, "nowhere")
    with pytest.raises(QueueNotFound):
        client.run(discard("rsmq", "nowhere", ["a"]))

    assert server.redis.keys() == []


def test_purge_keeps_the_fields_of_other_programs(client: Client, queue: Queue, server: PrivateServer):
    own = {"createdby": "go", "owner": "team red", "x" * 32 + ":note": "1", "b:rc:of": "2"}
    queue.send_many([b"x"] * 3000)  # a hash of several slices
    queue.receive_many(1000)
    server.redis.zadd("rsmq:jobs", {FOREIGN_ID: 1})
    server.redis.hset("rsmq:jobs:Q", mapping={FOREIGN_ID: "body", f"{FOREIGN_ID}:rc": 1})
    server.redis.hset("rsmq:jobs:Q", mapping=dict(own))

    assert purge(client, "jobs") == 3001

    kept = {name.decode(): value.decode() for name, value in server.redis.hgetall("rsmq:jobs:Q").items()}
    assert {name: kept[name] for name in own} == own
    assert len(kept) == 7 + len(own)


def test_purge_that_was_overtaken_by_a_sender_removes_nothing(client: Client, queue: Queue):
    queue.send_many([b"x"] * 2)

    assert purge_as_seen(client, "jobs", 1) is None
    assert queue.attributes().messages == 2
    assert purge_as_seen(client, "jobs", 2) == 2


def test_purge_refuses_a_hash_that_another_program_has_filled(
    client: Client, queue: Queue, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(moves, "MAX_FOREIGN_FIELDS", 2)
    queue.send(b"x")
    server.redis.hset("rsmq:jobs:Q", mapping={"a": "1", "b": "1", "c": "1"})

    with pytest.raises(InvalidValue, match="more than 2 fields of other programs"):
        purge(client, "jobs")

    assert queue.attributes().messages == 1
    monkeypatch.setattr(moves, "MAX_FOREIGN_FIELDS", 3)
    assert purge(client, "jobs") == 1
    assert set(server.redis.hkeys("rsmq:jobs:Q")) > {b"a", b"b", b"c"}


# -- Discard ----------------------------------------------------------------------------------------------------------


def test_discard_deletes_messages_with_their_records_and_returns_which_existed(
    client: Client, queue: Queue, server: PrivateServer
):
    gone, stays = queue.send(b"gone"), queue.send(b"stays")
    for message_id in (gone, stays):
        bury(server, queue, message_id)
        server.redis.hset("rsmq::released:jobs", mapping={message_id: 1, f"{message_id}:crashes": 1})

    assert client.run(discard("rsmq", "jobs", [gone, "stranger", gone])) == [True, False, False]

    assert [message.id for message in seen_in(queue)] == [stays]
    assert server.redis.hkeys("rsmq::dead:jobs") == [stays.encode()]
    assert server.redis.hlen("rsmq::released:jobs") == 2


def test_discard_takes_ids_of_other_clients_and_never_an_attribute(client: Client, queue: Queue, server: PrivateServer):
    server.redis.zadd("rsmq:jobs", {FOREIGN_ID: 1})
    server.redis.hset("rsmq:jobs:Q", FOREIGN_ID, "x")

    assert client.run(discard("rsmq", "jobs", [FOREIGN_ID, "vt"])) == [True, False]

    assert server.redis.hlen("rsmq:jobs:Q") == 5


def test_change_visibility_takes_ids_of_other_clients(client: Client, queue: Queue, server: PrivateServer):
    server.redis.zadd("rsmq:jobs", {FOREIGN_ID: 1})
    server.redis.hset("rsmq:jobs:Q", FOREIGN_ID, "x")

    assert client.run(change_visibility("rsmq", "jobs", FOREIGN_ID, 60)) == [SettleResult.DONE]
    assert client.run(change_visibility("rsmq", "jobs", "stranger", 60)) == [SettleResult.MISSING]

    assert queue.attributes().hidden_messages == 1


# -- Remove and reschedule what was seen ------------------------------------------------------------------------------


def test_remove_skips_messages_that_were_received_since(client: Client, queue: Queue, server: PrivateServer):
    queue.send_many([b"taken", b"stays as seen", b"gone"])
    seen = seen_in(queue)
    server.redis.hset("rsmq::dead:jobs", seen[1].id, "{}")
    server.redis.hset("rsmq::released:jobs", mapping={seen[1].id: 1, f"{seen[1].id}:crashes": 1})
    queue.receive()
    queue.delete(seen[2].id)

    verdicts = client.run(remove("rsmq", "jobs", seen))

    assert verdicts == [Verdict.TAKEN, Verdict.DONE, Verdict.MISSING]
    assert [message.id for message in seen_in(queue)] == [seen[0].id]
    assert not server.redis.exists("rsmq::dead:jobs", "rsmq::released:jobs")


def test_reschedule_moves_messages_in_time_unless_they_were_received_since(client: Client, queue: Queue):
    queue.send_many([b"taken", b"as seen"])
    held = queue.send(b"held by somebody", delay_s=0)
    seen = seen_in(queue)
    queue.receive()

    assert client.run(reschedule("rsmq", "jobs", seen, 60)) == [Verdict.TAKEN, Verdict.DONE, Verdict.DONE]
    assert queue.receive() is None

    in_flight = [message for message in seen_in(queue) if message.receive_count]
    assert client.run(reschedule("rsmq", "jobs", in_flight, 0)) == [Verdict.DONE]
    assert queue.receive() is not None
    assert held in [message.id for message in seen_in(queue)]


def test_rescheduling_wakes_waiting_workers(client: Client, queue: Queue, server: PrivateServer):
    queue.send(b"x", delay_s=60)
    with server.redis.pubsub() as waiting:
        waiting.subscribe("rsmq:rt:jobs")
        wait_until(waiting.get_message)

        client.run(reschedule("rsmq", "jobs", seen_in(queue), 0))

        assert wait_until(waiting.get_message)["data"] == b"1"


# -- Move -------------------------------------------------------------------------------------------------------------


def test_moved_messages_are_unchanged(client: Client, queue: Queue, other: Queue, server: PrivateServer):
    queue.send(b"received before")
    queue.receive(visibility_timeout_s=0)
    queue.send(b"\xff\x00", delay_s=60)
    bury(server, queue, seen_in(queue)[0].id)
    first = seen_in(queue)[0].id
    server.redis.hset("rsmq::released:jobs", mapping={first: 2, f"{first}:crashes": 1})
    before = seen_in(queue)

    verdicts = client.run(move("rsmq", "jobs", "other", before))

    assert verdicts == [Verdict.DONE, Verdict.DONE]
    assert seen_in(queue) == []
    assert seen_in(other) == before
    assert other.attributes().total_sent == 2
    assert server.redis.hlen("rsmq:jobs:Q") == 7, "five attributes and two counters"
    assert server.redis.hgetall("rsmq::released:other") == {
        before[0].id.encode(): b"2",
        f"{before[0].id}:crashes".encode(): b"1",
    }
    assert not server.redis.exists("rsmq::dead:jobs", "rsmq::released:jobs")


def test_move_skips_messages_that_were_received_or_deleted_since(client: Client, queue: Queue, other: Queue):
    queue.send_many([b"received", b"deleted", b"moved"])
    before = seen_in(queue)
    taken = queue.receive()
    queue.delete(before[1].id)

    verdicts = client.run(move("rsmq", "jobs", "other", before))

    assert verdicts == [Verdict.TAKEN, Verdict.MISSING, Verdict.DONE]
    assert taken is not None
    assert queue.delete(taken), "its holder still has it"


def test_move_skips_messages_that_are_too_long_for_the_target(client: Client, queue: Queue, other: Queue):
    other.set_attributes(max_size_bytes=1024)
    queue.send_many([b"x" * 1025, b"x" * 1024])

    verdicts = client.run(move("rsmq", "jobs", "other", seen_in(queue)))

    assert verdicts == [Verdict.TOO_LONG, Verdict.DONE]
    assert len(seen_in(queue)) == 1


def test_move_never_overwrites_a_message_of_the_target(
    client: Client, queue: Queue, other: Queue, server: PrivateServer
):
    queue.send(b"one")
    (message,) = seen_in(queue)
    server.redis.zadd("rsmq:other", {message.id: 1})
    server.redis.hset("rsmq:other:Q", message.id, "another")

    assert client.run(move("rsmq", "jobs", "other", [message])) == [Verdict.DUPLICATE]

    assert [(m.id, m.body) for m in seen_in(other)] == [(message.id, b"another")]
    assert len(seen_in(queue)) == 1


def test_message_that_is_named_twice_moves_once(client: Client, queue: Queue, other: Queue):
    queue.send(b"one")
    twice = seen_in(queue) * 2

    assert client.run(move("rsmq", "jobs", "other", twice)) == [Verdict.DONE, Verdict.MISSING]

    assert other.attributes().total_sent == 1


def test_phantom_does_not_move(client: Client, queue: Queue, other: Queue, server: PrivateServer):
    server.redis.zadd("rsmq:jobs", {"p" * 32: 1})

    assert client.run(move("rsmq", "jobs", "other", seen_in(queue))) == [Verdict.MISSING]

    assert other.attributes().messages == 0


def test_phantom_is_not_sent_again_and_does_not_block_others(
    client: Client, queue: Queue, other: Queue, server: PrivateServer
):
    queue.send(b"x")
    server.redis.zadd("rsmq:jobs", {"p" * 32: 1})

    verdicts = client.run(redrive("rsmq", "jobs", "other", seen_in(queue)))

    assert verdicts[0] == Verdict.MISSING and isinstance(verdicts[1], str)
    assert [message.body for message in other.receive_many(10)] == [b"x"]


def test_move_wakes_the_consumers_of_the_target(client: Client, queue: Queue, other: Queue, server: PrivateServer):
    queue.send_many([b"x"] * 3)
    with server.redis.pubsub() as listener:
        listener.subscribe("rsmq:rt:other")
        wait_until(lambda: listener.get_message(timeout=0.1))

        client.run(move("rsmq", "jobs", "other", seen_in(queue)))

        heard = wait_until(lambda: listener.get_message(timeout=0.1))
    assert heard["data"] == b"3"


def test_full_slice_moves_in_one_call(client: Client, queue: Queue, other: Queue):
    queue.send_many([b"x"] * MAX_SLICE)
    for message in queue.receive_many(MAX_SLICE, visibility_timeout_s=0):
        assert message.receive_count == 1

    assert client.run(move("rsmq", "jobs", "other", seen_in(queue))) == [Verdict.DONE] * MAX_SLICE


def test_more_than_a_slice_is_refused(client: Client, queue: Queue):
    queue.send_many([b"x"] * (MAX_SLICE + 1))

    with pytest.raises(InvalidValue, match=f"1 to {MAX_SLICE}"):
        move("rsmq", "jobs", "other", seen_in(queue))


@pytest.mark.parametrize("transfer", [move, redrive])
def test_transfer_to_a_queue_that_is_not_there_changes_nothing(client: Client, queue: Queue, transfer: Any):
    queue.send(b"x")

    with pytest.raises(QueueNotFound, match="'nowhere'"):
        client.run(transfer("rsmq", "jobs", "nowhere", seen_in(queue)))

    assert len(seen_in(queue)) == 1


@pytest.mark.parametrize(
    ("transfer", "key"),
    [(move, "rsmq:other"), (move, "rsmq::dead:other"), (move, "rsmq::released:other"), (redrive, "rsmq:other")],
)
def test_transfer_to_a_damaged_queue_loses_nothing(
    client: Client, queue: Queue, other: Queue, server: PrivateServer, transfer: Any, key: str
):
    queue.send(b"x")
    server.redis.hset("rsmq::dead:jobs", seen_in(queue)[0].id, "{}")
    server.redis.set(key, "the key of something else")

    with pytest.raises(Exception, match="wrong type"):
        client.run(transfer("rsmq", "jobs", "other", seen_in(queue)))

    assert [message.body for message in seen_in(queue)] == [b"x"]


@pytest.mark.parametrize("transfer", [move, redrive])
def test_damaged_counter_of_the_target_does_not_make_a_transfer_look_failed(
    client: Client, queue: Queue, other: Queue, server: PrivateServer, transfer: Any
):
    queue.send(b"x")
    server.redis.hset("rsmq:other:Q", "totalsent", "many")

    (verdict,) = client.run(transfer("rsmq", "jobs", "other", seen_in(queue)))

    assert verdict == Verdict.DONE or isinstance(verdict, str)
    assert [message.body for message in seen_in(other)] == [b"x"]


@pytest.mark.parametrize("transfer", [move, redrive])
def test_transfer_works_at_the_memory_limit(
    client: Client, queue: Queue, other: Queue, server: PrivateServer, transfer: Any
):
    queue.send_many([b"x"] * 10)
    seen = seen_in(queue)
    server.redis.config_set("maxmemory", 1)
    try:
        client.run(transfer("rsmq", "jobs", "other", seen))
    finally:
        server.redis.config_set("maxmemory", 0)

    assert (len(seen_in(queue)), len(seen_in(other))) == (0, 10)


@pytest.mark.parametrize("transfer", [move, redrive])
def test_transfer_within_one_queue_is_refused(transfer: Any):
    with pytest.raises(InvalidValue, match="same queue"):
        transfer("rsmq", "jobs", "jobs", [])


@pytest.mark.parametrize(("source", "target"), [("a b", "jobs"), ("jobs", "QUEUES")])
def test_queues_of_names_that_we_would_not_create_are_not_written_to(source: str, target: str):
    with pytest.raises(InvalidName):
        move("rsmq", source, target, [])


# -- Redrive ----------------------------------------------------------------------------------------------------------


def test_redriven_message_is_new_and_has_the_old_body(
    client: Client, queue: Queue, other: Queue, server: PrivateServer
):
    queue.send(b'{"task": "shop.tasks.send", "id": "t1"}')
    queue.receive(visibility_timeout_s=0)
    (dead,) = seen_in(queue)
    bury(server, queue, dead.id)

    (new_id,) = client.run(redrive("rsmq", "jobs", "other", [dead]))

    received = other.receive()
    assert received is not None
    assert (received.id, received.body, received.receive_count) == (new_id, dead.body, 1)
    assert new_id != dead.id
    assert received.sent_ms is not None
    assert received.sent_ms > dead.visible_at_ms
    assert seen_in(queue) == []
    assert not server.redis.exists("rsmq::dead:jobs")
    assert server.redis.hlen("rsmq:jobs:Q") == 7


def test_redriven_messages_keep_their_order(client: Client, queue: Queue, other: Queue):
    queue.send_many(f"{n}" for n in range(100))

    client.run(redrive("rsmq", "jobs", "other", seen_in(queue)))

    assert [message.body for message in seen_in(other)] == [f"{n}".encode() for n in range(100)]


def test_old_receipt_means_nothing_after_a_redrive(client: Client, queue: Queue, other: Queue):
    other.send(b"x")
    old = other.receive(visibility_timeout_s=0)
    assert old is not None
    client.run(move("rsmq", "other", "jobs", seen_in(other)))

    client.run(redrive("rsmq", "jobs", "other", seen_in(queue)))
    other.receive()

    assert other.delete(old) is False
    assert other.attributes().messages == 1


def test_redrive_skips_messages_that_were_received_deleted_or_became_too_long(
    client: Client, queue: Queue, other: Queue
):
    queue.send_many([b"received", b"deleted", b"x" * 2000])
    before = seen_in(queue)
    queue.receive()
    queue.delete(before[1].id)
    other.set_attributes(max_size_bytes=1024)

    verdicts = client.run(redrive("rsmq", "jobs", "other", before))

    assert verdicts == [Verdict.TAKEN, Verdict.MISSING, Verdict.TOO_LONG]
    assert other.attributes().messages == 0


def test_redrive_whose_reply_is_lost_can_be_repeated(queue: Queue, other: Queue, server: PrivateServer):
    queue.send(b"0")
    queue.client.run(redrive("rsmq", "jobs", "other", seen_in(queue)))  # the server knows the script from now on
    queue.send_many([b"1", b"2"])
    seen = seen_in(queue)
    with FaultProxy(server.url) as proxy:
        cut_off = Client(Connection(proxy.url, timeout_s=15))
        proxy.lose_reply_to(b"EVAL")
        with pytest.raises(OutcomeUnknown):
            cut_off.run(redrive("rsmq", "jobs", "other", seen))

        verdicts = cut_off.run(redrive("rsmq", "jobs", "other", seen))

    assert (len(seen_in(queue)), [message.body for message in seen_in(other)]) == (0, [b"0", b"1", b"2"])
    assert verdicts == [Verdict.MISSING, Verdict.MISSING]


def test_redrive_makes_a_failed_result_wait_again(client: Client, queue: Queue, other: Queue, server: PrivateServer):
    message_id = queue.send(b"x")
    bury(server, queue, message_id, task_id="t1")
    record = {"status": "FAILED", "queue": "other", "message": message_id, "finished_ms": "1.0", "error:1": "[]"}
    server.redis.hset("rsmq::result:t1", mapping=record)

    (new_id,) = client.run(redrive("rsmq", "jobs", "other", seen_in(queue)))

    assert isinstance(new_id, str)
    assert server.redis.hgetall("rsmq::result:t1") == {
        b"status": b"READY",
        b"queue": b"other",
        b"message": new_id.encode(),
        b"error:0": b"[]",  # of an earlier life
    }
    assert server.redis.ttl("rsmq::result:t1") == pytest.approx(REDRIVEN_RESULT_TTL_S, abs=60)


def test_attempts_before_the_last_redrive_keep_their_numbers_until_there_are_new_ones(
    client: Client, queue: Queue, other: Queue, server: PrivateServer
):
    message_id = queue.send(b"x")
    bury(server, queue, message_id, task_id="t1")
    record = {"status": "FAILED", "queue": "other", "message": message_id, "error:-1": "[]", "error:0": "[]"}
    server.redis.hset("rsmq::result:t1", mapping=record)

    client.run(redrive("rsmq", "jobs", "other", seen_in(queue)))

    assert {b"error:-1", b"error:0"} == {name for name in server.redis.hkeys("rsmq::result:t1") if b":" in name}


def test_redrive_makes_no_result_where_none_is_kept(client: Client, queue: Queue, other: Queue, server: PrivateServer):
    ids = queue.send_many([b"no record", b"no result"])
    bury(server, queue, ids[1], task_id="t2")

    client.run(redrive("rsmq", "jobs", "other", seen_in(queue)))

    assert server.redis.keys("*result*") == []
    assert len(seen_in(other)) == 2


@pytest.mark.parametrize(("limit", "ids", "expected"), [(None, 0, 5), (3, 0, 3), (9, 0, 5), (None, 4, 4), (2, 4, 2)])
def test_so_many_messages_are_expected_as_there_are_within_the_limit(
    client: Client, queue: Queue, limit: int | None, ids: int, expected: int
):
    sent = queue.send_many([b"x"] * 5)

    assert Transfer(client, queue.name, ids=sent[:ids], limit=limit).expected() == expected


def test_delayed_messages_are_moved_although_newer_ones_are_before_them(
    client: Client, queue: Queue, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    delayed, read = queue.send_many([b"x"] * 3, delay_s=600), transfers.pages

    def send_before_reading(*args: Any, **options: Any) -> Any:
        counted_s, counted_us = server.redis.time()
        wait_until(lambda: server.redis.time() > (counted_s, counted_us + 1000))
        queue.send_many([b"new"] * 3)
        return read(*args, **options)

    monkeypatch.setattr(transfers, "pages", send_before_reading)
    found = [message.id for part in Transfer(client, queue.name, with_hidden=True).candidates() for message in part]

    assert sorted(found) == sorted(delayed)


def test_rate_lets_the_first_messages_go_at_once(client: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    waits: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 1000 + sum(waits), sleep=waits.append)
    monkeypatch.setattr(transfers, "time", clock)
    queue.send_many([b"x"] * 6)

    sizes = [len(part) for part in Transfer(client, "jobs", rate=20).slices()]

    assert sizes == [2, 2, 2]
    assert waits == pytest.approx([0, 0.1, 0.1])
