"""Attempts as rows: a page of the event log of one connection, newest first.

A log has no numbered pages: a page begins after the last attempt of the page before it. So the page itself passes the
selection to the source, which returns the rows of that page only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.db import models

from ..conf.settings import get_settings
from ..core.errors import InvalidValue
from ..core.stats.events import Event
from ..core.stats.run_filter import RunFilter
from ..core.stats.runs import MOST_LOOKED_AT, RunPage, find_runs, read_run
from ..queues import get_client
from .conditions import Selection
from .places import DEFAULT_ALIAS, QueueRef
from .queryset import Scan
from .row_keys import parts_of_key, row_key
from .scanned import ScannedSource
from .texts import visible
from .times import as_datetime


@dataclass(frozen=True, slots=True)
class Asked:
    """The attempts on a page."""

    alias: str
    wanted: RunFilter = field(default_factory=RunFilter)
    #: The end of the previous page.
    before: str = "+"


class RunSource(ScannedSource):
    """Reads one page, or attempts by their keys."""

    def __init__(self, model: type[models.Model]) -> None:
        super().__init__(model)
        self.asked: Asked | None = None
        #: The page that was read.
        self.page_of_runs: RunPage | None = None

    def scan(self, selection: Selection) -> Scan:
        """See RowSource."""
        keys = selection.values("key")
        if keys is not None:
            rows = [row for row in map(self._row_of, sorted(keys)) if row is not None]
            return Scan(rows, len(rows), len(rows))
        asked = self.asked or Asked(default_alias())
        client = get_client(asked.alias)
        page = self.page_of_runs = find_runs(
            client,
            asked.wanted,
            before=asked.before,
            count=get_settings().admin.page_size,
            most_looked_at=MOST_LOOKED_AT,
            dead_letters_of=lambda event: dead_letters_of(asked.alias, event),
        )
        rows = [self.row(asked.alias, event) for event in page.runs]
        return Scan(rows, len(rows), len(rows), is_final=True)

    def _row_of(self, key: str) -> Any | None:
        parts = parts_of_key(key)
        if parts is None:
            return None
        entry_id, _, rest = parts[1].partition("/")
        message_id, _, task = rest.rpartition("/")
        try:
            event = read_run(get_client(parts[0]), entry_id, task=task, message_id=message_id)
        except InvalidValue:
            return None
        return None if event is None else self.row(parts[0], event)

    def row(self, alias: str, event: Event) -> Any:
        """Return the row of an event."""
        row: Any = self.model(
            key=key_of(alias, event),
            connection=alias,
            ended_at=as_datetime(event.at_ms),
            task=visible(event.task),
            queue=visible(event.queue),
            outcome=visible(event.kind),
            latency_s=None if event.wait_us is None else event.wait_us / 1e6,
            run_time_s=None if event.run_us is None else event.run_us / 1e6,
            attempt=event.attempt,
            worker=visible(event.worker),
            error=visible(event.error_type),
            tags=visible(", ".join(event.tags)),
        )
        row.event = event
        return row


def key_of(alias: str, event: Event) -> str:
    """Return the key of an attempt."""
    return row_key(alias, f"{event.entry_id}/{event.message_id}/{event.task}")


def default_alias() -> str:
    """Return the connection whose attempts are shown when none is named."""
    connections = get_settings().connections
    return DEFAULT_ALIAS if DEFAULT_ALIAS in connections else next(iter(connections))


def dead_letters_of(alias: str, event: Event) -> str | None:
    """Return the dead-letter queue of the attempt's queue."""
    place = QueueRef(alias, get_settings().base_name(event.queue)).dead_letters
    return place.name if place is not None and place.alias == alias else None
