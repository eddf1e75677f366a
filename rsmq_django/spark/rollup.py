"""Rollup: events -> five minutes and failure groups, five minutes -> hours. Reads only new files; needs no Spark.

A table that is computed from another one is a reader of its commits. It stores the version of the last commit it has
read as a mark beside its rows, in one commit: so after a crash at any moment, and with several processes at work, each
row is counted once. Days of which new files are already compacted, and all days when the commits are no longer
known, are computed again from their rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

from .delta import EXPIRED, Table
from .files import GROUP_ROWS, DataFile, in_groups, scan_files, write_file
from .lake import Lake, patiently, write_rows
from .schemas import EVENTS, FAILURES, FIVE_MINUTES, HOURLY
from .sums import DEAD, SUMMED, add_up, five_minutes, hours

#: Tables of sums that are held in memory before they are added up, if they are longer than the first one.
MOST_PARTS = 8
#: Failures that are held in memory as dictionaries.
MOST_DICTIONARIES = 10_000
_FAILURE = ("event_at", "event", "queue", "task", "task_id", "worker", "error_type", "error", "fingerprint")
#: Called with the rows that were read, and with all.
OnRows = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a step."""

    rows_in: int = 0
    rows_out: int = 0
    days: int = 0


@dataclass(frozen=True, slots=True)
class News:
    """What a table has not read of its source yet."""

    source: Table
    #: New files of days whose other rows were read.
    added: Mapping[dt.date, list[DataFile]]
    #: Days to compute again from all of their rows.
    again: frozenset[dt.date]

    @property
    def days(self) -> list[dt.date]:
        """Return the days to work on, oldest first."""
        return sorted({*self.added, *self.again})

    @property
    def marks(self) -> dict[str, int]:
        """Return the mark with which a table notes that it has read them."""
        return {self.source.identity: self.source.version}

    @property
    def rows(self) -> int:
        """Return the number of rows to read."""
        return sum(file.rows for day in self.days for file in self.files(day))

    def files(self, day: dt.date) -> list[DataFile]:
        """Return the files to read of a day."""
        return self.source.files_of({day}) if day in self.again else self.added[day]

    def batches(self, day: dt.date, names: Iterable[str], where: Any = None) -> Iterator[Any]:
        """Yield the rows to read of a day as Arrow tables of a quarter of a million rows."""
        import pyarrow as pa

        paths, columns = [file.path for file in self.files(day)], self.source.definition.columns
        for group in in_groups(scan_files(self.source.uri, paths, columns, list(names), where)):
            yield pa.Table.from_batches(group)


def news(source: Table, reader: Table, *, since: dt.date | None = None) -> News | None:
    """Return what `reader` has not read of `source`, or None without a new commit. `since`: these days again.

    Rows that arrive after their day has expired are not counted: the other rows of that day are gone.
    """
    read = reader.mark(source.identity)
    if source.version < 0 or (read == source.version and since is None):
        return None
    files, expired = set(source.files), source.mark(EXPIRED) or 0
    days = {file.day for file in files if file.day.toordinal() > expired}
    found = None if read is None else source.added_since(read)
    if found is None:
        return News(source, {}, frozenset(days))
    new, replaced = found
    again = replaced | {file.day for file in new if file not in files}
    again |= {day for day in days if since is not None and day >= since}
    added: dict[dt.date, list[DataFile]] = {}
    for file in new:
        if file.day not in again and file.day in days:
            added.setdefault(file.day, []).append(file)
    return News(source, added, frozenset(again & days))


def new_events(lake: Lake, reader: Table, since: dt.date | None = None) -> News | None:
    """Return the events that a table has not read, but for those of days that expired in an earlier version.

    That version set no mark. Such a day has hours, no sums, and fewer events than its hours have counted.
    """
    found = news(lake.open(EVENTS), reader, since=since)
    if found is None:
        return None
    hourly = lake.open(HOURLY)
    days = set(found.days).intersection(hourly.days).difference(lake.open(FIVE_MINUTES).days)
    gone = {day for day in days if _has_lost_events(found, day, hourly)}
    added = {day: files for day, files in found.added.items() if day not in gone}
    return replace(found, added=added, again=found.again - gone)


def _has_lost_events(found: News, day: dt.date, hourly: Table) -> bool:
    """Return whether most events of a day that were counted in its hours are gone. Late ones do not count."""
    import pyarrow.compute as pc

    hours = hourly.read({day}, names=["attempts", "released"])
    counted = sum(pc.sum(hours[name]).as_py() or 0 for name in hours.column_names)
    known = found.source.count(day) - sum(file.rows for file in found.added.get(day, ()))
    return bool(known < counted / 2)


def rollup(lake: Lake, *, since: dt.date | None = None, on_rows: OnRows = lambda done, total: None) -> StepResult:
    """Count new events in all tables, and those of all days from `since` on again."""
    patiently(lambda: _count_failures(lake, since))
    counted = patiently(lambda: _count_events(lake, since, on_rows))
    written = patiently(lambda: _sum_hours(lake, since))
    return StepResult(counted.rows if counted else 0, written, len(counted.days) if counted else 0)


def _count_events(lake: Lake, since: dt.date | None, on_rows: OnRows) -> News | None:
    # First, so that a commit of a rollup that read earlier events is refused.
    table = lake.open(FIVE_MINUTES, create=True)
    found = new_events(lake, table, since)
    if found is None:
        return None
    files, done, total = [], 0, found.rows
    for day in found.days:
        parts: list[Any] = []
        for events in found.batches(day, SUMMED, _is_of(day)):
            parts.append(five_minutes(events))
            if len(parts) >= MOST_PARTS and sum(map(len, parts[1:])) > len(parts[0]):
                parts = [add_up(parts)]
            done += len(events)
            on_rows(done, total)
        if parts and len(sums := add_up(parts)):
            files.append(_write(table, day, sums, is_newest=day == found.days[-1]))
    table.commit(files, removed=table.files_of(found.again), marks=found.marks)
    return found


def _is_of(day: dt.date) -> Any:
    """Return the condition that leaves out events of a wrong time, see MOST_AHEAD_S."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    begin, end = (
        pa.scalar(dt.datetime.combine(each, dt.time(), dt.UTC), pa.timestamp("us", tz="UTC"))
        for each in (day, day + dt.timedelta(days=1))
    )
    return (ds.field("event_at") >= begin) & (ds.field("event_at") < end)


def _is_in_hours(hours: Any) -> Any:
    """Return the condition that a five minutes is in one of these hours. Arrow skips parts of files by such ranges."""
    import pyarrow.dataset as ds

    conditions = [
        (ds.field("at") >= hour) & (ds.field("at") < hour + dt.timedelta(hours=1)) for hour in hours.to_pylist()
    ]
    return reduce(or_, conditions)


def _sum_hours(lake: Lake, since: dt.date | None) -> int:
    """Compute the hours again that have new sums of five minutes; return the number of their rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = lake.open(HOURLY, create=True)
    found = news(lake.open(FIVE_MINUTES), table, since=since)
    if found is None:
        return 0
    files, rows_out = [], 0
    for day in found.days:
        parts = []
        if day in found.again:
            sums = found.source.read({day})
        else:
            at = pa.concat_tables(found.batches(day, ["at"]))["at"]
            changed = pc.unique(pc.floor_temporal(at, unit="hour"))
            sums = found.source.read({day}, where=_is_in_hours(changed))
            known = table.read({day})
            parts.append(known.filter(pc.invert(pc.is_in(known["hour"], changed))))
        fresh = hours(sums)
        rows_out += len(fresh)
        files.append(_write(table, day, pa.concat_tables([*parts, fresh]), is_newest=day == found.days[-1]))
    table.commit(files, removed=table.files_of(found.days), marks=found.marks)
    return rows_out


def _write(table: Table, day: dt.date, rows: Any, *, is_newest: bool) -> DataFile:
    group_rows = table.definition.newest_rows if is_newest else GROUP_ROWS
    return write_file(table.uri, day, rows.to_batches(), table.definition.columns, group_rows=group_rows)


# -- Failures ----------------------------------------------------------------------------------------------------------


def _count_failures(lake: Lake, since: dt.date | None) -> None:
    import pyarrow.dataset as ds

    table = lake.open(FAILURES, create=True)
    found = new_events(lake, table, since)
    if found is None:
        return
    days = {}
    for day in found.days:
        known = [] if day in found.again else table.read({day}).to_pylist()
        groups = {_group_of(row): row for row in known}
        for events in found.batches(day, _FAILURE, ds.field("fingerprint").is_valid() & _is_of(day)):
            for batch in events.to_batches(MOST_DICTIONARIES):
                for event in batch.to_pylist():
                    _add_failure(groups, event)
        days[day] = groups.values()
    table.commit(write_rows(table, days), removed=table.files_of(days), marks=found.marks)


def _group_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["task"], row["fingerprint"], row["error_type"]


def _add_failure(groups: dict[tuple[Any, ...], dict[str, Any]], event: Mapping[str, Any]) -> None:
    key, at = _group_of(event), event["event_at"]
    group = groups.get(key)
    if group is None:
        names = ("task", "fingerprint", "error_type")
        group = {name: event[name] for name in names} | {"n": 0, "retried": 0, "dead": 0, "first_at": at, "last_at": at}
        groups[key] = group | {"workers": 0, "queues": [], "worker_names": []}
        group = groups[key]
    group["n"] += 1
    group["retried"] += event["event"] == "retried"
    group["dead"] += event["event"] in DEAD
    group["first_at"] = min(group["first_at"], at)
    if at >= group["last_at"]:
        group |= {"last_at": at, "sample": event["error"], "sample_task_id": event["task_id"]}
    if event["queue"] not in group["queues"]:
        group["queues"] = sorted([*group["queues"], event["queue"]])
    group["worker_names"] = group["worker_names"] or []  # an earlier version stored their number only
    if event["worker"] and event["worker"] not in group["worker_names"]:
        group["worker_names"] = sorted([*group["worker_names"], event["worker"]])
        group["workers"] = max(group["workers"], len(group["worker_names"]))
