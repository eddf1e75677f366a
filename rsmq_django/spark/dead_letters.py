"""Dead letters as a table, and their archive: task, error and time of failure.

They stay in their queues. A dead letter that is redriven or deleted later keeps its row in the lake; a message that
fails again has another time of failure, and therefore another row. Bodies and tracebacks stay in Redis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..core.keys import queue_keys
from ..core.queue.browse import NO_BODY, StoredMessage, pick
from ..core.stats.events import MAX_ERROR_CHARACTERS
from ..core.stats.fingerprint import fingerprint
from .columns import Rows, columns
from .options import Options
from .snapshot import Ids, QueueSnapshot, sent_us

SCHEMA = columns(
    "dead_queue STRING, message_id STRING, queue STRING, task STRING, task_id STRING, reason STRING, attempts INT, "
    "died_at TIMESTAMP, sent_at TIMESTAMP, worker STRING, error_type STRING, error STRING, fingerprint STRING, "
    "body_bytes INT"
)
#: Key of a row: a redriven message can fail a second time.
KEY = ("dead_queue", "message_id", "died_at")
#: Valid times of failure, from 2010 to 2200: the records are untrusted.
_EARLIEST_MS, _LATEST_MS = 1_262_304_000_000, 7_258_118_400_000
#: Maximum valid number of attempts.
_MOST_ATTEMPTS = 2**31 - 1


class DeadLetters:
    """Plans and reads the messages of dead-letter queues."""

    def __init__(self, options: Options) -> None:
        self.snapshot = QueueSnapshot(options)
        self.options = options

    def plan(self) -> list[Ids]:
        """Return all dead letters of the chosen queues, or of all queues with failure records."""
        return [part for queue in self.queues() for part in self.snapshot.plan_queue(queue)]

    def queues(self) -> list[str]:
        """Return the chosen queues, or all queues with failure records."""
        return list(self.options.queues or self._queues_with_records())

    def read(self, part: Ids) -> Iterator[Rows]:
        """Yield the dead letters of a part in chunks, without letters that have left their queue meanwhile."""
        namespace, step = self.options.namespace, self.options.chunk_rows
        for at in range(0, len(part.ids), step):
            call = pick(namespace, part.queue, part.ids[at : at + step], body_bytes=NO_BODY)
            yield _rows(part.queue, self.snapshot.server.run(call).messages)

    def _queues_with_records(self) -> Iterator[str]:
        names = self.snapshot.all_queues()
        keys = [queue_keys(self.options.namespace, name).failures for name in names]
        found = self.snapshot.server.ask(*(("EXISTS", key) for key in keys)) if keys else []
        return (name for name, has_records in zip(names, found, strict=True) if has_records)


def _rows(dead_queue: str, letters: Sequence[StoredMessage]) -> Rows:
    rows: list[tuple[Any, ...]] = [_row(dead_queue, letter) for letter in letters]
    names = [column.name for column in SCHEMA]
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)) if rows else {name: [] for name in names}


def _row(dead_queue: str, letter: StoredMessage) -> tuple[Any, ...]:
    sent, failure = sent_us(letter.id), letter.failure()
    if failure is None:  # sent by another program
        died = sent or _time_us(letter.visible_at_ms) or 0
        return dead_queue, letter.id, "", "", None, None, None, died, sent, None, None, None, None, letter.size_bytes
    error = failure.message[:MAX_ERROR_CHARACTERS]
    return (
        dead_queue,
        letter.id,
        failure.queue,
        failure.task,
        failure.task_id or None,
        failure.reason or None,
        failure.attempts if 0 < failure.attempts <= _MOST_ATTEMPTS else None,
        _time_us(failure.died_ms or 0) or sent or _time_us(letter.visible_at_ms) or 0,
        sent,
        failure.worker or None,
        failure.error or None,
        error or None,
        # The same fingerprint as in the event log and the admin.
        fingerprint(failure.task, failure.error, error) if failure.error else None,
        letter.size_bytes,
    )


def _time_us(epoch_ms: float) -> int | None:
    return int(epoch_ms * 1000) if _EARLIEST_MS < epoch_ms < _LATEST_MS else None
