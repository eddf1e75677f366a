"""Reading of topics by index: offsets are whole numbers, and a range always has the same rows.

{topic}:nextIndex       index of the last message
{topic}:messages:{n}    payload
rsmqt:{topic}:meta      field `first`: lowest stored index
rsmqt:{topic}:time      first index of a time slot, scored with its start in ms
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .columns import Rows, columns
from .errors import DataLoss, LogReset
from .options import Options
from .server import Server

SCHEMA = columns("topic STRING, index BIGINT, slot_at TIMESTAMP, payload BINARY")
#: The offset: `first` index of the batch that ends at `index`, and the number of messages trimmed unread so far.
Place = dict[str, int]
#: Number of slots of the time index read at a time.
_SLOTS_PER_READ = 1000


@dataclass(frozen=True, slots=True)
class Indexes:
    """Some consecutive messages, for one task."""

    first: int
    #: Inclusive.
    last: int


class TopicRows:
    """Reads a topic in ranges of indexes."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        """Return the server, on a connection of this process."""
        if self._server is None:
            self._server = self.options.server()
        return self._server

    def bounds(self) -> tuple[int, int]:
        """Return the lowest stored index and the last index."""
        topic = self.options.topic
        last, first = self.server.ask(("GET", f"{topic}:nextIndex"), ("HGET", f"rsmqt:{topic}:meta", "first"))
        return int(first or 1), int(last or 0)

    def plan(self) -> list[Indexes]:
        """Return the indexes of a batch read: all stored messages within the chosen range."""
        first, last = self.bounds()
        if self.options.end_index is not None:
            last = min(last, self.options.end_index)
        return self.cut(max(first, self.options.start_index), last)

    def cut(self, first: int, last: int) -> list[Indexes]:
        """Return the indexes cut for tasks."""
        step = self.options.partition_rows
        return [Indexes(at, min(at + step - 1, last)) for at in range(first, last + 1, step)]

    # -- Offsets of a stream ------------------------------------------------------------------------------------------

    def beginning(self) -> Place:
        """Return the start offset of a new reader. Deterministic: Spark calls it twice, in two processes."""
        return {"first": self.options.start_index, "index": self.options.start_index - 1, "lost": 0}

    def advance(self, start: Place, most: int, target: int | None = None) -> Place:
        """Return the offset at most `most` messages further; `start` itself without new messages.

        Raises DataLoss for messages that were trimmed unread, and LogReset if the last index decreased.
        """
        first, last = self.bounds()
        if last < start["index"]:
            raise LogReset(
                f"topic {self.options.topic!r} ends at {last}, before our position {start['index']}: it was deleted or "
                "restored from an old copy; find the cause, then begin the stream with a new checkpointLocation"
            )
        begin = max(start["index"], first - 1)
        is_new = start == self.beginning()
        missed = 0 if is_new else begin - start["index"]  # messages trimmed earlier are not lost for a new reader
        if missed and self.options.fail_on_data_loss:
            raise DataLoss(
                f"topic {self.options.topic!r}: {missed} messages from {start['index'] + 1} on were trimmed before "
                "they were read; set failOnDataLoss to false to count them and continue"
            )
        end = min(last if target is None else target, begin + most)
        if end <= start["index"]:
            return start
        return {"first": begin + 1, "index": end, "lost": start["lost"] + missed}

    # -- Messages, on an executor -------------------------------------------------------------------------------------

    def read(self, part: Indexes) -> Iterator[Rows]:
        """Yield the messages of a range in chunks. Gaps after the first stored index are not a loss."""
        topic, slots = self.options.topic, _Slots(self.server, self.options.topic, part.first)
        for at in range(part.first, part.last + 1, self.options.chunk_rows):
            indexes = range(at, min(at + self.options.chunk_rows, part.last + 1))
            payloads = self.server.ask_one("MGET", *(f"{topic}:messages:{index}" for index in indexes))
            found = [(index, payload) for index, payload in zip(indexes, payloads, strict=True) if payload is not None]
            if len(found) < len(indexes):
                self._refuse_trimmed(indexes)
            yield {
                "topic": [topic] * len(found),
                "index": [index for index, _ in found],
                "slot_at": [slots.start_us(index) for index, _ in found],
                "payload": [payload for _, payload in found],
            }

    def _refuse_trimmed(self, indexes: range) -> None:
        trimmed = min(self.bounds()[0], indexes.stop) - indexes.start
        if trimmed > 0 and self.options.fail_on_data_loss:
            raise DataLoss(
                f"topic {self.options.topic!r}: {trimmed} messages from {indexes.start} on were trimmed after they "
                "were planned and before they were read; run the job again"
            )


class _Slots:
    """Looks up the times of ascending indexes. A busy topic has 864,000 slots a day, so only a few are read."""

    def __init__(self, server: Server, topic: str, first: int) -> None:
        self._server, self._key = server, f"rsmqt:{topic}:time"
        self._rank = self._rank_of(first)
        self._slots: list[tuple[int, int]] = []
        self._load()

    def start_us(self, index: int) -> int | None:
        """Return the start of the slot in which a message was published, or None if it is no longer known."""
        while len(self._slots) > 1 and self._slots[1][0] <= index:
            self._slots.pop(0)
            if len(self._slots) == 1:
                self._load()
        return self._slots[0][1] if self._slots and self._slots[0][0] <= index else None

    def _load(self) -> None:
        flat = self._server.ask_one("ZRANGE", self._key, self._rank, self._rank + _SLOTS_PER_READ - 1, "WITHSCORES")
        self._slots += [(int(first), int(float(ms)) * 1000) for first, ms in zip(flat[::2], flat[1::2], strict=True)]
        self._rank += len(flat) // 2

    def _rank_of(self, index: int) -> int:
        """Return the rank of the last slot that begins at or before the index; 0 without one."""
        low, high = 0, int(self._server.ask_one("ZCARD", self._key))
        while low < high:
            middle = (low + high) // 2
            found: list[Any] = self._server.ask_one("ZRANGE", self._key, middle, middle)
            if found and int(found[0]) <= index:
                low = middle + 1
            else:
                high = middle
        return max(0, low - 1)
