"""The tables of the lake are Delta tables (https://delta.io): Parquet files, and a log of the commits that count them.

A commit adds and removes files and sets marks, all or nothing. A mark is a number with a name (an application
transaction of Delta): of two concurrent commits that set the same mark, the second is refused. So a reader of a log
that stores its position as marks beside the rows stores each row once, with any number of processes at work.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from .columns import arrow_schema
from .durable import sync_content, sync_names
from .errors import PipelineError
from .files import DataFile, file_system, is_local, read_files, scan_files, storage_options
from .schemas import LakeTable

LOG = "_delta_log"
#: The log of commits is kept for a day: a continuous archive commits every few seconds.
SETTINGS = {"delta.logRetentionDuration": "interval 1 days"}
#: To open a table, the commits since the last checkpoint are read, each with a request in an object store.
CHECKPOINT_EVERY = 20
#: Mark of every commit that depends on rows of the table: of two at once, the second is refused.
REPLACED = "replaced"
#: Mark with the ordinal of the newest day that has expired.
EXPIRED = "expired"
#: Files that no commit counts are removed after this time: readers may still have them open, or be writing them.
VACUUM_AFTER_HOURS = 24


class CommitConflict(PipelineError):
    """Another process changed the table since it was opened."""


class Table:
    """A table as of the moment when it was opened."""

    def __init__(self, uri: str, definition: LakeTable, *, create: bool = False) -> None:
        self.uri, self.definition = uri, definition
        self._delta = _open(uri) or (_create(uri, definition) if create else None)
        if create and self._add_columns():
            self._delta = _open(uri)
            self.sync()

    def _add_columns(self) -> bool:
        """Add the columns of this version to a table of an earlier one; return whether there were any."""
        from deltalake import Schema
        from deltalake.exceptions import DeltaError

        delta = self._delta
        assert delta is not None, "it was created if it did not exist"
        known = {field.name for field in delta.schema().fields}
        fields = [field for field in Schema.from_arrow(_schema(self.definition)).fields if field.name not in known]
        if fields:
            with _named(self.uri, "changed"):
                try:
                    delta.alter.add_columns(fields, post_commithook_properties=_no_hooks())
                except DeltaError:
                    if {field.name for field in fields} - {field.name for field in _open(self.uri).schema().fields}:
                        raise  # not added by another process at the same time
        return bool(fields)

    # -- Content ------------------------------------------------------------------------------------------------------

    @cached_property
    def files(self) -> list[DataFile]:
        """Return the files with the rows."""
        import pyarrow as pa

        if self._delta is None:
            return []
        found = pa.table(self._delta.get_add_actions(flatten=True))
        names = ("path", "partition.dt", "num_records", "size_bytes", "modification_time")
        rows = zip(*(found[name].to_pylist() for name in names), strict=True)
        return sorted((DataFile(path, day, count or 0, *more) for path, day, count, *more in rows), key=_order)

    @property
    def days(self) -> list[dt.date]:
        """Return the days with rows, oldest first."""
        return sorted({file.day for file in self.files})

    def files_of(self, days: Collection[dt.date]) -> list[DataFile]:
        """Return the files of some days."""
        return [file for file in self.files if file.day in days]

    def count(self, day: dt.date) -> int:
        """Return the number of rows of a day."""
        return sum(file.rows for file in self.files_of({day}))

    def read(
        self, days: Collection[dt.date] | None = None, *, names: Iterable[str] | None = None, where: Any = None
    ) -> Any:
        """Return the rows of some days, or of all, as an Arrow table. `where` is an expression of Arrow."""
        files = self.files if days is None else self.files_of(days)
        return read_files(self.uri, [file.path for file in files], self.definition.columns, names, where)

    def scan(self, *, names: Sequence[str], where: Any) -> Iterator[Any]:
        """Yield the rows for which an expression of Arrow is true, in batches; never all rows are in memory."""
        if self.files:
            paths = [file.path for file in self.files]
            yield from scan_files(self.uri, paths, self.definition.columns, names, where)

    def mark(self, name: str) -> int | None:
        """Return a mark, or None."""
        return None if self._delta is None else self._delta.transaction_version(name)

    @property
    def version(self) -> int:
        """Return the number of the last commit; -1 without a table."""
        return -1 if self._delta is None else int(self._delta.version())

    @property
    def identity(self) -> str:
        """Return the name of the table, and the id that it got when it was created."""
        return f"{self.definition.name}/{'' if self._delta is None else self._delta.metadata().id}"

    def added_since(self, version: int) -> tuple[list[DataFile], set[dt.date]] | None:
        """Return the files with new rows, and the days with replaced rows, of the commits after a version.

        None if one of them is no longer known. Files that a compaction added are left out: their rows are not new.
        """
        if version > self.version:
            return None
        found: list[DataFile] = []
        replaced: set[dt.date] = set()
        files = file_system(self.uri)
        for number in range(version + 1, self.version + 1):
            try:
                with files.open_input_file(f"{LOG}/{number:020}.json") as content:
                    actions = [json.loads(line) for line in content.read().splitlines()]
            except FileNotFoundError:
                return None
            added = [_file(action["add"]) for action in actions if action.get("add", {}).get("dataChange")]
            removed = [action["remove"] for action in actions if action.get("remove", {}).get("dataChange")]
            found += added
            replaced |= {_day(file) for file in removed} & {file.day for file in added}
        return found, replaced

    # -- Changes ------------------------------------------------------------------------------------------------------

    def commit(
        self,
        added: Iterable[DataFile] = (),
        *,
        removed: Iterable[DataFile] = (),
        marks: Mapping[str, int] | None = None,
        replaces: bool = False,
        moves_rows: bool = False,
    ) -> None:
        """Add and remove files and set marks, all or nothing; on a local disk when this returns.

        `replaces`: the added rows depend on rows of the table, as if files were removed. `moves_rows`: the added files
        have the rows of the removed ones, so that rows may be added at the same time. Raises CommitConflict when a
        commit since the table was opened set the same mark, or when both replace or remove. A table can be committed
        to once after opening.
        """
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

        assert self._delta is not None, "a table must be opened with create=True for a commit"
        added, removed, before = list(added), list(removed), self.version
        now_ms, values = int(time.time() * 1000), dict(marks or {})
        if removed or replaces:
            # Delta itself does not notice that two commits remove the same file, if they only move its rows.
            values[REPLACED] = (self.mark(REPLACED) or 0) + 1
        if is_local(self.uri):
            for day in {file.day for file in added}:
                sync_names(Path(self.uri) / f"dt={day.isoformat()}")
        actions: list[Any] = [
            RemoveAction(file.path, not moves_rows, now_ms, file.size, _partition(file)) for file in removed
        ]
        for file in added:
            stats = json.dumps({"numRecords": file.rows})
            actions.append(AddAction(file.path, file.size, _partition(file), now_ms, not moves_rows, stats))
        properties = CommitProperties(app_transactions=[Transaction(*mark) for mark in values.items()])
        with _named(self.uri, "changed"):
            try:
                self._delta.create_write_transaction(
                    actions, "append", _schema(self.definition), partition_by=["dt"],
                    commit_properties=properties, post_commithook_properties=_no_hooks(),
                )  # fmt: skip
            except CommitFailedError as error:
                raise CommitConflict(f"{self.uri} was changed by another process; run the step again") from error
        self.sync(after=before)
        with _named(self.uri, "read"):
            self._delta.update_incremental()
            if self.version % CHECKPOINT_EVERY == 0:
                self._delta.create_checkpoint()
                self.sync(after=before)

    def sync(self, *, after: int = -1) -> None:
        """Bring the log of commits to the disk: those after a version."""
        if self._delta is not None and is_local(self.uri):
            # Names begin with the version; times of files may be those of another machine.
            sync_content(Path(self.uri) / LOG, after=f"{after:020}.z" if after >= 0 else "")

    def vacuum(self) -> None:
        """Remove files that no commit has counted for a day, and old commits that a checkpoint contains."""
        if self._delta is None:
            return
        options: dict[str, Any] = {"retention_hours": VACUUM_AFTER_HOURS, "enforce_retention_duration": False}
        options["post_commithook_properties"] = _no_hooks()
        with _named(self.uri, "vacuumed"):
            self._delta.cleanup_metadata()  # commits before a checkpoint that is on the disk
            if self._delta.vacuum(dry_run=True, full=True, **options):
                self._delta.vacuum(dry_run=False, full=True, **options)


def _no_hooks() -> Any:
    """Return the options of a commit without a checkpoint: Delta would delete commits before that is on the disk."""
    from deltalake.transaction import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def _open(uri: str) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    with _named(uri, "read"):
        try:
            return DeltaTable(uri, storage_options=None if is_local(uri) else storage_options())
        except TableNotFoundError as error:
            if "scheme" in str(error):  # an address that deltalake does not know is no empty table
                raise
            return None


def _create(uri: str, definition: LakeTable) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if is_local(uri):
        Path(uri).mkdir(parents=True, exist_ok=True)
    with _named(uri, "created"):
        try:
            given: dict[str, Any] = {"partition_by": ["dt"], "configuration": dict(SETTINGS), "name": definition.name}
            DeltaTable.create(uri, _schema(definition), mode="ignore", **given)
        except DeltaError:
            if _open(uri) is None:  # not created by another process at the same time
                raise
    if is_local(uri):
        sync_content(Path(uri) / LOG)
        sync_names(Path(uri))
    return _open(uri)


@contextmanager
def _named(uri: str, doing: str) -> Iterator[None]:
    """Raise PipelineError with the table, the cause and the next step for an error of deltalake or of the storage."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        raise PipelineError(f"the table {uri} cannot be {doing}: {_cause(str(error))}; {_remedy(uri)}") from error


def _cause(text: str) -> str:
    """Return the first line of an error and its first and last cause; of an object store's answer, code and message."""
    first, *others = re.sub(r"\x1b\[\d*m", "", text).splitlines() or ["unknown error"]
    causes = [line.strip(" \u21b3.") for line in others if "\u21b3" in line]
    answer = [found[1] for name in ("Code", "Message") if (found := re.search(f"<{name}>([^<]+)</{name}>", text))]
    return ": ".join(dict.fromkeys([first.partition(". ")[0], *(answer or causes[:1] + causes[-1:])]))[:500]


def _remedy(uri: str) -> str:
    if is_local(uri):
        return "after a power failure see docs/how-to/pipeline.md, else check the permissions of its directory"
    return "check the address, and the variables of the storage (docs/how-to/pipeline.md, The lake)"


def _schema(definition: LakeTable) -> Any:
    import pyarrow as pa

    return arrow_schema(definition.columns).append(pa.field("dt", pa.date32()))


def _partition(file: DataFile) -> dict[str, str]:
    return {"dt": file.day.isoformat()}


def _day(action: Mapping[str, Any]) -> dt.date:
    return dt.date.fromisoformat(action["partitionValues"]["dt"])


def _file(added: Mapping[str, Any]) -> DataFile:
    """Return the file of an action of the log of commits."""
    return DataFile(unquote(added["path"]), _day(added), json.loads(added["stats"])["numRecords"], added["size"])


def _order(file: DataFile) -> tuple[dt.date, str]:
    return file.day, file.path
