"""Event log -> Parquet, exactly once.

A batch writes one directory per day, named after the query and the batch: a batch that is repeated after a crash
overwrites itself, so every reader of the files sees each event once. What is safely written then leaves Redis.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .checkpoint import finished_offset
from .errors import DataLoss
from .finalize import trim_events
from .lake import Lake, parquet_files
from .lock import RunLock
from .progress import POLL_S, RowCount
from .schemas import EVENTS
from .server import Server

JOB = "archive"
#: How often a continuous run lets go of what is written.
FINALIZE_EVERY_S = 30.0


@dataclass(slots=True)
class Archived:
    """What a run did."""

    rows: int = 0
    batches: int = 0
    #: Entries that left Redis.
    trimmed: int = 0
    #: Entries that were trimmed before this run could read them.
    lost: int = 0
    offsets: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ArchiveJob:
    """One run of the archive."""

    spark: Any
    lake: Lake
    server: Server
    #: Options of the source: the address among them.
    source: Mapping[str, str]
    #: Seconds between batches; None takes what there is now and ends.
    every_s: float | None = None
    new_checkpoint: bool = False
    #: Called with the rows that were archived so far.
    on_progress: Callable[[int], None] = lambda rows: None
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> Archived:
        """Archive. Raises DataLoss when entries were trimmed unread, AlreadyRunning when another run is at it."""
        checkpoint = self.lake.checkpoint(JOB)
        with RunLock(self.server, str(checkpoint)):
            if self.new_checkpoint and checkpoint.exists():
                checkpoint.rename(checkpoint.with_name(f"{JOB}.old-{time.time_ns()}"))
            result = Archived(trimmed=trim_events(self.server, checkpoint))
            lost_before = _lost(checkpoint)
            query = self._start(checkpoint)
            try:
                self._follow(query, result, checkpoint)
            except Exception as error:  # Spark wraps everything, ours included
                raise as_our_error(error) from error
            finally:
                if query.isActive:
                    query.stop()
            result.trimmed += trim_events(self.server, checkpoint)
            result.lost = _lost(checkpoint) - lost_before
            result.offsets = finished_offset(checkpoint) or {}
            return result

    def _start(self, checkpoint: Path) -> Any:
        options = {"kind": "events", **self.source}
        if not checkpoint.exists() and (newest := self.lake.newest_ids()):
            # Without it, a checkpoint that was deleted would bring everything that Redis still holds a second time.
            options["startAfter"] = json.dumps(newest)
        stream = self.spark.readStream.format("rsmq").options(**options).load()
        is_lenient = self.source.get("failOnDataLoss", "true") == "false"
        writer = stream.writeStream.foreachBatch(batch_writer(self.lake, keeps_larger=is_lenient))
        writer = writer.option("checkpointLocation", str(checkpoint)).queryName(f"rsmq-{JOB}")
        if self.every_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self.every_s} seconds").start()

    def _follow(self, query: Any, result: Archived, checkpoint: Path) -> None:
        """Wait for the end, count what was done, and in a continuous run let go of it now and then."""
        count, finalize_at = RowCount(), time.monotonic() + FINALIZE_EVERY_S
        while True:
            has_ended = query.awaitTermination(POLL_S)
            result.rows, result.batches = count.look(query), count.batches
            self.on_progress(result.rows)
            if has_ended:
                return
            if self.stopped.is_set() and not query.status["isTriggerActive"]:
                return
            if time.monotonic() > finalize_at:
                result.trimmed += trim_events(self.server, checkpoint)
                finalize_at = time.monotonic() + FINALIZE_EVERY_S


def batch_writer(lake: Lake, *, keeps_larger: bool = False) -> Callable[[Any, int], None]:
    """Return what writes one batch.

    With `keeps_larger`, a repeated batch does not replace one of more rows: where losses are allowed, the log may have
    been trimmed between the two tries.
    """

    def write(rows: Any, batch: int) -> None:
        from pyspark.sql import functions as F

        query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        # Numbers begin at 0 again with a new checkpoint; the id of the query keeps them apart.
        name = f"q{query[:8]}-{batch:06d}"
        if keeps_larger:
            written = _rows_of(lake, name)
            if written and rows.count() < written:
                return
        days = rows.withColumn("dt", F.to_date("event_at")).withColumn("b", F.lit(name))
        writer = days.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy("dt", "b").parquet(str(lake.table(EVENTS)))

    return write


def _rows_of(lake: Lake, batch: str) -> int:
    import pyarrow.parquet as pq

    directories = lake.table(EVENTS).glob(f"dt=*/b={batch}")
    return sum(pq.read_metadata(file).num_rows for directory in directories for file in parquet_files(directory))


def _lost(checkpoint: Path) -> int:
    return sum(end["lost"] for end in (finished_offset(checkpoint) or {}).values())


def as_our_error(error: Exception) -> Exception:
    """Return our own error where Spark wraps it in several of its own; else the error itself."""
    text = str(error)
    for name in ("LogReset: ", "DataLoss: "):
        if name in text:
            return DataLoss(text.split(name)[-1].splitlines()[0])
    return error
