"""Attempts as rows: a page of the event log of one connection, newest first; older ones are read from the lake.

A log has no numbered pages: a page begins after the last attempt of the page before it. So the page itself passes the
selection to the source, which returns the rows of that page only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from django.db import models

from ..conf.settings import get_settings
from ..core import Client
from ..core.errors import InvalidValue
from ..core.stats.events import Event, following
from ..core.stats.run_filter import RunFilter
from ..core.stats.run_search import as_number, newest_first
from ..core.stats.runs import MOST_LOOKED_AT, RunPage, find_runs, read_run
from ..queues import get_client
from .conditions import Selection
from .older_runs import LakeProblem, OlderRuns, has_lake, read_older, read_older_run
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
        #: Its part from the lake; None if the log has all that was asked for.
        self.older: OlderRuns | None = None

    def scan(self, selection: Selection) -> Scan:
        """See RowSource."""
        keys = selection.values("key")
        if keys is not None:
            rows = [row for row in map(self._row_of, sorted(keys)) if row is not None]
            return Scan(rows, len(rows), len(rows))
        asked = self.asked or Asked(default_alias())
        client = get_client(asked.alias)
        page = find_runs(
            client,
            asked.wanted,
            before=asked.before,
            count=get_settings().admin.page_size,
            most_looked_at=MOST_LOOKED_AT,
            dead_letters_of=lambda event: dead_letters_of(asked.alias, event),
        )
        page = self.page_of_runs = page if page.older else self._continued(client, asked, page)
        rows = [self.row(asked.alias, event) for event in page.runs]
        return Scan(rows, len(rows), len(rows), is_final=True)

    def _continued(self, client: Client, asked: Asked, page: RunPage) -> RunPage:
        """Return a page, at which the log ends, with attempts from the lake if older ones were asked for."""
        wanted = asked.wanted
        if asked.before == "+" and wanted.since_ms is None and wanted.until_ms is None:
            is_there = page.runs and has_lake(asked.alias)
            return replace(page, older=page.runs[-1].entry_id) if is_there else page
        oldest = client.run(following(client.namespace, count=1))
        begin = oldest[0].entry_id if oldest else "+"
        if oldest and wanted.since_ms is not None and wanted.since_ms >= oldest[0].at_ms:
            return page
        room = get_settings().admin.page_size - len(page.runs)
        if room <= 0:
            return replace(page, older=page.runs[-1].entry_id)
        found = read_older(asked.alias, wanted, before=min(asked.before, begin, key=as_number), count=room)
        log_begins_ms = oldest[0].at_ms if oldest else None
        if isinstance(found, LakeProblem):
            if found is not LakeProblem.NO_LAKE or wanted.since_ms is not None or wanted.until_ms is not None:
                self.older = OlderRuns(log_begins_ms, None, found)
            return page
        self.older = OlderRuns(log_begins_ms, found)
        return joined(page, found)

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
        event = event or read_older_run(parts[0], entry_id, task=task, message_id=message_id)
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


def joined(page: RunPage, older: RunPage) -> RunPage:
    """Return one page of two. Entries that move from the log to the lake meanwhile may be in both."""
    known = {(event.entry_id, event.message_id, event.task) for event in page.runs}
    more = [event for event in older.runs if (event.entry_id, event.message_id, event.task) not in known]
    runs = newest_first([*page.runs, *more])
    if older.older is not None:  # successes that are older than this are on the next page
        runs = [event for event in runs if as_number(event.entry_id) >= as_number(older.older)]
    return RunPage(runs, older.older, page.looked_at + older.looked_at, older.is_cut)


def key_of(alias: str, event: Event) -> str:
    """Return the key of an attempt."""
    return row_key(alias, f"{event.entry_id}/{event.message_id}/{event.task}")


def default_alias() -> str:
    """Return the connection whose attempts are shown when none is named."""
    connections = get_settings().connections
    return DEFAULT_ALIAS if DEFAULT_ALIAS in connections else next(iter(connections))


def on_connection(alias: str) -> dict[str, str]:
    """Return the field of an address that shows the attempts of a connection; none for the default one."""
    return {} if alias == default_alias() else {"connection": alias}


def dead_letters_of(alias: str, event: Event) -> str | None:
    """Return the dead-letter queue of the attempt's queue."""
    place = QueueRef(alias, get_settings().base_name(event.queue)).dead_letters
    return place.name if place is not None and place.alias == alias else None
