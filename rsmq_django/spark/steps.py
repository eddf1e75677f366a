"""The steps other than archive: rollup, analyse, snapshot, dead letters.

Each may be run at any time, twice, or not at all.

A step recomputes and replaces whole days, so it is idempotent. Two that run at once do not undo each other's
changes: the second commit is refused, and made again from what the first one has left.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .anomalies import WEEKS, HourMetrics, find_anomalies
from .burn import PERIOD, PERIOD_S, WINDOWS_S, budget_left, burn, read_objectives
from .capacity import Advice, Demand, advise, arrival_rate_per_s
from .config import JobConfig
from .dead_letters import KEY
from .delta import Table
from .lake import Lake, patiently
from .schemas import ANOMALIES, CAPACITY, DEAD_LETTERS, DEPTH, EVENTS, FAILURES, HOURLY, SLO
from .tables import read_table, write_frame

#: Number of days whose events are used for capacity advice.
DEMAND_DAYS = 7


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step."""

    rows_in: int = 0
    rows_out: int = 0
    days: int = 0


# -- Rollup ------------------------------------------------------------------------------------------------------------


def changed_days(events: Table, hourly: Table, *, since: dt.date | None = None) -> list[dt.date]:
    """Return the days with other events than at their last rollup, or all days from `since` on."""
    if since is not None:
        return [day for day in events.days if day >= since]
    return [day for day in events.days if hourly.mark(_rolled_up(day)) != events.count(day)]


def rollup(spark: Any, lake: Lake, *, since: dt.date | None = None) -> StepResult:
    """Recompute hourly rows and failure groups of changed days, or of all days from `since` on."""
    return patiently(lambda: _rollup(spark, lake, since))


def _rollup(spark: Any, lake: Lake, since: dt.date | None) -> StepResult:
    from .transform.rollup import failures, hourly

    # First, so that a commit of a rollup that read earlier events is refused.
    hours, groups = lake.open(HOURLY, create=True), lake.open(FAILURES, create=True)
    events = lake.open(EVENTS)
    days = changed_days(events, hours, since=since)
    if not days:
        return StepResult()
    rows = read_table(spark, events, days).cache()
    try:
        files = write_frame(failures(rows), groups)
        groups.commit(files, removed=groups.files_of(days), replaces=True)
        # Last: after a crash before it, the days are computed again.
        files = write_frame(hourly(rows), hours)
        marks = {_rolled_up(day): events.count(day) for day in days}
        hours.commit(files, removed=hours.files_of(days), marks=marks, replaces=True)
    finally:
        rows.unpersist()
    return StepResult(sum(events.count(day) for day in days), sum(file.rows for file in files), len(days))


def _rolled_up(day: dt.date) -> str:
    """Return the mark with the number of events of a day at its last rollup."""
    return f"events of {day.isoformat()}"


# -- Analysis ----------------------------------------------------------------------------------------------------------


def analyse(spark: Any, config: JobConfig, *, since: dt.date | None = None) -> StepResult:
    """Compute capacity advice, burn rates and anomalies up to the newest event."""
    lake = config.find_lake()
    events = lake.open(EVENTS)
    days = events.days
    if not days:
        return StepResult()
    newest = days[-1]
    rows = read_table(spark, events, _last(days, DEMAND_DAYS))
    advice = capacity(rows, config)
    rows_out = lake.write_day(CAPACITY, newest, map(_capacity_row, advice))
    rows_out += _write_burns(spark, lake, config, events)
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


def _write_burns(spark: Any, lake: Lake, config: JobConfig, table: Table) -> int:
    from pyspark.sql import functions as F

    from .transform.demand import counted, outcomes

    objectives = read_objectives(config.objectives)
    if not objectives:
        return 0
    events = read_table(spark, table, _last(table.days, PERIOD_S // 86_400 + 1))
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

    def replace_this_hour(known: Table) -> dict[dt.date, list[dict[str, Any]]]:
        earlier = [row for row in known.read({at.date()}).to_pylist() if row["at"] < hour]
        return {at.date(): [*earlier, *burns]}

    return lake.change_days(SLO, replace_this_hour)


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
    hourly = lake.open(HOURLY)
    days = hourly.days
    wanted = [day for day in days if (day >= since if since else day > days[-1] - dt.timedelta(days=2))]
    if not wanted:
        return 0
    first = wanted[0] - dt.timedelta(weeks=WEEKS)
    rows = (HourMetrics.of(row) for day in days if first <= day for row in hourly.read({day}).to_pylist())
    found = find_anomalies(rows, wanted)
    fresh = {day: [asdict(item) for item in found if item.hour.date() == day] for day in wanted}
    return lake.change_days(ANOMALIES, lambda _: fresh)


def _last(days: Sequence[dt.date], count: int) -> list[dt.date]:
    """Return the days up to a number of days before the newest one."""
    return [day for day in days if (days[-1] - day).days < count]


# -- Snapshot ----------------------------------------------------------------------------------------------------------


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
    lake.append(DEPTH, at.date(), depths)
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


# -- Dead letters ------------------------------------------------------------------------------------------------------


def archive_dead_letters(spark: Any, config: JobConfig, *, queues: Sequence[str] = ()) -> StepResult:
    """Add the current dead letters to the archive; rows out are the new ones."""
    from pyspark.sql import functions as F

    letters = spark.read.format("rsmq").options(**config.options(kind="dead", queue=",".join(queues))).load()
    # Read once, so that the written rows are the counted ones despite concurrent redrives.
    letters = letters.withColumn("dt", F.to_date("died_at")).cache()
    try:
        days = {row["dt"] for row in letters.select("dt").distinct().collect()}
        written = patiently(lambda: _add_letters(spark, config.find_lake(), letters, days))
        return StepResult(letters.count(), written, len(days))
    finally:
        letters.unpersist()


def _add_letters(spark: Any, lake: Lake, letters: Any, days: set[dt.date]) -> int:
    table = lake.open(DEAD_LETTERS, create=True)
    known = read_table(spark, table, days).select(*KEY)
    files = write_frame(letters.join(known, [*KEY], "left_anti").dropDuplicates([*KEY]), table)
    table.commit(files, replaces=True)
    return sum(file.rows for file in files)
