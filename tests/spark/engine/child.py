"""What runs in processes that tests kill, or on clusters that they start: the archive, and a little of everything.

    python -m tests.spark.engine.child archive LAKE [--die-after BATCH] [--rows N]
    python -m tests.spark.engine.child everything LAKE --master M [--py-files ZIP]

The address of Redis is in RSMQ_REDIS_URL. The last line of the output is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from typing import Any

from rsmq_django.spark.archive import ArchiveJob
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.delta import Table
from rsmq_django.spark.drained import drain_queue
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.rollup import rollup
from rsmq_django.spark.schemas import EVENTS, HOURLY
from rsmq_django.spark.session import start_session
from tests.spark.engine.quick import CLUSTER, QUICK

QUEUE = "bulk"
MESSAGES = 3000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["archive", "everything"])
    parser.add_argument("lake")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--py-files", default="")
    parser.add_argument("--die-after", type=int, default=-1)
    parser.add_argument("--rows", type=int, default=50_000)
    given = parser.parse_args()
    config = JobConfig(lake=given.lake, master=given.master, py_files=given.py_files)
    conf = QUICK if given.master.startswith("local[") else QUICK | CLUSTER
    spark = start_session(given.master, conf=conf, py_files=given.py_files)
    if given.what == "archive":
        answer = run_archive(spark, config, rows=given.rows, die_after=given.die_after)
    else:
        answer = run_everything(spark, config)
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
    sys.stdout.flush()
    spark.stop()


def run_archive(spark: Any, config: JobConfig, *, rows: int, die_after: int) -> dict[str, int]:
    commit, batches = Table.commit, iter(range(1_000_000))

    def die_before(self: Table, *args: Any, **options: Any) -> None:
        if self.definition is EVENTS and next(batches) == die_after:
            os.killpg(0, signal.SIGKILL)  # the JVM, too: its files are there, and no commit counts them
        commit(self, *args, **options)

    setattr(Table, "commit", die_before)  # noqa: B010 - a method cannot be assigned
    done = ArchiveJob(
        spark, config.find_lake(), config.server(), config.options(maxRowsPerBatch=str(rows), rowsPerPartition="1000")
    ).run()
    return {"rows": done.rows, "trimmed": done.trimmed, "lost": done.lost}


def run_everything(spark: Any, config: JobConfig) -> dict[str, Any]:
    """Send, look, archive, roll up and drain; return what can be compared between clusters."""
    lake = config.find_lake()
    rows = spark.range(MESSAGES, numPartitions=4).selectExpr("concat('order ', id) AS body")
    for _ in range(2):
        options = config.options(queue=QUEUE, job="import-7")
        rows.write.format("rsmq").mode("append").options(**options).save()
    messages = spark.read.format("rsmq").options(**config.options(queue=QUEUE, rowsPerPartition="1500")).load()
    seen = messages.selectExpr("count(*)", "count(DISTINCT body)", "min(receive_count)").first()
    archived = run_archive(spark, config, rows=2000, die_after=-1)
    rollup(lake)
    drained = drain_queue(spark, config, QUEUE)
    return {
        "seen": list(seen),
        "archived": archived,
        "distinct": len({row for day in lake.days(EVENTS) for row in _ids(lake, day)}),
        "attempts": sum(sum(lake.open(HOURLY).read({day})["attempts"].to_pylist()) for day in lake.days(HOURLY)),
        "drained": drained.rows,
    }


def _ids(lake: Lake, day: Any) -> list[str]:
    ids: list[str] = lake.open(EVENTS).read({day}, names=["entry_id"])["entry_id"].to_pylist()
    return ids


if __name__ == "__main__":
    main()
