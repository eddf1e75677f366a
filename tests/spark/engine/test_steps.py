"""Rollup, analysis, snapshot, draining: the same rows after any number of runs."""

import datetime as dt
import json
import re
from typing import Any

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.core.stats.histogram import Histogram
from rsmq_django.spark import steps
from rsmq_django.spark.columns import arrow_schema
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.delta import Table
from rsmq_django.spark.drained import drain_queue
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.schemas import (
    ANOMALIES,
    CAPACITY,
    DEAD_LETTERS,
    DEPTH,
    EVENTS,
    FAILURES,
    HOURLY,
    RUNS,
    SLO,
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


def changed_days(lake: Lake) -> list[dt.date]:
    return steps.changed_days(lake.open(EVENTS), lake.open(HOURLY))


def contents(lake: Lake, table: Any) -> list[dict[str, Any]]:
    rows = [row for day in lake.days(table) for row in lake.read_day(table, day).to_pylist()]
    return sorted(rows, key=repr)


def test_day_is_rolled_up_and_analysed_the_same_however_often(spark, config: JobConfig, lake: Lake):
    write_day(lake)

    first = steps.rollup(spark, lake)
    again = steps.rollup(spark, lake)
    rows, groups = contents(lake, HOURLY), contents(lake, FAILURES)
    forced = steps.rollup(spark, lake, since=DAY)

    assert (first.rows_in, first.rows_out, first.days) == (1200, 2, 1)
    assert again.days == 0, "nothing changed"
    assert forced.days == 1
    assert (rows, groups) == (contents(lake, HOURLY), contents(lake, FAILURES))
    assert [(row["attempts"], row["dead"], row["succeeded"], row["workers"]) for row in rows] == [
        (600, 60, 540, 3),
        (600, 60, 540, 3),
    ]
    exact = Histogram.of(20_000 + number % 7 * 1000 for number in range(600)).counts
    assert dict(rows[0]["run_hist"]) == exact, "Spark and Python put a time into the same bucket"
    assert [(group["n"], group["dead"], group["queues"]) for group in groups] == [(60, 60, ["mail"])] * 2
    assert {group["sample"] for group in groups} == {"flight 1190 cancelled", "flight 1180 lost"}


def test_late_events_change_only_their_day_and_released_messages_are_not_attempts(spark, config: JobConfig, lake: Lake):
    write_day(lake)
    steps.rollup(spark, lake)
    write_day(lake, 1, count=100)
    given_back = {"id": f"{MIDNIGHT_MS + 86_400_000}-2", "event": "released", "wait_us": "", "run_us": ""}
    store_events(lake, [given_back])

    assert changed_days(lake) == [DAY + dt.timedelta(days=1)]
    assert steps.rollup(spark, lake).rows_in == 101
    rows = contents(lake, HOURLY)
    assert [sum(row[name] for row in rows) for name in ("attempts", "first_attempts", "released")] == [1300, 1300, 1]


def test_analysis_gives_advice_burn_rates_and_odd_hours(spark, config: JobConfig, lake: Lake):
    write_day(lake)
    steps.rollup(spark, lake)

    for _ in range(2):
        steps.analyse(spark, config)

    (advice,) = contents(lake, CAPACITY)
    assert (advice["queue"], advice["attempts"], advice["slots_seen"], advice["slots_needed"]) == ("mail", 1200, 24, 1)
    assert advice["arrivals_per_s"] == pytest.approx(50 / 300)
    assert advice["mean_run_s"] == pytest.approx(0.023, rel=0.01)
    burns = {(row["objective"], row["window"]): row for row in contents(lake, SLO)}
    assert len(burns) == len(contents(lake, SLO)) == 6
    assert (burns["success", "1h"]["total"], burns["success", "1h"]["bad"]) == (600, 60)
    assert burns["success", "1h"]["burn_rate"] == pytest.approx(10)
    assert burns["wait_p95_ms", "3d"]["bad"] == sum(1000 + number > 2000 for number in range(1200))
    assert contents(lake, ANOMALIES) == []


def test_compacted_day_holds_each_event_once_and_needs_no_new_rollup(spark, config: JobConfig, lake: Lake):
    write_day(lake)
    before = contents(lake, EVENTS)
    steps.rollup(spark, lake)

    assert lake.compact(DAY + dt.timedelta(days=2)) == (1, 1200)
    assert contents(lake, EVENTS) == before
    assert len(lake.open(EVENTS).files) == 1
    assert changed_days(lake) == [], "the rollup has seen all that is in it"


def test_two_rollups_at_once_leave_the_rows_of_all_events(
    spark, config: JobConfig, lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    write_day(lake, count=100)
    commit = Table.commit
    others: list[Any] = []

    def after_another(self: Table, *args: Any, **options: Any) -> None:
        if self.definition is HOURLY and not others:
            others.append(None)
            write_day(lake, count=100)  # the other one reads more
            steps.rollup(spark, lake)
        commit(self, *args, **options)

    monkeypatch.setattr(Table, "commit", after_another)
    steps.rollup(spark, lake)

    assert sum(row["attempts"] for row in contents(lake, HOURLY)) == 200
    assert changed_days(lake) == []


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
    steps.rollup(spark, lake)
    steps.analyse(spark, config)
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
