"""Result records of tasks as rows. Redis knows them by task id only, so they cannot be listed."""

from __future__ import annotations

from typing import Any

from ..core import Client
from ..core.ids import sent_ms
from .conditions import Selection
from .queryset import Scan
from .scanned import ScannedSource
from .servers import from_each
from .texts import visible
from .times import as_datetime

#: The number of ids that one page looks up.
MAX_IDS = 100


class ResultSource(ScannedSource):
    """See the module."""

    def scan(self, selection: Selection) -> Scan:
        """Look up the selected ids; a word of a search may be an id."""
        ids = sorted({*(selection.values("task_id") or ()), *selection.words})[:MAX_IDS]
        found = from_each(lambda alias, client: self._read(alias, client, ids), self.notes) if ids else []
        rows = [row for rows in found for row in rows]
        return Scan(rows, len(rows), len(rows))

    def _read(self, alias: str, client: Client, ids: list[str]) -> list[Any]:
        # Imported here, because a model may be imported before the tasks framework can be.
        from ..tasks.results import read_record

        named = [task_id for task_id in ids if task_id and task_id.isprintable()]
        records = [client.run(read_record(client.namespace, task_id)) for task_id in named]
        return [self._row(alias, task_id, record) for task_id, record in zip(named, records, strict=True) if record]

    def _row(self, alias: str, task_id: str, record: dict[str, str]) -> Any:
        row: Any = self.model(
            task_id=task_id,
            connection=alias,
            status=visible(record.get("status", "")),
            queue=visible(record.get("queue", "")),
            message_id=visible(record.get("message", "")),
            attempts=sum(name.startswith("worker:") for name in record),
            enqueued_at=as_datetime(sent_ms(record.get("message", ""))),
            started_at=as_datetime(record.get("started_ms")),
            finished_at=as_datetime(record.get("finished_ms")),
        )
        row.record = record
        return row
