"""Streams in Redis -> a table of the lake, each entry in one row.

The tasks of Spark read ranges of a stream and write files. The driver commits the files of a batch together with the
position behind them, and only then lets Redis forget the entries. After a crash at any moment, and with several drivers
at once, the next batch begins at the position in the table: files that were not committed do not count.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..core.transport.streams import BEGINNING, id_order
from . import drain, events, topic_log
from .delta import CommitConflict, Table
from .drain import Journals
from .errors import DataLoss, as_our_error
from .events import EventLogReader
from .files import DataFile, split_rows, write_files
from .lake import Lake
from .log import Offset, Offsets, StreamLog, StreamRange
from .options import Options
from .schemas import MOST_AHEAD_S, LakeTable
from .topic_log import TopicLog


@dataclass(slots=True)
class Transferred:
    """The result of a run."""

    rows: int = 0
    batches: int = 0
    #: Entries that left Redis.
    trimmed: int = 0
    #: Entries that were trimmed before this run could read them.
    lost: int = 0
    #: Drained messages that another consumer received after their lease expired: they stay in the queue.
    left: int = 0
    offsets: Offsets = field(default_factory=dict)


@dataclass(slots=True)
class Durable:
    """How much of a table is known to be on the disk; shared by the transfers of several logs into it."""

    #: Version of the table, with all commits before it.
    version: int = -1

    def sync(self, table: Table) -> None:
        """Bring the commits of a table to the disk."""
        if table.version > self.version:
            table.sync(after=self.version)
            self.version = table.version


@dataclass(slots=True)
class StreamTransfer:
    """Moves the entries of streams into a table, batch by batch."""

    spark: Any
    lake: Lake
    definition: LakeTable
    options: Options
    log: StreamLog
    #: Lets Redis forget the entries up to these offsets, and notes how many in the result.
    release: Callable[[Offsets, Transferred], None]
    #: Continue a log whose end a failover lost, without a count of losses.
    accept_reset: bool = False
    on_progress: Callable[[int], None] = lambda rows: None
    stopped: threading.Event = field(default_factory=threading.Event)
    result: Transferred = field(default_factory=Transferred)
    durable: Durable = field(default_factory=Durable)

    def release_stored(self) -> None:
        """Let Redis forget what a run that died has stored."""
        table = self.lake.open(self.definition, create=True)
        self.durable.sync(table)
        self._release(self.offsets(table))

    def run(self, targets: Mapping[str, str] | None = None) -> None:
        """Transfer the current entries, up to the target ids if they are given. Raises DataLoss, see StreamLog."""
        while not self.stopped.is_set() and self._batch(targets):
            self.on_progress(self.result.rows)

    def offsets(self, table: Table) -> Offsets:
        """Return the offset of each stream according to the table."""
        return {
            stream: read_offset(table, stream, log, accept_reset=self.accept_reset)
            for stream, log in self.log.identities().items()
        }

    def _batch(self, targets: Mapping[str, str] | None) -> bool:
        """StreamTransfer one batch; return whether there may be more."""
        table = self.lake.open(self.definition, create=True)
        begin = self.offsets(table)
        try:
            end = self.log.advance_all(begin, self.options.max_rows, targets)
            if end == begin:
                return False
            if any(end[stream]["log"] != begin[stream]["log"] for stream in end):
                return True  # a log was created or replaced meanwhile: its offset may be in the table
            files = self._write(table, self.log.ranges(begin, end))
            self.log.count_lost(begin, end, sum(file.rows for file in files))
            self.durable.sync(table)  # commits of another run, which may have died before it synced them
            opened = table.version
            table.commit(files, marks=self._marks(begin, end))
            self.durable.version = opened + 1
        except CommitConflict:
            return True  # another driver stored these entries
        except Exception as raised:
            error = as_our_error(raised)  # Spark wraps everything, ours included
            if isinstance(error, DataLoss) and self.offsets(self.lake.open(self.definition)) != begin:
                return True  # another driver stored these entries, and trimmed them
            raise error from raised
        self.accept_reset = False
        rows = sum(file.rows for file in files)
        self.result.rows, self.result.batches = self.result.rows + rows, self.result.batches + bool(rows)
        self.result.lost += sum(end[stream]["lost"] - begin[stream]["lost"] for stream in end)
        self._release(end)
        return True

    def _write(self, table: Table, parts: list[StreamRange]) -> list[DataFile]:
        now_us = self.log.server.now_us()
        context, work = self.spark.sparkContext, partial(write_range, self.options, table.uri, now_us)
        answers: Iterable[list[DataFile]] = context.parallelize(parts, max(1, len(parts))).map(work).collect()
        return [file for files in answers for file in files]

    def _marks(self, begin: Offsets, end: Offsets) -> dict[str, int]:
        marks: dict[str, int] = {}
        for stream in end:
            if end[stream] != begin[stream]:
                marks |= marks_of(stream, end[stream], name=self.options.log_name(stream))
        return marks

    def _release(self, offsets: Offsets) -> None:
        self.result.offsets = {self.options.log_name(stream): offset for stream, offset in offsets.items()}
        self.release(offsets, self.result)


def write_range(options: Options, uri: str, now_us: int, part: StreamRange) -> list[DataFile]:
    """Write the entries of a range as files of a table. Runs on an executor."""
    if options.kind == "drain":
        batches = split_rows(Journals(options).read(part), drain.SCHEMA, time="claimed_at")
        return write_files(uri, batches, drain.SCHEMA)
    if options.kind == "topic":
        batches = split_rows(TopicLog(options).rows(part), topic_log.SCHEMA, time="published_at")
        return write_files(uri, batches, topic_log.SCHEMA)
    rows = EventLogReader(options).read(part)
    batches = split_rows(rows, events.SCHEMA, time="event_at", now_us=now_us, most_ahead_s=MOST_AHEAD_S)
    return write_files(uri, batches, events.SCHEMA)


# -- Offsets as marks of a table ---------------------------------------------------------------------------------------


def read_offset(table: Table, stream: str, log: str, *, accept_reset: bool = False) -> Offset:
    """Return the offset behind the rows of a log; its beginning if the table has none. `log` is the identity."""
    ms = table.mark(_mark(stream, log, "ms")) if log else None
    if ms is None:
        return {"id": BEGINNING, "n": -1, "rows": 0, "lost": 0, "log": log}
    number, added, lost = (table.mark(_mark(stream, log, what)) or 0 for what in ("number", "added", "lost"))
    return {"id": f"{ms}-{number}", "n": -1 if accept_reset else added, "rows": 0, "lost": lost, "log": log}


def is_latest_log(table: Table, stream: str, log: str) -> bool:
    """Return whether the latest batch of a stream was of the log with this identity; True before the first batch."""
    return table.mark(f"{stream}/log") in (None, _number_of(log))


def marks_of(stream: str, end: Offset, *, name: str = "") -> dict[str, int]:
    """Return the marks for an offset. Both parts of an id are numbers of 64 bits, as is a mark.

    Positions are known by the identity of the log, so they stay when its connection gets another name.
    """
    ms, number = id_order(end["id"])
    values = {"ms": ms, "number": number, "added": end["n"], "lost": end["lost"]}
    marks = {_mark(stream, end["log"], what): value for what, value in values.items()}
    return marks | {f"{name or stream}/log": _number_of(end["log"])}


def _mark(stream: str, log: str, what: str) -> str:
    return f"{stream}/{log}/{what}"


def _number_of(log: str) -> int:
    """Return a number for an identity: 56 bits of its hash."""
    return int.from_bytes(hashlib.sha256(log.encode()).digest()[:7], "big")
