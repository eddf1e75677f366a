"""Conversion of the lakes of earlier versions: their directories become Delta tables, in place, without rewriting rows.

{lake}/events/dt=2026-11-20/b=q3f2a91c4-000012/part-*.parquet   by query and batch; drained/{queue}/ the same
{lake}/events_compact/dt=2026-11-18/*.parquet, _done            `_done` names files, and the batches in them
{lake}/hourly/dt=2026-11-20/part-*.parquet                      and the other small tables
{lake}/_checkpoints/{job}/offsets/N, commits/N, metadata        `commits` has the batches that are done
{lake}/_state/runs/*.json
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from .delta import Table
from .errors import PipelineError
from .files import DataFile
from .lake import OF_EARLIER_VERSIONS, Lake, write_rows
from .log import Offset
from .runs import StepRun, as_row
from .schemas import EVENTS, RUNS, TABLES, LakeTable, drained
from .transfer import marks_of

#: Mark of a table that was converted.
CONVERTED = "converted"


def convert(lake: Lake, identity_of: Callable[[str], str]) -> dict[str, int]:
    """Convert a lake; return the rows of each table. It may be repeated after a crash; another lake stays as it is.

    A batch that Spark has not noted as done is left out: its entries are still in Redis. `identity_of` returns the
    identity of a stream, for offsets of versions that did not store it.
    """
    root = lake.root
    found: dict[str, int] = {}
    if not lake.is_of_earlier_version():
        return found  # a Delta table also has files that do not count
    queues = sorted(path.name for path in (root / "drained").glob("*") if path.is_dir())
    for table in (*TABLES, *map(drained, queues)):
        if table is RUNS:
            continue  # they were no table
        if (root / table.name).is_dir() or (table is EVENTS and (root / "events_compact").is_dir()):
            found[table.name] = _convert_table(lake, table, identity_of)
    _convert_runs(lake)
    for name in (*OF_EARLIER_VERSIONS, "_incoming"):
        shutil.rmtree(root / name, ignore_errors=True)
    return found


def _convert_table(lake: Lake, definition: LakeTable, identity_of: Callable[[str], str]) -> int:
    table = Table(f"{lake.uri}/{definition.name}", definition, create=True)
    if table.mark(CONVERTED) is None:
        checkpoints = [Checkpoint(path) for path in _checkpoints(lake, definition)]
        unfinished = {name for checkpoint in checkpoints for name in checkpoint.unfinished(Path(table.uri))}
        if definition is EVENTS:
            compacted = list(_compacted(lake, table))
            paths = [*compacted, *_raw(table, unfinished | _compacted_batches(lake), compacted)]
        else:
            paths = list(_raw(table, unfinished))
        files = [_data_file(table, path) for path in paths]
        marks: dict[str, int] = {}
        for checkpoint in checkpoints:
            for stream, end in checkpoint.offsets().items():
                marks |= _all_marks(stream, end, identity_of)
        if definition is EVENTS and not marks:
            marks = _marks_of_newest_rows(table, files, identity_of)
        table.commit(files, marks=marks | {CONVERTED: 1})
        table = Table(table.uri, definition)
    return sum(file.rows for file in table.files)


def _checkpoints(lake: Lake, definition: LakeTable) -> list[Path]:
    pattern = "archive" if definition is EVENTS else f"drain-*-{definition.name.partition('/')[2] or '/'}"
    return sorted((lake.root / "_checkpoints").glob(pattern)) if not pattern.endswith("/") else []


# -- Files -------------------------------------------------------------------------------------------------------------


def _raw(table: Table, left_out: set[str], compacted: Collection[Path] = ()) -> Iterator[Path]:
    """Yield the files of a table, but for the compacted ones, and those in directories with these names.

    Files are moved out of directories of batches: polars takes `b=...` in a path for another column.
    """
    for path in sorted(Path(table.uri).glob("dt=*/**/*.parquet")):
        day, *parts = path.relative_to(table.uri).parts
        is_hidden = any(part.startswith((".", "_")) for part in parts)
        if is_hidden or path in compacted or not path.stat().st_size or left_out.intersection(parts):
            continue
        target = Path(table.uri) / day / "-".join(parts).removeprefix("b=")
        os.replace(path, target)
        yield target


def _done(lake: Lake) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted((lake.root / "events_compact").glob("dt=*/_done")):
        try:
            yield path.parent, json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise PipelineError(
                f"{path} is damaged ({error}); restore it, or write a list of the Parquet files beside it: "
                '{"rows": 0, "files": ["..."], "batches": []}'
            ) from error


def _compacted_batches(lake: Lake) -> set[str]:
    return {f"b={name}" for _, done in _done(lake) for name in done["batches"]}


def _compacted(lake: Lake, table: Table) -> Iterator[Path]:
    """Yield the files of compacted days, after moving them into the table."""
    for directory, done in _done(lake):
        target = Path(table.uri) / directory.name
        target.mkdir(parents=True, exist_ok=True)
        for name in done["files"]:
            if not (target / name).exists():  # moved before a crash
                os.replace(directory / name, target / name)
            yield target / name


def _data_file(table: Table, path: Path) -> DataFile:
    import pyarrow.parquet as pq

    name = path.relative_to(table.uri)
    day = dt.date.fromisoformat(name.parts[0].removeprefix("dt="))
    return DataFile(str(name), day, pq.read_metadata(path).num_rows, path.stat().st_size)


# -- Positions ---------------------------------------------------------------------------------------------------------


class Checkpoint:
    """A checkpoint of Spark. A batch has a file in `offsets/` before it runs, and one in `commits/` after it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        done = [int(path.name) for path in (place / "commits").glob("*") if path.name.isdecimal()]
        self.finished = max(done, default=-1)

    def offsets(self) -> dict[str, Offset]:
        """Return the end of the last finished batch. Raises PipelineError for an unreadable file."""
        if self.finished < 0:
            return {}
        path = self.place / "offsets" / str(self.finished)
        try:
            return dict(json.loads(path.read_text("utf-8").splitlines()[2]))
        except (FileNotFoundError, IndexError, ValueError) as error:
            raise PipelineError(
                f"{path}: this file of Spark's checkpoint is missing or damaged, as after a power cut; restore it, or "
                f"remove the directory {self.place}: then the archive continues after its newest rows"
            ) from error

    def unfinished(self, table: Path) -> set[str]:
        """Return the directories of batches that are not noted as done."""
        try:
            query = json.loads((self.place / "metadata").read_text("utf-8"))["id"]
        except FileNotFoundError:
            return set()
        names = {path.name for path in table.glob(f"dt=*/b=q{query[:8]}-*")}
        return {name for name in names if int(name.rpartition("-")[2]) > self.finished}


def _all_marks(stream: str, end: Offset, identity_of: Callable[[str], str]) -> dict[str, int]:
    """Return the marks for an offset, and for its positions in earlier logs."""
    marks: dict[str, int] = {}
    for log, (entry_id, n) in end.get("left", {}).items():
        marks |= marks_of(stream, {"id": entry_id, "n": n, "lost": 0, "log": log})
    log = end.get("log") or identity_of(stream)
    return marks | marks_of(stream, {**end, "log": log}) if log else marks


def _marks_of_newest_rows(table: Table, files: list[DataFile], identity_of: Callable[[str], str]) -> dict[str, int]:
    """Return the marks of a lake without a checkpoint: the newest row of each shard that is of the current log."""
    import pyarrow.compute as pc

    from .files import read_files

    newest: dict[str, tuple[int, int]] = {}
    for day in sorted({file.day for file in files}):
        paths = [file.path for file in files if file.day == day]
        rows = read_files(table.uri, paths, EVENTS.columns, ["shard", "entry_id", "log"])
        for shard in pc.unique(rows["shard"]).to_pylist():
            of_shard = rows.filter(pc.equal(rows["shard"], shard))
            is_known = pc.or_kleene(pc.is_null(of_shard["log"]), pc.equal(of_shard["log"], identity_of(shard)))
            for entry_id in of_shard.filter(is_known)["entry_id"].to_pylist():
                ms, _, number = entry_id.partition("-")
                newest[shard] = max(newest.get(shard, (0, 0)), (int(ms), int(number)))
    marks: dict[str, int] = {}
    for shard, (ms, number) in newest.items():
        if log := identity_of(shard):
            marks |= marks_of(shard, {"id": f"{ms}-{number}", "n": -1, "lost": 0, "log": log})
    return marks


# -- Runs --------------------------------------------------------------------------------------------------------------


def _convert_runs(lake: Lake) -> None:
    table = Table(f"{lake.uri}/{RUNS.name}", RUNS, create=True)
    if table.mark(CONVERTED) is not None:
        return
    days: dict[dt.date, list[dict[str, Any]]] = {}
    for path in sorted((lake.root / "_state" / "runs").glob("*.json")):
        try:
            row = as_row(StepRun(**json.loads(path.read_text("utf-8"))))
        except (ValueError, TypeError):
            continue  # damaged
        days.setdefault(row["started_at"].date(), []).append(row)
    table.commit(write_rows(table, days), marks={CONVERTED: 1})
