"""Error messages of failures inside Spark, and endings that are not errors."""

import threading
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core.errors import QueueNotFound
from rsmq_django.spark.archive import ArchiveJob
from rsmq_django.spark.errors import AlreadyRunning, LogReset, PipelineError, as_our_error
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.runs import record
from rsmq_django.spark.server import Server
from tests.spark.test_finalize import write_checkpoint

TRACEBACK = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):
  File "/srv/rsmq_django/spark/log.py", line 99, in advance
    raise LogReset(
{}: what went wrong; what to do
 SQLSTATE: 38000
"""


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


class LosingJob(ArchiveJob):
    """An archive that finishes a batch before which entries were lost, and then fails."""

    def _query(self, _sink: Any, _result: Any, checkpoint: Path) -> None:
        write_checkpoint(checkpoint, {0: "5-1"}, done=0, lost=40)
        raise RuntimeError("the disk is full")


def test_lost_events_are_recorded_even_if_the_run_fails_later(tmp_path: Path, pipeline_server: Server):
    job = LosingJob(None, Lake.at(tmp_path), pipeline_server, {})

    with pytest.raises(RuntimeError, match="the disk is full"):
        job.run()

    assert job.result.lost == 40


class DyingJob(ArchiveJob):
    """An archive whose Spark is killed in mid-batch."""

    def _query(self, *_: Any) -> None:
        raise RuntimeError("the JVM is gone")


def test_spark_that_was_stopped_together_with_the_run_is_not_a_failure(tmp_path: Path, pipeline_server: Server):
    stopped = threading.Event()
    job = DyingJob(None, Lake.at(tmp_path), pipeline_server, {}, every_s=1, stopped=stopped)
    with pytest.raises(RuntimeError, match="the JVM is gone"):
        job.run()

    stopped.set()

    assert job.run().rows == 0
