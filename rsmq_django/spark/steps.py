"""The steps other than archive and rollup: analyse, snapshot, dead letters.

Each may be run at any time, twice, or not at all. Two that run at once do not undo each other's changes: the second
commit is refused, and made again from what the first one has left.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .anomalies import WEEKS, HourMetrics, find_anomalies
from .burn import PERIOD, WINDOWS_S, budget_left, burn, read_objectives
from .capacity import Advice, advise
from .config import JobConfig
from .dead_letters import KEY
from .delta import Table
from .demand import demands, newest, outcomes
from .lake import Lake, patiently
from .rollup import StepResult
from .schemas import ANOMALIES, CAPACITY, DEAD_LETTERS, DEPTH, FIVE_MINUTES, HOURLY, SLO
from .tables import read_table, write_frame

#: Number of days whose attempts are used for capacity advice.
DEMAND_DAYS = 7


# -- Analysis ----------------------------------------------------------------------------------------------------------


def analyse(config: JobConfig, *, since: dt.date | None = None) -> StepResult:
    """Compute capacity advice, burn rates and anomalies up to the newest event, from its sums. Needs no Spark."""
    lake = config.find_lake()
    sums = lake.open(FIVE_MINUTES)
    at = newest(sums)
    if at is None:
        return StepResult()
    days = [day for day in sums.days if 0 <= (at.date() - day).days < DEMAND_DAYS]
    advice = [
        advise(demand, wait_target_s=config.wait_target_s(demand.queue), quantile=config.wait_quantile)
        for demand in demands(sums, days, slots_per_worker=config.slots_per_worker, wait_quantile=config.wait_quantile)
    ]
    rows_out = lake.write_day(CAPACITY, at.date(), map(_capacity_row, advice))
    rows_out += _write_burns(lake, config, sums, at)
    rows_out += write_anomalies(lake, until=at.date(), since=since)
    return StepResult(sum(item.demand.attempts for item in advice), rows_out, 1)


def _capacity_row(advice: Advice) -> dict[str, Any]:
    row = asdict(advice)
    demand = row.pop("demand")
    return {column.name: (row | demand)[column.name] for column in CAPACITY.columns}


def _write_burns(lake: Lake, config: JobConfig, sums: Table, at: dt.datetime) -> int:
    objectives = read_objectives(config.objectives)
    if not objectives:
        return 0
    found = outcomes(sums, objectives, at)
    burns = []
    for objective in objectives:
        total, bad = found[objective, PERIOD]
        left = budget_left(objective, total=total, bad=bad)
        for window in WINDOWS_S:
            total, bad = found[objective, window]
            burns.append(_burn_row(at, objective, burn(objective, window, total=total, bad=bad), left))
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


def write_anomalies(lake: Lake, *, until: dt.date, since: dt.date | None = None) -> int:
    """Detect anomalies on the last two days until a day, or on all from `since` on. Needs no Spark."""
    hourly = lake.open(HOURLY)
    days = [day for day in hourly.days if day <= until]
    wanted = [day for day in days if (day >= since if since else day > days[-1] - dt.timedelta(days=2))]
    if not wanted:
        return 0
    first = wanted[0] - dt.timedelta(weeks=WEEKS)
    rows = (HourMetrics.of(row) for day in days if first <= day for row in _hours(hourly, day))
    found = find_anomalies(rows, wanted)
    fresh = {day: [asdict(item) for item in found if item.hour.date() == day] for day in wanted}
    return lake.change_days(ANOMALIES, lambda _: fresh)


def _hours(hourly: Table, day: dt.date) -> list[dict[str, Any]]:
    """Return the hourly rows of a day, with histograms only if it was written before percentiles were columns."""
    histograms = ("wait_hist", "run_hist")
    names = [column.name for column in hourly.definition.columns if column.name not in histograms]
    rows = hourly.read({day}, names=names)
    has_percentiles = any(rows[name].null_count < len(rows) for name in ("wait_p95_us", "run_p95_us"))
    found: list[dict[str, Any]] = (rows if has_percentiles else hourly.read({day})).to_pylist()
    return found


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
