"""Event log -> Parquet, exactly once.

The Spark tasks write files. The driver moves the files of a batch into one directory per day, named after the query and
the batch: a batch that is repeated after a crash replaces itself, so every reader sees each event once. Events that are
safely written are then trimmed from Redis.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from .checkpoint import finished_offset, planned_rows
from .errors import as_our_error
from .files import FileSink
from .finalize import trim_events
from .lake import Lake
from .lock import RunLock
from .log import StreamLog
from .options import Options
from .patience import started_patiently
from .progress import POLL_S
from .schemas import EVENTS
from .server import Server

JOB = "archive"
#: How often a continuous run trims archived events.
FINALIZE_EVERY_S = 30.0


@dataclass(slots=True)
class Archived:
    """The result of a run."""

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
    #: Seconds between batches; None archives the current events and ends.
    every_s: float | None = None
    new_checkpoint: bool = False
    #: Called with the rows that were archived so far.
    on_progress: Callable[[int], None] = lambda rows: None
    stopped: threading.Event = field(default_factory=threading.Event)
    #: The result so far, also when run() raises.
    result: Archived = field(default_factory=Archived)

    def run(self) -> Archived:
        """Archive. Raises DataLoss if entries were trimmed unread, AlreadyRunning if another run is active."""
        checkpoint = self.lake.checkpoint(JOB)
        with RunLock(self.server, str(checkpoint)):
            if self.new_checkpoint and checkpoint.exists():
                checkpoint.rename(checkpoint.with_name(f"{JOB}.old-{time.time_ns()}"))
            result = self.result = Archived(trimmed=trim_events(self.server, checkpoint))
            lost_before = _lost(checkpoint)
            sink = self._sink(checkpoint)
            try:
                started_patiently(lambda: self._query(sink, result, checkpoint))
            except Exception as error:  # Spark wraps everything, ours included
                # Service managers stop all processes at once: Spark may end in mid-batch, which is then repeated.
                if not self.stopped.is_set():
                    raise as_our_error(error) from error
            finally:
                # Also after a failure: the next run starts after the lost events, and does not count them again.
                result.lost = _lost(checkpoint) - lost_before + sink.lost
            result.trimmed += trim_events(self.server, checkpoint)
            result.offsets = finished_offset(checkpoint) or {}
            return result

    def _sink(self, checkpoint: Path) -> FileSink:
        place = self.lake.table(EVENTS)
        self.lake.prepare(place)
        may_lose = self.source.get("failOnDataLoss", "true") == "false"
        return FileSink(place, planned=partial(planned_rows, checkpoint) if may_lose else None)

    def _query(self, sink: FileSink, result: Archived, checkpoint: Path) -> None:
        query = self._start(checkpoint, sink)
        try:
            self._follow(query, sink, result, checkpoint)
        finally:
            if query.isActive:
                query.stop()

    def _start(self, checkpoint: Path, sink: FileSink) -> Any:
        options = {"kind": "events", "filesIn": str(self.lake.incoming(JOB)), **self.source}
        if not checkpoint.exists() and (newest := self.lake.newest_ids(self._logs())):
            # Without it, after the deletion of a checkpoint, all entries in Redis would be archived a second time.
            options["startAfter"] = json.dumps(newest)
        stream = self.spark.readStream.format("rsmq").options(**options).load()
        writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
        writer = writer.queryName(f"rsmq-{JOB}")
        if self.every_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self.every_s} seconds").start()

    def _logs(self) -> dict[str, str]:
        """Return the identity of each stream."""
        options = Options.read({"kind": "events", **self.source})
        log = StreamLog(options, options.streams)
        try:
            return log.identities()
        finally:
            log.server.close()

    def _follow(self, query: Any, sink: FileSink, result: Archived, checkpoint: Path) -> None:
        """Wait for the end, count archived events, and trim them regularly in a continuous run."""
        finalize_at = time.monotonic() + FINALIZE_EVERY_S
        while True:
            has_ended = query.awaitTermination(POLL_S)
            result.rows, result.batches = sink.rows, sink.batches
            self.on_progress(result.rows)
            if has_ended:
                return
            if self.stopped.is_set() and not query.status["isTriggerActive"]:
                return
            if time.monotonic() > finalize_at:
                result.trimmed += trim_events(self.server, checkpoint)
                finalize_at = time.monotonic() + FINALIZE_EVERY_S


def _lost(checkpoint: Path) -> int:
    return sum(end["lost"] for end in (finished_offset(checkpoint) or {}).values())
