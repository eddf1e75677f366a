"""The workflows of all connections as rows, the newest first: a thousand of each connection are listed."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..conf.settings import get_settings
from ..core import Client
from ..core.tasks.workflow_records import WorkflowStatus, newest, read_statuses
from ..core.tasks.workflows import MAX_LISTED
from ..queues import get_client
from .conditions import Selection
from .queryset import Scan
from .row_keys import parts_of_key, row_key
from .scanned import ScannedSource, all_of
from .servers import from_each
from .texts import visible
from .times import as_datetime


class WorkflowSource(ScannedSource):
    """Reads the ids of the newest workflows, and a hash of a dozen fields for each."""

    def can_page(self, selection: Selection) -> bool:
        """See RowSource. The list of one server is in the order of their creation."""
        is_plain = selection.is_exact and not selection.equal and not selection.words
        return is_plain and selection.order_by in ((), ("-created_at",)) and len(get_settings().connections) == 1

    def count(self, selection: Selection) -> int:
        """See RowSource."""
        return len(self._newest[1])

    def page(self, selection: Selection, start: int, stop: int | None) -> list[Any]:
        """See RowSource."""
        alias, ids = self._newest
        client = get_client(alias)
        return self._read(alias, client, [(alias, workflow_id) for workflow_id in ids[start:stop]])

    @cached_property
    def _newest(self) -> tuple[str, list[str]]:
        alias = next(iter(get_settings().connections))
        client = get_client(alias)
        return alias, client.run(newest(client.namespace, MAX_LISTED))

    def scan(self, selection: Selection) -> Scan:
        """See RowSource."""
        keys = selection.values("key")
        wanted = None if keys is None else [parts for parts in map(parts_of_key, sorted(keys)) if parts]
        found = from_each(lambda alias, client: self._read(alias, client, wanted), self.notes)
        return all_of([row for rows in found for row in rows], selection, "workflow_id", "name")

    def _read(self, alias: str, client: Client, wanted: list[tuple[str, str]] | None) -> list[Any]:
        if wanted is None:
            ids = client.run(newest(client.namespace, MAX_LISTED))
        else:
            ids = [workflow_id for of, workflow_id in wanted if of == alias]
        statuses = client.run(read_statuses(client.namespace, ids)) if ids else []
        return [self._row(alias, status) for status in statuses if status is not None]

    def _row(self, alias: str, status: WorkflowStatus) -> Any:
        row: Any = self.model(
            key=row_key(alias, status.id),
            workflow_id=visible(status.id),
            connection=alias,
            name=visible(status.name),
            kind=status.kind,
            state=status.state,
            total=status.total,
            done=status.done,
            failed=status.failed,
            members=status.members,
            waiting=status.waiting,
            created_at=as_datetime(status.created_ms or None),
            finished_at=as_datetime(status.finished_ms),
        )
        row.status = status
        return row
