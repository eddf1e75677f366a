"""The lake: a directory of Parquet files, checkpoints and small state files. Needs no Spark.

    {lake}/events/dt=2026-11-20/b=q3f2a91c4-000012/part-*.parquet     raw, by batch
    {lake}/events_compact/dt=2026-11-18/*.parquet, _done              `_done` names files, and the batches in them
    {lake}/hourly/dt=.../  failures/  slo/  capacity/  anomalies/  depth/  drained/{queue}/
    {lake}/_checkpoints/{job}/  {lake}/_state/{job}.json  {lake}/_incoming/{job}/

The directory of a day appears atomically. Names that begin with "_" or "." are not data.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.transport.streams import BEGINNING, id_order
from .columns import arrow_schema
from .durable import remove_directory, replace_directory, sync, sync_names, write_whole
from .errors import PipelineError
from .schemas import EVENTS, TABLES, LakeTable

DONE = "_done"


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake on a file system of this machine."""

    root: Path

    @classmethod
    def at(cls, place: str | Path) -> Lake:
        """Return the lake at a path. Raises PipelineError for an invalid path."""
        if "://" in str(place) and not str(place).startswith("file://"):
            raise PipelineError(f"the lake {str(place)!r} is not a path of this machine; mount it, and give that path")
        return cls(Path(str(place).removeprefix("file://")).expanduser().absolute())

    def make_root(self) -> None:
        """Create the directory of the lake, for its owner only because of error texts. An existing one is kept."""
        if not self.root.exists():
            self.root.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):  # created concurrently by another step
                self.root.mkdir(mode=0o700)

    def table(self, table: LakeTable) -> Path:
        """Return the directory of a table."""
        return self.root / table.name

    @property
    def compact(self) -> Path:
        """Return the directory of the compacted events."""
        return self.root / "events_compact"

    def drained(self, queue: str) -> Path:
        """Return the directory of the drained messages of a queue."""
        return self.root / "drained" / queue

    def checkpoint(self, job: str) -> Path:
        """Return the directory of a job's checkpoint."""
        return self.root / "_checkpoints" / job

    def incoming(self, job: str) -> Path:
        """Return the emptied directory for files of a job's tasks."""
        directory = self.root / "_incoming" / job
        shutil.rmtree(directory, ignore_errors=True)
        return directory

    def prepare(self, place: Path) -> None:
        """Create the directory of a table of batches, and remove the leftovers of a run that crashed in place_batch().

        The batch of that run is repeated, so nothing is missed.
        """
        place.mkdir(parents=True, exist_ok=True)
        sync_names(place.parent, top=self.root)
        with suppress(PermissionError):  # the directory above may not be writable
            sync(self.root.parent)
        for hidden in place.glob("dt=*/.*b=*"):
            shutil.rmtree(hidden, ignore_errors=True)

    # -- State files ---------------------------------------------------------------------------------------------------

    def read_note(self, name: str) -> dict[str, Any]:
        """Return the state of a job, empty if missing. Writes are atomic; a damaged file is ignored."""
        try:
            note = json.loads((self.root / "_state" / f"{name}.json").read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return note if isinstance(note, dict) else {}

    def write_note(self, name: str, note: Mapping[str, Any]) -> None:
        """Replace the state of a job atomically."""
        write_whole(self.root / "_state" / f"{name}.json", json.dumps(note, sort_keys=True).encode())

    # -- Days ---------------------------------------------------------------------------------------------------------

    def days(self, table: LakeTable) -> list[dt.date]:
        """Return the days of a table, oldest first; those of events include the compacted ones."""
        found = set(_days_in(self.table(table)))
        if table is EVENTS:
            found |= {day for day in _days_in(self.compact) if self._done(day)["files"]}
        return sorted(found)

    def day_path(self, table: LakeTable, day: dt.date) -> Path:
        """Return the directory of one day."""
        return self.table(table) / f"dt={day.isoformat()}"

    def write_day(self, table: LakeTable, day: dt.date, rows: Iterable[Mapping[str, Any]]) -> int:
        """Replace one day of a small table; return how many rows it has now. Needs pyarrow."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        content = pa.Table.from_pylist(list(rows), schema=arrow_schema(table.columns))
        target = self.day_path(table, day)
        fresh = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
        fresh.mkdir(parents=True)
        pq.write_table(content, fresh / "part-00000.parquet")
        replace_directory(fresh, target)
        return int(content.num_rows)

    def read_day(self, table: LakeTable, day: dt.date, *, names: Iterable[str] | None = None) -> Any:
        """Return one day as an Arrow table. Needs pyarrow."""
        paths = self.event_paths(day) if table is EVENTS else [self.day_path(table, day)]
        return read_parquet(paths, table, names)

    # -- Events -------------------------------------------------------------------------------------------------------

    def batches(self, day: dt.date) -> frozenset[str]:
        """Return the batches of a day, compacted or raw: the input of an up-to-date rollup."""
        return frozenset(self._raw(day)) | frozenset(self._done(day)["batches"])

    def event_paths(self, day: dt.date) -> list[Path]:
        """Return the files and directories with a day's events, each event once."""
        done = self._done(day)
        raw = [path for name, path in sorted(self._raw(day).items()) if name not in done["batches"]]
        return [*(self.compact / f"dt={day.isoformat()}" / name for name in done["files"]), *raw]

    def raw_paths(self, day: dt.date) -> list[Path]:
        """Return the directories of a day's batches, including compacted batches."""
        return [path for _, path in sorted(self._raw(day).items())]

    def newest_ids(self, logs: Mapping[str, str]) -> dict[str, str]:
        """Return the newest id of each shard that is in the lake and of the log with this identity. Needs pyarrow.

        Rows of earlier versions have no identity, and count as rows of this log.
        """
        about = ["shard", "entry_id", "event_at", "log"]
        newest: dict[str, str] = {}
        for day in reversed(self.days(EVENTS)):  # all of them: a shard may have been idle for long
            of_the_day: dict[str, str] = {}
            for shard, entry_id in _newest_rows(self.read_day(EVENTS, day, names=about), logs):
                if id_order(entry_id) > id_order(of_the_day.get(shard, BEGINNING)):
                    of_the_day[shard] = entry_id
            newest = of_the_day | newest
        return newest

    def _raw(self, day: dt.date) -> dict[str, Path]:
        directory = self.table(EVENTS) / f"dt={day.isoformat()}"
        if not directory.is_dir():
            return {}
        return {path.name.removeprefix("b="): path for path in directory.iterdir() if path.name.startswith("b=")}

    def replace_compacted(self, day: dt.date, files: Iterable[Path], *, rows: int, batches: list[str]) -> None:
        """Replace a day with its compacted files.

        The switch is one rename of `_done`: before it, readers ignore the new files; after it, the old ones.
        """
        directory = self.compact / f"dt={day.isoformat()}"
        directory.mkdir(parents=True, exist_ok=True)
        names = []
        for file in files:
            names.append(f"{uuid.uuid4().hex}.parquet")
            sync(file)
            os.replace(file, directory / names[-1])
        sync_names(directory, top=self.root)
        note = {"rows": rows, "batches": batches, "files": names}
        write_whole(directory / DONE, json.dumps(note).encode())
        for file in directory.glob("*.parquet"):
            if file.name not in names:
                file.unlink()
        for name, path in self._raw(day).items():
            if name in batches:
                shutil.rmtree(path)
        raw = self.table(EVENTS) / f"dt={day.isoformat()}"
        if raw.exists() and not any(raw.iterdir()):
            raw.rmdir()

    def _done(self, day: dt.date) -> dict[str, Any]:
        """Return the files and batches of the compacted day."""
        done = self.compact / f"dt={day.isoformat()}" / DONE
        try:
            return dict(json.loads(done.read_text("utf-8")))
        except FileNotFoundError:
            return {"files": [], "batches": []}
        except ValueError as error:
            raise PipelineError(
                f"{done} is damaged ({error}); restore it, or write one that lists the Parquet files beside it: "
                '{"rows": 0, "files": ["..."], "batches": []}'
            ) from error

    # -- Expiry -------------------------------------------------------------------------------------------------------

    def expire(
        self, today: dt.date, keep_days: Mapping[str, int] | None = None, *, dry_run: bool = False
    ) -> dict[str, int]:
        """Remove days beyond the retention of their table; return the number per table. `dry_run` only counts them."""
        removed: dict[str, int] = {}
        for table in TABLES:
            oldest = today - dt.timedelta(days=(keep_days or {}).get(table.name, table.keep_days))
            places = [self.table(table), self.compact] if table is EVENTS else [self.table(table)]
            for place in places:
                for day in _days_in(place):
                    if day < oldest:
                        if not dry_run:
                            remove_directory(place / f"dt={day.isoformat()}")
                        removed[table.name] = removed.get(table.name, 0) + 1
        return removed

    def clean_up(self) -> None:
        """Repair the leftovers of a crashed run: days between two names, and incomplete days.

        The caller must hold the lock of the tables.
        """
        places = [self.root, self.compact, *(self.table(table) for table in TABLES)]
        for hidden in [path for place in places if place.is_dir() for path in place.glob(".old-*")]:
            target = hidden.with_name(hidden.name.removeprefix(".old-").rpartition("-")[0])
            if target.exists() or target.parent in (self.table(EVENTS), self.compact):
                shutil.rmtree(hidden, ignore_errors=True)
            else:
                os.replace(hidden, target)
        for table in TABLES:
            if table is not EVENTS:  # Spark's own leftovers there belong to the archive
                for hidden in self.table(table).glob(".dt=*"):
                    shutil.rmtree(hidden, ignore_errors=True)
        for fresh in self.root.glob(".fresh-*"):
            shutil.rmtree(fresh, ignore_errors=True)


def place_batch(
    place: Path, batch: str, files: Mapping[dt.date, Sequence[Path]], *, keeps_larger: bool = False
) -> None:
    """Move files into a table as one batch; each of its days appears or is replaced atomically.

    With `keeps_larger`, a day with more rows stays. When this returns, all files are on disk: Spark commits the batch,
    and its rows are deleted from Redis.
    """
    for day, paths in files.items():
        target = place / f"dt={day.isoformat()}" / f"b={batch}"
        if keeps_larger and _count_rows(parquet_files(target)) > _count_rows(paths):
            continue
        fresh = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
        fresh.mkdir(parents=True)
        for number, path in enumerate(paths):
            os.replace(path, fresh / f"part-{number:05d}.parquet")
        replace_directory(fresh, target)
    if files:
        sync(place)


def rows_of_batch(place: Path, batch: str) -> int:
    """Return how many rows a batch has in a table. Needs pyarrow."""
    return sum(_count_rows(parquet_files(directory)) for directory in place.glob(f"dt=*/b={batch}"))


def _count_rows(files: Iterable[Path]) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in files)


def _newest_rows(rows: Any, logs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield shard and id of the rows in the last millisecond of each shard: a day may have millions of others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_known = pc.or_kleene(pc.is_null(rows["log"]), pc.is_in(rows["log"], pa.array([*logs.values()], pa.string())))
    rows = rows.filter(is_known)
    last = rows.group_by("shard").aggregate([("event_at", "max")])
    for shard, at in zip(last["shard"].to_pylist(), last["event_at_max"], strict=True):
        found = rows.filter(pc.and_(pc.equal(rows["shard"], shard), pc.equal(rows["event_at"], at)))
        yield from zip(found["shard"].to_pylist(), found["entry_id"].to_pylist(), strict=True)


def read_parquet(paths: Iterable[Path], table: LakeTable, names: Iterable[str] | None = None) -> Any:
    """Return the rows of some directories as an Arrow table; missing columns are null."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    schema = arrow_schema(table.columns)
    wanted = list(names) if names is not None else schema.names
    files = [str(file) for path in paths for file in ([path] if path.is_file() else parquet_files(path))]
    if not files:
        return pa.schema([schema.field(name) for name in wanted]).empty_table()
    try:
        return ds.dataset(files, schema=schema, format="parquet").to_table(columns=wanted)
    except pa.ArrowInvalid as error:
        raise PipelineError(
            f"a file of {table.name!r} is damaged ({error}); remove it, and for all but events run: rollup --since DAY"
        ) from error


def parquet_files(directory: Path) -> Iterator[Path]:
    """Yield the data files of a directory, without markers, hidden leftovers and empty files."""
    for file in sorted(directory.glob("*.parquet")):
        if not file.name.startswith(("_", ".")) and file.stat().st_size:
            yield file


def _days_in(directory: Path) -> list[dt.date]:
    if not directory.is_dir():
        return []
    return sorted(
        dt.date.fromisoformat(path.name.removeprefix("dt="))
        for path in directory.iterdir()
        if path.name.startswith("dt=") and path.is_dir()
    )
