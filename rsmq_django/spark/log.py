"""A log in Redis streams with replayable offsets: the same range gives the same entries, and losses are counted.

The offset of one stream is a dictionary, because Spark writes it into its checkpoint as JSON:

    id    last entry that was read
    n     number of entries ever added up to it; -1: not known yet
    rows  entries of the batch that ended here
    lost  number of entries trimmed before they were read, since the start
    log   identity of the log; "": not known yet
    left  position in each log that was read before this one: {log: [id, n]}

On another server, or after it was deleted and created again, a stream of the same name is another log, as its identity
says (core.transport.streams.name_log). A log that was not read before is read from its first entry.

Redis counts all entries ever added, so `added - length` entries were trimmed from the head: if that exceeds our `n`,
the difference was trimmed unread. The counts are exact as long as no client deletes from the middle of the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.transport.streams import BEGINNING, StreamStep, id_order, name_log, step
from .errors import DataLoss, LogReset
from .options import Options
from .server import Server

Offset = dict[str, Any]
Offsets = dict[str, Offset]
#: Id and fields of one entry, as Redis returns them: a flat list.
Entry = tuple[bytes, list[bytes]]

NO_LIMIT = 2**53
_OWN_STREAM = "begin a stream of your own with a new checkpointLocation"
_ARCHIVE = "run `rsmq_pipeline archive --accept-reset` when the log has newer entries, or"
#: Number of earlier logs whose positions are kept.
LOGS_KEPT = 8


@dataclass(frozen=True, slots=True)
class StreamRange:
    """Some consecutive entries of a stream, for one task."""

    stream: str
    after: str
    upto: str
    rows: int
    #: Identity of the log.
    log: str = ""


class StreamLog:
    """Reads streams by range. It has a connection, so each process creates its own."""

    #: Whether others trim the streams, so that a server which does not count their entries hides losses.
    is_trimmed_by_others = True

    def __init__(self, options: Options, streams: tuple[str, ...]) -> None:
        self.options = options
        self.streams = streams
        self._server: Server | None = None
        #: Stream -> start of the latest batch, and its steps, so that planning does not repeat them.
        self._walked: dict[str, tuple[str, list[StreamStep]]] = {}

    @property
    def server(self) -> Server:
        """Return the server, on a connection of this process."""
        if self._server is None:
            self._server = self.options.server()
        return self._server

    # -- Offsets ------------------------------------------------------------------------------------------------------

    def beginning(self) -> Offsets:
        """Return the start offset of a new reader. Deterministic: Spark calls it twice, in two processes."""
        return {
            stream: {"id": self.options.start_after.get(stream, BEGINNING), "n": -1, "rows": 0, "lost": 0, "log": ""}
            for stream in self.streams
        }

    def newest_ids(self) -> dict[str, str]:
        """Return the newest id of each stream: the end of a run over the current entries."""
        return {stream: self._step(stream, BEGINNING, "+", 1).newest_id for stream in self.streams}

    def identities(self) -> dict[str, str]:
        """Return the identity of each stream; "" if it does not exist. Streams without one get theirs."""
        return {stream: self.server.run(name_log(stream)) for stream in self.streams}

    def advance_all(self, start: Offsets, most: int, targets: Mapping[str, str] | None = None) -> Offsets:
        """Return offsets at most `most` entries further; the same `start` object without new entries."""
        begins = {stream: start.get(stream) or self.beginning()[stream] for stream in self.streams}
        ends: Offsets = {}
        left = most
        for place, stream in enumerate(self.streams):
            # Later streams share the unused part of earlier ones.
            share = max(1, left // (len(self.streams) - place)) if left else 0
            ends[stream] = self.advance(stream, begins[stream], (targets or {}).get(stream, "+"), share)
            left -= _rows_between(begins[stream], ends[stream])
        for stream in self.streams:
            rows = _rows_between(begins[stream], ends[stream])
            if left > 0 and rows:  # and vice versa, if the last stream is idle
                ends[stream] = self.advance(stream, begins[stream], (targets or {}).get(stream, "+"), rows + left)
                left -= _rows_between(begins[stream], ends[stream]) - rows
        return start if ends == start else ends

    def advance(self, stream: str, begin: Offset, upto: str, most: int) -> Offset:
        """Return the offset at most `most` entries after `begin`; `begin` itself without new entries.

        Raises DataLoss for entries that were trimmed unread, and LogReset if the log does not contain `begin`.
        """
        if most < 1:
            return begin
        before = begin
        found = self._step(stream, begin["id"], upto, most)
        log = found.log or self.server.run(name_log(stream))
        if begin.get("log") and not log:
            return begin  # no log: the server is another one, or was emptied
        if is_other_log(begin, log):
            begin = position_in(begin, log)
            found = self._step(stream, begin["id"], upto, most)
        self._refuse_reset(stream, begin, found)
        read = begin["n"] if begin["n"] >= 0 else self._count_before(stream, begin["id"], found)
        missed = max(0, found.gone - read) if begin["n"] >= 0 else 0
        if missed and self.options.fail_on_data_loss:
            raise DataLoss(
                f"{stream}: {missed} entries after {begin['id']} were trimmed before they were read; set the option "
                "failOnDataLoss to false to count them and continue, and lengthen the log or run the job more often"
            )
        if not found.entries:
            return before
        steps, total = [found], found.entries
        while found.entries and total < most:
            found = self._step(stream, found.last_id, upto, most - total)
            steps.append(found)
            total += found.entries
        if any(each.log not in ("", log) for each in steps):
            raise LogReset(f"{stream}: the log was replaced while it was read; run the job again")
        self._walked[stream] = begin["id"], steps
        end = {"id": found.last_id, "n": read + missed + total if found.added >= 0 else -1, "rows": total}
        end |= {"lost": begin["lost"] + missed, "log": log}
        return end | ({"left": begin["left"]} if begin.get("left") else {})

    def _count_before(self, stream: str, entry_id: str, found: StreamStep) -> int:
        """Return the number of entries ever added up to an id, for a reader that starts there."""
        total, after = found.gone, BEGINNING
        while entry_id != BEGINNING:
            passed = self._step(stream, after, entry_id, NO_LIMIT)
            total, after = total + passed.entries, passed.last_id
            if not passed.entries:
                break
        return total

    def _refuse_reset(self, stream: str, begin: Offset, found: StreamStep) -> None:
        if found.added < 0 and self.is_trimmed_by_others and self.options.fail_on_data_loss:
            raise DataLoss(
                f"{stream}: this server does not count the entries of a stream, so losses cannot be detected; use "
                "Redis 7 or Valkey, or set the option failOnDataLoss to false"
            )
        is_behind = found.added >= 0 and found.added < begin["n"]
        if id_order(found.newest_id) < id_order(begin["id"]) or is_behind:
            raise LogReset(
                f"{stream}: its {found.added} entries up to {found.newest_id} lack our position {begin['id']}: "
                f"it was recreated, or a failover lost its end; find the cause, then "
                + (_OWN_STREAM if self.options.kind == "drain" else f"{_ARCHIVE} {_OWN_STREAM}")
            )

    def _step(self, stream: str, after: str, upto: str, most: int) -> StreamStep:
        return self.server.run(step(stream, after=after, upto=upto, most=most))

    # -- Ranges -------------------------------------------------------------------------------------------------------

    def ranges(self, start: Offsets, end: Offsets) -> list[StreamRange]:
        """Return the entries between two offsets, cut for tasks. The same offsets give the same ranges.

        Raises DataLoss when entries of the batch are gone.
        """
        found = []
        for stream, stop in end.items():
            begin = start.get(stream) or self.beginning()[stream]
            if _rows_between(begin, stop):
                after = (
                    position_in(begin, stop["log"])["id"] if is_other_log(begin, stop.get("log", "")) else begin["id"]
                )
                cut = self._cut_as_walked(stream, after, stop) or self._cut_of(stop, stream, after)
                left = sum(part.rows for part in cut)
                if left != stop["rows"] and self.options.fail_on_data_loss:
                    raise DataLoss(
                        f"{stream}: the batch up to {stop['id']} had {stop['rows']} entries, {left} are left"
                    )
                found += cut
        return found

    def count_lost(self, begin: Offsets, end: Offsets, stored: int) -> None:
        """Count the entries that were planned and that no task found any more as lost."""
        planned = {stream: end[stream]["rows"] for stream in end if end[stream] != begin[stream]}
        if missing := sum(planned.values()) - stored:
            stream = next(iter(planned))
            end[stream] = {**end[stream], "lost": end[stream]["lost"] + missing}

    def _cut_as_walked(self, stream: str, after: str, stop: Offset) -> list[StreamRange]:
        """Return the ranges of the latest batch; an empty list for any other one."""
        first, steps = self._walked.get(stream, ("", []))
        if first != after or not steps or steps[-1].last_id != stop["id"]:
            return []
        parts: list[StreamRange] = []
        rows = 0
        for found in steps:
            rows += found.entries
            if rows >= self.options.partition_rows or found is steps[-1]:
                parts.append(StreamRange(stream, after, found.last_id, rows, stop["log"]))
                after, rows = found.last_id, 0
        return [part for part in parts if part.rows]

    def _cut_of(self, stop: Offset, stream: str, after: str) -> list[StreamRange]:
        """Return the ranges of a batch that was planned before; none when the server has another log by now."""
        parts, log = self.cut(stream, after, stop["id"]), stop.get("log", "")
        return [part for part in parts if not log or part.log == log]

    def cut(self, stream: str, after: str, upto: str) -> list[StreamRange]:
        """Return the entries after one id up to another, cut for tasks."""
        parts: list[StreamRange] = []
        while True:
            first, rows, log = after, 0, ""
            while rows < self.options.partition_rows:
                found = self._step(stream, after, upto, self.options.partition_rows - rows)
                log = found.log
                if not found.entries:
                    break
                after, rows = found.last_id, rows + found.entries
            if rows:
                parts.append(StreamRange(stream, first, after, rows, log))
            if rows < self.options.partition_rows:
                return parts

    # -- Entries, on an executor --------------------------------------------------------------------------------------

    def entries(self, part: StreamRange) -> Iterator[list[Entry]]:
        """Yield the entries of a range in chunks. Raises DataLoss if some of them were trimmed."""
        after, total = part.after, 0
        if part.log and self._step(part.stream, after, part.upto, 1).log != part.log:
            after = part.upto  # another server answers: its entries were not planned
        while after != part.upto:
            found: list[Entry] = self.server.ask_one(
                "XRANGE", part.stream, f"({after}", part.upto, "COUNT", self.options.chunk_rows
            )
            if not found:
                break
            after, total = found[-1][0].decode("ascii"), total + len(found)
            yield found
        if total != part.rows and self.options.fail_on_data_loss:
            raise DataLoss(
                f"{part.stream}: {part.rows} entries after {part.after} were planned, {total} were left when they "
                "were read; run the job again"
            )


def is_other_log(begin: Offset, log: str) -> bool:
    """Return whether an offset is in another log than the given one; unknown identities are the same log."""
    return bool(log and begin.get("log") and begin["log"] != log)


def position_in(begin: Offset, log: str) -> Offset:
    """Return the offset at which reading continues in another log: after the position there, if it was read before."""
    left = dict(begin.get("left", {}))
    entry_id, n = left.pop(log, (BEGINNING, -1))
    left[begin["log"]] = [begin["id"], begin["n"]]
    left = dict(list(left.items())[-LOGS_KEPT:])
    return {**begin, "id": entry_id, "n": n, "rows": 0, "log": log, "left": left}


def _rows_between(begin: Offset, end: Offset) -> int:
    return 0 if end["id"] == begin["id"] and not is_other_log(begin, end.get("log", "")) else int(end["rows"])
