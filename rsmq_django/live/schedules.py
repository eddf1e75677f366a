"""The schedules of all connections as rows, including schedules in code that no worker has registered yet."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.utils.timezone import is_aware, make_naive

from ..core.tasks.schedules import list_entries
from .conditions import Selection
from .queryset import Scan
from .scanned import ScannedSource, all_of
from .servers import from_each
from .texts import visible

_TIMES = ("next_at", "last_planned_at", "last_fired_at")


class ScheduleSource(ScannedSource):
    """Reads all of them: there are up to a thousand."""

    def scan(self, selection: Selection) -> Scan:
        """See RowSource."""
        # Imported here, because a model may be imported before the tasks framework can be.
        from ..schedules import entries
        from ..tasks.catalogue import known_tasks

        known_tasks()  # registers the schedules in code, and finds the errors of others
        # Of chosen names it must be sure: one that it cannot see may be on a connection that does not answer.
        found = self._listed() if selection.values("name") is None else entries()
        return all_of([self._row(entry) for entry in found], selection, "name", "task")

    def _listed(self) -> list[Any]:
        """Return the schedules of the connections that answer."""
        from ..tasks.schedule_listing import all_entries

        listings = from_each(
            lambda alias, client: (alias, client.run(list_entries(client.namespace))), self.notes, with_shards=False
        )
        seen = {"", *(alias for alias, _listing in listings)}
        return [entry for entry in all_entries(listings) if entry.connection in seen]

    def _row(self, entry: Any) -> Any:
        row: Any = self.model(
            name=entry.name.encode("utf-8", "backslashreplace").decode(),  # it becomes a part of addresses
            connection=entry.connection,
            task=visible(entry.task),
            queue=visible(entry.queue_name),
            when=visible(entry.when),
            is_declared=entry.is_declared,
            is_paused=entry.is_paused,
            last_task_id=visible(entry.last_task_id),
            fired=entry.fired,
            skipped=entry.skipped,
            problem=visible(entry.problem),
            **{name: _time(getattr(entry, name)) for name in _TIMES},
        )
        row.entry = entry
        return row


def _time(time: Any) -> Any:
    return make_naive(time) if time is not None and is_aware(time) and not settings.USE_TZ else time
