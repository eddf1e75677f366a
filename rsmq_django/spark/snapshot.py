"""A snapshot of queues at one moment, without receiving messages.

Planning reads all ids with their scores in one command per queue and passes them in the partitions. Reading by rank
instead would lose and repeat rows, because a receive moves a message to another rank. Ids and times are those of
planning; bodies and receive counts are those of reading, and messages deleted in between are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..core.ids import sent_ms
from ..core.keys import queue_keys, queues_key
from ..core.queue.replies import first_received_ms
from .columns import Rows, columns
from .errors import PipelineError
from .options import Options
from .server import Server

SCHEMA = columns(
    "queue STRING, message_id STRING, sent_at TIMESTAMP, visible_at TIMESTAMP, first_received_at TIMESTAMP, "
    "receive_count INT, body BINARY"
)
#: The plan holds about 46 bytes for each.
MAX_IDS = 2_000_000
#: Scores outside this range are not milliseconds: other clients store seconds or microseconds.
_LEAST_SCORE_MS, _MOST_SCORE_MS = 1e11, 1e14


@dataclass(frozen=True, slots=True)
class Ids:
    """Some messages of a queue, for one task."""

    queue: str
    ids: tuple[bytes, ...]
    visible_ms: tuple[float, ...]


class QueueSnapshot:
    """Plans and reads a snapshot of queues."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        """Return the server, on a connection of this process."""
        if self._server is None:
            self._server = self.options.server()
        return self._server

    def plan(self) -> list[Ids]:
        """Return all messages of the chosen queues, or of all queues."""
        return [part for queue in self.options.queues or self.all_queues() for part in self.plan_queue(queue)]

    def plan_queue(self, queue: str) -> list[Ids]:
        """Return all messages of a queue. Raises PipelineError if there are too many, BrokenQueue for a foreign key."""
        key, parts = queue_keys(self.options.namespace, queue).messages, []
        if (count := self.server.ask_one("ZCARD", key)) > MAX_IDS:
            raise PipelineError(
                f"queue {queue!r} has {count} messages, the limit is {MAX_IDS}; read fewer queues at a time, "
                "or drain it (kind=drain)"
            )
        flat = self.server.ask_one("ZRANGE", key, 0, -1, "WITHSCORES")
        ids, scores = flat[::2], flat[1::2]
        for at in range(0, len(ids), self.options.partition_rows):
            upto = at + self.options.partition_rows
            parts.append(Ids(queue, tuple(ids[at:upto]), tuple(map(float, scores[at:upto]))))
        return parts

    def read(self, part: Ids) -> Iterator[Rows]:
        """Yield the messages of a part in chunks."""
        settings, step = queue_keys(self.options.namespace, part.queue).settings, self.options.chunk_rows
        for at in range(0, len(part.ids), step):
            ids = part.ids[at : at + step]
            fields = [field for message_id in ids for field in (message_id, message_id + b":rc", message_id + b":fr")]
            values = self.server.ask_one("HMGET", settings, *fields)
            found = list(
                zip(ids, part.visible_ms[at : at + step], values[::3], values[1::3], values[2::3], strict=True)
            )
            yield _rows(part.queue, [message for message in found if message[2] is not None])

    def all_queues(self) -> list[str]:
        """Return the names of all queues."""
        names = self.server.ask_one("SMEMBERS", queues_key(self.options.namespace))
        return sorted(name.decode("utf-8", "replace") for name in names)


def _rows(queue: str, found: list[tuple[bytes, float, bytes, bytes | None, bytes | None]]) -> Rows:
    ids = [row[0].decode("utf-8", "replace") for row in found]
    return {
        "queue": [queue] * len(found),
        "message_id": ids,
        "sent_at": [sent_us(message_id) for message_id in ids],
        "visible_at": [int(row[1] * 1000) if _LEAST_SCORE_MS < row[1] < _MOST_SCORE_MS else None for row in found],
        "first_received_at": [_first_received_us(row[4]) for row in found],
        "receive_count": [receive_count(row[3]) for row in found],
        "body": [row[2] for row in found],
    }


def sent_us(message_id: str) -> int | None:
    """Return when a message was sent, or None for ids without a time."""
    milliseconds = sent_ms(message_id)
    return None if milliseconds is None else round(milliseconds * 1000)


def _first_received_us(raw: bytes | None) -> int | None:
    milliseconds = first_received_ms(raw) if raw else None
    return milliseconds * 1000 if milliseconds is not None and milliseconds < _MOST_SCORE_MS else None


def receive_count(raw: bytes | None) -> int:
    """Return a stored receive count; 0 for an invalid value."""
    return int(raw) if raw and raw.isdigit() and len(raw) < 10 else 0
