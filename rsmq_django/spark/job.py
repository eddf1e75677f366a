"""The steps of the pipeline in one Spark session, with or without Django.

    spark-submit --py-files rsmq_django.zip rsmq_django/spark/submit.py job.json archive rollup analyse

`manage.py rsmq_pipeline` runs the same; `manage.py rsmq_pipeline config` writes the JSON.
"""

from __future__ import annotations

import argparse
import datetime as dt
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from . import steps
from .archive import ArchiveJob, archive_logs
from .config import JobConfig
from .drained import drain_queue
from .lock import RunLock
from .options import Options
from .progress import OnProgress, say_nothing
from .rollup import StepResult, rollup
from .runs import DONE, LOST_DATA, StepRun, record, save, status_of
from .session import start_session
from .transfer import Durable

__all__ = ["Pipeline", "run_steps"]

#: A continuous archive stores a record of its run at this interval, so that losses are seen while it runs.
SAVE_EVERY_S = 30.0
#: Steps of `run`, in this order.
ALL_STEPS = ("archive", "snapshot", "dlq", "rollup", "analyse", "compact", "expire")
STEPS = (*ALL_STEPS, "drain")


@dataclass
class Pipeline:
    """Runs steps. The session starts with the first step that needs it, and serves all of them."""

    config: JobConfig
    since: dt.date | None = None
    queues: Sequence[str] = ()
    every_s: float | None = None
    accept_reset: bool = False
    lease_s: float = 0.0
    #: Number of events to archive, for progress displays; None: unknown.
    backlog: int | None = None
    on_progress: OnProgress = say_nothing
    stopped: threading.Event = field(default_factory=threading.Event)

    @cached_property
    def spark(self) -> Any:
        """Return the session."""
        return start_session(self.config.master, conf=self.config.conf, py_files=self.config.py_files)

    def run(self, step: str) -> StepRun:
        """Run one step and return its record."""
        return record(self.config.find_lake(), step, getattr(self, f"_{step}"))

    def close(self) -> None:
        """End the session, if there was one."""
        # Service managers stop all processes at once: Spark may have ended already.
        with suppress(Exception) if self.stopped.is_set() else nullcontext():
            if "spark" in self.__dict__:
                self.spark.stop()

    # -- Steps --------------------------------------------------------------------------------------------------------

    def _archive(self, run: StepRun) -> None:
        durable = Durable()
        jobs = [self._archive_job(name, source, durable) for name, source in self.config.sources().items()]
        begun = saved = time.monotonic()

        def note(_rows: int) -> None:
            nonlocal saved
            _note_archived(run, jobs)
            self.on_progress("archive", run.rows_in, self.backlog)
            if self.every_s is not None and (now := time.monotonic()) >= saved + SAVE_EVERY_S:
                run.seconds, saved = round(now - begun, 3), now
                save(self.config.find_lake(), run)

        for job in jobs:
            job.on_progress = note
        try:
            archive_logs(jobs, every_s=self.every_s, stopped=self.stopped)
        finally:
            for job in jobs:
                job.server.close()
            _note_archived(run, jobs)

    def _archive_job(self, name: str, source: Mapping[str, str], durable: Durable) -> ArchiveJob:
        return ArchiveJob(
            self.spark,
            self.config.find_lake(),
            Options.read(source).server(),
            # Entries that were trimmed unread are lost; a refusal would only lose more.
            {"failOnDataLoss": "false", **source},
            accept_reset=self.accept_reset,
            connection=name,
            stopped=self.stopped,
            durable=durable,
        )

    def _rollup(self, run: StepRun) -> None:
        report = partial(self.on_progress, "rollup")
        self._on_tables(run, lambda: rollup(self.config.find_lake(), since=self.since, on_rows=report))

    def _analyse(self, run: StepRun) -> None:
        self._on_tables(run, lambda: steps.analyse(self.config, since=self.since))

    def _compact(self, run: StepRun) -> None:
        today, report = dt.datetime.now(dt.UTC).date(), partial(self.on_progress, "compact")
        _, run.rows_in = self.config.find_lake().compact(today, on_progress=report)
        run.rows_out = run.rows_in

    def _expire(self, run: StepRun) -> None:
        removed = self.config.find_lake().expire(dt.datetime.now(dt.UTC).date(), self.config.keep_days)
        run.rows_out = sum(removed.values())

    def _snapshot(self, run: StepRun) -> None:
        self._on_tables(run, lambda: steps.snapshot(self.config, queues=self.queues))

    def _dlq(self, run: StepRun) -> None:
        self._on_tables(run, lambda: steps.archive_dead_letters(self.config, queues=self.queues))

    def _drain(self, run: StepRun) -> None:
        for queue in self.queues:
            report = partial(self._report_drained, run, run.rows_in)
            drain_queue(self.spark, self.config, queue, lease_s=self.lease_s, on_progress=report)

    def _report_drained(self, run: StepRun, of_other_queues: int, rows: int) -> None:
        run.rows_in = run.rows_out = of_other_queues + rows  # also if a later batch fails
        self.on_progress("drain", run.rows_in, None)

    def _on_tables(self, run: StepRun, work: Callable[[], StepResult]) -> None:
        """Run a step that replaces days of tables: one run at a time, because a second one would do the same work."""
        lake, server = self.config.find_lake(), self.config.server()
        with RunLock(server, f"{lake.uri}/tables"):
            result = work()
        server.close()
        run.rows_in, run.rows_out = result.rows_in, result.rows_out


def _note_archived(run: StepRun, jobs: Sequence[ArchiveJob]) -> None:
    results = [job.result for job in jobs]
    run.rows_in = run.rows_out = sum(result.rows for result in results)
    run.lost = sum(result.lost for result in results)
    run.offsets = {name: offset for result in results for name, offset in result.offsets.items()}
    run.exit_code = LOST_DATA if run.lost else DONE


def run_steps(pipeline: Pipeline, names: Sequence[str], report: Callable[[StepRun], None]) -> int:
    """Run steps, each with the existing data, also after one that failed; return the exit code."""
    runs = []
    try:
        for name in names:
            runs.append(pipeline.run(name))
            report(runs[-1])
    finally:
        pipeline.close()
    return status_of(runs)


def stop_on_signals(stopped: threading.Event) -> None:
    """Let SIGTERM and SIGINT end a continuous run after its batch."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())


def main(words: Sequence[str]) -> int:
    """Run steps from a JSON configuration; one line of JSON per step."""
    parser = argparse.ArgumentParser(
        prog="submit.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("config", help="JSON file, written by `manage.py rsmq_pipeline config`")
    parser.add_argument("steps", nargs="+", choices=STEPS)
    parser.add_argument("--since", type=dt.date.fromisoformat)
    parser.add_argument("--queue", default="")
    parser.add_argument("--continuous", type=float, metavar="SECONDS")
    parser.add_argument("--lease", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--accept-reset", action="store_true")
    given = parser.parse_args(words)
    if "drain" in given.steps and not given.queue:
        parser.error("drain needs to know which queues: --queue A,B")
    pipeline = Pipeline(
        JobConfig.from_file(given.config),
        since=given.since,
        queues=tuple(filter(None, given.queue.split(","))),
        every_s=given.continuous,
        accept_reset=given.accept_reset,
        lease_s=given.lease,
    )
    if given.continuous:
        stop_on_signals(pipeline.stopped)
    return run_steps(pipeline, given.steps, lambda run: print(run.to_json(), flush=True))  # noqa: T201
