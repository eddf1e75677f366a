"""What the archive needs of Spark, in one process: tests of its commits need no engine, but many rounds of it.

python -m tests.spark.plain LAKE ROWS_PER_BATCH           archive the log at RSMQ_REDIS_URL until it is empty
python -m tests.spark.plain LAKE ROWS_PER_BATCH TOPIC     archive a topic
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from rsmq_django.spark.archive import ArchiveJob
from rsmq_django.spark.config import JobConfig
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.options import Options
from rsmq_django.spark.schemas import EVENTS
from rsmq_django.spark.topics import topic_transfer


class PlainSpark:
    """Runs the work of the tasks where the driver is."""

    defaultParallelism = 2

    @property
    def sparkContext(self) -> PlainSpark:
        return self

    def parallelize(self, parts: Iterable[Any], _count: int) -> _Parts:
        return _Parts(list(parts))


class _Parts:
    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def map(self, work: Callable[[Any], Any]) -> _Parts:
        return _Parts([work(part) for part in self.parts])

    def collect(self) -> list[Any]:
        return self.parts


def archive_job(lake: Lake, **source: str) -> ArchiveJob:
    """Return an archive that runs in this process."""
    given = {"maxRowsPerBatch": "200", "rowsPerPartition": "100", "patienceS": "5", **source}
    return ArchiveJob(PlainSpark(), lake, Options.read(given).server(), given)


def ids_in(lake: Lake) -> list[str]:
    """Return the ids of all events in the lake."""
    found: list[str] = lake.open(EVENTS).read(names=["entry_id"])["entry_id"].to_pylist()
    return found


def main(place: str, rows: str, topic: str = "") -> int:
    config = JobConfig(lake=place, source={"maxRowsPerBatch": rows, "rowsPerPartition": "50"})
    if topic:
        transfer = topic_transfer(PlainSpark(), config, topic)
        transfer.run(transfer.log.newest_ids())
        return transfer.result.rows
    job = archive_job(config.find_lake(), **config.options(failOnDataLoss="true", rowsPerPartition="100"))
    job.transfer()
    return job.result.rows


if __name__ == "__main__":
    sys.stdout.write(f"{main(*sys.argv[1:])}\n")
