"""Dead letters as a table, and their archive: which task died of what, and when.

They are read where they lie and stay there. A letter that is redriven or deleted later keeps its row in the lake; one
that dies again has another time of death, and so another row. No bodies and no tracebacks: both stay in Redis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..core.browse import NO_BODY, StoredMessage, pick
from ..core.events import MAX_ERROR_CHARACTERS
from ..core.fingerprint import fingerprint
from ..core.keys import queue_keys
from .columns import Rows, columns
from .options import Options
from .snapshot import Ids, Snapshot, sent_us

SCHEMA = columns(
    "dead_queue STRING, message_id STRING, queue STRING, task STRING, task_id STRING, reason STRING, attempts INT, "
    "died_at TIMESTAMP, sent_at TIMESTAMP, worker STRING, error_type STRING, error STRING, fingerprint STRING, "
    "body_bytes INT"
)
#: What names a row: a message that was redriven dies a second time.
KEY = ("dead_queue", "message_id", "died_at")
#: Times of death come from anybody; earlier than 2010 or later than 2200 is none.
_EARLIEST_MS, _LATEST_MS = 1_262_304_000_000, 7_258_118_400_000
#: More attempts than this is no count.
_MOST_ATTEMPTS = 2**31 - 1


class DeadLetters:
    """Plans and reads what lies in dead-letter queues."""

    def __init__(self, options: Options) -> None:
        self.snapshot = Snapshot(options)
        self.options = options

    def plan(self) -> list[Ids]:
        """Return all letters of the queues that were asked for, or of all queues that hold failure records."""
        queues = self.options.queues or tuple(self._queues_with_records())
        return Snapshot(replace(self.options, queues=queues)).plan() if queues else []

    def read(self, part: Ids) -> Iterator[Rows]:
        """Yield the letters of a part in chunks; those that left their queue meanwhile are left out."""
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
    if failure is None:  # somebody else put it there
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
        # That of the event log and of the admin, so that all of them speak of the same group.
        fingerprint(failure.task, failure.error, error) if failure.error else None,
        letter.size_bytes,
    )


def _time_us(epoch_ms: float) -> int | None:
    return int(epoch_ms * 1000) if _EARLIEST_MS < epoch_ms < _LATEST_MS else None
