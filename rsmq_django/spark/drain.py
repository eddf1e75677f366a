"""Draining of queues into the lake, in batches that can be read again byte for byte.

Spark reads the journal, never the queue, with the offsets of `log`. Messages that an earlier run claimed and that are
missing in Spark's checkpoint are claimed first; so a crash between claim and checkpoint loses and duplicates nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.limits import MAX_BATCH
from ..core.queue.drain import Drain
from .columns import Rows, columns
from .log import Entry, Offset, StreamLog, StreamRange
from .options import Options
from .snapshot import receive_count, sent_us

SCHEMA = columns(
    "queue STRING, entry_id STRING, claimed_at TIMESTAMP, message_id STRING, sent_at TIMESTAMP, "
    "first_received_at TIMESTAMP, receive_count INT, body BINARY"
)


class Journals(StreamLog):
    """The journals of some queues as one log, which grows by claiming messages on demand."""

    #: A refusal by Redis 6.2, which does not count, would come when messages have been claimed.
    is_trimmed_by_others = False

    def __init__(self, options: Options) -> None:
        self.drains = {drain.journal: drain for drain in drains(options)}
        #: Only messages visible by this time are claimed, so that a run on a busy queue ends (ms, 0: no limit).
        self.until_ms = 0
        super().__init__(options, tuple(self.drains))

    def advance(self, stream: str, begin: Offset, upto: str, most: int) -> Offset:
        """Return the same as StreamLog, after claiming messages."""
        end = super().advance(stream, begin, upto, most)
        if end["id"] == begin["id"] and self._claim(self.drains[stream], most):
            end = super().advance(stream, begin, upto, most)
        return end

    def _claim(self, drain: Drain, most: int) -> int:
        lease_ms, claimed = int(self.options.lease_s * 1000), 0
        while claimed < most:
            step = min(MAX_BATCH, most - claimed)
            taken = self.server.run(drain.claim(until_ms=self.until_ms, lease_ms=lease_ms, most=step))
            claimed += taken
            if taken < step:
                break
        return claimed

    def read(self, part: StreamRange) -> Iterator[Rows]:
        """Yield the messages of a range in chunks."""
        for entries in self.entries(part):
            yield _rows(self.drains[part.stream].queue, entries)


def drains(options: Options) -> list[Drain]:
    """Return the drains for the options."""
    return [Drain(options.namespace, options.consumer, queue) for queue in options.queues]


def _rows(queue: str, entries: list[Entry]) -> Rows:
    ids = [entry_id.decode("ascii") for entry_id, _ in entries]
    fields = [dict(zip(flat[::2], flat[1::2], strict=True)) for _, flat in entries]
    messages = [entry[b"i"].decode("utf-8", "replace") for entry in fields]
    return {
        "queue": [queue] * len(entries),
        "entry_id": ids,
        "claimed_at": [int(entry_id.partition("-")[0]) * 1000 for entry_id in ids],
        "message_id": messages,
        "sent_at": [sent_us(message_id) for message_id in messages],
        "first_received_at": [int(entry[b"f"]) * 1000 if entry[b"f"].isdigit() else None for entry in fields],
        "receive_count": [receive_count(entry[b"c"]) for entry in fields],
        "body": [entry[b"b"] for entry in fields],
    }
