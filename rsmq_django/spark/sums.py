"""Sums of events, for Arrow tables: events -> five minutes -> hours. Sums of the same key are added in any order.

A key of the table `five_minutes` is the five minutes, queue, task, kind of event, and whether it was a first attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..core.stats.histogram import LOG_GROWTH, Histogram
from .columns import arrow_schema
from .schemas import FIVE_MINUTES, HOURLY

SLOT_US = 300_000_000
HOUR_US = 3_600_000_000
OUTCOMES = ("succeeded", "retried", "dead", "released", "lost", "cancelled")
#: Events of permanent failures, stored as dead letters or discarded; they count as dead.
DEAD = ("dead", "discarded")

_KEY = ("at", "queue", "task", "event", "is_first")
_HOUR_KEY = ("hour", "queue", "task")
_SUMS = ("n", "runs", "run_us", "run_s_squared", "body_bytes")
_MAPS = ("wait_hist", "run_hist", "arrivals")
#: Columns of events that are summed.
SUMMED = ("event_at", "queue", "task", "event", "attempt", "enqueued_at", "wait_us", "run_us", "body_bytes", "worker")


def five_minutes(events: Any) -> Any:
    """Return the sums of events.

    `arrivals` counts messages by how many times five minutes they arrived before the event. A first attempt arrives
    when its message is sent: with a backlog, the times of attempts show the capacity of workers and not the demand. A
    retry arrives when it is attempted, and a released delivery does not arrive.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    slot = _floor(events["event_at"], SLOT_US)
    is_first = pc.fill_null(pc.equal(events["attempt"], 1), False)
    sent = pc.if_else(is_first, pc.coalesce(events["enqueued_at"], events["event_at"]), events["event_at"])
    ago = pc.divide(pc.subtract(slot, _floor(sent, SLOT_US)), SLOT_US).cast(pa.int32())
    released = pc.equal(events["event"], "released")
    run_s = pc.divide(events["run_us"].cast(pa.float64()), 1e6)
    rows = pa.table(
        {
            "at": slot,
            "queue": events["queue"],
            "task": events["task"],
            "event": events["event"],
            "is_first": is_first,
            "n": pa.repeat(pa.scalar(1, pa.int64()), len(events)),
            "runs": pc.is_valid(events["run_us"]).cast(pa.int64()),
            "run_us": events["run_us"],
            "run_s_squared": pc.multiply(run_s, run_s),
            "body_bytes": events["body_bytes"],
        }
    )
    groups = _Groups(rows, _KEY)
    maps = {
        "wait_hist": groups.counted(groups.of_row, _bucket(events["wait_us"])),
        "run_hist": groups.counted(groups.of_row, _bucket(events["run_us"])),
        "arrivals": groups.counted(groups.of_row, pc.if_else(released, None, ago)),
        "workers": groups.collected(groups.of_row, events["worker"]),
    }
    return _in_order(FIVE_MINUTES, groups.sums(_SUMS), maps)


def add_up(parts: Iterable[Any]) -> Any:
    """Return the sums of tables of sums: one row for each key. Hour by hour, for the memory."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.concat_tables(list(parts))
    hour = pc.divide(rows["at"].cast(pa.int64()), HOUR_US)
    added = [_added_up(rows.filter(pc.equal(hour, each))) for each in pc.unique(hour)]
    return pa.concat_tables(added) if added else rows


def _added_up(rows: Any) -> Any:
    groups = _Groups(rows, _KEY)
    maps = {name: groups.counted(*_entries(groups.of_row, rows[name])) for name in _MAPS}
    maps["workers"] = groups.collected(*_elements(groups.of_row, rows["workers"]))
    return _in_order(FIVE_MINUTES, groups.sums(_SUMS), maps)


def hours(rows: Any) -> Any:
    """Return the hourly rows of sums of five minutes. A released delivery is counted as such, and not as an attempt."""
    import pyarrow as pa
    import pyarrow.compute as pc

    none = pa.scalar(0, pa.int64())

    def counted(where: Any) -> Any:
        return pc.if_else(where, rows["n"], none)

    is_attempt = pc.not_equal(rows["event"], "released")
    columns = {
        "hour": _floor(rows["at"], HOUR_US),
        "queue": rows["queue"],
        "task": rows["task"],
        "attempts": counted(is_attempt),
        "first_attempts": counted(pc.and_(is_attempt, rows["is_first"])),
        **{outcome: counted(pc.is_in(rows["event"], pa.array(_events(outcome)))) for outcome in OUTCOMES},
        "busy_us": rows["run_us"],
        "run_s_squared": rows["run_s_squared"],
        "body_bytes": rows["body_bytes"],
    }
    groups = _Groups(pa.table(columns), _HOUR_KEY)
    maps = {name: groups.counted(*_entries(groups.of_row, rows[name])) for name in ("wait_hist", "run_hist")}
    workers = groups.collected(*_elements(groups.of_row, rows["workers"]))
    maps["workers"] = pc.list_value_length(workers)
    for metric in ("wait", "run"):
        found = [Histogram(dict(counts)).quantile_us(0.95) for counts in maps[f"{metric}_hist"].to_pylist()]
        maps[f"{metric}_p95_us"] = pa.array(found, pa.float64())
    return _in_order(HOURLY, groups.sums([name for name in columns if name not in _HOUR_KEY]), maps)


def by_key(rows: Any, keys: Sequence[str], sums: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the sums of columns for each key."""
    found = rows.group_by(list(keys)).aggregate([(name, "sum") for name in sums])
    yield from found.rename_columns([name.removesuffix("_sum") for name in found.column_names]).to_pylist()


def entries(rows: Any, name: str, keys: Sequence[str]) -> Any:
    """Return a row with `key` and `n` for each entry of a column of maps, and the columns of the row that has it."""
    import pyarrow as pa

    parents, found, counts = _entries(pa.array(range(len(rows)), pa.int64()), rows[name])
    return rows.select(list(keys)).take(parents).append_column("key", found).append_column("n", counts)


def elements(rows: Any, name: str, keys: Sequence[str]) -> Any:
    """Return a row with `key` for each element of a column of lists, and the columns of the row that has it."""
    import pyarrow as pa

    parents, found = _elements(pa.array(range(len(rows)), pa.int64()), rows[name])
    return rows.select(list(keys)).take(parents).append_column("key", found)


class _Groups:
    """The groups of rows with the same key, numbered from 0."""

    def __init__(self, rows: Any, keys: Sequence[str]) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self.rows, self.keys = rows, keys
        wide = pa.large_string()  # all keys of a group may be longer than 2 GB together
        texts = [_combined(rows[name].cast(pa.int64()) if name in ("at", "hour") else rows[name]) for name in keys]
        joined = pc.binary_join_element_wise(*(text.cast(wide) for text in texts), pa.scalar("\0", wide))
        encoded = joined.dictionary_encode()
        #: The number of the group of each row.
        self.of_row = encoded.indices
        self.count = len(encoded.dictionary)

    def sums(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the keys, and the sums of columns, of each group."""
        wanted = [(name, "one") for name in self.keys] + [(name, "sum") for name in names]
        found = self.rows.append_column("group", self.of_row).group_by("group").aggregate(wanted).sort_by("group")
        zero = {name: 0.0 if name == "run_s_squared" else 0 for name in names}
        return {name: found[f"{name}_one"] for name in self.keys} | {
            name: found[f"{name}_sum"].fill_null(zero[name]) for name in names
        }

    def counted(self, of_entry: Any, values: Any, counts: Any = None) -> Any:
        """Return for each group a map from value to count. Null is no value."""
        import pyarrow as pa

        counts = pa.repeat(pa.scalar(1, pa.int64()), len(values)) if counts is None else counts
        offsets, found, sums = self._lists(of_entry, values, counts)
        return pa.MapArray.from_arrays(offsets, found, sums)

    def collected(self, of_entry: Any, values: Any) -> Any:
        """Return for each group the list of its different values. Null is no value."""
        import pyarrow as pa

        offsets, found, _ = self._lists(of_entry, values, pa.repeat(pa.scalar(1, pa.int64()), len(values)))
        return pa.ListArray.from_arrays(offsets, found)

    def _lists(self, of_entry: Any, values: Any, counts: Any) -> tuple[Any, Any, Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = pa.table({"group": of_entry, "value": _combined(values), "n": _combined(counts)})
        rows = rows.filter(pc.is_valid(rows["value"])).group_by(["group", "value"]).aggregate([("n", "sum")])
        rows = rows.sort_by([("group", "ascending"), ("value", "ascending")])
        sizes = pc.value_counts(_combined(rows["group"]))
        # Groups without a value have no entry in sizes.
        lengths = pa.table({"group": sizes.field("values"), "size": sizes.field("counts")})
        missing = pa.table(
            {"group": pa.array(range(self.count), pa.int32()), "size": pa.repeat(pa.scalar(0, pa.int64()), self.count)}
        )
        lengths = pa.concat_tables([lengths, missing]).group_by("group").aggregate([("size", "sum")]).sort_by("group")
        ends = pc.cumulative_sum(_combined(lengths["size_sum"]))
        offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())
        return offsets, _combined(rows["value"]), _combined(rows["n_sum"])


def _events(outcome: str) -> tuple[str, ...]:
    return DEAD if outcome == "dead" else (outcome,)


def _floor(times: Any, step_us: int) -> Any:
    """Return times as whole steps, in microseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.multiply(pc.divide(times.cast(pa.int64()), step_us), step_us)


def _bucket(durations_us: Any) -> Any:
    """Return the bucket of each duration (core.stats.histogram.bucket_of)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at_least_one = pc.max_element_wise(durations_us, 1, skip_nulls=False).cast(pa.float64())
    return pc.ceil(pc.divide(pc.ln(at_least_one), LOG_GROWTH)).cast(pa.int32())


def _entries(of_row: Any, maps: Any) -> tuple[Any, Any, Any]:
    """Return group, key and count of each entry of maps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = _combined(maps)
    keys = pa.ListArray.from_arrays(column.offsets, column.keys)
    counts = pa.ListArray.from_arrays(column.offsets, column.items)
    return of_row.take(pc.list_parent_indices(keys)), keys.flatten(), counts.flatten()


def _elements(of_row: Any, lists: Any) -> tuple[Any, Any]:
    import pyarrow.compute as pc

    column = _combined(lists)
    return of_row.take(pc.list_parent_indices(column)), column.flatten()


def _combined(column: Any) -> Any:
    """Return a column in one piece."""
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _in_order(table: Any, *columns: Mapping[str, Any]) -> Any:
    """Return an Arrow table with the columns of a table of the lake."""
    import pyarrow as pa

    found = {name: column for part in columns for name, column in part.items()}
    wanted = arrow_schema(table.columns)
    return pa.table({name: found[name] for name in wanted.names}).cast(wanted)
