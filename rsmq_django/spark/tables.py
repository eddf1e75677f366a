"""Reading and writing the tables of the lake with Spark: explicit schemas, whole days."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Any

from .columns import ddl
from .delta import Table
from .files import DataFile, is_local, scan_files, split_batches, write_files
from .schemas import LakeTable

_FILES = "path STRING, dt DATE, rows BIGINT, size BIGINT"


def read_table(spark: Any, table: Table, days: Collection[dt.date]) -> Any:
    """Return the rows of some days. Spark reads the files of this machine, and our tasks those of an object store."""
    schema = ddl(table.definition.columns)
    paths = [file.path for file in table.files_of(days)]
    if not paths:
        return spark.createDataFrame([], schema)
    if is_local(table.uri):
        return spark.read.schema(schema).parquet(*(f"{table.uri}/{path}" for path in paths))
    names = spark.createDataFrame([(path,) for path in paths], "path STRING").repartition(min(len(paths), 200))
    return names.mapInArrow(partial(_read, table.uri, table.definition), schema)


def _read(uri: str, definition: LakeTable, batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for path in batch["path"].to_pylist():
            yield from scan_files(uri, [path], definition.columns)


def write_frame(frame: Any, table: Table) -> list[DataFile]:
    """Write the rows of a frame with a column `dt` as files, which do not count before they are committed."""
    answers = frame.repartition(1).mapInArrow(partial(_write, table.uri, table.definition), _FILES).collect()
    return [DataFile(row["path"], row["dt"], row["rows"], row["size"]) for row in answers]


def _write(uri: str, definition: LakeTable, batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for file in write_files(uri, split_batches(batches, definition.columns), definition.columns):
        row = {"path": [file.path], "dt": [file.day], "rows": [file.rows], "size": [file.size]}
        yield pa.RecordBatch.from_pydict(row)
