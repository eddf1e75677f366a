"""A page of attempts from the table `events` of the lake, newest first, without Spark and with bounded memory.

A row group has the first and the last time of its rows. The newest row group is read first, in small batches of which
the newest matching rows are kept, until no other row group can have a newer one. After a number of rows the search
ends, and the next page continues there: as a search of the event log does (core/stats/runs.py).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_, or_
from typing import Any

from ..core.queue.bands import split_band
from ..core.stats.events import Event
from ..core.stats.run_filter import RunFilter, fits, has_word, searched_text
from ..core.stats.run_search import as_number, newest_first
from ..core.stats.runs import RunPage
from .delta import Table
from .events import SCHEMA
from .files import read_row_group, row_groups
from .lake import Lake
from .schemas import EVENTS

#: Cost of opening a file, in read rows.
FILE_COST = 2_000
#: Cost of a search for words in a row of which Arrow has found them.
WORD_COST = 10
BATCH_ROWS = 8_192
DAY_MS = 86_400_000
#: Columns in which words are searched.
TEXTS = ("task_id", "message_id", "error_type", "error")
#: The end of the year 9999.
LAST_MS = 253_402_300_799_999


def find_attempts(
    lake: Lake, wanted: RunFilter, *, log: str, before: str = "+", count: int = 50, most_rows: int = 1_000_000
) -> RunPage:
    """Return up to `count` matching attempts of a log, newest first; `before` is the `older` of the page before.

    Rows have no tags, and words are not searched in arguments, which are not in the lake.
    """
    if wanted.tag is not None:
        return RunPage([], None, 0)
    search = _LakeSearch(lake.open(EVENTS), wanted, log, before, count)
    return search.page(most_rows)


def read_attempt(lake: Lake, entry_id: str, *, log: str, task: str, message_id: str) -> Event | None:
    """Return the attempt whose event has this id, or None. Different events may have the same id."""
    at_ms = as_number(entry_id)[0]
    wanted = RunFilter(task=task, message_id=message_id, since_ms=int(at_ms), until_ms=int(at_ms) + 1)
    found = find_attempts(lake, wanted, log=log, count=1000).runs
    return next((event for event in found if event.entry_id == entry_id), None)


@dataclass(slots=True)
class _LakeSearch:
    table: Table
    wanted: RunFilter
    log: str
    before: str
    count: int
    found: list[Event] = field(default_factory=list)
    looked_at: int = 0
    cost: int = 0
    #: Of the newest entry that the page may have.
    last_ms: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        ms, sequence = as_number(self.before)
        last_ms = LAST_MS if self.before == "+" else int(ms) if sequence else int(ms) - 1
        until_ms = self.wanted.until_ms
        self.last_ms = min(last_ms, LAST_MS if until_ms is None else until_ms - 1, LAST_MS)

    def page(self, most_rows: int) -> RunPage:
        """Return the page."""
        first_ms = max(0, self.wanted.since_ms or 0)
        for day in reversed(self.table.days):
            begin_ms = int(dt.datetime.combine(day, dt.time(), dt.UTC).timestamp()) * 1000
            end_ms = begin_ms + DAY_MS
            if begin_ms > self.last_ms:
                continue
            if end_ms <= first_ms or self._oldest_ms() >= end_ms:
                break
            if self.cost >= most_rows and end_ms <= self.last_ms:
                return self._cut(end_ms - 1)
            rest_ms = self._read_day(day, max(begin_ms, first_ms), min(end_ms - 1, self.last_ms), most_rows)
            if rest_ms is not None:
                return self._cut(rest_ms)
        return self._whole()

    def _read_day(self, day: dt.date, first_ms: int, last_ms: int, most_rows: int) -> int | None:
        """Read a day; return the time of the newest row that was not read, None when nothing is left."""
        files = [file.path for file in self.table.files_of({day})]
        self.cost += FILE_COST * len(files)
        where = self._condition(first_ms, last_ms)
        groups = [
            (min(_newest_ms(group, last_ms), last_ms), group)
            for group in row_groups(self.table.uri, files, SCHEMA, where)
        ]
        for newest_ms, group in sorted(groups, key=lambda each: -each[0]):
            if newest_ms < self._oldest_ms():
                break
            if self.cost >= most_rows and newest_ms < self.last_ms:
                return newest_ms
            rows = sum(part.num_rows for part in group.row_groups)
            self.looked_at += rows
            self.cost += rows
            where = self._condition(max(first_ms, self._oldest_ms()), last_ms)
            for batch in read_row_group(self.table.uri, group, SCHEMA, where, batch_rows=BATCH_ROWS):
                self._keep(self._matching(batch))
        return None

    # -- Rows ---------------------------------------------------------------------------------------------------------

    def _condition(self, first_ms: int, last_ms: int) -> Any:
        """Return the expression of Arrow that all wanted rows fulfil."""
        import pyarrow.compute as pc

        wanted = self.wanted
        parts = [pc.field("shard") == self.log, pc.field("event_at") >= _time(first_ms)]
        parts.append(pc.field("event_at") <= _time(last_ms))
        same = {"task": wanted.task, "worker": wanted.worker, "task_id": wanted.task_id}
        same |= {"message_id": wanted.message_id, "fingerprint": wanted.group}
        parts += [pc.field(name) == value for name, value in same.items() if value is not None]
        if wanted.kinds:
            parts.append(pc.field("event").isin(sorted(wanted.kinds)))
        if wanted.queue is not None:
            parts.append(pc.starts_with(pc.field("queue"), wanted.queue))
        for word in wanted.words:
            has = [pc.match_substring(pc.field(name), word, ignore_case=True) for name in TEXTS]
            parts.append(reduce(or_, has))
        return reduce(and_, parts)

    def _matching(self, batch: Any) -> Iterator[Event]:
        """Yield the attempts of a batch that match, or the newest of them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.wanted.queue is not None:
            names = [name for name in pc.unique(batch["queue"]).to_pylist() if self._is_of_queue(name)]
            batch = batch.filter(pc.is_in(batch["queue"], pa.array(names, pa.string())))
        if self.before != "+" and batch.num_rows:
            batch = batch.filter(pa.array(self._are_before(batch)))
        if batch.num_rows > self.count and not self.wanted.words:
            order = [("event_at", "descending")]
            newest = pc.select_k_unstable(batch, k=self.count + 1, sort_keys=order)
            batch = batch.filter(pc.greater_equal(batch["event_at"], pc.min(batch["event_at"].take(newest))))
        self.cost += (WORD_COST if self.wanted.words else 0) * batch.num_rows
        for row in batch.to_pylist():
            event = _event(row)
            if fits(event, replace(self.wanted, group=None)) and self._has_words(event):
                yield event

    def _is_of_queue(self, name: str) -> bool:
        return self.wanted.queue in (name, split_band(name)[0])

    def _are_before(self, batch: Any) -> list[bool]:
        import pyarrow.compute as pc

        ms, _sequence = limit = as_number(self.before)
        same = pc.equal(batch["event_at"], _time(int(ms)))
        if not pc.any(same).as_py():
            return [True] * batch.num_rows  # the condition leaves out newer ones
        ids = batch["entry_id"].to_pylist()
        return [not is_same or as_number(ids[at]) < limit for at, is_same in enumerate(same.to_pylist())]

    def _has_words(self, event: Event) -> bool:
        text = searched_text(event, self.wanted)
        return all(has_word(text, word.lower()) for word in self.wanted.words)

    def _keep(self, events: Iterator[Event]) -> None:
        """Keep a page of the newest attempts, and one more as a sign of the next page."""
        merged = newest_first([*self.found, *events])
        rest = merged[self.count :]
        ties = [event for event in rest if event.entry_id == merged[self.count - 1].entry_id]
        self.found = [*merged[: self.count], *ties, *rest[len(ties) : len(ties) + 1]]

    def _oldest_ms(self) -> int:
        """Return the time before which no further attempt can be on the page; 0 before it is full."""
        return self.found[-1].at_ms if len(self.found) > len(self._page_of(self.found)) else 0

    # -- Results ------------------------------------------------------------------------------------------------------

    def _whole(self) -> RunPage:
        runs = self._page_of(self.found)
        return RunPage(runs, runs[-1].entry_id if len(self.found) > len(runs) else None, self.looked_at)

    def _cut(self, rest_ms: int) -> RunPage:
        """Return the page of a search that ends before it has read the rows of this time and older ones."""
        sure = [event for event in self.found if event.at_ms > rest_ms]
        if len(sure) > self.count:
            runs = self._page_of(sure)
            return RunPage(runs, runs[-1].entry_id, self.looked_at)
        return RunPage(sure, f"{rest_ms + 1}-0", self.looked_at, is_cut=True)

    def _page_of(self, events: Sequence[Event]) -> list[Event]:
        """Return the page with all attempts that have the id of its last one."""
        last = events[self.count - 1].entry_id if len(events) >= self.count else ""
        return [event for at, event in enumerate(events) if at < self.count or event.entry_id == last]


def _newest_ms(group: Any, default_ms: int) -> int:
    """Return the time of the newest row of a row group."""
    newest = [part.statistics.get("event_at", {}).get("max") for part in group.row_groups if part.statistics]
    return max((int(each.timestamp() * 1000) for each in newest if each is not None), default=default_ms)


def _time(epoch_ms: int) -> Any:
    import pyarrow as pa

    return pa.scalar(epoch_ms * 1000, pa.timestamp("us", tz="UTC"))


def _event(row: dict[str, Any]) -> Event:
    sent = row["enqueued_at"]
    return Event(
        entry_id=row["entry_id"],
        kind=row["event"] or "",
        queue=row["queue"] or "",
        task=row["task"] or "",
        task_id=row["task_id"] or "",
        message_id=row["message_id"] or "",
        attempt=row["attempt"],
        enqueued_ms=None if sent is None else round(sent.timestamp() * 1000),
        wait_us=row["wait_us"],
        run_us=row["run_us"],
        body_bytes=row["body_bytes"],
        worker=row["worker"] or "",
        error_type=row["error_type"] or "",
        error=row["error"] or "",
    )
