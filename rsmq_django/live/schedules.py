"""The schedules of all connections as rows, those included that the code declares and no worker has seen yet."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils.timezone import is_aware, make_naive

from .conditions import Selection
from .queryset import Scan
from .texts import visible

_TIMES = ("next_at", "last_planned_at", "last_fired_at")


class ScheduleSource:
    """Reads all of them: there are at most a thousand."""

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
        # Here, because a model may be imported before the tasks framework can be.
        from ..schedules import entries
        from ..tasks.catalogue import known_tasks

        known_tasks()  # so that schedules are known which the code declares, and what is wrong with others
        rows = [self._row(entry) for entry in entries()]
        words = [word.lower() for word in selection.words]
        rows = [row for row in rows if all(word in f"{row.name} {row.task}".lower() for word in words)]
        return Scan(rows, len(rows), len(rows))

    def _row(self, entry: Any) -> Any:
        row: Any = self.model(
            name=entry.name,
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
