"""A snapshot of queues: every existing message once, without receiving it."""

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.spark.errors import PipelineError
from rsmq_django.spark.snapshot import SCHEMA, QueueSnapshot
from tests.redis_server import PrivateServer


def read_all(snapshot: QueueSnapshot, parts=None) -> list[dict]:
    found = []
    for part in snapshot.plan() if parts is None else parts:
        for table in snapshot.read(part):
            found += [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return found


def test_messages_received_or_deleted_while_it_is_read_are_neither_lost_nor_doubled(mail: Queue, options):
    ids = mail.send_many(f"{number}" for number in range(5000))
    snapshot = QueueSnapshot(options(queue="mail", rowsPerPartition="1000"))
    parts = snapshot.plan()

    taken = [mail.receive_many(1000) for _ in range(3)]  # each moves to another rank
    mail.delete_many(taken[0][:10])
    found = read_all(snapshot, parts)

    deleted = {message.id for message in taken[0][:10]}
    assert sorted(row["message_id"] for row in found) == sorted(set(ids) - deleted)
    assert {row["receive_count"] for row in found} == {0, 1}


def test_snapshot_leaves_no_trace(mail: Queue, options, server: PrivateServer):
    mail.send_many(["a", "b"])
    before = server.redis.hgetall("rsmq:mail:Q"), server.redis.zrange("rsmq:mail", 0, -1, withscores=True)

    read_all(QueueSnapshot(options()))

    assert before == (server.redis.hgetall("rsmq:mail:Q"), server.redis.zrange("rsmq:mail", 0, -1, withscores=True))


def test_messages_of_other_clients_are_shown_unchanged(mail: Queue, options, server: PrivateServer):
    mail.send(b"\xff binary")
    server.redis.zadd("rsmq:mail", {"phantom": 1, "22-random-characters!!": 1_795_000_000})
    server.redis.hset("rsmq:mail:Q", mapping={"22-random-characters!!": "in seconds", "22-random-characters!!:rc": "x"})

    rows = {row["body"]: row for row in read_all(QueueSnapshot(options()))}

    assert set(rows) == {b"\xff binary", b"in seconds"}
    foreign = rows[b"in seconds"]
    assert (foreign["sent_at"], foreign["visible_at"], foreign["receive_count"]) == (None, None, 0)
    assert tuple(foreign) == tuple(column.name for column in SCHEMA)


def test_all_queues_are_read_unless_some_are_named(mail: Queue, client: Client, options):
    other = Queue("other", client)
    other.create()
    mail.send("1")
    other.send("2")

    assert [row["queue"] for row in read_all(QueueSnapshot(options()))] == ["mail", "other"]
    assert [row["queue"] for row in read_all(QueueSnapshot(options(queue="other")))] == ["other"]


def test_queue_that_is_too_long_for_a_plan_is_refused(mail: Queue, options, monkeypatch):
    mail.send_many(["1", "2"])
    monkeypatch.setattr("rsmq_django.spark.snapshot.MAX_IDS", 1)

    with pytest.raises(PipelineError, match="has 2 messages, the limit is 1"):
        QueueSnapshot(options()).plan()
