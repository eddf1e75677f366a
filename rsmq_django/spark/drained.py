"""Queue -> Parquet: every message that is taken out is in exactly one row of the lake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .archive import as_our_error
from .config import JobConfig
from .finalize import Acknowledged, acknowledge_drained
from .lake import Lake
from .lock import RunLock
from .options import Options
from .progress import POLL_S, RowCount


@dataclass(frozen=True, slots=True)
class Drained:
    """What a run did."""

    rows: int
    #: Messages that somebody else received while their lease was over.
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
    """Take what is visible in a queue now into the lake. Safe to run again after any crash."""
    lake = config.find_lake()
    checkpoint = lake.checkpoint(f"drain-{consumer}-{queue}")
    given = config.options(kind="drain", queue=queue, leaseS=str(lease_s), consumer=consumer)
    options = Options.read(given)
    with RunLock(options.server(), str(checkpoint)):
        acknowledge_drained(options, checkpoint)
        stream = spark.readStream.format("rsmq").options(**given).load()
        writer = stream.writeStream.foreachBatch(_writer(lake, queue)).option("checkpointLocation", str(checkpoint))
        query, count = writer.trigger(availableNow=True).start(), RowCount()
        try:
            while not query.awaitTermination(POLL_S):
                on_progress(count.look(query))
        except Exception as error:  # Spark wraps everything, ours included
            raise as_our_error(error) from error
        done: Acknowledged = acknowledge_drained(options, checkpoint)
        return Drained(count.look(query), done.left)


def _writer(lake: Lake, queue: str) -> Callable[[Any, int], None]:
    def write(rows: Any, batch: int) -> None:
        from pyspark.sql import functions as F

        query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        named = rows.withColumn("dt", F.to_date("claimed_at")).withColumn("b", F.lit(f"q{query[:8]}-{batch:06d}"))
        writer = named.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy("dt", "b").parquet(str(lake.drained(queue)))

    return write
