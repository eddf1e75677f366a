"""The messages of all queues as rows, read in place and never received.

Redis can count and page a queue, its ready messages and a dead-letter queue of any length. Other conditions (words, and
whether a hidden message was received before) need a scan: messages are read one by one, up to a limit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from django.db import models

from ..conf.settings import get_settings
from ..core.errors import QueueNotFound
from ..core.limits import MAX_BATCH
from ..core.queue.browse import ALL, START, Position, StoredMessage, pick
from ..core.queue.browse import State as StoredState
from ..core.queue.listing import MAX_QUEUES, Found, QueueSummary, SearchTerms, find, message_range, search
from .conditions import Selection
from .envelopes import task_name
from .narrowing import TAGGED_BODY_BYTES
from .places import QueueRef, by_client, in_order, message_place_of, place_of
from .queryset import LazyRows, Scan
from .servers import all_places, answers_of, answers_that_came, summaries_of
from .times import as_datetime

READY, DELAYED, IN_FLIGHT, DEAD = "ready", "delayed", "in_flight", "dead"
STATES = {StoredState.READY: READY, StoredState.DELAYED: DELAYED, StoredState.IN_FLIGHT: IN_FLIGHT}
#: The states that only a scan of the hidden messages can distinguish.
RECEIVED: dict[str, Literal["received", "new"]] = {DELAYED: "new", IN_FLIGHT: "received"}

#: Enough of a body for a line of a list, and for the name of its task.
PREVIEW_BYTES = 1000
#: The time limit of a scan for a page.
SCAN_S = 0.1


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """One queue, and how many of the selected messages it has."""

    place: QueueRef
    are_dead: bool
    size: int
    #: The server's time of the count.
    now_ms: int


_SCORE = re.compile(rb"-?\d{1,20}(\.\d{1,20})?(e[+-]?\d{1,3})?|[+]inf")
#: After every message of a queue.
LAST = Position(b"+inf", b"\x7f")


@dataclass(frozen=True, slots=True)
class Cursor:
    """The end of a scan, as text in the address of the next page, which continues there."""

    #: Messages scanned so far, in all pages.
    looked_at: int
    #: Key of the queue.
    key: str
    position: Position

    def text(self) -> str:
        """Return it as text."""
        return f"{self.looked_at}-{self.position.score.hex()}-{self.position.message_id.hex()}-{self.key}"

    @classmethod
    def from_text(cls, text: str) -> Cursor | None:
        """Return the cursor of a text; None when the text is not a cursor."""
        try:
            looked_at, score, message_id, key = text.split("-", 3)
            position = Position(bytes.fromhex(score), bytes.fromhex(message_id))
            if _SCORE.fullmatch(position.score) is None:
                return None
            return cls(max(0, min(int(looked_at), 10**15)), key, position)
        except ValueError:
            return None

    def rest_of(self, slices: Sequence[QueueSlice]) -> Sequence[QueueSlice]:
        """Return the remaining queues, beginning with that of the cursor; all when it is not among them."""
        keys = [queue_slice.place.key for queue_slice in slices]
        return slices[keys.index(self.key) :] if self.key in keys else slices


class MessageSource:
    """See the module."""

    def __init__(self, model: type[models.Model]) -> None:
        self.model = model
        self.notes: list[str] = []
        self._summaries: dict[QueueRef, QueueSummary] = {}

    # -- Which queues -------------------------------------------------------------------------------------------------

    @cached_property
    def _places(self) -> list[QueueRef]:
        return all_places(self.notes)

    def _slices(self, selection: Selection) -> list[QueueSlice]:
        """Return the queues that may contain selected messages, in order, with the number of messages of that kind."""
        keys = selection.values("queue")
        places = self._places if keys is None else in_order({p for p in map(place_of, keys) if p})
        missing = [place for place in places if place not in self._summaries]
        self._summaries.update(summaries_of(missing))
        found = (self._slice_of(place, self._summaries[place], _only(selection, "state")) for place in places)
        return [queue_slice for queue_slice in found if queue_slice is not None]

    def _slice_of(self, place: QueueRef, summary: QueueSummary, state: str | None) -> QueueSlice | None:
        if summary.attributes is None:
            return None
        are_dead = place.holds_dead_letters or summary.failures > 0
        if state not in (None, "") and are_dead != (state == DEAD):
            return None
        depth = summary.depth
        sizes = {READY: depth.ready, DELAYED: depth.hidden, IN_FLIGHT: depth.hidden}
        return QueueSlice(place, are_dead, sizes.get(state or "", depth.messages), depth.now_ms)

    # -- Counted and paged by Redis -----------------------------------------------------------------------------------

    def can_page(self, selection: Selection) -> bool:
        """See RowSource."""
        if (
            selection.words
            or selection.narrowing
            or selection.begin
            or not selection.is_exact
            or not set(selection.equal) <= {"queue", "state"}
        ):
            return False
        states, queues = selection.values("state"), selection.values("queue")
        if states is not None and states not in ({READY}, {DEAD}):
            return False
        is_one_queue = queues is not None and len(queues) == 1
        in_order = ((), ("queue", "visible_at"), ("-visible_at",), ("visible_at",))
        return selection.order_by in (in_order if is_one_queue else in_order[:2])

    def count(self, selection: Selection) -> int:
        """See RowSource."""
        return sum(queue_slice.size for queue_slice in self._slices(selection))

    def page(self, selection: Selection, start: int, stop: int | None) -> list[Any]:
        """See RowSource."""
        # Without an end, there could be a million rows: no caller needs more than the limit of a scan.
        stop = min(stop if stop is not None else start + scan_limit(), start + scan_limit())
        rows: list[Any] = []
        for cuts in self._batches(self._cuts(selection, start, stop)):
            calls = [self._range(selection, *cut) for cut in cuts]
            answers = answers_that_came(cuts[0][0].place.client, calls)
            for (queue_slice, _, _), answer in zip(cuts, answers, strict=True):
                if answer is not None:
                    rows += self._rows(queue_slice.place, answer.messages, answer.now_ms, are_dead=queue_slice.are_dead)
        return rows

    def _cuts(self, selection: Selection, start: int, stop: int) -> Iterator[tuple[QueueSlice, int, int]]:
        """Return from which queues how many messages are to be read, and how many are to be skipped before them."""
        behind = 0
        for queue_slice in self._slices(selection):
            low, high = max(start - behind, 0), min(stop - behind, queue_slice.size)
            behind += queue_slice.size
            while low < high:
                count = min(high - low, MAX_BATCH)
                yield queue_slice, low, count
                low += count
            if behind >= stop:
                return

    @staticmethod
    def _batches(cuts: Iterator[tuple[QueueSlice, int, int]]) -> Iterator[list[tuple[QueueSlice, int, int]]]:
        """Group neighbours of the same connection, which share a round trip."""
        batch: list[tuple[QueueSlice, int, int]] = []
        for cut in cuts:
            if batch and batch[0][0].place.alias != cut[0].place.alias:
                yield batch
                batch = []
            batch.append(cut)
        if batch:
            yield batch

    @staticmethod
    def _range(selection: Selection, queue_slice: QueueSlice, offset: int, count: int) -> Any:
        return message_range(
            queue_slice.place.client.namespace,
            queue_slice.place.name,
            which="ready" if _only(selection, "state") == READY else "all",
            offset=offset,
            count=count,
            is_reversed=selection.order_by == ("-visible_at",),
            body_bytes=PREVIEW_BYTES,
        )

    # -- Found by a scan ----------------------------------------------------------------------------------------------

    def scan(self, selection: Selection) -> Scan:
        """See RowSource."""
        keys = selection.values("key")
        if keys is not None:
            rows = self._picked(keys)
            return Scan(rows, len(rows), len(rows))
        if len(selection.words) == 1 and not selection.narrowing and (rows := self._with_id(selection)):
            return Scan(rows, len(rows), len(rows))
        return self._searched(selection)

    def _picked(self, keys: frozenset[str]) -> list[Any]:
        """Read messages by their keys."""
        ids: dict[QueueRef, list[bytes]] = {}
        for key in sorted(keys):  # messages that became visible in the same millisecond stay in this order
            found = message_place_of(key)
            if found is not None:
                ids.setdefault(found[0], []).append(found[1])
        self._summaries.update(summaries_of([place for place in ids if place not in self._summaries]))
        rows: list[Any] = []
        for place, named in ids.items():
            for at in range(0, len(named), MAX_BATCH):
                part = pick(place.client.namespace, place.name, named[at : at + MAX_BATCH], body_bytes=PREVIEW_BYTES)
                for answer in answers_that_came(place.client, [part]):
                    if answer is not None:
                        rows += self._rows(place, answer.messages, answer.now_ms)
        return rows

    def _with_id(self, selection: Selection) -> list[Any]:
        """Return the messages whose id is the word: Redis finds them at once in a queue of any length."""
        rows: list[Any] = []
        for alias, group in by_client(queue_slice.place for queue_slice in self._slices(selection)).items():
            client, names = group[0].client, [place.name for place in group]
            parts = [names[at : at + MAX_QUEUES] for at in range(0, len(names), MAX_QUEUES)]
            found = answers_of(client, [find(client.namespace, part, selection.words[0]) for part in parts])
            places = [QueueRef(alias, name) for names_of_part in found for name in names_of_part]
            calls = [pick(client.namespace, place.name, selection.words, body_bytes=PREVIEW_BYTES) for place in places]
            for place, answer in zip(places, answers_that_came(client, calls), strict=True):
                if answer is not None:
                    rows += self._rows(place, answer.messages, answer.now_ms)
        return rows

    def _searched(self, selection: Selection) -> Scan:
        found: list[tuple[QueueSlice, StoredMessage, int]] = []
        slices, state = self._slices(selection), _only(selection, "state")
        begin = Cursor.from_text(selection.begin)
        end, looked_before = "", begin.looked_at if begin else 0
        looked_at, limit, until_s, is_enough = 0, scan_limit(), time.monotonic() + SCAN_S, False
        for queue_slice, page in self._pages(selection, begin.rest_of(slices) if begin else slices, limit, begin):
            found += [(queue_slice, each, page.now_ms) for each in page.messages if _fits(selection, each, page.now_ms)]
            looked_at += page.looked_at
            is_enough = looked_at >= limit or time.monotonic() > until_s
            end = Cursor(looked_before + looked_at, queue_slice.place.key, page.end or LAST).text()
            if is_enough:
                break
        seen = looked_before + looked_at
        of = max(seen, sum(queue_slice.size for queue_slice in slices)) if is_enough else seen
        # The rows are exactly the selected ones, in the order of the queues, when only queues were selected.
        is_plain = selection.is_exact and set(selection.equal) <= {"queue", "state"} and state != ""
        is_final = is_plain and selection.order_by in ((), ("queue", "visible_at"))
        return Scan(LazyRows(found, self._found_row), looked_at, of, is_final, end if is_enough else "", looked_before)

    def _found_row(self, found: tuple[QueueSlice, StoredMessage, int]) -> Any:
        queue_slice, message, now_ms = found
        return self._row(queue_slice.place, message, now_ms, queue_slice.are_dead)

    def _pages(
        self, selection: Selection, slices: Iterable[QueueSlice], limit: int, begin: Cursor | None
    ) -> Iterator[tuple[QueueSlice, Found]]:
        """Scan the messages of several queues, up to `limit`."""
        for queue_slice in slices:
            for page in self._looks(selection, queue_slice, limit, begin):
                limit -= page.looked_at
                yield queue_slice, page

    def _looks(
        self, selection: Selection, queue_slice: QueueSlice, limit: int, begin: Cursor | None = None
    ) -> Iterator[Found]:
        """Scan the messages of one queue, a slice at a time."""
        state, client, narrowing = _only(selection, "state"), queue_slice.place.client, selection.narrowing
        after: Position | None = START
        if state in RECEIVED:
            after = Position.behind_all_of(queue_slice.now_ms)
        if begin is not None and begin.key == queue_slice.place.key:
            after = begin.position
        which: Literal["all", "received", "new"] = RECEIVED.get(state or "", "all")
        terms = SearchTerms(selection.words, selection.searches_bodies, narrowing.marks, narrowing.ids, which)
        while after is not None and limit > 0 and queue_slice.size:
            call = search(
                client.namespace,
                queue_slice.place.name,
                terms,
                after=after,
                until_ms=None if state == READY else ALL,
                count=min(limit, MAX_BATCH),
                body_bytes=TAGGED_BODY_BYTES if narrowing.tag else PREVIEW_BYTES,
            )
            try:
                found = client.run(call)
            except QueueNotFound:  # deleted since the queues were listed
                return
            yield found
            after, limit = found.end, limit - found.looked_at

    # -- Rows ---------------------------------------------------------------------------------------------------------

    def _rows(
        self, place: QueueRef, messages: list[StoredMessage], now_ms: int, *, are_dead: bool | None = None
    ) -> list[Any]:
        if are_dead is None:
            are_dead = place.holds_dead_letters or self._summaries[place].failures > 0
        return [self._row(place, message, now_ms, are_dead) for message in messages]

    def _row(self, place: QueueRef, message: StoredMessage, now_ms: int, are_dead: bool) -> models.Model:
        failure = message.failure()
        row = self.model(
            key=place.message_key(message.position.message_id),
            queue=place.key,
            message_id=message.id,
            state=DEAD if are_dead else STATES[message.state(now_ms)],
            task=failure.task if failure and failure.task else task_name(message.body),
            error=failure.error if failure else "",
            receive_count=message.receive_count,
            visible_at=as_datetime(message.visible_at_ms),
            sent_at=as_datetime(message.sent_ms),
            first_received_at=as_datetime(message.first_received_ms),
            size_bytes=message.size_bytes,
        )
        row.place, row.stored, row.now_ms = place, message, now_ms  # type: ignore[attr-defined]
        return row


def _fits(selection: Selection, message: StoredMessage, now_ms: int) -> bool:
    """Return whether a scanned message is selected."""
    state = _only(selection, "state")
    # Some have become visible since the queues were counted.
    if state in RECEIVED and STATES[message.state(now_ms)] != state:
        return False
    return not selection.narrowing or selection.narrowing.fits(message)


def scan_limit() -> int:
    """Return how many messages a page may scan."""
    return get_settings().admin.search_limit


def _only(selection: Selection, field: str) -> str | None:
    """Return the required value of a field; "" when there are several, None for any value."""
    values = selection.values(field)
    if values is None:
        return None
    return str(next(iter(values))) if len(values) == 1 else ""
