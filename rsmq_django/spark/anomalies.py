"""Anomalies: hours that differ from the same hour of other weeks. Plain Python on hourly rows.

The measure is the modified z-score: the distance from the median in units of the median absolute deviation, which is
robust against outliers.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..core.stats.histogram import Histogram

#: Makes the deviation comparable with a standard deviation.
SCALE = 0.6745
LEAST_Z = 6.0
#: Hours with fewer attempts are ignored.
LEAST_N = 30
#: With no deviation at all, only a change by half counts.
LEAST_CHANGE = 0.5
WEEKS = 8
#: With fewer weeks of data, the same hour of other days is compared.
WEEKS_FOR_WEEKDAYS = 4
LEAST_HISTORY = 4
METRICS = ("attempts", "failure_rate", "wait_p95", "run_p95")

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class HourMetrics:
    """The compared metrics of an hourly row. Unlike the histograms, eight weeks of them fit into memory."""

    hour: dt.datetime
    queue: str
    task: str
    attempts: int
    #: Metric -> value; None where nothing ran.
    values: Mapping[str, float | None]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> HourMetrics:
        """Return the metrics of an hourly row."""
        values = {metric: metric_of(row, metric) for metric in METRICS}
        return cls(row["hour"], row["queue"], row["task"], row["attempts"], values)


@dataclass(frozen=True, slots=True)
class AnomalousHour:
    """One metric of one hour."""

    hour: dt.datetime
    queue: str
    task: str
    metric: str
    value: float
    median: float
    mad: float
    #: Infinite where there was no deviation at all.
    z: float
    n: int


def find_anomalies(rows: Iterable[HourMetrics], days: Iterable[dt.date]) -> list[AnomalousHour]:
    """Return the anomalies of these days, from their hours and those of the eight weeks before."""
    wanted, history = set(days), dict[Key, dict[dt.datetime, HourMetrics]]()
    for row in rows:
        history.setdefault((row.queue, row.task), {})[row.hour] = row
    found = []
    for key, hours in history.items():
        for hour, row in sorted(hours.items()):
            if hour.date() in wanted and row.attempts >= LEAST_N:
                found += _odd_metrics(key, hour, row, _comparable(hours, hour))
    return found


def _comparable(hours: Mapping[dt.datetime, HourMetrics], hour: dt.datetime) -> list[HourMetrics]:
    first = min(hours)
    has_weeks = hour - first >= dt.timedelta(weeks=WEEKS_FOR_WEEKDAYS)
    step, count = (dt.timedelta(weeks=1), WEEKS) if has_weeks else (dt.timedelta(days=1), 7 * WEEKS)
    return [hours[hour - step * back] for back in range(1, count + 1) if hour - step * back in hours]


def _odd_metrics(key: Key, hour: dt.datetime, row: HourMetrics, others: list[HourMetrics]) -> list[AnomalousHour]:
    found = []
    for metric in METRICS:
        value = row.values[metric]
        past = [known for other in others if (known := other.values[metric]) is not None]
        if value is None or len(past) < LEAST_HISTORY:
            continue
        middle = median(past)
        mad = median(abs(known - middle) for known in past)
        z = _z_score(value, middle, mad)
        if abs(z) > LEAST_Z:
            found.append(AnomalousHour(hour, *key, metric, value, middle, mad, z, row.attempts))
    return found


def _z_score(value: float, middle: float, mad: float) -> float:
    if mad > 0:
        return SCALE * (value - middle) / mad
    # For a queue without failures so far, half a per cent of failures is an infinite change.
    if abs(value - middle) <= LEAST_CHANGE * max(abs(middle), 0.01):
        return 0.0
    return float("inf") if value > middle else float("-inf")


def metric_of(row: Mapping[str, Any], metric: str) -> float | None:
    """Return a metric of an hourly row; None where nothing ran."""
    if metric == "attempts":
        return float(row["attempts"])
    if metric == "failure_rate":
        return (row["retried"] + row["dead"] + row["lost"]) / row["attempts"] if row["attempts"] else None
    if f"{metric}_us" in row and row[f"{metric}_us"] is not None:
        return float(row[f"{metric}_us"])
    histogram = row.get("wait_hist" if metric == "wait_p95" else "run_hist")
    return Histogram(dict(histogram or {})).quantile_us(0.95)
