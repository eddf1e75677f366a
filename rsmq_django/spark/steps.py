"""The steps other than archive: rollup, analyse, snapshot, dead letters, compact.

Each may be run at any time, twice, or not at all.

A step recomputes and replaces whole days, so it is idempotent.
"""

from __future__ import annotations

import datetime as dt
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .anomalies import WEEKS, HourMetrics, find_anomalies
from .burn import PERIOD, PERIOD_S, WINDOWS_S, budget_left, burn, read_objectives
from .capacity import Advice, Demand, advise, arrival_rate_per_s
from .columns import ddl
from .config import JobConfig
from .dead_letters import KEY
from .errors import PipelineError
from .lake import Lake, parquet_files
from .schemas import ANOMALIES, CAPACITY, DEAD_LETTERS, DEPTH, EVENTS, FAILURES, HOURLY, SLO
from .tables import read_days, read_events, write_days

#: Number of days whose events are used for capacity advice.
DEMAND_DAYS = 7
#: Minimum age of days to compact: late batches are rare by then.
COMPACT_AFTER_DAYS = 2
#: Key of an event: two servers may create the same id.
KEY_OF_EVENT = ("shard", "log", "entry_id")
_ROLLUP = "rollup"


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step."""

    rows_in: int = 0
    rows_out: int = 0
    days: int = 0


# -- Rollup -----------------------------------------------------------------------------------------------------------


def changed_days(lake: Lake, *, since: dt.date | None = None) -> list[dt.date]:
    """Return the days whose batches differ from those of the last rollup."""
    seen = lake.read_note(_ROLLUP)
    days = [day for day in lake.days(EVENTS) if since is None or day >= since]
    if since is not None:
        return days
    return [day for day in days if sorted(lake.batches(day)) != seen.get(day.isoformat())]


def rollup(spark: Any, lake: Lake, *, since: dt.date | None = None) -> StepResult:
    """Recompute hourly rows and failure groups of changed days, or of all days from `since` on."""
    from .transform.rollup import failures, hourly

    days = changed_days(lake, since=since)
    if not days:
        return StepResult()
    seen = {day.isoformat(): sorted(lake.batches(day)) for day in days}
    events = read_events(spark, lake, days).cache()
    try:
        write_days(hourly(events), lake, HOURLY, days)
        write_days(failures(events), lake, FAILURES, days)
        rows = events.count()
    finally:
        events.unpersist()
    # Last: after a crash before it, the days are computed again.
    lake.write_note(_ROLLUP, lake.read_note(_ROLLUP) | seen)
    return StepResult(rows, sum(lake.read_day(HOURLY, day, names=["hour"]).num_rows for day in days), len(days))


# -- Analysis ---------------------------------------------------------------------------------------------------------


def analyse(spark: Any, config: JobConfig, *, since: dt.date | None = None) -> StepResult:
    """Compute capacity advice, burn rates and anomalies up to the newest event."""
    lake = config.find_lake()
    days = lake.days(EVENTS)
    if not days:
        return StepResult()
    newest = days[-1]
    events = read_events(spark, lake, _last(days, DEMAND_DAYS))
    advice = capacity(events, config)
    rows_out = lake.write_day(CAPACITY, newest, map(_capacity_row, advice))
    rows_out += _write_burns(spark, lake, config, days)
    rows_out += write_anomalies(lake, since=since)
    return StepResult(sum(item.demand.attempts for item in advice), rows_out, 1)


def capacity(events: Any, config: JobConfig) -> list[Advice]:
    """Return advice for each queue from its events."""
    from .transform.demand import arrivals, run_time_spreads, run_times

    spreads = {row["queue"]: row["spread"] for row in run_time_spreads(events).collect()}
    counts: dict[str, dict[int, int]] = {}
    for row in arrivals(events).collect():
        counts.setdefault(row["queue"], {})[row["slot"]] = row["arrivals"]
    found = []
    for row in sorted(run_times(events).collect(), key=lambda row: row["queue"]):
        queue, mean_s = row["queue"], row["mean_run_s"]
        slots = counts.get(queue, {})
        demand = Demand(
            queue=queue,
            attempts=row["attempts"],
            arrivals_per_s=arrival_rate_per_s(slots, slots=max(slots) - min(slots) + 1 if slots else 0),
            mean_run_s=mean_s,
            run_cv_squared=row["variance"] / mean_s**2 if mean_s else 0.0,
            attempts_per_hour=row["attempts"] / row["hours"],
            run_time_spread=spreads.get(queue, 1.0),
            slots_seen=row["workers"] * config.slots_per_worker,
        )
        found.append(advise(demand, wait_target_s=config.wait_target_s(queue), quantile=config.wait_quantile))
    return found


def _capacity_row(advice: Advice) -> dict[str, Any]:
    row = asdict(advice)
    demand = row.pop("demand")
    return {column.name: (row | demand)[column.name] for column in CAPACITY.columns}


def _write_burns(spark: Any, lake: Lake, config: JobConfig, days: Sequence[dt.date]) -> int:
    from pyspark.sql import functions as F

    from .transform.demand import counted, outcomes

    objectives = read_objectives(config.objectives)
    if not objectives:
        return 0
    events = read_events(spark, lake, _last(days, PERIOD_S // 86_400 + 1))
    # As a number: a timestamp would be converted to the time zone of this process.
    newest_us = events.agg(F.unix_micros(F.max("event_at")).alias("at_us")).first()["at_us"]
    at = dt.datetime.fromtimestamp(newest_us / 1e6, dt.UTC)
    row = outcomes(events, objectives, at + dt.timedelta(microseconds=1)).first().asDict()
    burns = []
    for objective in objectives:
        left = budget_left(objective, **_named(counted(row, objective, PERIOD)))
        for window in WINDOWS_S:
            found = burn(objective, window, **_named(counted(row, objective, window)))
            burns.append(_burn_row(at, objective, found, left))
    hour = at.replace(minute=0, second=0, microsecond=0)
    earlier = [known for known in lake.read_day(SLO, at.date()).to_pylist() if known["at"] < hour]
    return lake.write_day(SLO, at.date(), [*earlier, *burns])


def _burn_row(at: dt.datetime, objective: Any, found: Any, left: float) -> dict[str, Any]:
    return {
        "at": at,
        "queue": objective.queue,
        "objective": objective.name,
        "window": found.window,
        "total": found.total,
        "bad": found.bad,
        "target": objective.target,
        "burn_rate": found.burn_rate,
        "budget_left": left,
    }


def _named(pair: tuple[int, int]) -> dict[str, int]:
    return {"total": pair[0], "bad": pair[1]}


def write_anomalies(lake: Lake, *, since: dt.date | None = None) -> int:
    """Detect anomalies on the last two days, or on all days from `since` on. Needs no Spark."""
    days = lake.days(HOURLY)
    wanted = [day for day in days if (day >= since if since else day > days[-1] - dt.timedelta(days=2))]
    if not wanted:
        return 0
    first = wanted[0] - dt.timedelta(weeks=WEEKS)
    rows = (HourMetrics.of(row) for day in days if first <= day for row in lake.read_day(HOURLY, day).to_pylist())
    found = find_anomalies(rows, wanted)
    for day in wanted:
        lake.write_day(ANOMALIES, day, [asdict(item) for item in found if item.hour.date() == day])
    return len(found)


def _last(days: Sequence[dt.date], count: int) -> list[dt.date]:
    """Return the days up to a number of days before the newest one."""
    return [day for day in days if (days[-1] - day).days < count]


# -- Snapshot ---------------------------------------------------------------------------------------------------------


def snapshot(spark: Any, config: JobConfig, *, queues: Sequence[str] = ()) -> StepResult:
    """Add the current depth and age of the queues to the table of depths."""
    from pyspark.sql import functions as F

    server, lake = config.server(), config.find_lake()
    now_us = server.now_us()
    at = dt.datetime.fromtimestamp(now_us / 1e6, dt.UTC)
    messages = spark.read.format("rsmq").options(**config.options(queue=",".join(queues))).load()
    is_visible = F.coalesce(F.col("visible_at").cast("double") * 1e6 <= now_us, F.lit(True))
    found = messages.groupBy("queue").agg(
        F.count_if(is_visible).alias("waiting"),
        F.count_if(~is_visible & (F.col("receive_count") == 0)).alias("delayed"),
        F.count_if(~is_visible & (F.col("receive_count") > 0)).alias("in_flight"),
        F.min(F.when(is_visible, F.col("visible_at").cast("double") * 1e6)).alias("oldest_us"),
        F.sum(F.length("body")).alias("body_bytes"),
        F.max("receive_count").alias("max_receive_count"),
    )
    rows = {row["queue"]: row.asDict() for row in found.collect()}
    for queue in queues or _all_queues(server):
        rows.setdefault(queue, {"queue": queue})
    depths = [_depth_row(at, now_us, row) for _, row in sorted(rows.items())]
    lake.write_day(DEPTH, at.date(), [*lake.read_day(DEPTH, at.date()).to_pylist(), *depths])
    server.close()
    return StepResult(sum(row["waiting"] + row["delayed"] + row["in_flight"] for row in depths), len(depths), 1)


def _all_queues(server: Any) -> list[str]:
    from ..core.queue.queue import list_queues

    return list_queues(server.client)


def _depth_row(at: dt.datetime, now_us: int, row: Mapping[str, Any]) -> dict[str, Any]:
    oldest_us = row.get("oldest_us")
    return {
        "taken_at": at,
        "queue": row["queue"],
        "waiting": row.get("waiting", 0),
        "delayed": row.get("delayed", 0),
        "in_flight": row.get("in_flight", 0),
        "oldest_age_us": None if oldest_us is None else max(0, int(now_us - oldest_us)),
        "body_bytes": row.get("body_bytes") or 0,
        "max_receive_count": row.get("max_receive_count") or 0,
    }


# -- Dead letters -----------------------------------------------------------------------------------------------------


def archive_dead_letters(spark: Any, config: JobConfig, *, queues: Sequence[str] = ()) -> StepResult:
    """Add the current dead letters to the archive; rows out are the new ones."""
    from pyspark.sql import functions as F

    lake = config.find_lake()
    letters = spark.read.format("rsmq").options(**config.options(kind="dead", queue=",".join(queues))).load()
    # Read once, so that the written rows are the counted ones despite concurrent redrives.
    letters = letters.withColumn("dt", F.to_date("died_at")).cache()
    try:
        days = sorted(row["dt"] for row in letters.select("dt").distinct().collect())
        known = read_days(spark, lake, DEAD_LETTERS, days).withColumn("dt", F.to_date("died_at"))
        before, found = known.count(), letters.count()
        write_days(known.unionByName(letters).dropDuplicates([*KEY]), lake, DEAD_LETTERS, days)
    finally:
        letters.unpersist()
    after = sum(lake.read_day(DEAD_LETTERS, day, names=["message_id"]).num_rows for day in days)
    return StepResult(found, after - before, len(days))


# -- Compaction -------------------------------------------------------------------------------------------------------


def closed_days(lake: Lake, *, today: dt.date) -> list[dt.date]:
    """Return the days with raw batches that are old enough. A later batch is merged by the next run."""
    return [day for day in lake.days(EVENTS) if (today - day).days >= COMPACT_AFTER_DAYS and lake.raw_paths(day)]


def compact(
    spark: Any,
    lake: Lake,
    *,
    today: dt.date,
    days: Sequence[dt.date] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> StepResult:
    """Rewrite closed days as one sorted file each; duplicates of two checkpoints are dropped."""
    rows_in = rows_out = 0
    days = closed_days(lake, today=today) if days is None else days
    for number, day in enumerate(days, 1):
        found, kept = compact_day(spark, lake, day)
        rows_in, rows_out = rows_in + found, rows_out + kept
        on_progress(number, len(days))
    return StepResult(rows_in, rows_out, len(days))


def compact_day(spark: Any, lake: Lake, day: dt.date) -> tuple[int, int]:
    """Compact one day. Old files are removed after the new file was read back and counted."""
    covered = sorted(lake.batches(day))
    source = read_events(spark, lake, [day])
    wanted = source.select(*KEY_OF_EVENT).distinct().count()
    rows = source.count()
    fresh = lake.root / f".fresh-compact-{uuid.uuid4().hex}"
    try:
        unique = source.dropDuplicates([*KEY_OF_EVENT])
        unique.repartition(1).sortWithinPartitions("queue", "task", "entry_id").write.parquet(str(fresh))
        written = spark.read.schema(ddl(EVENTS.columns)).parquet(str(fresh))
        kept, distinct = written.count(), written.select(*KEY_OF_EVENT).distinct().count()
        if not wanted == kept == distinct:
            raise PipelineError(f"compacting {day}: {wanted} events became {kept}; nothing was removed")
        lake.replace_compacted(day, parquet_files(fresh), rows=kept, batches=covered)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return rows, kept
