"""What a rollup and an analysis cost in lakes of different sizes. Needs `deltalake`, and neither Redis nor Spark.

    python -m benchmarks.rollup [--days 30] [--sizes 1000000,10000000] [--new 10000] [--place DIRECTORY]

Makes a lake of synthetic events (20 tasks in 4 queues, 32 workers, one failure in fifty), rolls it up once in a process
of its own, then adds new events and measures the run that counts them: CPU seconds, of all threads. The median of five.
"""

from __future__ import annotations

import argparse
import datetime as dt
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from rsmq_django.spark.columns import arrow_schema
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.files import DAY_US, write_file
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.rollup import rollup
from rsmq_django.spark.schemas import EVENTS
from rsmq_django.spark.steps import analyse

LAST = dt.date(2026, 11, 20)
OBJECTIVES = {"q0": {"success": 0.999, "wait_p95_ms": 50}, "q1": {"wait_p95_ms": 50}}
TURNS = 5
#: Events are made in pieces, for the memory.
PIECE = 250_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--sizes", default="1000000,10000000", help="events of the lakes, with commas")
    parser.add_argument("--new", type=int, default=10_000, help="new events of a run")
    parser.add_argument("--place", help="directory for the lakes; default: a temporary one")
    parser.add_argument("--rollup", metavar="LAKE", help="only roll up this lake (the process that is measured)")
    given = parser.parse_args()
    if given.rollup:
        seconds = cpu_s(lambda: rollup(Lake.at(given.rollup)))
        return say(f"{seconds:8.2f} CPU s, {most_memory_mb():,} MB at most")
    for size in map(int, given.sizes.split(",")):
        with tempfile.TemporaryDirectory(dir=given.place) as place:
            measure(JobConfig(lake=str(Path(place) / "lake"), objectives=OBJECTIVES), size, given.days, given.new)


def measure(config: JobConfig, size: int, days: int, new: int) -> None:
    lake = config.find_lake()
    for back in reversed(range(days)):
        store(lake, LAST - dt.timedelta(days=back), size // days)
    say(f"{size:,} events of {days} days")
    command = [sys.executable, "-m", "benchmarks.rollup", "--rollup", lake.uri]
    first = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    say(f"  first rollup             {first.rstrip()}")
    counts, analyses = [], []
    for _ in range(TURNS):
        store(lake, LAST, new, hour=12)
        counts.append(cpu_s(lambda: rollup(lake)))
        analyses.append(cpu_s(lambda: analyse(config)))
    say(f"  rollup of {new:,} events  {median(counts):8.2f} CPU s")
    say(f"  analysis                 {median(analyses):8.2f} CPU s")


def cpu_s(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def most_memory_mb() -> int:
    # Not ru_maxrss: a process inherits that of the one that started it.
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) // 1024


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def store(lake: Lake, day: dt.date, count: int, *, hour: int | None = None) -> None:
    """Put events into the lake, spread over a day or an hour, in one commit."""
    table = lake.open(EVENTS, create=True)
    begin_us = (day - dt.date(1970, 1, 1)).days * DAY_US + (hour or 0) * 3_600_000_000
    span_us = DAY_US if hour is None else 3_600_000_000
    pieces = (
        batch(begin_us + at * span_us // count, span_us // count, min(PIECE, count - at), at)
        for at in range(0, count, PIECE)
    )
    table.commit([write_file(table.uri, day, pieces, EVENTS.columns)])


def batch(begin_us: int, step_us: int, count: int, first: int) -> Any:
    """Return events with times of a logarithmic normal distribution, at even distances."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pa.array(range(first, first + count), pa.int64())
    at = pc.add(pc.multiply(pc.subtract(numbers, first), step_us), begin_us)

    def spread(middle: float, seed: int) -> Any:
        normal = pc.subtract(_sum_of_twelve(count, seed), 6.0)
        return pc.exp(pc.add(normal, middle)).cast(pa.int64(), safe=False)

    def names(prefix: str, most: int, column: Any) -> Any:
        found = pa.array([f"{prefix}{number}" for number in range(most)])
        return found.take(pc.subtract(column, pc.multiply(pc.divide(column, most), most)))

    wait_us, failed = spread(8, 1), pc.less(pc.random(count), 0.02)
    texts = {name: pa.nulls(count, pa.string()) for name in ("log", "message_id")}
    columns = {
        **texts,
        "shard": pa.repeat("rsmq::events", count),
        "entry_id": pc.binary_join_element_wise(pc.divide(at, 1000).cast(pa.string()), numbers.cast(pa.string()), "-"),
        "event_at": at.cast(pa.timestamp("us", tz="UTC")),
        "event": pc.if_else(failed, "dead", "succeeded"),
        "queue": names("q", 4, numbers),
        "task": names("shop.tasks.task", 20, numbers),
        "task_id": numbers.cast(pa.string()),
        "attempt": pc.if_else(pc.less(pc.random(count), 0.05), 2, 1).cast(pa.int32()),
        "enqueued_at": pc.subtract(at, wait_us).cast(pa.timestamp("us", tz="UTC")),
        "wait_us": wait_us,
        "run_us": spread(9, 2),
        "body_bytes": pa.repeat(pa.scalar(90, pa.int32()), count),
        "worker": names("web:", 32, pc.divide(numbers, 3)),
        "error_type": pc.if_else(failed, "shop.Lost", None),
        "error": pc.if_else(failed, "the order is gone", None),
        "fingerprint": pc.if_else(failed, "6f1ed002ab5595859014ebf0951522d9", None),
    }
    wanted = arrow_schema(EVENTS.columns)
    return pa.RecordBatch.from_pydict({name: columns[name] for name in wanted.names}, schema=wanted)


def _sum_of_twelve(count: int, seed: int) -> Any:
    """Return sums of twelve random numbers between 0 and 1: nearly a normal distribution around 6."""
    import pyarrow.compute as pc

    found = pc.random(count, initializer=seed)
    for number in range(1, 12):
        found = pc.add(found, pc.random(count, initializer=100 * number + seed))
    return found


if __name__ == "__main__":
    main()
