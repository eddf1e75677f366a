"""A topic as a log for `transfer`: the offset of a message is its index, written as the id `index-0`.

The identity of a topic is a random field of its hash. It is gone when the topic is deleted, so indexes that begin at 1
again are another log. Reading removes nothing: the topic has its own retention.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..core.topic import Topic, TopicMessage
from ..core.topic.topic import LogBounds
from ..core.transport.streams import id_order
from .columns import Rows, columns
from .errors import DataLoss, LogReset
from .log import Offset, Offsets, StreamLog, StreamRange
from .options import Options

SCHEMA = columns(
    "topic STRING, log STRING, index BIGINT, published_at TIMESTAMP, key STRING, headers STRING, body BINARY"
)


class TopicLog(StreamLog):
    """Reads a topic by range."""

    def __init__(self, options: Options) -> None:
        super().__init__(options, (options.topic,))

    def identities(self) -> dict[str, str]:
        """Return the identity of the topic; "" before its first message."""
        return {self.options.topic: self._bounds().log}

    def newest_ids(self) -> dict[str, str]:
        """Return the id of the last message: the end of a run over the current ones."""
        return {self.options.topic: _id_of(self._bounds().last)}

    def advance(self, stream: str, begin: Offset, upto: str, most: int) -> Offset:
        """See StreamLog. Rows are counted as indexes, some of which may have no message."""
        found, position = self._bounds(), _index_of(begin["id"])
        if not found.log:
            return begin
        if found.log != begin["log"]:
            return {**begin, "log": found.log}
        if found.last < position:
            raise LogReset(
                f"topic {stream!r} ends at {found.last}, before our position {position}: a client deleted a part of "
                "its keys, or a failover lost its end; find the cause, and archive it again when it has more messages"
            )
        after = max(position, found.first - 1)
        end = min(found.last if upto == "+" else _index_of(upto), after + most)
        if most < 1 or end <= position:
            return begin
        missed = 0 if begin["n"] < 0 else min(after, end) - position
        if missed and self.options.fail_on_data_loss:
            raise DataLoss(
                f"topic {stream!r}: {missed} messages from {position + 1} on were trimmed before they were read; run "
                "the job without --strict to count them and continue, and lengthen the retention or run it more often"
            )
        place = {"id": _id_of(end), "n": end, "rows": max(0, end - after)}
        return place | {"lost": begin["lost"] + missed, "log": found.log}

    def ranges(self, start: Offsets, end: Offsets) -> list[StreamRange]:
        """Return the messages between two offsets, cut for tasks."""
        parts = []
        for stream, stop in end.items():
            last, size = _index_of(stop["id"]), self.options.partition_rows
            for at in range(last - stop["rows"], last, size):
                upto = min(at + size, last)
                parts.append(StreamRange(stream, _id_of(at), _id_of(upto), upto - at, stop["log"]))
        return parts

    def count_lost(self, begin: Offsets, end: Offsets, stored: int) -> None:
        """Count messages that were trimmed after they were planned. Indexes without a message are no loss."""
        (stop,) = end.values()
        found, last = self._bounds(), _index_of(stop["id"])
        trimmed = max(0, min(found.first - 1, last) - (last - stop["rows"]))
        missing = stop["rows"] - stored
        stop["lost"] += missing if found.log != stop["log"] else min(missing, trimmed)

    def rows(self, part: StreamRange) -> Iterator[Rows]:
        """Yield the messages of a range in chunks, on an executor. Raises DataLoss if some of them were trimmed."""
        at, last = _index_of(part.after) + 1, _index_of(part.upto)
        if self._bounds().log != part.log:
            return  # another topic of this name: its messages were not planned
        while at <= last:
            found = self.server.run(self._topic.range_call(at, min(self.options.chunk_rows, last - at + 1)))
            if found.first > at and self.options.fail_on_data_loss:
                raise DataLoss(f"topic {part.stream!r}: messages from {at} on were trimmed before they were read")
            if found.messages:
                yield _rows(part, found.messages, self.server.now_us())
            at = max(at + self.options.chunk_rows, found.first)

    def _bounds(self) -> LogBounds:
        return self.server.run(self._topic.identify_call())

    @property
    def _topic(self) -> Topic:
        return Topic(self.options.topic, self.server.client)


def _rows(part: StreamRange, messages: list[TopicMessage], now_us: int) -> Rows:
    # Older messages of other clients have no time: that of the next one that has, so that times ascend.
    times, known = list[int](), now_us
    for message in reversed(messages):
        known = known if message.published_ms is None else min(known, message.published_ms * 1000)
        times.append(known)
    return {
        "topic": [part.stream] * len(messages),
        "log": [part.log] * len(messages),
        "index": [message.index for message in messages],
        "published_at": times[::-1],
        "key": [message.key for message in messages],
        "headers": [json.dumps(dict(message.headers)) if message.headers else None for message in messages],
        "body": [message.body for message in messages],
    }


def _index_of(entry_id: str) -> int:
    return id_order(entry_id)[0]


def _id_of(index: int) -> str:
    return f"{index}-0"
