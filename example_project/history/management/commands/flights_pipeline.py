"""Take the departures of 2013 through the whole Spark pipeline, and check every number on the way.

A DataFrame of flights becomes task calls in bulk; a worker runs them and logs every attempt; the log is archived
exactly once, rolled up, analysed, and published into the database; then what came out is compared with the flights.
A private server and a temporary directory hold everything; nothing of it stays, but for a lake at a given address.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.test import Client

from example_project.history.flights import AIRPORTS, ALL_FLIGHTS, TASK, as_calls, write_flights
from rsmq_django.pipeline.config import export_address, job_config
from rsmq_django.pipeline.history import capacity_advice, failure_groups, task_totals
from rsmq_django.pipeline.meter import Meter
from rsmq_django.pipeline.publish import publish
from rsmq_django.queues import ensure_queue
from rsmq_django.spark.job import Pipeline
from rsmq_django.spark.runs import StepRun
from tests.spark.s3_server import BUCKET, serving

T = TypeVar("T")

#: Names the directory of a run, in the environment of its processes.
OWN_DIR_VARIABLE = "FLIGHTBOARD_PIPELINE_DIR"
#: Pages of the history, and what they must show.
PAGES = {
    "taskhour": b"record_departure",
    "failuregroup": b"Cancelled",
    "sloburn": b"dep-JFK",
    "queuedepth": b"dep-JFK",
    "pipelinerun": b"archive",
    "lakeday": b"events",
}


class Command(BaseCommand):
    """See the module."""

    help = "Takes the flights of 2013 through the Spark pipeline: bulk send, work, archive, analyse, publish."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--flights", type=int, default=ALL_FLIGHTS, help="how many (default: all 336,776)")
        parser.add_argument("--master", default="local[2]", help="where Spark runs (default: local[2])")
        parser.add_argument("--lake", help="address of the lake, such as s3://bucket (default: a temporary directory)")
        parser.add_argument("--s3", action="store_true", help="put the lake into an S3 of this machine, a simulation")
        parser.add_argument("--processes", type=int, default=2, help="processes of the worker (default: 2)")

    def handle(self, *, flights: int, master: str, processes: int, lake: str | None, s3: bool, **_: Any) -> None:
        if OWN_DIR_VARIABLE not in os.environ:
            restart_in_own_directory()
        place = Path(os.environ[OWN_DIR_VARIABLE])
        own_lake = lake and f"{lake}/{place.name}"
        store: AbstractContextManager[dict[str, str]] = serving() if s3 else nullcontext({})
        try:
            call_command("migrate", verbosity=0)
            with store as variables:
                os.environ.update(variables)
                self.run(place, flights, master, processes, f"s3://{BUCKET}/{place.name}" if s3 else own_lake)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if own_lake:
            self.stdout.write(f"  the lake {own_lake} is still there")

    def run(self, place: Path, flights: int, master: str, processes: int, lake: str | None) -> None:
        """Go through all steps; every one of them is checked against the flights."""
        export_address()
        for airport in AIRPORTS:
            ensure_queue(f"dep-{airport}")
        self.meter = Meter()
        pipeline = Pipeline(replace(job_config(lake=lake, master=master), slots_per_worker=4), on_progress=self.meter)
        try:
            rows, cancelled = write_flights(place / "flights.csv", flights)
            self.timed("start Spark", 0, lambda: warm_up(pipeline))
            self.send(pipeline, place / "flights.csv", rows)
            self.timed("snapshot", rows, lambda: self.step(pipeline, "snapshot"))
            self.timed("work", rows, lambda: work(processes))
            self.verify("messages left", queued(), 0)
            self.timed("archive", rows, lambda: self.step(pipeline, "archive"))
            self.timed("rollup", rows, lambda: self.step(pipeline, "rollup"))
            self.timed("analyse", rows, lambda: self.step(pipeline, "analyse"))
            letters = self.timed("dlq", cancelled, lambda: self.step(pipeline, "dlq"))
            self.verify("dead letters in the lake", letters.rows_out, cancelled)
        finally:
            pipeline.close()
        published = self.timed("publish", 0, lambda: publish(pipeline.config.find_lake()))
        self.stdout.write(f"  {published.rows:,} rows of {published.days} days")
        self.report(rows, cancelled)
        self.show()

    def send(self, pipeline: Pipeline, path: Path, rows: int) -> None:
        """Send all flights in bulk, twice, which is once."""
        options = pipeline.config.options(kind="tasks", task=TASK, job="flights-2013")
        write = as_calls(pipeline.spark, path).write.format("rsmq").mode("append").options(**options)
        self.timed("bulk send", rows, write.save)
        self.timed("the same job again", 0, write.save)
        self.verify("messages after two runs of the job", queued(), rows)

    def step(self, pipeline: Pipeline, name: str) -> StepRun:
        """Run a step; nothing may fail or be lost."""
        run = pipeline.run(name)
        if run.error or run.lost:
            raise CommandError(f"{name}: {run.error or f'{run.lost} events lost'}")
        return run

    def report(self, rows: int, cancelled: int) -> None:
        """Say what the history knows, and compare it with the flights."""
        totals = task_totals()
        # Not the attempts: a busy worker gives messages back unused, and each such delivery is an event, too.
        ended = sum(point.succeeded + point.dead for point in totals.values())
        self.verify("tasks that ended, in the history", ended, rows)
        self.verify("failures in groups", sum(group.n for group in failure_groups()), cancelled)
        for (queue, _), point in totals.items():
            self.stdout.write(
                f"{queue}: {point.attempts:,} attempts, {point.failure_rate:.1%} failed, run time p50 "
                f"{point.run_ms(0.5):.2f} ms, p99 {point.run_ms(0.99):.2f} ms, wait p95 {point.wait_ms(0.95):,.0f} ms"
            )
        for group in failure_groups()[:3]:
            self.stdout.write(f"{group.n:,} x {group.error_type}: {group.sample} ({', '.join(group.queues)})")
        for advice in capacity_advice():
            found = f"slots needed: {advice.slots_needed}" if advice.slots_needed else advice.silent_because
            self.stdout.write(f"{advice.queue}: {found}; load {advice.load:.2f}, {advice.slots_seen} slots seen")

    def show(self) -> None:
        """Look at the pages of the history as an administrator does."""
        browser = Client()
        browser.force_login(get_user_model().objects.create_superuser("controller"))
        for name, wanted in PAGES.items():
            page = browser.get(f"/admin/rsmq_pipeline/{name}/", SERVER_NAME="localhost")
            if page.status_code != 200 or wanted not in page.content:
                raise CommandError(f"the page {name} does not show {wanted.decode()!r}")
        self.stdout.write(f"  {len(PAGES)} pages of the admin show it")

    # -- Telling ------------------------------------------------------------------------------------------------------

    def timed(self, what: str, rows: int, do: Callable[[], T]) -> T:
        """Do it, show on a terminal that it goes on, and say how long it took."""
        started = time.monotonic()
        with self.meter.during(what):
            result = do()
        self.tell(what, rows, time.monotonic() - started)
        return result

    def tell(self, what: str, rows: int, took_s: float) -> None:
        rate = f" = {rows / took_s:>9,.0f}/s" if rows else ""
        self.stdout.write(f"{what:26}{took_s:8.1f} s{rate}")
        self.stdout.flush()

    def verify(self, what: str, found: int, wanted: int) -> None:
        """Fail unless the numbers are the same."""
        if found != wanted:
            raise CommandError(f"{what}: {found:,}, but it must be {wanted:,}")
        self.stdout.write(f"  {what}: {found:,}, as it must be")


def restart_in_own_directory() -> None:
    """Run the same command again with a state directory and a namespace of its own: nothing else is touched."""
    own = tempfile.mkdtemp(prefix="flights-")
    environment = {
        OWN_DIR_VARIABLE: own,
        "RSMQ_STATE_DIR": own,
        "FLIGHTBOARD_NAMESPACE": f"pipeline-{secrets.token_hex(4)}",
    }
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **environment})  # noqa: S606 - ourselves


def warm_up(pipeline: Pipeline) -> None:
    """Start the session, and use the format once: the first time costs seconds in which nothing is sent."""
    pipeline.spark.read.format("rsmq").options(**pipeline.config.options()).load().count()


def work(processes: int) -> None:
    """Run the worker of this project until nothing is left."""
    queues = ",".join(f"dep-{airport}" for airport in AIRPORTS)
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "rsmq_worker", "--batch", "--queues", queues]
    subprocess.run([*command, "--processes", str(processes), "--threads", "4", "--verbosity", "0"], check=True)


def queued() -> int:
    """Return how many messages are in the queues."""
    return sum(ensure_queue(f"dep-{airport}").attributes().messages for airport in AIRPORTS)
