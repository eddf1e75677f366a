"""Error messages of failures inside Spark, and endings that are not errors."""

from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core.errors import ConnectionFailed, QueueNotFound
from rsmq_django.spark.errors import (
    AlreadyRunning,
    ConnectionsFailed,
    DataLoss,
    LogReset,
    PipelineError,
    as_our_error,
    brief,
    failure_of,
)
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.runs import StepRun, read_runs, record, status_of
from tests.redis_server import PrivateServer
from tests.spark.plain import PlainSpark, archive_job
from tests.spark.samples import STREAM, log_events

TRACEBACK = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):
  File "/srv/rsmq_django/spark/log.py", line 99, in advance
    raise LogReset(
{}: what went wrong; what to do
 SQLSTATE: 38000
"""

OF_SPARK = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Task 0 failed 1 times: Traceback (most recent call last):
  File "/srv/rsmq_django/spark/files.py", line 99, in write_files
    write(path)
OSError: [Errno 28] No space left on device

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:572)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:3129)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/srv/rsmq_django/spark/files.py", line 99, in write_files
    write(path)
OSError: [Errno 28] No space left on device

\tat java.base/java.lang.Thread.run(Thread.java:840)
\t... 1 more
"""
OF_JAVA = """An error occurred while calling o42.load.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.sql.Dataset.collect(Dataset.scala:1)
Caused by: java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            RuntimeError(OF_SPARK),
            "RuntimeError: An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.; "
            "OSError: [Errno 28] No space left on device",
        ),
        (
            RuntimeError(OF_JAVA),
            "RuntimeError: An error occurred while calling o42.load.; java.lang.OutOfMemoryError: Java heap space",
        ),
        (
            RuntimeError("An exception was thrown from the Python worker:\nTraceback:\n  pass\nOSError: no space"),
            "RuntimeError: An exception was thrown from the Python worker; OSError: no space",
        ),
        (OSError("no disk"), "OSError: no disk"),
        (KeyError(), "KeyError"),
        (PipelineError("first\nOSError: second"), "PipelineError: first\nOSError: second"),
    ],
    ids=["python", "java", "worker", "one line", "empty", "ours"],
)
def test_error_of_spark_is_its_first_line_and_its_last_cause(error: Exception, shown: str):
    assert brief(error) == shown


def test_whole_error_is_kept_for_those_who_want_it_and_not_recorded(tmp_path: Path):
    def fail(run: StepRun) -> None:
        raise RuntimeError(OF_JAVA)

    run = record(Lake.at(tmp_path), "archive", fail)
    (read,) = read_runs(Lake.at(tmp_path))

    assert run.whole_error == f"RuntimeError: {OF_JAVA}"
    assert "DAG" not in run.to_json() and "Dataset" not in run.to_json()
    assert (read.error, read.whole_error) == (run.error, "")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rsmq_django.spark.errors.LogReset", LogReset),
        ("rsmq_django.core.errors.QueueNotFound", QueueNotFound),
        ("rsmq_django.spark.errors.OfALaterVersion", PipelineError),
    ],
)
def test_error_of_ours_is_found_in_the_text_of_one_of_sparks(name: str, kind: type[Exception]):
    found = as_our_error(RuntimeError(TRACEBACK.format(name)))

    assert (type(found), str(found)) == (kind, "what went wrong; what to do")


def test_other_errors_are_unchanged():
    for error in (RuntimeError("a disk is full"), AlreadyRunning("rsmq_django.spark.errors.LogReset: quoted")):
        assert as_our_error(error) is error


def test_record_has_one_line_of_a_long_error_of_spark(tmp_path: Path):
    def fail(_run: Any) -> None:
        raise RuntimeError(TRACEBACK.format("rsmq_django.spark.errors.WrongOption"))

    assert record(Lake.at(tmp_path), "backfill", fail).error == "WrongOption: what went wrong; what to do"


def test_lost_events_are_recorded_even_if_the_run_fails_later(tmp_path: Path, server: PrivateServer):
    lake = Lake.at(tmp_path / "lake")
    log_events(server.redis, 10)
    archive_job(lake, url=server.url).run()
    log_events(server.redis, 50)
    server.redis.xtrim(STREAM, maxlen=10, approximate=False)
    job = archive_job(lake, url=server.url, failOnDataLoss="false", maxRowsPerBatch="5")

    def fail(rows: int) -> None:
        raise RuntimeError("the terminal is gone")

    job.on_progress = fail
    with pytest.raises(RuntimeError, match="the terminal is gone"):
        job.run()

    assert (job.result.rows, job.result.lost) == (5, 40)


def test_lost_events_of_a_log_are_recorded_when_another_log_is_busy(tmp_path: Path):
    lake = Lake.at(tmp_path / "lake")

    def archive(run: StepRun) -> None:
        run.lost = 40
        raise AlreadyRunning("another run is active")

    assert status_of([record(lake, "archive", archive)]) == 3
    assert [run.lost for run in read_runs(lake)] == [40]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((LogReset, LogReset), LogReset),
        ((LogReset, DataLoss), DataLoss),
        ((AlreadyRunning, AlreadyRunning), AlreadyRunning),
        ((DataLoss, ConnectionFailed), ConnectionsFailed),
    ],
)
def test_failure_of_several_logs_has_the_exit_code_that_all_of_them_have(
    kinds: tuple[type[Exception], ...], expected: type[Exception]
):
    assert type(failure_of({f"log {number}": kind("no") for number, kind in enumerate(kinds)})) is expected


class DyingSpark(PlainSpark):
    """A Spark that is killed in mid-batch."""

    def parallelize(self, *_: Any) -> Any:
        raise RuntimeError("the JVM is gone")


def test_spark_that_was_stopped_together_with_the_run_is_not_a_failure(tmp_path: Path, server: PrivateServer):
    log_events(server.redis, 10)
    job = archive_job(Lake.at(tmp_path / "lake"), url=server.url)
    job.spark = DyingSpark()
    with pytest.raises(RuntimeError, match="the JVM is gone"):
        job.run()

    class Stopping(DyingSpark):
        def parallelize(self, *_: Any) -> Any:
            job.stopped.set()
            return super().parallelize()

    job.spark = Stopping()

    assert job.run().rows == 0
