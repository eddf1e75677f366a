"""The directory of the lake: complete or missing days, leftovers of failed runs, the newest data."""

import datetime as dt
import json
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rsmq_django.spark.columns import arrow_schema
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.durable import replace_directory
from rsmq_django.spark.errors import AlreadyRunning, DataLoss, PipelineError, WrongOption
from rsmq_django.spark.events import rows
from rsmq_django.spark.files import write_files
from rsmq_django.spark.lake import Lake, place_batch, read_parquet, rows_of_batch
from rsmq_django.spark.runs import read_runs, record
from rsmq_django.spark.schemas import DEPTH, EVENTS, HOURLY
from tests.spark.samples import STREAM

DAY = dt.date(2026, 11, 18)
DAY_US = int(dt.datetime(2026, 11, 18, tzinfo=dt.UTC).timestamp() * 1e6)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


def write_batch(
    lake: Lake, name: str, ids: list[str], *, day: dt.date = DAY, shard: str = "rsmq::events", log: str | None = None
) -> Path:
    """Write a batch as the archive would."""
    directory = lake.table(EVENTS) / f"dt={day}" / f"b={name}"
    directory.mkdir(parents=True)
    empty: dict[str, Any] = dict.fromkeys(column.name for column in EVENTS.columns)
    rows = [
        empty | {"shard": shard, "log": log, "entry_id": i, "event_at": int(i.partition("-")[0]) * 1000} for i in ids
    ]
    pq.write_table(pa.Table.from_pylist(rows, arrow_schema(EVENTS.columns)), directory / "part-0.parquet")
    return directory


def ids_of(lake: Lake, day: dt.date = DAY) -> list[str]:
    return sorted(lake.read_day(EVENTS, day, names=["entry_id"])["entry_id"].to_pylist())


def test_newest_ids_are_those_of_each_shard_in_the_order_of_numbers(lake: Lake):
    write_batch(lake, "q1", ["1795000000000-9", "1795000000000-10", "1794999999999-99"])
    write_batch(lake, "q2", ["1795000000000-2"], shard="rsmq::events:1")
    write_batch(lake, "q3", ["1795100000000-1"], day=DAY + dt.timedelta(days=1), shard="rsmq::events:2")

    assert lake.newest_ids({}) == {
        "rsmq::events": "1795000000000-10",
        "rsmq::events:1": "1795000000000-2",
        "rsmq::events:2": "1795100000000-1",
    }


def test_empty_and_half_written_files_are_no_data(lake: Lake):
    directory = write_batch(lake, "q1", ["1-1"])
    (directory / "part-1.parquet").write_bytes(b"")
    (directory / ".part-2.parquet.crc").write_bytes(b"junk")
    (directory / "_temporary").mkdir()

    assert ids_of(lake) == ["1-1"]


def test_file_of_an_older_schema_reads_as_nulls(lake: Lake):
    directory = lake.day_path(EVENTS, DAY) / "b=q1"
    directory.mkdir(parents=True)
    pq.write_table(pa.table({"entry_id": ["1-1"], "shard": ["s"], "of_the_future": [1]}), directory / "part-0.parquet")

    (row,) = lake.read_day(EVENTS, DAY).to_pylist()

    assert (row["entry_id"], row["fingerprint"]) == ("1-1", None)


def test_compacted_day_counts_from_the_moment_its_note_is_there(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    write_batch(lake, "q1", ["1-1", "1-2"])
    compacted = write_batch(lake, "fresh", ["1-1", "1-2"], day=DAY + dt.timedelta(days=9)) / "part-0.parquet"

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr("rsmq_django.spark.lake.write_whole", die)
        lake.replace_compacted(DAY, [compacted], rows=2, batches=["q1"])
    before = ids_of(lake)
    compacted = next(lake.compact.rglob("*.parquet"))
    lake.replace_compacted(DAY, [compacted], rows=2, batches=["q1"])

    assert before == ids_of(lake) == ["1-1", "1-2"]
    assert lake.raw_paths(DAY) == []
    assert lake.batches(DAY) == {"q1"}
    write_batch(lake, "q2", ["1-3"])
    assert ids_of(lake) == ["1-1", "1-2", "1-3"]


def test_day_between_two_names_is_found_again_after_a_crash(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    row = {"taken_at": DAY_US, "queue": "mail", "waiting": 1, "delayed": 0, "in_flight": 0, "body_bytes": 1}
    lake.write_day(DEPTH, DAY, [row | {"max_receive_count": 0}])
    target = lake.day_path(DEPTH, DAY)
    import os

    rename, renames = os.replace, []

    def die_at_the_second(source: Any, aim: Any) -> None:
        renames.append(source)
        if len(renames) == 2:
            raise KeyboardInterrupt
        rename(source, aim)

    (lake.root / ".fresh-depth-1").mkdir()
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr("rsmq_django.spark.durable.os.replace", die_at_the_second)
        replace_directory(lake.root / ".fresh-depth-1", target)
    assert lake.days(DEPTH) == []

    lake.clean_up()

    assert [row["waiting"] for row in lake.read_day(DEPTH, DAY).to_pylist()] == [1]
    assert not list(lake.root.rglob(".fresh-*")) + list(lake.root.rglob(".old-*"))


def test_days_expire_after_the_time_set_for_their_table(lake: Lake):
    write_batch(lake, "q1", ["1-1"])
    lake.write_day(HOURLY, DAY, [])

    removed = lake.expire(DAY + dt.timedelta(days=31))
    later = lake.expire(DAY + dt.timedelta(days=31), {"hourly": 7})

    assert (removed, later) == ({"events": 1}, {"hourly": 1})
    assert lake.days(EVENTS) == lake.days(HOURLY) == []


def test_place_that_is_not_a_directory_of_this_machine_is_refused():
    with pytest.raises(PipelineError, match="s3://"):
        Lake.at("s3://bucket/lake")


def test_damaged_note_is_as_good_as_none(lake: Lake):
    lake.write_note("rollup", {"2026-11-18": ["q1"]})
    (lake.root / "_state" / "rollup.json").write_text("{")

    assert lake.read_note("rollup") == {}


def test_runs_have_their_errors_without_further_data(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rsmq_django.spark.runs.KEPT", 3)
    for number in range(5):
        record(lake, f"step{number}", lambda run: None)

    assert [run.step for run in read_runs(lake)] == ["step4", "step3", "step2"]
    files = sorted((lake.root / "_state" / "runs").iterdir())
    assert len(files) == 3

    files[2].write_text('{"step": "st')
    files[1].write_text('{"step": "x", "started_at": "y", "of_a_later_version": 1}')
    assert [run.step for run in read_runs(lake)] == ["step2"], "damaged ones are left out"


def test_outcome_of_a_run_is_its_exit_code_and_a_refused_run_is_not_recorded(lake: Lake):
    def stop(error: Exception | None) -> int:
        def work(_run: Any) -> None:
            if error:
                raise error

        return record(lake, "archive", work).exit_code

    codes = [stop(error) for error in (None, OSError("full"), DataLoss("40 entries"), AlreadyRunning("wait"))]

    assert codes == [0, 1, 3, 4]
    assert sorted(run.exit_code for run in read_runs(lake)) == [0, 1, 3]


def test_note_of_a_compacted_day_that_is_damaged_is_named(lake: Lake):
    (lake.compact / f"dt={DAY}").mkdir(parents=True)
    (lake.compact / f"dt={DAY}" / "_done").write_bytes(b"")

    with pytest.raises(PipelineError, match="_done is damaged"):
        lake.event_paths(DAY)


def test_configuration_survives_json_and_refuses_unknown_options():
    config = JobConfig(lake="/lake", objectives={"mail": {"success": 0.999}}, wait_targets_s={"*": 3.0})

    assert JobConfig.from_json(config.to_json()) == config
    assert (config.wait_target_s("mail"), JobConfig(lake="/x").wait_target_s("mail")) == (3.0, 5.0)
    with pytest.raises(WrongOption, match="unknown keys in the job's JSON: laek"):
        JobConfig.from_json(json.dumps({"laek": "/lake"}))
    with pytest.raises(PipelineError, match="'sucess'"):
        JobConfig.from_json(json.dumps({"lake": "/lake", "objectives": {"mail": {"sucess": 1}}}))


# -- Files that tasks wrote -------------------------------------------------------------------------------------------


def test_rows_of_two_days_become_a_file_for_each(tmp_path: Path):
    midnight_ms = 1_795_046_400_000
    entries = [(f"{midnight_ms + offset}-0".encode(), [b"e", b"succeeded"]) for offset in (-2, -1, 0, 1, 2)]
    chunks = [rows(STREAM, entries[:1]), rows(STREAM, entries[1:]), rows(STREAM, [])]

    answers = list(write_files(chunks, EVENTS.columns, tmp_path / "in", time="event_at"))

    assert [(*answer["dt"], *answer["rows"]) for answer in answers] == [
        (dt.date(2026, 11, 18), 2),
        (dt.date(2026, 11, 19), 3),
    ]
    stored = [
        read_parquet([Path(path)], EVENTS)["entry_id"].to_pylist() for answer in answers for path in answer["path"]
    ]
    assert stored == [[f"{midnight_ms - 2}-0", f"{midnight_ms - 1}-0"], [f"{midnight_ms + n}-0" for n in range(3)]]


def written(lake: Lake, count: int) -> list[Path]:
    """Return the files that a task wrote."""
    entries = [(f"1795000000000-{number}".encode(), [b"e", b"succeeded"]) for number in range(count)]
    answers = write_files([rows(STREAM, entries)], EVENTS.columns, lake.root / "_incoming", time="event_at")
    return [Path(path) for answer in answers for path in answer["path"]]


def test_repeated_batch_of_a_log_that_was_trimmed_keeps_the_days_that_had_more(lake: Lake):
    place, next_day = lake.table(EVENTS), DAY + dt.timedelta(days=1)
    place_batch(place, "q0ddba11a-000000", {DAY: written(lake, 5)})  # it died before the second day

    place_batch(place, "q0ddba11a-000000", {DAY: written(lake, 3), next_day: written(lake, 2)}, keeps_larger=True)

    assert [len(ids_of(lake, day)) for day in (DAY, next_day)] == [5, 2]


def test_repeated_batch_replaces_itself_and_removes_leftovers_of_a_dead_run(lake: Lake, tmp_path: Path):
    place = lake.table(EVENTS)

    for count in (7, 5):
        place_batch(place, "q0ddba11a-000000", {DAY: written(lake, count)})
    (place / "dt=2026-11-18" / ".b=q0ddba11a-000001-cafe").mkdir()
    (place / "dt=2026-11-18" / ".old-b=q0ddba11a-000000-cafe").mkdir()
    lake.prepare(place)

    assert rows_of_batch(place, "q0ddba11a-000000") == 5
    assert [path.name for path in (place / "dt=2026-11-18").iterdir()] == ["b=q0ddba11a-000000"]
    assert [path.name for path in (place / "dt=2026-11-18" / "b=q0ddba11a-000000").iterdir()] == ["part-00000.parquet"]


def test_new_lake_is_closed_to_other_users_and_one_that_exists_keeps_its_mode(tmp_path: Path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o750)

    for root in (tmp_path / "a" / "lake", shared):
        record(Lake.at(root), "expire", lambda run: None)

    assert stat.S_IMODE((tmp_path / "a" / "lake").stat().st_mode) == 0o700
    assert stat.S_IMODE(shared.stat().st_mode) == 0o750
