"""Events -> one row for each hour, queue and task; events -> groups of failures.

Hours are those of the settlement on the server's clock, so a late archive changes no hour.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from ...core.stats.histogram import LOG_GROWTH
from ..schemas import FAILURES, HOURLY

OUTCOMES = ("succeeded", "retried", "dead", "released", "lost", "cancelled")
#: Events of permanent failures, stored as dead letters or discarded; they count as dead.
DEAD = ("dead", "discarded")
_KEYS = ("hour", "queue", "task")


def hourly(events: Any) -> Any:
    """Return counts, busy time and the histograms of latency and run times.

    A released delivery is counted as released, and not as an attempt.
    """
    is_attempt = F.col("event") != "released"
    events = events.withColumn("hour", F.date_trunc("hour", "event_at"))
    totals = events.groupBy(*_KEYS).agg(
        F.count_if(is_attempt).alias("attempts"),
        F.count_if(is_attempt & (F.col("attempt") == 1)).alias("first_attempts"),
        *[F.count_if(F.col("event").isin(*_events(outcome))).alias(outcome) for outcome in OUTCOMES],
        F.coalesce(F.sum("run_us"), F.lit(0)).alias("busy_us"),
        F.coalesce(F.sum(F.pow(F.col("run_us") / 1e6, 2)), F.lit(0.0)).alias("run_s_squared"),
        F.coalesce(F.sum("body_bytes"), F.lit(0)).alias("body_bytes"),
        F.count_distinct("worker").cast("int").alias("workers"),
    )
    for metric in ("wait", "run"):
        totals = totals.join(_histograms(events, metric), [*_KEYS], "left")
    return _as(HOURLY, totals)


def _events(outcome: str) -> tuple[str, ...]:
    return DEAD if outcome == "dead" else (outcome,)


def _histograms(events: Any, metric: str) -> Any:
    """Return a map of bucket to count for each hour, queue and task (core.stats.histogram.bucket_of)."""
    value = F.col(f"{metric}_us")
    bucket = F.ceil(F.log(F.greatest(value, F.lit(1))) / LOG_GROWTH).cast("int")
    counts = events.where(value.isNotNull()).groupBy(*_KEYS, bucket.alias("bucket")).count()
    entries = F.map_from_entries(F.collect_list(F.struct("bucket", "count")))
    return counts.groupBy(*_KEYS).agg(entries.alias(f"{metric}_hist"))


def failures(events: Any) -> Any:
    """Return the groups of similar failures of each day with count and latest sample."""
    groups = (
        events.where(F.col("fingerprint").isNotNull())
        .groupBy(F.to_date("event_at").alias("dt"), "task", "fingerprint", "error_type")
        .agg(
            F.count("*").alias("n"),
            F.count_if(F.col("event") == "retried").alias("retried"),
            F.count_if(F.col("event").isin(*DEAD)).alias("dead"),
            F.min("event_at").alias("first_at"),
            F.max("event_at").alias("last_at"),
            F.max_by("error", "event_at").alias("sample"),
            F.max_by("task_id", "event_at").alias("sample_task_id"),
            F.sort_array(F.collect_set("queue")).alias("queues"),
            F.count_distinct("worker").cast("int").alias("workers"),
        )
    )
    return groups.select("dt", *[column.name for column in FAILURES.columns])


def _as(table: Any, frame: Any) -> Any:
    """Return the columns of a table in their order, and the day."""
    return frame.select(F.to_date("hour").alias("dt"), *[column.name for column in table.columns])
