"""Parquet files of the lake, on a path of this machine or in an object store.

A file does not count before it is committed to its table (delta.py): that of a crashed task is in no commit, and is
removed by a later `expire`.
"""

from __future__ import annotations

import datetime as dt
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .columns import Column, Rows, arrow_schema
from .durable import sync
from .errors import PipelineError

#: A third smaller than with Spark's default, at the same cost.
COMPRESSION = "zstd"
EPOCH = dt.date(1970, 1, 1)
DAY_US = 86_400_000_000
#: Later than all times.
NEVER_US = 2**63
#: Rows of a row group, and rows that are held in memory to be written.
GROUP_ROWS = 250_000
#: Options of deltalake for an object store that must answer soon; its own are three minutes for each request.
SOON = {"connect_timeout": "3s", "timeout": "5s", "max_retries": "1"}

_storage_options: ContextVar[dict[str, str] | None] = ContextVar("rsmq_storage_options", default=None)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file with rows of one day; `path` is relative to the table."""

    path: str
    day: dt.date
    rows: int
    size: int
    #: Time of the commit that added it; 0: not known.
    added_ms: int = field(default=0, compare=False)


def is_local(uri: str) -> bool:
    """Return whether a lake or table is a path of this machine."""
    return "://" not in uri


@contextmanager
def answered_soon() -> Iterator[None]:
    """Give up an object store that does not answer a request within ten seconds, with PipelineError: a page waits."""
    token = _storage_options.set(SOON)
    try:
        yield
    finally:
        _storage_options.reset(token)


def storage_options() -> dict[str, str] | None:
    """Return the options for object stores, beside the variables of the storage."""
    return _storage_options.get()


def file_system(uri: str) -> Any:
    """Return the Arrow file system whose root is a table. Object stores get options and credentials from variables."""
    from pyarrow import fs

    if is_local(uri):
        return fs.SubTreeFileSystem(uri, fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return fs.PyFileSystem(DeltaStorageHandler(uri, storage_options()))


def write_files(uri: str, parts: Iterable[tuple[dt.date, Any]], schema: Iterable[Column]) -> list[DataFile]:
    """Write Arrow batches as one file for each day. Holds all of them in memory."""
    days: dict[dt.date, list[Any]] = {}
    for day, batch in parts:
        days.setdefault(day, []).append(batch)
    return [write_file(uri, day, batches, schema) for day, batches in days.items()]


def write_file(
    uri: str,
    day: dt.date,
    batches: Iterable[Any],
    schema: Iterable[Column],
    *,
    sort_by: str = "",
    group_rows: int = GROUP_ROWS,
) -> DataFile:
    """Write one file, and bring it to the disk. Rows are sorted within each row group, so memory is bounded."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted, files, rows = arrow_schema(schema), file_system(uri), 0
    path = f"dt={day.isoformat()}/{uuid.uuid4().hex}.parquet"
    if is_local(uri):
        (Path(uri) / path).parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, wanted, filesystem=files, compression=COMPRESSION) as writer:
        for group in in_groups(batches):
            table = pa.Table.from_batches(group).cast(wanted)
            writer.write_table(table.sort_by(sort_by) if sort_by else table, row_group_size=group_rows)
            rows += sum(batch.num_rows for batch in group)
    if is_local(uri):
        sync(Path(uri) / path)  # here: only the machine that wrote the file can sync it to disk
    return DataFile(path, day, rows, files.get_file_info(path).size)


def in_groups(batches: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield lists of Arrow batches with a quarter of a million rows, and the rest."""
    group: list[Any] = []
    for batch in batches:
        group.append(batch)
        if sum(part.num_rows for part in group) >= GROUP_ROWS:
            yield group
            group = []
    if group:
        yield group


def split_rows(
    tables: Iterable[Rows], schema: Iterable[Column], *, time: str, now_us: int = NEVER_US, most_ahead_s: int = 0
) -> Iterator[tuple[dt.date, Any]]:
    """Yield rows as Arrow batches of one day each. The column `time` must ascend.

    Rows that are later than `now_us` by more than `most_ahead_s` are of the day of `now_us`.
    """
    import pyarrow as pa

    wanted = arrow_schema(schema)
    for table in tables:
        batch = pa.RecordBatch.from_pydict(table, schema=wanted)
        right = bisect_right(table[time], now_us + most_ahead_s * 1_000_000)
        for day, begin, end in _days(table[time][:right]):
            yield day, batch.slice(begin, end - begin)
        if right < batch.num_rows:
            yield EPOCH + dt.timedelta(days=now_us // DAY_US), batch.slice(right)


def split_batches(batches: Iterable[Any], schema: Iterable[Column]) -> Iterator[tuple[dt.date, Any]]:
    """Yield the rows of batches with a column `dt` as batches of one day each."""
    import pyarrow.compute as pc

    names = [column.name for column in schema]
    for batch in batches:
        for day in pc.unique(batch["dt"]).to_pylist():
            yield day, batch.filter(pc.equal(batch["dt"], day)).select(names)


def _days(times_us: Sequence[int]) -> Iterator[tuple[dt.date, int, int]]:
    """Yield each day with the start and end of its rows."""
    begin = 0
    while begin < len(times_us):
        number = times_us[begin] // DAY_US
        end = bisect_left(times_us, (number + 1) * DAY_US, begin)
        yield EPOCH + dt.timedelta(days=number), begin, end
        begin = end


def read_files(
    uri: str, paths: Sequence[str], schema: Iterable[Column], names: Iterable[str] | None = None, where: Any = None
) -> Any:
    """Return the rows of files of a table as an Arrow table; columns that a file does not have are null."""
    import pyarrow as pa

    wanted = arrow_schema(schema)
    columns = list(names) if names is not None else wanted.names
    if not paths:
        return pa.schema([wanted.field(name) for name in columns]).empty_table()
    with _named(uri):
        return _dataset(uri, paths, wanted).to_table(columns=columns, filter=where)


def scan_files(
    uri: str,
    paths: Sequence[str],
    schema: Iterable[Column],
    names: Sequence[str] | None = None,
    where: Any = None,
) -> Iterator[Any]:
    """Yield the rows of files as Arrow batches."""
    wanted = arrow_schema(schema)
    options: dict[str, Any] = {"batch_size": 65_536, "columns": names, "filter": where}
    with _named(uri):
        files = _dataset(uri, paths, wanted)
        if not is_local(uri):  # Arrow reads ahead, because each read has the latency of a request
            yield from files.to_batches(**options)
            return
        for fragment in files.get_fragments():
            for part in fragment.split_by_row_group():  # else Arrow reads ahead without a limit
                yield from part.to_batches(schema=wanted, **options)


def row_groups(uri: str, paths: Sequence[str], schema: Iterable[Column], where: Any) -> Iterator[Any]:
    """Yield the row groups of files that may have rows for which an expression of Arrow is true.

    Only the ends of the files are read, which have the least and the greatest value of each column.
    """
    wanted = arrow_schema(schema)
    with _named(uri):
        for fragment in _dataset(uri, paths, wanted).get_fragments():
            yield from fragment.split_by_row_group(where, schema=wanted)


def read_row_group(uri: str, group: Any, schema: Iterable[Column], where: Any, *, batch_rows: int) -> Iterator[Any]:
    """Yield the wanted rows of a row group as small Arrow tables.

    Not by a scan of a data set, which holds whole columns: a quarter of a million rows would take 100 MB.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted, number = arrow_schema(schema), [part.id for part in group.row_groups]
    with _named(uri), file_system(uri).open_input_file(group.path) as content:
        file = pq.ParquetFile(content, pre_buffer=not is_local(uri))  # an object store has a latency for each read
        names = [name for name in wanted.names if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_rows, row_groups=number, columns=names, use_threads=False):
            rows = pa.Table.from_batches([batch])
            for name in set(wanted.names) - set(names):
                rows = rows.append_column(name, pa.nulls(rows.num_rows, wanted.field(name).type))
            yield rows.select(wanted.names).cast(wanted).filter(where)


@contextmanager
def _named(uri: str) -> Iterator[None]:
    """Raise PipelineError with the table and the next step for a file that cannot be read."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, FileNotFoundError) as error:
        raise PipelineError(
            f"a file of {uri} is missing or damaged ({error}); restore it from a backup, or for all but events run: "
            "rollup --since DAY"
        ) from error


def _dataset(uri: str, paths: Sequence[str], schema: Any) -> Any:
    import pyarrow.dataset as ds

    return ds.dataset(list(paths), schema=schema, format="parquet", filesystem=file_system(uri))
