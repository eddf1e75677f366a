"""Event log -> Parquet: every event in exactly one row, after repeats, deletions, trimming and double runs."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rsmq_django.spark.archive import ArchiveJob
from rsmq_django.spark.columns import arrow_schema
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.delta import Table
from rsmq_django.spark.errors import AlreadyRunning, DataLoss, LogReset
from rsmq_django.spark.job import Pipeline
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.lock import RunLock
from rsmq_django.spark.runs import StepRun
from rsmq_django.spark.schemas import EVENTS
from rsmq_django.spark.server import Server
from rsmq_django.spark.transfer import Transferred
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
def archive(spark: Any, lake: Lake, server: PrivateServer, pipeline_server: Server) -> Callable[..., Transferred]:
    """Run the archive to its end."""

    def run(*, accept_reset: bool = False, **source: str) -> Transferred:
        given = {"url": server.url, "maxRowsPerBatch": "2000", **source}
        return ArchiveJob(spark, lake, pipeline_server, given, accept_reset=accept_reset).run()

    return run


def ids_in(lake: Lake) -> list[str]:
    return [value for day in lake.days(EVENTS) for value in lake.open(EVENTS).read({day})["entry_id"].to_pylist()]


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

    table = lake.open(EVENTS)
    for file in table.files:
        found = pq.read_schema(f"{table.uri}/{file.path}")
        assert {field.name: str(field.type).replace("[ns", "[us") for field in found} == {
            field.name: str(field.type) for field in arrow_schema(EVENTS.columns)
        }
        assert "INT96" not in str(pq.ParquetFile(f"{table.uri}/{file.path}").schema)


def test_batch_that_was_written_and_not_committed_is_written_again_and_counts_once(
    archive, lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    log_events(server.redis, 3000)

    def die(*_: Any, **__: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as killed:
        killed.setattr(Table, "commit", die)
        with pytest.raises(RuntimeError, match="killed"):
            archive()
    assert list(lake.root.glob("events/dt=*/*.parquet")), "written"
    assert (ids_in(lake), server.redis.xlen(STREAM)) == ([], 3000)

    assert archive().rows == 3000
    assert len(ids_in(lake)) == len(set(ids_in(lake))) == 3000


def test_batch_that_was_committed_and_not_trimmed_is_trimmed_by_the_next_run(
    archive, lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    log_events(server.redis, 500)
    with monkeypatch.context() as killed:
        killed.setattr(ArchiveJob, "trim", lambda *_: None)
        archive()
    assert server.redis.xlen(STREAM) == 500

    again = archive()

    assert (again.rows, again.trimmed) == (0, 500)
    assert len(ids_in(lake)) == len(set(ids_in(lake))) == 500


def test_log_that_a_failover_shortened_is_refused_until_it_is_accepted(archive, lake: Lake, server: PrivateServer):
    log_events(server.redis, 500)
    archive()
    # The new primary has the identity of the log, and fewer entries than were read.
    newest = server.redis.xinfo_stream(STREAM)["last-generated-id"]
    server.redis.execute_command("XSETID", STREAM, newest, "ENTRIESADDED", 400)
    log_events(server.redis, 10)

    with pytest.raises(LogReset):
        archive()
    accepted = archive(accept_reset=True)

    assert (accepted.rows, accepted.lost, archive().rows) == (10, 0, 0)
    assert len(ids_in(lake)) == len(set(ids_in(lake))) == 510


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


@pytest.mark.parametrize("accept_reset", [False, True])
def test_log_of_another_server_is_archived_whole_and_then_trimmed(
    archive, lake: Lake, server: PrivateServer, accept_reset: bool
):
    log_events(server.redis, 600)
    archive()
    server.redis.rename(STREAM, "log-of-the-server-before")
    # Older than those in the lake, and fewer.
    add_all(server.redis, ({"id": f"1795000000000-{number}"} for number in range(500)))

    moved, again = archive(accept_reset=accept_reset), archive()

    assert (moved.rows, moved.trimmed, moved.lost) == (500, 500, 0)
    assert (again.rows, again.trimmed, again.lost) == (0, 0, 0)
    assert len(ids_in(lake)) == len(set(ids_in(lake))) == 1100
    logs = [log for day in lake.days(EVENTS) for log in lake.open(EVENTS).read({day})["log"].to_pylist()]
    assert sorted(Counter(logs).values()) == [500, 600]


def test_continuous_run_trims_written_entries_until_it_is_stopped(
    spark: Any, lake: Lake, server: PrivateServer, pipeline_server: Server
):
    log_events(server.redis, 300)
    job = ArchiveJob(spark, lake, pipeline_server, {"url": server.url}, every_s=0.2)
    done: list[Transferred] = []
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
    with RunLock(pipeline_server, f"{lake.uri}/events"), pytest.raises(AlreadyRunning):
        archive()
