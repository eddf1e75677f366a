"""The tables of the lake: commits that are whole or missing, compaction, expiry, the records of runs."""

import datetime as dt
import json
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.delta import CommitConflict, Table
from rsmq_django.spark.errors import AlreadyRunning, DataLoss, PipelineError, WrongOption
from rsmq_django.spark.events import rows
from rsmq_django.spark.files import DataFile, read_files, split_rows, write_files
from rsmq_django.spark.lake import Lake, write_rows
from rsmq_django.spark.runs import read_runs, record
from rsmq_django.spark.schemas import DEPTH, EVENTS, RUNS, TABLES, LakeTable, archived_topic, drained
from tests.spark.samples import STREAM

DAY = dt.date(2026, 11, 18)
DAY_US = int(dt.datetime(2026, 11, 18, tzinfo=dt.UTC).timestamp() * 1e6)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


def event(entry_id: str) -> dict[str, Any]:
    empty: dict[str, Any] = dict.fromkeys(column.name for column in EVENTS.columns)
    return empty | {"shard": STREAM, "entry_id": entry_id, "event_at": int(entry_id.partition("-")[0]) * 1000}


def depth(queue: str) -> dict[str, Any]:
    row = dict.fromkeys(("waiting", "delayed", "in_flight", "body_bytes", "max_receive_count"), 0)
    return {"taken_at": DAY_US, "queue": queue} | row


def write_batch(lake: Lake, ids: list[str], *, day: dt.date = DAY) -> None:
    """Write a batch as the archive would."""
    lake.append(EVENTS, day, map(event, ids))


def ids_of(lake: Lake, day: dt.date = DAY) -> list[str]:
    return sorted(lake.open(EVENTS).read({day}, names=["entry_id"])["entry_id"].to_pylist())


def queues(lake: Lake) -> list[str]:
    return sorted(lake.open(DEPTH).read({DAY})["queue"].to_pylist())


# -- Commits -----------------------------------------------------------------------------------------------------------


def test_file_counts_when_it_is_committed_and_not_before(lake: Lake):
    write_batch(lake, ["1-1"])
    table = lake.open(EVENTS, create=True)
    files = write_rows(table, {DAY: [event("1-2")]})
    assert ids_of(lake) == ["1-1"]

    table.commit(files, marks={"position": 2})

    assert ids_of(lake) == ["1-1", "1-2"]
    assert lake.open(EVENTS).mark("position") == 2
    assert lake.open(EVENTS).mark("another") is None


def test_of_two_commits_with_the_same_mark_the_second_is_refused(lake: Lake):
    first, second, other = (lake.open(EVENTS, create=True) for _ in range(3))
    first.commit(write_rows(first, {DAY: [event("1-1")]}), marks={"position": 1})

    with pytest.raises(CommitConflict, match="run the step again"):
        second.commit(write_rows(second, {DAY: [event("1-1")]}), marks={"position": 2})
    other.commit(write_rows(other, {DAY: [event("1-2")]}), marks={"another": 1})

    assert ids_of(lake) == ["1-1", "1-2"]
    assert lake.open(EVENTS).mark("position") == 1


def test_table_that_two_processes_create_at_once_is_one(lake: Lake):
    errors: list[BaseException] = []

    def add(number: int) -> None:
        try:
            lake.append(DEPTH, DAY, [depth(f"queue-{number}")])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert queues(lake) == [f"queue-{number}" for number in range(6)]


def test_change_that_another_process_came_before_is_made_from_what_that_left(lake: Lake):
    lake.append(DEPTH, DAY, [depth("a")])
    others: list[int] = []

    def add_b(table: Table) -> dict[dt.date, list[dict[str, Any]]]:
        found = table.read({DAY}).to_pylist()
        if not others:
            others.append(lake.write_day(DEPTH, DAY, [*found, depth("c")]))
        return {DAY: [*found, depth("b")]}

    assert lake.change_days(DEPTH, add_b) == 3
    assert queues(lake) == ["a", "b", "c"]


def test_file_of_an_older_schema_reads_as_nulls(lake: Lake):
    table = lake.open(EVENTS, create=True)
    path = Path(table.uri) / f"dt={DAY}" / "older.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"entry_id": ["1-1"], "shard": ["s"], "of_the_future": [1]}), path)
    table.commit([DataFile(f"dt={DAY}/older.parquet", DAY, 1, path.stat().st_size)])

    (row,) = lake.open(EVENTS).read({DAY}).to_pylist()

    assert (row["entry_id"], row["fingerprint"]) == ("1-1", None)


def test_columns_of_a_later_version_are_added_to_a_table_for_readers_of_delta(lake: Lake):
    older = replace(DEPTH, columns=DEPTH.columns[:3])
    table = lake.open(older, create=True)
    table.commit(write_rows(table, {DAY: [{"queue": "a", "waiting": 1}]}))
    read_only = lake.open(DEPTH).version

    lake.append(DEPTH, DAY, [depth("b")])

    assert read_only == 1, "a reader adds none"
    found = DeltaTable(table.uri).to_pyarrow_table().sort_by("queue")
    assert set(found.column_names) == {*(column.name for column in DEPTH.columns), "dt"}
    assert found["in_flight"].to_pylist() == [None, depth("b")["in_flight"]]


@pytest.mark.parametrize("place", ["s3:/bucket/lake", "s3//bucket/lake", "file:/srv/lake", "/srv/a%20b", "/srv/a\\b"])
def test_place_that_is_neither_a_path_nor_an_address_is_refused(place: str):
    with pytest.raises(WrongOption, match="of the lake|the lake"):
        Lake.at(place)


@pytest.mark.parametrize("place", ["/srv/a b", "/srv/a:b", "/srv//lake", "lake", "/srv/90%", "s3://bucket/lake"])
def test_place_that_can_be_a_lake_is_one(place: str):
    assert Lake.at(place).uri in (place, str(Path(place).absolute()))


def test_tables_of_drained_queues_and_archived_topics_are_found_on_each_storage(place: str):
    lake = Lake.at(place)
    assert lake.all_tables() == list(TABLES)
    for table in (drained("mail"), archived_topic("tea/milk")):
        lake.append(table, DAY, [dict.fromkeys(column.name for column in table.columns)])

    found = lake.all_tables()[len(TABLES) :]

    assert [(table.name, [file.rows for file in lake.open(table).files]) for table in found] == [
        ("drained/mail", [1]),
        ("topics/tea~2Fmilk", [1]),
    ]


def test_scheme_that_is_unknown_is_named_and_is_no_empty_lake():
    with pytest.raises(PipelineError, match="s4://bucket/lake/depth cannot be read: Unknown scheme: s4; check the add"):
        Lake.at("s4://bucket/lake").days(DEPTH)


def test_table_with_a_damaged_log_is_named_with_the_cause_in_one_sentence(lake: Lake):
    lake.write_day(DEPTH, DAY, [])
    newest = max((lake.root / "depth" / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:99])

    with pytest.raises(
        PipelineError, match="/depth cannot be read: .*; after a power failure see docs/how-to"
    ) as raised:
        lake.days(DEPTH)
    assert "\n" not in str(raised.value)


def test_lake_of_an_earlier_version_is_refused_and_left_alone(lake: Lake):
    (lake.root / "events_compact").mkdir(parents=True)

    with pytest.raises(PipelineError, match="convert it: manage.py rsmq_pipeline convert"):
        write_batch(lake, ["1-1"])

    assert [path.name for path in lake.root.iterdir()] == ["events_compact"]


# -- Compaction and expiry ---------------------------------------------------------------------------------------------


def test_files_of_a_closed_day_become_one_with_the_same_rows(lake: Lake):
    for number in range(3):
        write_batch(lake, [f"1-{number}"])

    assert lake.compact(DAY + dt.timedelta(days=1)) == (0, 0), "late batches may come"
    assert lake.compact(DAY + dt.timedelta(days=2)) == (1, 3)
    assert (ids_of(lake), len(lake.open(EVENTS).files)) == (["1-0", "1-1", "1-2"], 1)
    assert lake.compact(DAY + dt.timedelta(days=2)) == (0, 0)

    write_batch(lake, ["1-3"])
    assert lake.compact(DAY + dt.timedelta(days=2)) == (1, 4)


def test_files_of_a_day_become_full_ones_oldest_first_and_sorted_by_time(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    for number in (2, 1, 3, 5, 4):
        write_batch(lake, [f"{number}-{row}" for row in range(50)])
    sizes = [file.size for file in lake.open(EVENTS).files]
    monkeypatch.setattr("rsmq_django.spark.lake.FULL_BYTES", int(1.5 * max(sizes)))

    assert len(lake.bins_to_compact(DAY)) == 2, "of an open day only the full ones"
    assert lake.compact(DAY) == (2, 200)
    contents = []
    for file in lake.open(EVENTS).files:
        times = read_files(lake.open(EVENTS).uri, [file.path], EVENTS.columns)["event_at"].to_pylist()
        assert times == sorted(times)
        contents.append(sorted({time.microsecond // 1000 for time in times}))
    assert sorted(contents) == [[1, 2], [3, 5], [4]]


def test_many_small_files_of_an_open_day_become_one(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rsmq_django.spark.lake.MANY_FILES", 3)
    write_batch(lake, ["1-1"])
    write_batch(lake, ["1-2"])
    assert lake.compact(DAY) == (0, 0)

    write_batch(lake, ["1-3"])

    assert lake.compact(DAY) == (1, 3)


def test_rows_that_come_while_a_day_is_compacted_stay(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    write_batch(lake, ["1-1"])
    write_batch(lake, ["1-2"])
    commit = Table.commit
    others: list[Any] = []

    def after_another(self: Table, *args: Any, **options: Any) -> None:
        if options.get("moves_rows") and not others:
            others.append(None)
            write_batch(lake, ["1-3"])
        commit(self, *args, **options)

    monkeypatch.setattr(Table, "commit", after_another)
    lake.compact(DAY + dt.timedelta(days=2))

    assert (ids_of(lake), len(lake.open(EVENTS).files)) == (["1-1", "1-2", "1-3"], 2)


def test_day_that_two_processes_compact_has_its_rows_once(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    write_batch(lake, ["1-1"])
    write_batch(lake, ["1-2"])
    commit = Table.commit
    others: list[Any] = []

    def after_another(self: Table, *args: Any, **options: Any) -> None:
        if options.get("moves_rows") and not others:
            others.append(None)
            others.append(lake.compact(DAY + dt.timedelta(days=2)))
        commit(self, *args, **options)

    monkeypatch.setattr(Table, "commit", after_another)

    assert lake.compact(DAY + dt.timedelta(days=2)) == (1, 0)
    assert others[1] == (1, 2)
    assert ids_of(lake) == ["1-1", "1-2"]


def test_compaction_that_would_lose_rows_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    write_batch(lake, ["1-1"])
    write_batch(lake, ["1-2"])
    monkeypatch.setattr("rsmq_django.spark.lake.scan_files", lambda *_: iter(()))

    with pytest.raises(PipelineError, match="2 rows became 0; nothing was removed"):
        lake.compact(DAY + dt.timedelta(days=2))

    assert ids_of(lake) == ["1-1", "1-2"]


def test_days_expire_after_the_time_set_for_their_table(lake: Lake):
    write_batch(lake, ["1-1"])
    write_batch(lake, ["1-2"], day=DAY + dt.timedelta(days=20))
    lake.append(DEPTH, DAY, [depth("a")])
    today = DAY + dt.timedelta(days=31)

    counted = lake.expire(today, dry_run=True)
    assert len(lake.days(EVENTS)) == 2
    removed = lake.expire(today)
    later = lake.expire(today, {"depth": 7})

    assert (counted, removed, later) == ({"events": 1}, {"events": 1}, {"depth": 1})
    assert lake.days(EVENTS) == [DAY + dt.timedelta(days=20)]
    assert lake.days(DEPTH) == []


@pytest.mark.parametrize("definition", [drained("mail"), archived_topic("orders")])
def test_files_of_a_run_that_died_are_deleted_from_drained_queues_and_topics(lake: Lake, definition: LakeTable):
    table = lake.open(definition, create=True)
    row = dict.fromkeys(column.name for column in definition.columns)
    stored, orphan = (write_rows(table, {DAY: [row]})[0] for _ in range(2))
    table.commit([stored])
    two_days_ago = dt.datetime.now(dt.UTC).timestamp() - 2 * 86_400
    for file in (stored, orphan):
        os.utime(f"{table.uri}/{file.path}", (two_days_ago, two_days_ago))

    assert lake.expire(DAY + dt.timedelta(days=1000)) == {}

    assert not Path(f"{table.uri}/{orphan.path}").exists()
    assert lake.open(definition).read().num_rows == 1


def test_files_that_no_commit_counts_are_deleted_after_a_day(lake: Lake):
    write_batch(lake, ["1-1"])
    table = lake.open(EVENTS)
    orphans = [table.uri + "/" + write_rows(table, {DAY: [event("1-2")]})[0].path for _ in range(2)]
    two_days_ago = dt.datetime.now(dt.UTC).timestamp() - 2 * 86_400
    os.utime(orphans[0], (two_days_ago, two_days_ago))

    lake.expire(DAY)

    assert [Path(path).exists() for path in orphans] == [False, True], "the second may be committed in a moment"
    assert ids_of(lake) == ["1-1"]


# -- Runs --------------------------------------------------------------------------------------------------------------


def test_runs_are_read_newest_first(lake: Lake):
    for number in range(5):
        record(lake, f"step{number}", lambda run: None)

    assert [run.step for run in read_runs(lake)] == [f"step{number}" for number in (4, 3, 2, 1, 0)]
    assert read_runs(lake, since=dt.datetime.now(dt.UTC).date() + dt.timedelta(days=2)) == []
    assert len(lake.open(RUNS).files) == 1, "each record is written with the others of its day"


def test_outcome_of_a_run_is_its_exit_code_and_a_refused_run_is_not_recorded(lake: Lake):
    def stop(error: Exception | None) -> int:
        def work(_run: Any) -> None:
            if error:
                raise error

        return record(lake, "archive", work).exit_code

    codes = [stop(error) for error in (None, OSError("full"), DataLoss("40 entries"), AlreadyRunning("wait"))]

    assert codes == [0, 1, 3, 4]
    assert sorted(run.exit_code for run in read_runs(lake)) == [0, 1, 3]


def test_configuration_survives_json_and_refuses_unknown_options():
    config = JobConfig(lake="/lake", objectives={"mail": {"success": 0.999}}, wait_targets_s={"*": 3.0})

    assert JobConfig.from_json(config.to_json()) == config
    assert (config.wait_target_s("mail"), JobConfig(lake="/x").wait_target_s("mail")) == (3.0, 5.0)
    with pytest.raises(WrongOption, match="unknown keys in the job's JSON: laek"):
        JobConfig.from_json(json.dumps({"laek": "/lake"}))
    with pytest.raises(PipelineError, match="'sucess'"):
        JobConfig.from_json(json.dumps({"lake": "/lake", "objectives": {"mail": {"sucess": 1}}}))


# -- Files that tasks wrote --------------------------------------------------------------------------------------------


def test_rows_of_two_days_become_a_file_for_each(tmp_path: Path):
    midnight_ms = 1_795_046_400_000
    entries = [(f"{midnight_ms + offset}-0".encode(), [b"e", b"succeeded"]) for offset in (-2, -1, 0, 1, 2)]
    chunks = [rows(STREAM, entries[:1]), rows(STREAM, entries[1:]), rows(STREAM, [])]
    parts = split_rows(chunks, EVENTS.columns, time="event_at")

    files = write_files(str(tmp_path), parts, EVENTS.columns)

    assert [(file.day, file.rows) for file in files] == [(dt.date(2026, 11, 18), 2), (dt.date(2026, 11, 19), 3)]
    assert [file.size for file in files] == [(tmp_path / file.path).stat().st_size for file in files]
    stored = [read_files(str(tmp_path), [file.path], EVENTS.columns)["entry_id"].to_pylist() for file in files]
    assert stored == [[f"{midnight_ms - 2}-0", f"{midnight_ms - 1}-0"], [f"{midnight_ms + n}-0" for n in range(3)]]


def test_new_lake_is_closed_to_other_users_and_one_that_exists_keeps_its_mode(tmp_path: Path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o750)

    for root in (tmp_path / "a" / "lake", shared):
        record(Lake.at(root), "expire", lambda run: None)

    assert stat.S_IMODE((tmp_path / "a" / "lake").stat().st_mode) == 0o700
    assert stat.S_IMODE(shared.stat().st_mode) == 0o750


def test_log_of_commits_is_shortened_behind_a_checkpoint(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rsmq_django.spark.delta.CHECKPOINT_EVERY", 5)
    for number in range(12):
        lake.append(DEPTH, DAY, [depth(f"queue-{number:02}")])
    log = lake.root / "depth" / "_delta_log"
    two_days_ago = dt.datetime.now(dt.UTC).timestamp() - 2 * 86_400
    for path in log.glob("*.json"):
        os.utime(path, (two_days_ago, two_days_ago))

    lake.expire(DAY)

    assert len(list(log.glob("*.json"))) < 13
    assert queues(lake) == [f"queue-{number:02}" for number in range(12)]
    lake.append(DEPTH, DAY, [depth("queue-12")])
    assert len(queues(lake)) == 13
