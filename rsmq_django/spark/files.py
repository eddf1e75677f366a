"""Rows as Parquet files that the tasks write themselves: rows for the lake need not pass through the JVM.

A task writes a file for each day into a staging directory, and returns one row for each file. `FileSink` moves the
files of a batch into the table, all files of a day at once. The file of a crashed task is in no result: it stays in the
staging directory, and is removed with it.
"""

from __future__ import annotations

import datetime as dt
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .columns import Column, Rows, arrow_schema, columns
from .durable import sync
from .lake import place_batch, rows_of_batch

#: Rows that a task returns for the files that it wrote.
SCHEMA = columns("path STRING, dt DATE, rows BIGINT")
#: A third smaller than with Spark's default, at the same cost.
COMPRESSION = "zstd"
EPOCH = dt.date(1970, 1, 1)
DAY_US = 86_400_000_000


def write_files(tables: Iterable[Rows], schema: Iterable[Column], directory: Path, *, time: str) -> Iterator[Rows]:
    """Write rows as one file for each day, and yield a row for each file. The column `time` must ascend.

    Holds the rows of one task in memory: as many as the option rowsPerPartition says.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = arrow_schema(schema)
    days: dict[dt.date, list[Any]] = {}
    for table in tables:
        batch = pa.RecordBatch.from_pydict(table, schema=wanted)
        for day, begin, end in _days(table[time]):
            days.setdefault(day, []).append(batch.slice(begin, end - begin))
    directory.mkdir(parents=True, exist_ok=True)
    for day, parts in days.items():
        content = pa.Table.from_batches(parts)
        path = directory / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(content, path, compression=COMPRESSION)
        sync(path)  # here: only the machine that wrote the file can sync it to disk
        yield {"path": [str(path)], "dt": [day], "rows": [content.num_rows]}


def _days(times_us: Sequence[int]) -> Iterator[tuple[dt.date, int, int]]:
    """Yield each day with the start and end of its rows."""
    begin = 0
    while begin < len(times_us):
        number = times_us[begin] // DAY_US
        end = bisect_left(times_us, (number + 1) * DAY_US, begin)
        yield EPOCH + dt.timedelta(days=number), begin, end
        begin = end


@dataclass(slots=True)
class FileSink:
    """Called by Spark with the results of each batch: moves their files into one directory for each day.

    The directory is named after the query and the batch, so a batch that is repeated after a crash replaces itself.
    """

    #: Directory of the table.
    place: Path
    #: If losses are allowed: the planned number of rows of a batch. The log may have been trimmed since; a repeated
    #: batch then does not replace days with more rows, and rows that neither attempt found are lost.
    planned: Callable[[int], int] | None = None
    #: Rows and batches so far, and rows that were trimmed between planning and reading.
    rows: int = 0
    batches: int = 0
    lost: int = 0

    def __call__(self, answers: Any, batch: int) -> None:
        """Store one batch."""
        query = answers.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        # Batch numbers restart at 0 with a new checkpoint; the id of the query distinguishes them.
        name = f"q{query[:8]}-{batch:06d}"
        written = answers.collect()  # this runs the tasks
        rows = sum(answer["rows"] for answer in written)
        files: dict[dt.date, list[Path]] = {}
        for answer in written:
            files.setdefault(answer["dt"], []).append(Path(answer["path"]))
        place_batch(self.place, name, files, keeps_larger=self.planned is not None)
        if self.planned:
            self.lost += max(0, self.planned(batch) - rows_of_batch(self.place, name))
        self.rows, self.batches = self.rows + rows, self.batches + bool(rows)
