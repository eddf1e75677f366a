"""Reading and writing the tables of the lake with Spark: explicit schemas, whole days."""

from __future__ import annotations

import datetime as dt
import shutil
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from .columns import ddl
from .durable import replace_directory
from .lake import Lake
from .schemas import EVENTS, LakeTable


def read_events(spark: Any, lake: Lake, days: Iterable[dt.date]) -> Any:
    """Return the events of some days, each once, compacted or not."""
    return _read(spark, EVENTS, [path for day in days for path in lake.event_paths(day)])


def read_days(spark: Any, lake: Lake, table: LakeTable, days: Iterable[dt.date]) -> Any:
    """Return the rows of some days of a table other than events."""
    return _read(spark, table, [path for day in days if (path := lake.day_path(table, day)).exists()])


def _read(spark: Any, table: LakeTable, paths: Sequence[Any]) -> Any:
    schema = ddl(table.columns)
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*map(str, paths))


def write_days(frame: Any, lake: Lake, table: LakeTable, days: Sequence[dt.date]) -> None:
    """Replace whole days of a table with the rows of a frame with a column `dt`; a day without rows becomes empty.

    Each day is replaced atomically. After a crash some days are old and some new; running it again completes the rest.
    """
    fresh = lake.root / f".fresh-{table.name}-{uuid.uuid4().hex}"
    try:
        frame.repartition(1, "dt").write.partitionBy("dt").parquet(str(fresh))
        for day in days:
            written = fresh / f"dt={day.isoformat()}"
            written.mkdir(exist_ok=True)
            lake.table(table).mkdir(parents=True, exist_ok=True)
            replace_directory(written, lake.day_path(table, day))
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
