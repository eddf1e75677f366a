"""Events -> the inputs of capacity advice and service objectives: a few rows for each queue."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import functions as F

from ..burn import PERIOD, PERIOD_S, WINDOWS_S, Objective
from ..capacity import ARRIVAL_SLOT_S
from .rollup import DEAD

#: Hours with fewer runs have no mean worth comparing.
_LEAST_RUNS_OF_AN_HOUR = 30


def run_times(events: Any) -> Any:
    """Return for each queue: attempts, mean and variance of the run times in seconds, hours, and observed workers."""
    run_s = F.col("run_us") / 1e6
    return events.groupBy("queue").agg(
        F.count_if(F.col("event") != "released").alias("attempts"),
        F.coalesce(F.avg(run_s), F.lit(0.0)).alias("mean_run_s"),
        F.coalesce(F.var_pop(run_s), F.lit(0.0)).alias("variance"),
        F.count_distinct(F.date_trunc("hour", "event_at")).alias("hours"),
        F.count_distinct("worker").alias("workers"),
        F.min("event_at").alias("first_at"),
        F.max("event_at").alias("last_at"),
    )


def run_time_spreads(events: Any) -> Any:
    """Return for each queue the spread of the mean run times of its hours: longest over shortest."""
    hours = events.where("run_us IS NOT NULL").groupBy("queue", F.date_trunc("hour", "event_at").alias("hour"))
    means = hours.agg(F.avg("run_us").alias("mean_us"), F.count("*").alias("runs"))
    means = means.where((F.col("runs") >= _LEAST_RUNS_OF_AN_HOUR) & (F.col("mean_us") > 0))
    return means.groupBy("queue").agg((F.max("mean_us") / F.min("mean_us")).alias("spread"))


def arrivals(events: Any) -> Any:
    """Return the number of messages that arrived for each queue in each slot of five minutes.

    A first attempt arrives when its message is sent: with a backlog, the times of attempts show the capacity of workers
    and not the demand. A retry arrives when it is attempted.
    """
    counted = events.where("event <> 'released'")
    at = F.when(F.col("attempt") == 1, F.coalesce("enqueued_at", "event_at")).otherwise(F.col("event_at"))
    slot = F.floor(F.unix_timestamp(at) / ARRIVAL_SLOT_S).alias("slot")
    return counted.groupBy("queue", slot).agg(F.count("*").alias("arrivals"))


def outcomes(events: Any, objectives: Iterable[Objective], at: dt.datetime) -> Any:
    """Return for each queue the total and the bad outcomes of each objective and window before `at`."""
    age_s = F.lit(at.timestamp()) - F.col("event_at").cast("double")
    sums = []
    for objective in objectives:
        counts, is_bad = _judged(objective)
        counts = counts & (F.col("queue") == objective.queue)
        for window, seconds in (WINDOWS_S | {PERIOD: PERIOD_S}).items():
            in_window = (age_s >= 0) & (age_s < seconds) & counts
            sums.append(F.count_if(in_window).alias(_column(objective, window, "total")))
            sums.append(F.count_if(in_window & is_bad).alias(_column(objective, window, "bad")))
    return events.agg(*sums)


def counted(row: Mapping[str, int], objective: Objective, window: str) -> tuple[int, int]:
    """Return total and bad of an objective from the row of outcomes()."""
    return row[_column(objective, window, "total")], row[_column(objective, window, "bad")]


def _column(objective: Objective, window: str, what: str) -> str:
    return f"{objective.queue}|{objective.name}|{window}|{what}"


def _judged(objective: Objective) -> tuple[Any, Any]:
    """Return which events an objective counts, and which of them are bad. A retry is not a failure."""
    if objective.limit_us is None:
        bad = (*DEAD, "lost")
        return F.col("event").isin("succeeded", *bad), F.col("event").isin(*bad)
    is_counted = (F.col("attempt") == 1) & F.col("wait_us").isNotNull()
    return is_counted, F.col("wait_us") > objective.limit_us
