"""Statistics of days, weeks and four weeks, so that a year of many tasks is few rows. Publishing a day keeps them.

A row of seven or 28 days is the sum of the rows of its days, so it is incomplete while the last of them are. There are
rows of each task in each queue, and for single days also of all tasks of a queue, and of all tasks.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .models import ALL, TaskDay

#: Number of days of a row, the longest last. Each is a multiple of the one before.
LENGTHS = (1, 7, 28)
#: The database keeps hours for this number of days, and days for as long as the lake has the hours.
KEEP_HOURS_DAYS = 90
COUNTS = (
    "attempts", "first_attempts", "succeeded", "retried", "dead", "released", "lost", "cancelled", "busy_us",
    "run_s_squared", "body_bytes",
)  # fmt: skip
HISTOGRAMS = ("wait_hist", "run_hist")
VALUES = (*COUNTS, *HISTOGRAMS, "workers")
BATCH_ROWS = 500

Row = Mapping[str, Any]


def write_day(database: str, day: dt.date, hours: Iterable[Row]) -> None:
    """Replace the rows of a day with the sums of its hours, and the rows of longer times with it. In a transaction."""
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for hour in hours:
        for key in ((hour["queue"], hour["task"]), (hour["queue"], ALL), (ALL, ALL)):
            add(sums.setdefault(key, {}), hour)
    _replace(database, day, 1, sums)
    for shorter, length in zip(LENGTHS, LENGTHS[1:], strict=False):
        begin = begin_of(day, length)
        parts = TaskDay.objects.using(database).filter(
            days=shorter, day__gte=begin, day__lt=begin + dt.timedelta(days=length)
        )
        sums = {}
        for part in parts.exclude(task=ALL).values("queue", "task", *VALUES).iterator():
            add(sums.setdefault((part["queue"], part["task"]), {}), part)
        _replace(database, begin, length, sums)


def cover(begin: dt.date, end: dt.date) -> Iterator[tuple[int, dt.date]]:
    """Yield the lengths and begins of the fewest rows that cover the days from `begin` to before `end`."""
    while begin < end:
        fits = [
            length
            for length in LENGTHS
            if begin_of(begin, length) == begin and begin + dt.timedelta(days=length) <= end
        ]
        yield fits[-1], begin
        begin += dt.timedelta(days=fits[-1])


def begin_of(day: dt.date, length: int) -> dt.date:
    """Return the begin of the row of this length that has the day. Rows of a week begin on Mondays."""
    return day - dt.timedelta(days=(day.toordinal() - 1) % length)


def add(total: dict[str, Any], row: Row) -> None:
    """Add a row to a sum, which begins empty."""
    for name in COUNTS:
        total[name] = total.get(name, 0) + row[name]
    for name in HISTOGRAMS:
        counts = total.setdefault(name, {})
        for bucket, count in row[name].items():
            counts[bucket] = counts.get(bucket, 0) + count
    total["workers"] = max(total.get("workers", 0), row["workers"])


def _replace(database: str, day: dt.date, days: int, sums: Mapping[tuple[str, str], Row]) -> None:
    rows = TaskDay.objects.using(database)
    rows.filter(day=day, days=days).delete()
    found = [TaskDay(day=day, days=days, queue=queue, task=task, **row) for (queue, task), row in sums.items()]
    rows.bulk_create(found, batch_size=BATCH_ROWS)
