"""The lake: a Delta table for each kind of rows, on a path of this machine or in an object store. Needs no Spark.

{lake}/events/  five_minutes/  hourly/  failures/  slo/  capacity/  anomalies/  depth/  dead_letters/  runs/
{lake}/drained/{queue}/
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from .columns import arrow_schema
from .delta import EXPIRED, CommitConflict, Table
from .errors import PipelineError, WrongOption
from .files import GROUP_ROWS, DataFile, file_system, is_local, scan_files, write_file, write_files
from .schemas import TABLES, LakeTable

T = TypeVar("T")

#: Number of attempts to change a table that other processes change, too.
ATTEMPTS = 10
#: Files of this size are not rewritten. Smaller ones are put together until they reach it, so none has twice as much.
FULL_BYTES = 128 * 2**20
#: Minimum age of days whose small files are rewritten when they do not reach that size: late batches are rare by then.
COMPACT_AFTER_DAYS = 2
#: Those of a later day are rewritten, too, when they are so many.
MANY_FILES = 64
#: Directories with a table for each drained queue and for each archived topic.
MORE_TABLES = ("drained", "topics")
#: Directories of the lakes of earlier versions, which were no Delta tables.
OF_EARLIER_VERSIONS = ("_checkpoints", "events_compact", "_state")


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake."""

    #: An absolute path of this machine, or an address such as s3://bucket/lake.
    uri: str

    @classmethod
    def at(cls, place: str | Path) -> Lake:
        """Return the lake at a path or an address. Raises WrongOption for `s3:/bucket`, and for a path with `%20`."""
        text = str(place).removeprefix("file://")
        if found := re.match(r"([A-Za-z][\w+.-]+)(:/(?!/)|//)", text):
            raise WrongOption(f"the lake {text!r} is neither a path nor an address; write {found[1]}://...")
        if is_local(text) and (found := re.search(r"%[0-9A-Fa-f]{2}|\\", text)):
            raise WrongOption(
                f"the path {text!r} of the lake contains {found[0]}, which deltalake reads as another one"
            )
        return cls(str(Path(text).expanduser().absolute()) if is_local(text) else text.rstrip("/"))

    @property
    def root(self) -> Path:
        """Return the directory of a lake on this machine. Raises PipelineError for one in an object store."""
        if not is_local(self.uri):
            raise PipelineError(f"the lake {self.uri!r} is not a path of this machine")
        return Path(self.uri)

    def make_root(self) -> None:
        """Create the directory of the lake, for its owner only because of error texts. An existing one is kept."""
        if is_local(self.uri) and not self.root.exists():
            self.root.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):  # created concurrently by another step
                self.root.mkdir(mode=0o700)

    def is_of_earlier_version(self) -> bool:
        """Return whether an earlier version wrote the lake, and no conversion has ended."""
        return is_local(self.uri) and any((self.root / name).is_dir() for name in OF_EARLIER_VERSIONS)

    def refuse_earlier_version(self) -> None:
        """Raise PipelineError for a lake that an earlier version wrote."""
        if self.is_of_earlier_version():
            raise PipelineError(
                f"the lake {self.uri} was written by an earlier version; convert it: manage.py rsmq_pipeline convert"
            )

    def open(self, table: LakeTable, *, create: bool = False) -> Table:
        """Return a table as it is now. Raises PipelineError in a lake that an earlier version wrote."""
        self.refuse_earlier_version()
        return Table(f"{self.uri}/{table.name}", table, create=create)

    def all_tables(self) -> list[LakeTable]:
        """Return the tables, with those of drained queues and archived topics."""
        from pyarrow import fs

        files, found = file_system(self.uri), list(TABLES)
        for folder in MORE_TABLES:
            for info in files.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
                if info.type == fs.FileType.Directory:
                    found.append(LakeTable(f"{folder}/{info.base_name}", (), 0))
        return found

    # -- Rows ---------------------------------------------------------------------------------------------------------

    def days(self, table: LakeTable) -> list[dt.date]:
        """Return the days of a table that have rows, oldest first."""
        return self.open(table).days

    def append(self, table: LakeTable, day: dt.date, rows: Iterable[Mapping[str, Any]]) -> int:
        """Add rows to a day of a small table; return their number."""
        opened = self.open(table, create=True)
        files = write_rows(opened, {day: rows})
        patiently(lambda: self.open(table, create=True).commit(files))
        return sum(file.rows for file in files)

    def write_day(self, table: LakeTable, day: dt.date, rows: Iterable[Mapping[str, Any]]) -> int:
        """Replace one day of a small table; return how many rows it has now."""
        found = list(rows)
        return self.change_days(table, lambda _: {day: found})

    def change_days(
        self, table: LakeTable, change: Callable[[Table], Mapping[dt.date, Iterable[Mapping[str, Any]]]]
    ) -> int:
        """Replace days of a small table with what a function makes of its rows; return how many rows they have now.

        The function is called again when another process has changed the table meanwhile.
        """

        def attempt() -> int:
            opened = self.open(table, create=True)
            days = change(opened)
            files = write_rows(opened, days)
            opened.commit(files, removed=opened.files_of(days.keys()), replaces=True)
            return sum(file.rows for file in files)

        return patiently(attempt)

    # -- Maintenance --------------------------------------------------------------------------------------------------

    def bins_to_compact(self, today: dt.date) -> list[tuple[LakeTable, list[DataFile]]]:
        """Return the small files that are worth rewriting as one, bin by bin, with their table."""
        found = []
        for table in TABLES:
            opened = self.open(table)
            for day in opened.days:
                least = 2 if (today - day).days >= COMPACT_AFTER_DAYS else MANY_FILES
                for each in bins_of(opened.files_of({day})):
                    if len(each) >= least or _size(each) >= FULL_BYTES:
                        found.append((table, each))
        return found

    def compact(
        self, today: dt.date, *, on_progress: Callable[[int, int], None] = lambda done, total: None
    ) -> tuple[int, int]:
        """Rewrite small files of a day as files of up to a quarter of a gigabyte; return the numbers of files and rows.

        Readers and writers may run at the same time. Files that another process has rewritten are left to it.
        """
        work, rows = self.bins_to_compact(today), 0
        for number, (table, small) in enumerate(work, 1):
            rows += self._rewrite(table, small)
            on_progress(number, len(work))
        return len(work), rows

    def _rewrite(self, table: LakeTable, small: list[DataFile]) -> int:
        opened, day = self.open(table, create=True), small[0].day
        if not set(small) <= set(opened.files):
            return 0
        batches = scan_files(opened.uri, [file.path for file in small], table.columns)
        rows = table.newest_rows if day == opened.days[-1] else GROUP_ROWS
        file = write_file(opened.uri, day, batches, table.columns, sort_by=table.time, group_rows=rows)
        if file.rows != sum(each.rows for each in small):
            raise PipelineError(
                f"compacting {day} of {opened.uri}: {sum(each.rows for each in small)} rows became {file.rows}; "
                "nothing was removed"
            )
        with suppress(CommitConflict):
            opened.commit([file], removed=small, moves_rows=True)
            return file.rows
        return 0

    def expire(
        self, today: dt.date, keep_days: Mapping[str, int] | None = None, *, dry_run: bool = False
    ) -> dict[str, int]:
        """Remove days beyond the retention of their table; return the number per table. `dry_run` only counts them.

        Their files, and files that no commit counts, are deleted a day later, for readers that have them open. Drained
        queues and archived topics keep their days.
        """
        removed: dict[str, int] = {}
        for table in TABLES:
            oldest = today - dt.timedelta(days=(keep_days or {}).get(table.name, table.keep_days))
            if days := [day for day in self.days(table) if day < oldest]:
                removed[table.name] = len(days)
            if days and not dry_run:
                patiently(partial(self._remove, table, days))
        for table in () if dry_run else self.all_tables():
            self.open(table).vacuum()
        return removed

    def _remove(self, table: LakeTable, days: list[dt.date]) -> None:
        opened = self.open(table, create=True)
        expired = max(opened.mark(EXPIRED) or 0, max(days).toordinal())
        opened.commit(removed=opened.files_of(days), marks={EXPIRED: expired})


def patiently(attempt: Callable[[], T]) -> T:
    """Return the result of a change that is made again when another process has changed the table meanwhile."""
    for left in reversed(range(ATTEMPTS)):
        try:
            return attempt()
        except CommitConflict:
            if not left:
                raise
    raise AssertionError("the last attempt returns or raises")


def bins_of(files: Iterable[DataFile]) -> list[list[DataFile]]:
    """Return the small files of a day, oldest first, in bins that are full, and the rest."""
    bins: list[list[DataFile]] = [[]]
    for file in sorted(files, key=lambda file: (file.added_ms, file.path)):
        if file.size < FULL_BYTES:
            bins[-1].append(file)
            if _size(bins[-1]) >= FULL_BYTES:
                bins.append([])
    return [each for each in bins if len(each) > 1]


def _size(files: Iterable[DataFile]) -> int:
    return sum(file.size for file in files)


def write_rows(table: Table, days: Mapping[dt.date, Iterable[Mapping[str, Any]]]) -> list[DataFile]:
    """Write rows as files of a table, which do not count before they are committed."""
    import pyarrow as pa

    columns = table.definition.columns
    batches = [
        (day, pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(columns))) for day, rows in days.items()
    ]
    return write_files(table.uri, [(day, batch) for day, batch in batches if batch.num_rows], columns)
