"""`make bench-spark`: the ways of the pipeline beside plain Python loops that do the same, in turns, on one server.

A loop has one process and no promise: what it has done when it dies is anybody's guess. So a ratio below one is the
price of files that are exactly once and of jobs that send all or nothing; the loop with our own bulk calls shows how
much of it is Spark's. Needs Java 17 and the extra `spark`. See docs/how-to/pipeline.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.ids import random_suffixes
from rsmq_django.core.stats.events import FIELDS, VALUES
from rsmq_django.spark.archive import ArchiveJob
from rsmq_django.spark.events import EventLogReader
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.options import Options
from rsmq_django.spark.server import Server as PipelineServer
from rsmq_django.spark.session import start_session
from rsmq_django.spark.snapshot import QueueSnapshot

from .__main__ import machine
from .report import table
from .server import Server

STREAM = "rsmq::events"
NAMESPACE = "rsmq"
#: Calls to the loop that sends one row at a time: it is slow, and its rate does not depend on how many.
ROWS_ONE_BY_ONE = 10_000
#: What a rate is divided by, and what it should reach.
GOALS = {
    "direct": ("loop, three commands a row", 1.5),
    "archive": ("loop, decoding only", 0.4),
}


class Bench:
    """One server, one session, one file of rows; every case is measured in every turn."""

    def __init__(self, server: Server, place: Path, rows: int) -> None:
        self.server, self.place, self.rows = server, place, rows
        os.environ["RSMQ_REDIS_URL"] = server.url
        self.queue = Queue("bench", Client(Connection(server.url, timeout_s=30)))
        self.spark = start_session("local[2]")
        self.file = place / "rows.parquet"
        self.rates: dict[str, list[float]] = {}
        body = "concat('{\"flight\":', id, ',\"note\":\"', repeat('x', 270), '\"}') AS body"
        self.spark.range(rows, numPartitions=4).selectExpr(body).write.parquet(str(self.file))

    def measure(self, case: str, rows: int, do: Callable[[], object]) -> None:
        """Do it and note its rate."""
        started = time.perf_counter()
        do()
        rate = rows / (time.perf_counter() - started)
        self.rates.setdefault(case, []).append(rate)
        print(f"  {case:34} {rate:>10,.0f}/s", file=sys.stderr, flush=True)

    def turn(self) -> None:
        """Measure everything once."""
        self.sending()
        self.reading()
        self.archiving()

    # -- Rows -> queue ------------------------------------------------------------------------------------------------

    def sending(self) -> None:
        """Send the rows of the file in five ways."""
        self.empty()
        self.measure("loop, one call a row", ROWS_ONE_BY_ONE, self.send_one_by_one)
        for case, send in (
            ("loop, three commands a row", self.send_commands),
            ("loop, our calls of 1,000", self.send_in_bulk),
            ("direct", lambda: self.write(direct="true")),
            ("all or none", self.write),
        ):
            self.empty()
            self.measure(case, self.rows, send)
            sent = self.queue.attributes().messages
            if sent != self.rows:
                raise RuntimeError(f"{case}: {sent} messages instead of {self.rows}")

    def send_one_by_one(self) -> None:
        """Send the first rows, one round trip each."""
        bodies = self.bodies()
        for _ in range(ROWS_ONE_BY_ONE):
            self.queue.send(next(bodies))

    def send_commands(self) -> None:
        """Send as one would without a client: three commands a row, a thousand rows a pipeline."""
        keys = self.queue.keys
        pipe = redis.Redis.from_url(self.server.url).pipeline(transaction=False)
        for body, suffix in zip(self.bodies(), random_suffixes(self.rows), strict=True):
            message_id = f"{time.time_ns() // 1000:010x}"[:10] + suffix
            pipe.zadd(keys.messages, {message_id: time.time() * 1000})
            pipe.hset(keys.settings, message_id, body)
            pipe.hincrby(keys.settings, "totalsent", 1)
            if len(pipe) >= 3000:
                pipe.execute()
        pipe.execute()

    def send_in_bulk(self) -> None:
        """Send with the calls that the executors use."""
        self.queue.send_many(self.bodies())

    def write(self, **options: str) -> None:
        """Send with Spark."""
        frame = self.spark.read.parquet(str(self.file))
        frame.write.format("rsmq").mode("append").options(queue="bench", **options).save()

    def bodies(self) -> Iterator[bytes]:
        """Read the rows of the file without Spark."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        for file in sorted(self.file.glob("*.parquet")):
            for batch in pq.ParquetFile(file).iter_batches(10_000):
                yield from batch.column("body").cast(pa.binary()).to_pylist()

    def empty(self) -> None:
        """Begin anew with an empty queue."""
        self.server.redis.flushall()
        self.queue.create()

    # -- Queue -> rows ------------------------------------------------------------------------------------------------

    def reading(self) -> None:
        """Read the queue that sending left, in two ways."""
        snapshot = QueueSnapshot(Options.read({"queue": "bench"}))
        parts = snapshot.plan
        self.measure("loop, snapshot", self.rows, lambda: [sum(1 for _ in snapshot.read(part)) for part in parts()])
        frame = self.spark.read.format("rsmq").option("queue", "bench")
        self.measure("snapshot", self.rows, lambda: _consume(frame.load()))
        target = str(self.place / "snapshot")
        self.measure("snapshot to Parquet", self.rows, lambda: frame.load().write.mode("overwrite").parquet(target))

    # -- Log -> files -------------------------------------------------------------------------------------------------

    def archiving(self) -> None:
        """Decode the log in a loop, then archive it in batches of 50,000."""
        self.server.redis.flushall()
        write_log(self.server.redis, self.rows)
        log = EventLogReader(Options.read({"kind": "events"}))
        ranges = log.log.cut(STREAM, "0-0", "+")
        decode = lambda: sum(len(chunk["shard"]) for part in ranges for chunk in log.read(part))  # noqa: E731
        self.measure("loop, decoding only", self.rows, decode)
        pipeline, lake = PipelineServer(self.server.url, namespace=NAMESPACE), Lake.at(self.place / "lake")
        source = {"maxRowsPerBatch": "50000"}
        self.measure("archive", self.rows, lambda: ArchiveJob(self.spark, lake, pipeline, source).run())
        shutil.rmtree(lake.root)


def write_log(server: redis.Redis, rows: int) -> None:
    """Write events as workers do; one in fifty is a failure."""
    values = ["succeeded", "mail", "shop.tasks.send_receipt", "", "", 1, "", 1500, 20_000, 300, "web1:4711:0", "", ""]
    entry: dict[Any, Any] = dict(zip(FIELDS, values, strict=True))
    pipe = server.pipeline(transaction=False)
    for number, suffix in enumerate(random_suffixes(rows)):
        fails = {"e": "dead", "x": "shop.Cancelled", "y": f"order {number} was cancelled"} if number % 50 == 0 else {}
        ours = {"i": suffix, "m": f"dl0jw5q2kd{suffix}", "s": time.time_ns() // 1_000_000}
        pipe.xadd(STREAM, {VALUES: "\n".join(map(str, (entry | ours | fails).values()))})
        if len(pipe) >= 2000:
            pipe.execute()
    pipe.execute()


def _consume(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def report(rates: dict[str, list[float]]) -> str:
    """Return the table: medians, and what they are of the loops."""
    middle = {case: statistics.median(found) for case, found in rates.items()}
    lines = []
    for case, rate in middle.items():
        beside, goal = GOALS.get(case, (None, None))
        share = rate / middle[beside] if beside else None
        verdict = "" if share is None or goal is None else ("reached" if share >= goal else "NOT REACHED")
        lines.append(
            (
                case,
                f"{rate:,.0f}",
                f"{min(rates[case]):,.0f} - {max(rates[case]):,.0f}",
                "" if share is None else f"{share:.2f} x {beside}",
                "" if goal is None else f">= {goal}: {verdict}",
            )
        )
    return table(("case", "rows/s", "least - most", "beside", "goal"), lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="rsmq-bench-spark-"))
    described = machine()  # first, because it tells the load before
    try:
        with Server() as server:
            bench = Bench(server, place, given.rows)
            print("to warm up:", file=sys.stderr)
            bench.turn()
            bench.rates.clear()
            for number in range(1, given.turns + 1):
                print(f"turn {number} of {given.turns}:", file=sys.stderr)
                bench.turn()
            bench.spark.stop()
        described |= {"spark": "local[2]", "rows": f"{given.rows:,} of 300 bytes"}
        described["load after"] = " ".join(f"{load:.2f}" for load in os.getloadavg())
        print("\n".join(f"- {name}: {value}" for name, value in described.items()))
        print("\n" + report(bench.rates))
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
