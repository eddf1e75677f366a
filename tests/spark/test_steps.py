"""Snapshot and dead letters: the same rows after any number of runs."""

import datetime as dt
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core import Client, Queue
from rsmq_django.spark import steps
from rsmq_django.spark.columns import arrow_schema
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.delta import Table
from rsmq_django.spark.errors import ConnectionsFailed, PipelineError
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.options import DEFAULT_URL_VARIABLE
from rsmq_django.spark.rollup import rollup
from rsmq_django.spark.schemas import ANOMALIES, DEAD_LETTERS, DEPTH, EVENTS, RUNS, TABLES
from tests.redis_server import PrivateServer
from tests.spark.samples import store_events

MIDNIGHT_MS = int(dt.datetime(2026, 11, 18, tzinfo=dt.UTC).timestamp() * 1000)


@pytest.fixture
def config(tmp_path, server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> JobConfig:
    monkeypatch.setenv(DEFAULT_URL_VARIABLE, server.url)
    objectives = {"mail": {"success": 0.99, "wait_p95_ms": 2}}
    return JobConfig(lake=str(tmp_path / "lake"), objectives=objectives, source={"patienceS": "5"})


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
    rows = [row for day in lake.days(table) for row in lake.open(table).read({day}).to_pylist()]
    return sorted(rows, key=repr)


@pytest.fixture
def letters(client: Client, server: PrivateServer) -> Queue:
    """A queue with three dead letters, which died on two days."""
    dead = Queue("mail-dead", client)
    dead.create()
    for number in range(3):
        put_letter(server, dead, MIDNIGHT_MS + number // 2 * 86_400_000)
    return dead


def put_letter(server: PrivateServer, dead: Queue, died_ms: int) -> None:
    record = {"queue": "mail", "task": "shop.send", "error": "ValueError", "message": "no", "died_ms": died_ms}
    server.redis.hset("rsmq::dead:mail-dead", dead.send("body"), json.dumps(record))


def test_dead_letters_are_archived_once_and_stay(config: JobConfig, lake: Lake, letters: Queue):
    results = [steps.archive_dead_letters(config) for _ in range(2)]

    assert [(result.rows_in, result.rows_out) for result in results] == [(3, 3), (3, 0)]
    assert len({row["message_id"] for row in contents(lake, DEAD_LETTERS)}) == len(contents(lake, DEAD_LETTERS)) == 3
    assert len(lake.days(DEAD_LETTERS)) == 2


def test_dead_letters_that_another_run_archives_meanwhile_are_archived_once(
    config: JobConfig, lake: Lake, server: PrivateServer, letters: Queue, monkeypatch: pytest.MonkeyPatch
):
    commit = Table.commit

    def after_another(self: Table, *args: Any, **options: Any) -> None:
        monkeypatch.setattr(Table, "commit", commit)
        assert steps.archive_dead_letters(config).rows_out == 3
        put_letter(server, letters, MIDNIGHT_MS)
        commit(self, *args, **options)

    monkeypatch.setattr(Table, "commit", after_another)

    assert steps.archive_dead_letters(config).rows_out == 0
    assert steps.archive_dead_letters(config).rows_out == 1
    assert len(contents(lake, DEAD_LETTERS)) == 4


def test_dead_letters_whose_day_has_expired_are_not_archived_again(config: JobConfig, lake: Lake, letters: Queue):
    steps.archive_dead_letters(config)
    lake.expire(dt.date(2026, 11, 19), {DEAD_LETTERS.name: 0})

    assert steps.archive_dead_letters(config).rows_out == 0
    assert lake.days(DEAD_LETTERS) == [dt.date(2026, 11, 19)]


def test_every_table_has_the_types_of_its_schema(
    config: JobConfig, lake: Lake, server: PrivateServer, mail: Queue, client: Client
):
    import pyarrow.parquet as pq

    write_day(lake)
    rollup(lake)
    steps.analyse(config)
    steps.snapshot(config)
    Queue("mail-dead", client).create()
    record = {"queue": "mail", "task": "shop.send", "error": "ValueError", "message": "no", "died_ms": MIDNIGHT_MS}
    letter = Queue("mail-dead", client).send("body")
    server.redis.hset("rsmq::dead:mail-dead", letter, json.dumps(record))
    steps.archive_dead_letters(config)

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
    config: JobConfig, lake: Lake, mail: Queue, client
):
    Queue("empty", client).create()
    mail.send_many(["one", "two", "three"])
    mail.send("later", delay_s=60)
    mail.receive()

    result = steps.snapshot(config)

    empty, row = contents(lake, DEPTH)
    row, empty = (row, empty) if row["queue"] == "mail" else (empty, row)
    assert (row["waiting"], row["delayed"], row["in_flight"]) == (2, 1, 1)
    assert (row["body_bytes"], row["max_receive_count"]) == (16, 1)
    assert 0 <= row["oldest_age_us"] < 60_000_000
    assert (empty["queue"], empty["waiting"], empty["oldest_age_us"]) == ("empty", 0, None)
    assert (result.rows_in, result.rows_out) == (4, 2)


@pytest.mark.parametrize("key", ["rsmq:aaa", "rsmq:aaa:Q", "rsmq::dead:aaa"])
def test_queue_that_another_program_broke_hides_no_other_queue(
    config: JobConfig, lake: Lake, letters: Queue, server: PrivateServer, key: str
):
    broken = Queue("aaa", letters.client)
    broken.create()
    server.redis.hset("rsmq::dead:aaa", broken.send("body"), "{}")
    server.redis.delete(key)
    server.redis.rpush(key, "foreign")

    if not key.startswith("rsmq::"):
        with pytest.raises(ConnectionsFailed, match="^aaa: BrokenQueue: .* has the wrong type"):
            steps.snapshot(config)
        assert [(row["queue"], row["waiting"]) for row in contents(lake, DEPTH)] == [("mail-dead", 3)]
    with pytest.raises(ConnectionsFailed, match="^aaa: BrokenQueue: .* has the wrong type"):
        steps.archive_dead_letters(config)
    assert len(contents(lake, DEAD_LETTERS)) == 3


def test_queue_that_is_too_long_for_a_snapshot_hides_no_other_queue(
    config: JobConfig, lake: Lake, letters: Queue, mail: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.spark.snapshot.MAX_IDS", 3)
    mail.send_many(["1", "2", "3", "4"])

    with pytest.raises(PipelineError, match="queue 'mail' has 4 messages, the limit is 3"):
        steps.snapshot(config)
    assert [(row["queue"], row["waiting"]) for row in contents(lake, DEPTH)] == [("mail-dead", 3)]


@pytest.mark.parametrize("gone", [(), ("gone",)], ids=["all answer", "one does not answer"])
def test_queues_of_all_connections_are_in_the_snapshot_and_the_archive_of_dead_letters(
    config: JobConfig, lake: Lake, letters: Queue, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, gone: Any
):
    shard = Queue(letters.name, Client(letters.client.connection, namespace="rsmq-1"))
    shard.create()
    shard.send("in the shard")
    first = depth_of(config, lake, letters.name)
    monkeypatch.setenv("GONE", "unix:///nonexistent/socket")
    logs = {"default.1": {"urlEnv": DEFAULT_URL_VARIABLE, "ns": "rsmq-1"}}
    logs = dict.fromkeys(gone, {"urlEnv": "GONE", "ns": "rsmq"}) | logs
    both = replace(config, logs=logs, source={"patienceS": "0"})

    if gone:
        with pytest.raises(ConnectionsFailed, match="^gone: ConnectionFailed: "):
            steps.snapshot(both)
        with pytest.raises(ConnectionsFailed, match="^gone: ConnectionFailed: "):
            steps.archive_dead_letters(both)
    else:
        steps.snapshot(both)
        steps.archive_dead_letters(both)

    newest = max(lake.open(DEPTH).read().to_pylist(), key=lambda row: row["taken_at"])
    assert newest["waiting"] == first["waiting"] + 1
    assert newest["body_bytes"] == first["body_bytes"] + len("in the shard")
    assert lake.open(DEAD_LETTERS).read()["dead_queue"].to_pylist().count(letters.name) == first["waiting"]


def test_a_namespace_with_two_addresses_is_counted_once(
    config: JobConfig, lake: Lake, mail: Queue, server: PrivateServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    mail.send_many(["one", "two"])
    server.redis.xadd("rsmq::events", {"event": "succeeded"})
    other = tmp_path / "other.sock"
    other.symlink_to(server.url.removeprefix("unix://"))
    monkeypatch.setenv("OTHER", f"unix://{other}")
    in_shard = Queue(mail.name, Client(mail.client.connection, namespace="rsmq-1"))
    in_shard.create()
    in_shard.send("in the shard")
    logs = {"other": {"urlEnv": "OTHER", "ns": "rsmq"}, "other.1": {"urlEnv": "OTHER", "ns": "rsmq-1"}}

    steps.snapshot(replace(config, logs=logs))

    (row,) = lake.open(DEPTH).read().to_pylist()
    assert row["waiting"] == 3


def depth_of(config: JobConfig, lake: Lake, queue: str) -> dict[str, Any]:
    steps.snapshot(config, queues=[queue])
    (row,) = lake.open(DEPTH).read().to_pylist()
    return {name: row[name] for name in ("waiting", "body_bytes")}
