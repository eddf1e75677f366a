"""Snapshot, dead letters, draining: the same rows after any number of runs."""

import datetime as dt
import json
import re
from typing import Any

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.spark import steps
from rsmq_django.spark.columns import arrow_schema
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.drained import drain_queue
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.rollup import rollup
from rsmq_django.spark.schemas import (
    ANOMALIES,
    DEAD_LETTERS,
    DEPTH,
    EVENTS,
    RUNS,
    TABLES,
    drained,
)
from tests.redis_server import PrivateServer
from tests.spark.samples import store_events

pytestmark = pytest.mark.spark

DAY = dt.date(2026, 11, 18)
MIDNIGHT_MS = int(dt.datetime(2026, 11, 18, tzinfo=dt.UTC).timestamp() * 1000)


@pytest.fixture
def config(tmp_path, spark) -> JobConfig:
    objectives = {"mail": {"success": 0.99, "wait_p95_ms": 2}}
    return JobConfig(lake=str(tmp_path / "lake"), objectives=objectives)


@pytest.fixture
def lake(config: JobConfig) -> Lake:
    return config.find_lake()


def write_day(lake: Lake, day: int = 0, *, count: int = 1200) -> None:
    """Put attempts of two hours into the lake: one in ten of them fails, in two groups."""
    start_ms = MIDNIGHT_MS + day * 86_400_000

    def event(number: int) -> dict[str, Any]:
        at_ms = start_ms + number * 6000
        failed = number % 10 == 0
        return {
            "id": f"{at_ms}-1",
            "task_id": f"t{number}",
            "event": ("dead" if number % 20 else "discarded") if failed else "succeeded",
            "wait_us": 1000 + number,
            "run_us": 20_000 + number % 7 * 1000,
            "enqueued_at": at_ms - 50,
            "worker": f"web1:{number % 3}",
            "error_type": "shop.Cancelled" if failed else "",
            "error": f"flight {number} {'cancelled' if number % 20 else 'lost'}" if failed else "",
        }

    # Two batches, as a day has many.
    store_events(lake, map(event, range(count // 2)))
    store_events(lake, map(event, range(count // 2, count)))


def contents(lake: Lake, table: Any) -> list[dict[str, Any]]:
    rows = [row for day in lake.days(table) for row in lake.read_day(table, day).to_pylist()]
    return sorted(rows, key=repr)


def test_dead_letters_are_archived_once_and_stay(
    spark, config: JobConfig, lake: Lake, server: PrivateServer, mail: Queue, client: Client
):
    dead = Queue("mail-dead", client)
    dead.create()
    for number in range(3):
        record = {"queue": "mail", "task": "shop.send", "error": "ValueError", "message": "no", "died_ms": MIDNIGHT_MS}
        server.redis.hset("rsmq::dead:mail-dead", dead.send(f"body {number}"), json.dumps(record))

    results = [steps.archive_dead_letters(spark, config) for _ in range(2)]

    assert [(result.rows_in, result.rows_out) for result in results] == [(3, 3), (3, 0)]
    assert len({row["message_id"] for row in contents(lake, DEAD_LETTERS)}) == len(contents(lake, DEAD_LETTERS)) == 3


def test_every_table_has_the_types_of_its_schema(
    spark, config: JobConfig, lake: Lake, server: PrivateServer, mail: Queue, client: Client
):
    import pyarrow.parquet as pq

    write_day(lake)
    rollup(lake)
    steps.analyse(config)
    steps.snapshot(spark, config)
    Queue("mail-dead", client).create()
    record = {"queue": "mail", "task": "shop.send", "error": "ValueError", "message": "no", "died_ms": MIDNIGHT_MS}
    letter = Queue("mail-dead", client).send("body")
    server.redis.hset("rsmq::dead:mail-dead", letter, json.dumps(record))
    steps.archive_dead_letters(spark, config)

    for table in TABLES:
        if table in (EVENTS, RUNS, ANOMALIES):
            continue  # those are the archive's and the command's, and an even day has no anomalies
        opened = lake.open(table)
        found = pq.read_schema(f"{opened.uri}/{opened.files[0].path}")
        assert [(field.name, _plain(field.type)) for field in found] == [
            (field.name, str(field.type)) for field in arrow_schema(table.columns)
        ]


def _plain(kind: Any) -> str:
    # The parts of a map or list are named after the column in a file.
    return re.sub(r" \('\w+'\)", "", str(kind)).replace("element: string", "item: string")


def test_snapshot_counts_messages_by_state_and_includes_empty_queues(
    spark, config: JobConfig, lake: Lake, mail: Queue, client
):
    Queue("empty", client).create()
    mail.send_many(["one", "two", "three"])
    mail.send("later", delay_s=60)
    mail.receive()

    result = steps.snapshot(spark, config)

    empty, row = contents(lake, DEPTH)
    row, empty = (row, empty) if row["queue"] == "mail" else (empty, row)
    assert (row["waiting"], row["delayed"], row["in_flight"]) == (2, 1, 1)
    assert (row["body_bytes"], row["max_receive_count"]) == (16, 1)
    assert 0 <= row["oldest_age_us"] < 60_000_000
    assert (empty["queue"], empty["waiting"], empty["oldest_age_us"]) == ("empty", 0, None)
    assert (result.rows_in, result.rows_out) == (4, 2)


@pytest.mark.parametrize("lease_s", [0, 300])
def test_drained_queue_is_in_the_lake_and_removed_from_redis(
    spark, config: JobConfig, lake: Lake, server: PrivateServer, mail: Queue, lease_s: int
):
    mail.send_many(f"order {number}" for number in range(2500))

    result = drain_queue(spark, config, "mail", lease_s=lease_s)

    stored = lake.open(drained("mail")).read(names=["body"])
    assert (result.rows, result.left) == (2500, 0)
    assert {body.decode() for body in stored["body"].to_pylist()} == {f"order {number}" for number in range(2500)}
    assert stored.num_rows == 2500
    assert mail.attributes().messages == 0
    assert server.redis.hlen("rsmq:mail:Q") == 7
    assert server.redis.xlen("rsmq::spark:drain:lake:mail") == 0
