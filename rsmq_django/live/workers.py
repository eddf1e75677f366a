"""The worker processes of all connections as rows."""

from __future__ import annotations

from typing import Any

from ..core.queue.listing import WorkerBeat
from ..core.tasks.processes import ProcessRecord
from .conditions import Selection
from .processes import is_alive, processes_of
from .queryset import Scan
from .row_keys import row_key
from .scanned import ScannedSource, all_of
from .servers import from_each
from .texts import visible
from .times import as_datetime


class WorkerSource(ScannedSource):
    """Reads all of them: there are as many rows as processes."""

    def scan(self, selection: Selection) -> Scan:
        """See RowSource."""
        answers = from_each(lambda alias, client: (alias, processes_of(client)), self.notes)
        rows = [self._row(alias, beat, record) for alias, found in answers for beat, record in found]
        return all_of(rows, selection, "worker_id", "queues")

    def _row(self, alias: str, beat: WorkerBeat, record: ProcessRecord | None) -> Any:
        row: Any = self.model(
            key=row_key(alias, beat.worker_id),
            worker_id=visible(beat.worker_id),
            connection=alias,
            last_beat_at=as_datetime(beat.beat_ms),
            is_alive=is_alive(beat),
            state=_state(beat, record),
        )
        row.beat, row.record = beat, record
        if record is not None:
            row.host, row.pid, row.version = visible(record.host), record.pid, visible(record.version)
            row.queues = ", ".join(map(visible, (*record.queues, *record.reliable)))
            row.running = len(record.running)
            row.longest_run_s = max((each.run_ms for each in record.running), default=0) / 1000
            row.memory_bytes = record.memory_bytes
            row.started_at = as_datetime(beat.now_ms - record.age_ms)
        return row


def _state(beat: WorkerBeat, record: ProcessRecord | None) -> str:
    if not is_alive(beat):
        return "silent"
    known = ("working", "quiet", "stopping")
    return record.state if record is not None and record.state in known else "unknown"
