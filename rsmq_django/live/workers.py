"""The worker processes of all connections as rows."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from django.db import models

from ..core.listing import WorkerBeat, workers
from .conditions import Selection
from .queryset import Scan
from .servers import from_each
from .texts import visible
from .times import as_datetime

#: A worker that has not been heard of for so long counts as dead: others give back what it held.
SILENT_AFTER_S = 30.0


class WorkerSource:
    """Reads all of them: there are as many as processes."""

    def __init__(self, model: type[models.Model]) -> None:
        self.model = model
        self.notes: list[str] = []

    def can_page(self, selection: Selection) -> bool:
        """See Source."""
        return False

    def count(self, selection: Selection) -> int:
        """See Source."""
        return len(self.scan(selection).rows)

    def page(self, selection: Selection, start: int, stop: int | None) -> list[Any]:
        """See Source."""
        return self.scan(selection).rows[start:stop]

    def scan(self, selection: Selection) -> Scan:
        """See Source."""
        answers = from_each(lambda alias, client: (alias, client.run(workers(client.namespace))), self.notes)
        rows = [self._row(alias, beat) for alias, beats in answers for beat in beats]
        rows = [row for row in rows if all(word.lower() in row.worker_id.lower() for word in selection.words)]
        return Scan(rows, len(rows), len(rows))

    def _row(self, alias: str, beat: WorkerBeat) -> Any:
        silent_s = (beat.now_ms - beat.beat_ms) / 1000
        return self.model(
            key=f"{quote(alias, safe='')}/{quote(beat.worker_id, safe='', errors='surrogateescape')}",
            worker_id=visible(beat.worker_id),
            connection=alias,
            last_beat_at=as_datetime(beat.beat_ms),
            is_alive=silent_s < SILENT_AFTER_S,
        )
