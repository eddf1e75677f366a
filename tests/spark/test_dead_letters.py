"""Dead letters as rows: task, error, time and group; none is removed from its queue."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.stats.fingerprint import fingerprint
from rsmq_django.spark.dead_letters import SCHEMA, DeadLetters
from rsmq_django.spark.options import Options
from tests.redis_server import PrivateServer

DIED_MS = 1_795_000_000_000


@pytest.fixture
def bury(client: Client, server: PrivateServer) -> Callable[..., str]:
    """Put a message into mail-dead, with its failure record; return its id."""
    queue = Queue("mail-dead", client)
    queue.create()

    def put(**record: Any) -> str:
        message_id = queue.send("body")
        failure = {"reason": "attempts", "queue": "mail", "task": "shop.send", "task_id": "t1", "attempts": 3}
        failure |= {"error": "ValueError", "message": "no row 7", "died_ms": DIED_MS, "worker": "web1:1"} | record
        server.redis.hset("rsmq::dead:mail-dead", message_id, json.dumps(failure))
        return message_id

    return put


def rows_of(options: Options) -> list[dict[str, Any]]:
    letters = DeadLetters(options)
    tables = [table for part in letters.plan() for table in letters.read(part)]
    return [dict(zip(table, row, strict=True)) for table in tables for row in zip(*table.values(), strict=True)]


def test_dead_letter_is_a_row_and_stays_in_its_queue(options, bury, client: Client):
    message_id = bury()

    (row,) = rows_of(options(kind="dead"))

    assert list(row) == [column.name for column in SCHEMA]
    assert (row["dead_queue"], row["message_id"], row["queue"]) == ("mail-dead", message_id, "mail")
    assert (row["task"], row["task_id"], row["reason"], row["attempts"]) == ("shop.send", "t1", "attempts", 3)
    assert (row["error_type"], row["error"], row["died_at"]) == ("ValueError", "no row 7", DIED_MS * 1000)
    assert row["fingerprint"] == fingerprint("shop.send", "ValueError", "no row 8"), "that of the event log"
    assert row["body_bytes"] == 4
    assert Queue("mail-dead", client).receive().receive_count == 1, "reading was no delivery"


def test_only_queues_with_failure_records_are_read_unless_others_are_named(options, bury, mail: Queue):
    bury()
    mail.send("alive")

    assert [row["dead_queue"] for row in rows_of(options(kind="dead"))] == ["mail-dead"]
    (row,) = rows_of(options(kind="dead", queue="mail"))
    assert (row["message_id"][:2], row["task"], row["fingerprint"]) == (row["message_id"][:2], "", None)
    assert row["died_at"] == row["sent_at"], "all that is known of when"


@pytest.mark.parametrize("damaged", [{"died_ms": "soon"}, {"died_ms": -1}, {"attempts": 2**40}, {"message": "x" * 900}])
def test_damaged_record_is_a_row_anyway(options, bury, damaged: dict[str, Any]):
    bury(**damaged)

    (row,) = rows_of(options(kind="dead"))

    assert row["died_at"] == (row["sent_at"] if "died_ms" in damaged else DIED_MS * 1000)
    assert row["attempts"] == (None if "attempts" in damaged else 3)
    assert len(row["error"]) == (500 if "message" in damaged else 8)


def test_queue_without_dead_letters_has_no_row(options, mail: Queue):
    assert rows_of(options(kind="dead")) == []
