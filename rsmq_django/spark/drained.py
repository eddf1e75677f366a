"""Queue -> Parquet: every drained message is in exactly one row of the lake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .config import JobConfig
from .errors import as_our_error
from .files import FileSink
from .finalize import Acknowledged, acknowledge_drained
from .lock import RunLock
from .options import Options
from .patience import started_patiently
from .progress import POLL_S


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of a run."""

    rows: int
    #: Messages that another consumer received after their lease expired.
    left: int


def drain_queue(
    spark: Any,
    config: JobConfig,
    queue: str,
    *,
    lease_s: float = 0,
    consumer: str = "lake",
    on_progress: Callable[[int], None] = lambda rows: None,
) -> Drained:
    """Move the visible messages of a queue into the lake. Safe to run again after any crash."""
    lake = config.find_lake()
    job = f"drain-{consumer}-{queue}"
    checkpoint = lake.checkpoint(job)
    given = config.options(kind="drain", queue=queue, leaseS=str(lease_s), consumer=consumer)
    options = Options.read(given)
    with RunLock(options.server(), str(checkpoint)):
        acknowledge_drained(options, checkpoint)
        sink = FileSink(lake.drained(queue))
        lake.prepare(sink.place)
        stream = spark.readStream.format("rsmq").options(filesIn=str(lake.incoming(job)), **given).load()
        writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))

        def follow() -> None:
            query = writer.trigger(availableNow=True).start()
            while not query.awaitTermination(POLL_S):
                on_progress(sink.rows)

        try:
            started_patiently(follow)
        except Exception as error:  # Spark wraps everything, ours included
            raise as_our_error(error) from error
        done: Acknowledged = acknowledge_drained(options, checkpoint)
        return Drained(sink.rows, done.left)
