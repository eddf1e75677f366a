"""Event log -> Parquet: every event in exactly one row, after repeats, deletions, trimming and double runs."""

import shutil
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rsmq_django.spark.archive import JOB, Archived, ArchiveJob
from rsmq_django.spark.checkpoint import finished_batch
from rsmq_django.spark.columns import arrow_schema
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.errors import AlreadyRunning, DataLoss
from rsmq_django.spark.job import Pipeline
from rsmq_django.spark.lake import Lake, parquet_files
from rsmq_django.spark.lock import RunLock
from rsmq_django.spark.runs import StepRun
from rsmq_django.spark.schemas import EVENTS
from rsmq_django.spark.server import Server
from tests.redis_server import PrivateServer
from tests.spark.samples import STREAM, add_all, log_events
from tests.support import wait_until

pytestmark = pytest.mark.spark

#: A busy machine takes its time.
PATIENCE_S = 120


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake.at(tmp_path / "lake")


@pytest.fixture
def archive(spark: Any, lake: Lake, server: PrivateServer, pipeline_server: Server) -> Callable[..., Archived]:
    """Run the archive to its end."""

    def run(*, new_checkpoint: bool = False, **source: str) -> Archived:
        given = {"url": server.url, "maxRowsPerBatch": "2000", **source}
        return ArchiveJob(spark, lake, pipeline_server, given, new_checkpoint=new_checkpoint).run()

    return run


def ids_in(lake: Lake) -> list[str]:
    return [value for day in lake.days(EVENTS) for value in lake.read_day(EVENTS, day)["entry_id"].to_pylist()]


def test_events_of_two_days_are_stored_once_and_leave_redis(archive, lake: Lake, server: PrivateServer):
    days_ms = (1_795_000_000_000, 1_795_100_000_000)
    add_all(server.redis, ({"id": f"{ms}-{n}", "task_id": f"t{n}"} for ms in days_ms for n in range(1, 1501)))

    first, second = archive(), archive()

    assert (first.rows, first.trimmed, first.lost) == (3000, 3000, 0)
    assert (second.rows, second.trimmed, second.lost) == (0, 0, 0)
    assert len(ids_in(lake)) == len(set(ids_in(lake))) == 3000
    assert [day.isoformat() for day in lake.days(EVENTS)] == ["2026-11-18", "2026-11-19"]
    assert server.redis.xlen(STREAM) == 0
    assert_types(lake)


def assert_types(lake: Lake) -> None:
    """The types are those of the schema, and there are no old timestamps."""
    import pyarrow.parquet as pq

    for directory in lake.event_paths(lake.days(EVENTS)[0]):
        for file in parquet_files(directory):
            found = pq.read_schema(file)
            assert {field.name: str(field.type).replace("[ns", "[us") for field in found} == {
                field.name: str(field.type) for field in arrow_schema(EVENTS.columns)
            }
            assert "INT96" not in str(pq.ParquetFile(file).schema)


def test_batch_that_was_written_and_not_noted_is_written_again_and_not_twice(
    archive, lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    log_events(server.redis, 3000)
    with monkeypatch.context() as killed:
        killed.setattr("rsmq_django.spark.archive.trim_events", lambda *_: 0)  # died before it let go of anything
        archive()
        forget_the_last_batch(lake)
        again = archive()
        assert again.rows == 1000
        assert len(ids_in(lake)) == len(set(ids_in(lake))) == 3000

        forget_the_last_batch(lake)
        server.redis.xtrim(STREAM, maxlen=400, approximate=False)
        kept = archive(failOnDataLoss="false")
        assert (kept.rows, kept.lost) == (400, 0), "what the first try wrote stays"
        assert len(ids_in(lake)) == 3000

        forget_the_last_batch(lake)
        for batch in lake.table(EVENTS).glob("dt=*/b=*-000001"):
            shutil.rmtree(batch)  # killed before it wrote
        counted = archive(failOnDataLoss="false")
    assert (counted.rows, counted.lost) == (400, 600)
    assert len(ids_in(lake)) == 2400


def forget_the_last_batch(lake: Lake) -> None:
    """Do what a kill between the write of a batch and its note does."""
    for path in (lake.checkpoint(JOB) / "commits").glob(f"*{finished_batch(lake.checkpoint(JOB))}*"):
        path.unlink()


def test_new_checkpoint_continues_after_the_data_in_the_lake(
    archive, lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    log_events(server.redis, 500)
    with monkeypatch.context() as kept:
        kept.setattr("rsmq_django.spark.archive.trim_events", lambda *_: 0)  # everything is still in Redis
        archive()
        log_events(server.redis, 100)
        shutil.rmtree(lake.checkpoint(JOB))
        after_its_deletion = archive()
    log_events(server.redis, 10)
    on_purpose = archive(new_checkpoint=True)

    assert (after_its_deletion.rows, on_purpose.rows) == (100, 10)
    assert len(ids_in(lake)) == len(set(ids_in(lake))) == 610
    assert server.redis.xlen(STREAM) == 0


def test_events_trimmed_unread_stop_the_run_or_are_counted(archive, lake: Lake, server: PrivateServer):
    log_events(server.redis, 100)
    archive()
    log_events(server.redis, 100)
    server.redis.xtrim(STREAM, maxlen=60, approximate=False)

    with pytest.raises(DataLoss, match="40 entries after"):
        archive()
    result = archive(failOnDataLoss="false")

    assert (result.rows, result.lost) == (60, 40)
    assert len(ids_in(lake)) == 160


def test_step_archives_what_is_left_and_reports_the_loss_unless_it_is_strict(
    spark: Any, lake: Lake, server: PrivateServer
):
    def run(**source: str) -> StepRun:
        pipeline = Pipeline(JobConfig(lake=str(lake.root), source=source))
        pipeline.__dict__["spark"] = spark
        return pipeline.run("archive")

    log_events(server.redis, 100)
    run()
    log_events(server.redis, 100)
    server.redis.xtrim(STREAM, maxlen=60, approximate=False)

    strict, lenient, again = run(failOnDataLoss="true"), run(), run()

    assert (strict.exit_code, strict.error.partition(":")[0], strict.rows_out) == (3, "DataLoss", 0)
    assert (lenient.exit_code, lenient.error, lenient.rows_out, lenient.lost) == (3, "", 60, 40)
    assert (again.exit_code, again.lost) == (0, 0), "counted once"
    assert len(ids_in(lake)) == 160


@pytest.mark.parametrize("new_checkpoint", [False, True])
def test_log_of_another_server_is_archived_whole_and_then_trimmed(
    archive, lake: Lake, server: PrivateServer, new_checkpoint: bool
):
    log_events(server.redis, 600)
    archive()
    server.redis.rename(STREAM, "log-of-the-server-before")
    # Older than those in the lake, and fewer.
    add_all(server.redis, ({"id": f"1795000000000-{number}"} for number in range(500)))

    moved, again = archive(new_checkpoint=new_checkpoint), archive()

    assert (moved.rows, moved.trimmed, moved.lost) == (500, 500, 0)
    assert (again.rows, again.trimmed, again.lost) == (0, 0, 0)
    assert len(ids_in(lake)) == len(set(ids_in(lake))) == 1100
    logs = [log for day in lake.days(EVENTS) for log in lake.read_day(EVENTS, day)["log"].to_pylist()]
    assert sorted(Counter(logs).values()) == [500, 600]


def test_continuous_run_trims_written_entries_until_it_is_stopped(
    spark: Any, lake: Lake, server: PrivateServer, pipeline_server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.spark.archive.FINALIZE_EVERY_S", 0.0)
    log_events(server.redis, 300)
    job = ArchiveJob(spark, lake, pipeline_server, {"url": server.url}, every_s=0.2)
    done: list[Archived] = []
    thread = threading.Thread(target=lambda: done.append(job.run()))
    thread.start()
    wait_until(lambda: len(ids_in(lake)) == 300 and not server.redis.xlen(STREAM), timeout_s=PATIENCE_S)

    log_events(server.redis, 200)
    wait_until(lambda: len(ids_in(lake)) == 500, timeout_s=PATIENCE_S)
    job.stopped.set()
    thread.join(PATIENCE_S)

    assert [(run.rows, run.lost) for run in done] == [(500, 0)]
    assert server.redis.xlen(STREAM) == 0


def test_log_that_does_not_exist_is_archived_as_nothing(archive, lake: Lake):
    assert archive().rows == 0
    assert lake.days(EVENTS) == []


def test_two_runs_at_once_are_refused(archive, lake: Lake, pipeline_server: Server):
    with RunLock(pipeline_server, str(lake.checkpoint(JOB))), pytest.raises(AlreadyRunning):
        archive()
