"""Take the departures of 2013 through the whole Spark pipeline, and check every number on the way.

A DataFrame of flights becomes task calls in bulk; a worker runs them and logs every attempt; the log is archived
exactly once, rolled up, analysed, and published into the database; then what came out is compared with the flights.
A private server and a temporary directory hold everything; nothing of it stays.
"""

import csv
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import redis
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from example_project.flightboard.departures import data_directory
from example_project.history.settings import AIRPORTS
from rsmq_django.core import Queue
from rsmq_django.core.ids import random_suffixes
from rsmq_django.pipeline.config import export_address, job_config
from rsmq_django.pipeline.history import capacity_advice, failure_groups, task_totals
from rsmq_django.pipeline.publish import publish
from rsmq_django.queues import ensure_queue
from rsmq_django.spark.events import EventLog
from rsmq_django.spark.job import Pipeline
from rsmq_django.spark.options import Options

T = TypeVar("T")

#: Names the directory of a run, in the environment of its processes.
OWN_DIR_VARIABLE = "FLIGHTBOARD_PIPELINE_DIR"
TASK = "example_project.history.tasks.record_departure"
ALL_FLIGHTS = 336_776


class Command(BaseCommand):
    """See the module."""

    help = "Takes the flights of 2013 through the Spark pipeline: bulk send, work, archive, analyse, publish."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--flights", type=int, default=ALL_FLIGHTS, help="how many (default: all 336,776)")
        parser.add_argument("--master", default="local[2]", help="where Spark runs (default: local[2])")
        parser.add_argument("--processes", type=int, default=2, help="processes of the worker (default: 2)")

    def handle(self, *, flights: int, master: str, processes: int, **_: Any) -> None:
        if OWN_DIR_VARIABLE not in os.environ:
            restart_in_own_directory()
        place = Path(os.environ[OWN_DIR_VARIABLE])
        try:
            call_command("migrate", verbosity=0)
            self.run(place, flights, master, processes)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def run(self, place: Path, flights: int, master: str, processes: int) -> None:
        """Go through all steps; every one of them is checked against the flights."""
        export_address()
        for airport in AIRPORTS:
            ensure_queue(f"dep-{airport}")
        pipeline = Pipeline(replace(job_config(master=master), slots_per_worker=4))
        try:
            rows, cancelled = write_flights(place / "flights.csv", flights)
            self.timed("start Spark", 0, lambda: warm_up(pipeline))
            self.compare_sending(pipeline, place / "flights.csv", rows)
            self.timed("work", rows, lambda: work(processes))
            self.verify("messages left", queued(), 0)
            self.compare_archiving(pipeline, rows)
            self.timed("rollup", rows, lambda: self.step(pipeline, "rollup"))
            self.timed("analyse", rows, lambda: self.step(pipeline, "analyse"))
        finally:
            pipeline.close()
        published = self.timed("publish", 0, lambda: publish(pipeline.config.find_lake()))
        self.stdout.write(f"  {published.rows:,} rows of {published.days} days")
        self.report(rows, cancelled)

    def compare_sending(self, pipeline: Pipeline, path: Path, rows: int) -> None:
        """Send all flights in bulk, twice, which is once; then the same rows directly and with a plain loop."""
        calls = as_calls(pipeline.spark, path)
        calls.write.format("noop").mode("append").save()  # reading the file is not what is measured
        options = pipeline.config.options(kind="tasks", task=TASK)
        write = calls.write.format("rsmq").mode("append").options(**options)
        staged_s = self.seconds("bulk send, all or none", rows, lambda: write.option("job", "flights-2013").save())
        calls.write.format("rsmq").mode("append").options(**options, job="flights-2013").save()
        self.verify("messages after two runs of the job", queued(), rows)
        queue = ensure_queue("loop")
        loop_s = self.seconds("plain Python loop", rows, lambda: send_in_a_loop(queue, path))
        self.verify("messages of the loop", queue.attributes().messages, rows)
        queue.delete_queue()
        ensure_queue("loop")
        direct = calls.drop("queue").write.format("rsmq").mode("append").options(**options, queue="loop", direct="true")
        direct_s = self.seconds("bulk send, direct", rows, direct.save)
        queue.delete_queue()
        self.stdout.write(
            f"  against the loop: {loop_s / staged_s:.1f} x all or none, {loop_s / direct_s:.1f} x direct"
        )

    def compare_archiving(self, pipeline: Pipeline, rows: int) -> None:
        """Read the log with a plain loop, then archive it."""
        config = pipeline.config
        log = EventLog(Options.read(config.options(kind="events")))
        stream = log.log.streams[0]
        (whole,) = [*log.log.cut(stream, "0-0", "+")][:1]
        loop_s = self.seconds("decode the log in a loop", whole.rows, lambda: sum(1 for _ in log.read(whole)))
        archive_s = self.seconds("archive", rows, lambda: self.step(pipeline, "archive"))
        self.stdout.write(f"  against the loop: {loop_s / whole.rows / (archive_s / rows):.2f} x")

    def step(self, pipeline: Pipeline, name: str) -> None:
        """Run a step; nothing may fail or be lost."""
        run = pipeline.run(name)
        if run.error or run.lost:
            raise CommandError(f"{name}: {run.error or f'{run.lost} events lost'}")

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
            found = f"{advice.slots_needed} slots" if advice.slots_needed else advice.silent_because
            self.stdout.write(f"{advice.queue}: {found}; load {advice.load:.2f}, {advice.slots_seen} slots seen")

    # -- Telling ------------------------------------------------------------------------------------------------------

    def timed(self, what: str, rows: int, do: Callable[[], T]) -> T:
        """Do it and say how long it took."""
        started = time.monotonic()
        result = do()
        self.tell(what, rows, time.monotonic() - started)
        return result

    def seconds(self, what: str, rows: int, do: Callable[[], Any]) -> float:
        """See timed(); return how long it took."""
        started = time.monotonic()
        do()
        took_s = time.monotonic() - started
        self.tell(what, rows, took_s)
        return took_s

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


def write_flights(target: Path, most: int) -> tuple[int, int]:
    """Unpack the first flights of the year; return how many there are, and how many of them were cancelled."""
    rows = cancelled = 0
    with zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        lines = csv.reader(line.decode() for line in raw)
        with target.open("w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(next(lines))
            for row in lines:
                if rows == most:
                    break
                writer.writerow(row)
                rows, cancelled = rows + 1, cancelled + (row[3] == "NA")
    return rows, cancelled


def as_calls(spark: Any, path: Path) -> Any:
    """Return the flights as keyword arguments of a task, and the queue of their airport."""
    from pyspark.sql import functions as F

    flights = spark.read.csv(str(path), header=True, nullValue="NA").repartition(4)
    packed = F.to_json(F.struct("carrier", "flight", "dep_time", "time_hour"), {"ignoreNullFields": "false"})
    return flights.select(F.concat(F.lit("dep-"), "origin").alias("queue"), packed.alias("kwargs"))


def send_in_a_loop(queue: Queue, path: Path) -> None:
    """Send the rows of the file without Spark and without our scripts: three commands each, a thousand at a time."""
    with path.open(newline="") as lines, redis.Redis.from_url(queue.client.connection.url) as server:
        pipe = server.pipeline(transaction=False)
        for row, suffix in zip(csv.DictReader(lines), random_suffixes(ALL_FLIGHTS), strict=False):
            names = ("carrier", "flight", "dep_time", "time_hour")
            call = {"task": TASK, "id": suffix, "args": [], "kwargs": {name: row[name] for name in names}}
            message_id = f"{time.time_ns() // 1000:010x}"[:10] + suffix
            pipe.zadd(queue.keys.messages, {message_id: time.time() * 1000})
            pipe.hset(queue.keys.settings, message_id, json.dumps(call))
            pipe.hincrby(queue.keys.settings, "totalsent", 1)
            if len(pipe) >= 3000:
                pipe.execute()
        pipe.execute()


def work(processes: int) -> None:
    """Run the worker of this project until nothing is left."""
    queues = ",".join(f"dep-{airport}" for airport in AIRPORTS)
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "rsmq_worker", "--batch", "--queues", queues]
    subprocess.run([*command, "--processes", str(processes), "--threads", "4", "--verbosity", "0"], check=True)


def queued() -> int:
    """Return how many messages are in the queues."""
    return sum(ensure_queue(f"dep-{airport}").attributes().messages for airport in AIRPORTS)
