"""Conversion of a lake that an earlier version wrote: the same rows, and the archive continues behind them."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rsmq_django.core.transport.streams import name_log
from rsmq_django.spark import convert as conversion
from rsmq_django.spark.columns import arrow_schema
from rsmq_django.spark.convert import convert
from rsmq_django.spark.errors import PipelineError
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.runs import read_runs
from rsmq_django.spark.schemas import DEPTH, EVENTS, LakeTable, drained
from rsmq_django.spark.server import Server
from tests.redis_server import PrivateServer
from tests.spark.plain import archive_job, ids_in
from tests.spark.samples import STREAM, log_events

DAY = dt.date(2026, 11, 18)
DAY_MS = int(dt.datetime(2026, 11, 18, tzinfo=dt.UTC).timestamp() * 1000)
QUERY = "c0ffee00"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


def write(path: Path, table: LakeTable, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    empty = dict.fromkeys(column.name for column in table.columns)
    pq.write_table(pa.Table.from_pylist([empty | row for row in rows], arrow_schema(table.columns)), path)


def event(entry_id: str) -> dict[str, Any]:
    return {"shard": STREAM, "entry_id": entry_id, "event_at": int(entry_id.partition("-")[0]) * 1000}


def write_batch(lake: Lake, name: str, ids: list[str]) -> None:
    write(lake.root / "events" / f"dt={DAY}" / f"b={name}" / "part-00000.parquet", EVENTS, list(map(event, ids)))


def write_checkpoint(lake: Lake, ends: list[dict[str, Any]], *, done: int) -> None:
    """Write what Spark did: an offset per batch, and a commit for those that are done."""
    place = lake.root / "_checkpoints" / "archive"
    for name in ("offsets", "commits"):
        (place / name).mkdir(parents=True)
    (place / "metadata").write_text(json.dumps({"id": f"{QUERY}-0000"}))
    for batch, end in enumerate(ends):
        (place / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps({STREAM: end})}")
        if batch <= done:
            (place / "commits" / str(batch)).write_text("v1\n{}")


def old_lake(lake: Lake, server: PrivateServer, *, log: str) -> list[str]:
    """Write a lake whose archive died in its third batch, and return the ids in Redis."""
    log_events(server.redis, 30)
    ids = [entry_id.decode() for entry_id, _ in server.redis.xrange(STREAM)]
    compacted = lake.root / "events_compact" / f"dt={DAY}"
    write(compacted / "one.parquet", EVENTS, [event(f"{DAY_MS}-{number}") for number in range(4)])
    write(compacted / "not-counted.parquet", EVENTS, [event(f"{DAY_MS}-99")])
    (compacted / "_done").write_text(json.dumps({"rows": 4, "files": ["one.parquet"], "batches": ["q0ddba11a-000000"]}))
    write_batch(lake, "q0ddba11a-000000", [f"{DAY_MS}-0"])  # compacted, and not removed yet
    write_batch(lake, f"q{QUERY}-000000", ids[:10])
    write_batch(lake, f"q{QUERY}-000001", ids[10:20])
    write_batch(lake, f"q{QUERY}-000002", ids[20:25])
    ends = [{"id": ids[n - 1], "n": n, "rows": 10, "lost": 0} | ({"log": log} if log else {}) for n in (10, 20, 30)]
    write_checkpoint(lake, ends, done=1)
    depth = {"taken_at": DAY_MS * 1000, "queue": "mail", "waiting": 3}
    write(lake.root / "depth" / f"dt={DAY}" / "part-00000.parquet", DEPTH, [depth])
    letter = {"queue": "mail", "entry_id": "1-1", "claimed_at": DAY_MS * 1000, "body": b"order"}
    place = lake.root / "drained" / "mail" / f"dt={DAY}" / "b=q1-000000"
    write(place / "part-00000.parquet", drained("mail"), [letter])
    run = {"step": "archive", "started_at": "2026-11-18T12:00:00.000000+00:00", "id": "7", "rows_in": 20, "lost": 2}
    runs = lake.root / "_state" / "runs"
    runs.mkdir(parents=True)
    (runs / "1.json").write_text(json.dumps(run))
    (runs / "2.json").write_text("{")
    return ids


@pytest.fixture
def identity_of(pipeline_server: Server) -> Callable[[str], str]:
    return lambda stream: pipeline_server.run(name_log(stream))


@pytest.mark.parametrize("knows_its_log", [True, False])
def test_converted_lake_has_each_event_once_and_the_archive_continues_behind_them(
    lake: Lake, server: PrivateServer, identity_of: Callable[[str], str], knows_its_log: bool
):
    log_events(server.redis, 1)
    log = identity_of(STREAM)
    server.redis.xtrim(STREAM, maxlen=0, approximate=False)
    ids = old_lake(lake, server, log=log if knows_its_log else "")
    # The count of entries includes the one that made the log.
    for path in (lake.root / "_checkpoints" / "archive" / "offsets").iterdir():
        lines = path.read_text().splitlines()
        end = json.loads(lines[2])
        end[STREAM]["n"] += 1
        path.write_text("\n".join([*lines[:2], json.dumps(end)]))

    rows = convert(lake, identity_of)

    assert rows == {"events": 24, "depth": 1, "drained/mail": 1}
    assert sorted(ids_in(lake)) == sorted([f"{DAY_MS}-{number}" for number in range(4)] + ids[:20])
    assert [row["waiting"] for row in lake.open(DEPTH).read({DAY}).to_pylist()] == [3]
    assert lake.open(drained("mail")).read()["body"].to_pylist() == [b"order"]
    assert [(run.id, run.rows_in, run.lost) for run in read_runs(lake, since=DAY)] == [("7", 20, 2)]
    assert not list(lake.root.glob("_*")) + list(lake.root.glob("events_compact"))
    # Readers of other projects take each name=value of a path for a column.
    paths = [file.path for table in (EVENTS, DEPTH, drained("mail")) for file in lake.open(table).files]
    assert len(paths) == 5 and all(path.count("=") == 1 for path in paths)

    job = archive_job(lake, url=server.url)
    job.transfer()

    assert (job.result.rows, job.result.lost) == (10, 0)
    assert len(ids_in(lake)) == len(set(ids_in(lake))) == 34


def test_lake_without_a_checkpoint_continues_after_its_newest_row(
    lake: Lake, server: PrivateServer, identity_of: Callable[[str], str]
):
    log_events(server.redis, 30)
    ids = [entry_id.decode() for entry_id, _ in server.redis.xrange(STREAM)]
    write_batch(lake, "q1-000000", ids[:12])
    (lake.root / "_checkpoints").mkdir()

    convert(lake, identity_of)
    job = archive_job(lake, url=server.url)
    job.transfer()

    assert job.result.rows == 18
    assert len(ids_in(lake)) == len(set(ids_in(lake))) == 30


def test_conversion_that_died_is_completed_by_the_next_one(
    lake: Lake, server: PrivateServer, identity_of: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
):
    log_events(server.redis, 1)
    old_lake(lake, server, log="")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    # Before and after the tables were committed, and when there is a table of runs without rows.
    for place in ("marks_of", "_convert_runs", "as_row"):
        with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
            killed.setattr(conversion, place, die)
            convert(lake, identity_of)

    assert convert(lake, identity_of)["events"] == 24
    assert len(ids_in(lake)) == len(set(ids_in(lake))) == 24
    assert len(read_runs(lake, since=DAY)) == 1


def test_rows_that_were_replaced_do_not_come_back_in_a_lake_that_needs_no_conversion(lake: Lake):
    for waiting in (1, 2, 3):
        lake.write_day(DEPTH, DAY, [{"queue": "mail", "waiting": waiting}])

    assert convert(lake, str) == {}

    assert [row["waiting"] for row in lake.open(DEPTH).read({DAY}).to_pylist()] == [3]


def test_damaged_notes_of_an_earlier_version_are_named(
    lake: Lake, server: PrivateServer, identity_of: Callable[[str], str]
):
    old_lake(lake, server, log="")
    offset = lake.root / "_checkpoints" / "archive" / "offsets" / "1"
    content = offset.read_text()
    offset.write_text("v1\n")
    with pytest.raises(PipelineError, match="offsets/1: this file of Spark's checkpoint is missing or damaged"):
        convert(lake, identity_of)
    offset.write_text(content)
    (lake.root / "events_compact" / f"dt={DAY}" / "_done").write_bytes(b"")
    with pytest.raises(PipelineError, match="_done is damaged"):
        convert(lake, identity_of)
