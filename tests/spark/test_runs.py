"""Records of runs: one for each run of a step, also while it goes on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core import Queue
from rsmq_django.spark import job
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.job import Pipeline, run_steps
from rsmq_django.spark.options import DEFAULT_URL_VARIABLE
from rsmq_django.spark.runs import StepRun, read_runs
from rsmq_django.spark.transfer import StreamTransfer
from tests.redis_server import PrivateServer
from tests.spark.plain import PlainSpark
from tests.spark.samples import STREAM, log_events


@pytest.fixture
def config(tmp_path: Path, server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> JobConfig:
    monkeypatch.setenv(DEFAULT_URL_VARIABLE, server.url)
    monkeypatch.setattr(Pipeline, "spark", PlainSpark())
    monkeypatch.setattr(PlainSpark, "stop", lambda self: None, raising=False)
    return JobConfig(lake=str(tmp_path / "lake"))


def test_continuous_archive_is_on_record_with_its_losses_while_it_runs(
    config: JobConfig, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(job, "SAVE_EVERY_S", 0.0)
    lake, seen = config.find_lake(), list[StepRun]()
    log_events(server.redis, 20)

    def on_progress(step: str, rows: int, total: int | None) -> None:
        seen.extend(read_runs(lake))
        if rows == 20:
            log_events(server.redis, 20)
            server.redis.xtrim(STREAM, maxlen=10, approximate=False)
        if any(run.lost for run in seen):
            pipeline.stopped.set()

    pipeline = Pipeline(config, every_s=0.001, on_progress=on_progress)
    run = pipeline.run("archive")

    assert (run.rows_in, run.lost, run.exit_code) == (30, 10, 3)
    assert {(one.id, one.rows_in, one.lost, one.exit_code) for one in seen} == {(run.id, 20, 0, 0), (run.id, 30, 10, 3)}
    assert [(one.id, one.seconds) for one in read_runs(lake)] == [(run.id, run.seconds)]


def test_steps_after_a_failed_one_are_run(config: JobConfig, server: PrivateServer, monkeypatch: pytest.MonkeyPatch):
    def fail(*_given: object, **_more: object) -> None:
        raise RuntimeError("no disk")

    monkeypatch.setattr(job, "rollup", fail)
    log_events(server.redis, 20)
    runs: list[StepRun] = []

    code = run_steps(Pipeline(config), ["archive", "rollup", "compact"], runs.append)

    assert code == 1
    assert [(run.step, run.rows_in, run.error) for run in runs] == [
        ("archive", 20, ""),
        ("rollup", 0, "RuntimeError: no disk"),
        ("compact", 0, ""),
    ]


def test_messages_that_were_drained_before_a_failure_are_on_record(
    config: JobConfig, mail: Queue, monkeypatch: pytest.MonkeyPatch
):
    mail.send_many([f"order {number}" for number in range(12)])
    write = StreamTransfer._write

    def fail_later(self: StreamTransfer, *given: Any) -> Any:
        if self.result.batches == 2:
            raise RuntimeError("the JVM is gone")
        return write(self, *given)

    monkeypatch.setattr(StreamTransfer, "_write", fail_later)
    run = Pipeline(replace(config, source={"maxRowsPerBatch": "5"}), queues=["mail"]).run("drain")

    assert (run.rows_in, run.rows_out, run.error) == (10, 10, "RuntimeError: the JVM is gone")
