"""Search of attempts in the event log, newest first, with filters.

Events are in the log; in the mode "recent", successes are in one short stream for each task (core/stats/events.py).
This module merges them; a page reads a bounded number of entries, and reports how far back it has searched.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import takewhile

from ..errors import InvalidValue
from ..keys import events_key
from ..limits import MAX_BATCH
from ..transport.client import Client
from .events import Event
from .run_filter import EVERY_RUN, RunFilter
from .run_search import (
    DeadLettersOf,
    RunSearch,
    as_age,
    as_number,
    events_in,
    newest_command,
    newest_first,
    read_entries,
    success_keys,
)

__all__ = ["RunFilter", "RunPage", "Tail", "attempts_of", "find_runs", "read_run"]

#: Maximum number of entries that are read for one page: 20 ms of the server's time, and 100 ms of this process.
MOST_LOOKED_AT = 60_000
_ENTRY_ID = re.compile(r"[0-9]{1,18}-[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of attempts, newest first."""

    runs: list[Event]
    #: `before` of the next page; None on the last page.
    older: str | None
    #: Number of entries that were read.
    looked_at: int
    #: Whether the search ended before the page was full: older entries may match.
    is_cut: bool = False

    @property
    def looked_back_to_ms(self) -> int | None:
        """Return the time back to which all entries were read; None for the whole log."""
        return None if self.older is None else int(self.older.partition("-")[0])


# -- Pages ------------------------------------------------------------------------------------------------------------


def find_runs(
    client: Client,
    wanted: RunFilter = EVERY_RUN,
    *,
    before: str = "+",
    count: int = 50,
    most_looked_at: int = MOST_LOOKED_AT,
    dead_letters_of: DeadLettersOf = lambda event: None,
) -> RunPage:
    """Return up to `count` matching attempts, newest first; `before` is the `older` of the previous page.

    A page is longer when several attempts in different streams have the entry id of its last one.
    """
    search = RunSearch(client, wanted, before, dead_letters_of)
    apart, found = newest_first(search.successes(count)), list[Event]()
    ages = [as_age(event.entry_id) for event in apart]
    horizon: str | None = "+"  # all newer entries were read
    while horizon is not None and (horizon == "+" or search.cost < most_looked_at):
        if len(found) + bisect_right(ages, as_age(horizon)) > count:
            break
        more, horizon = search.next_slice(count)
        found += more
    found += apart if horizon is None else apart[: bisect_right(ages, as_age(horizon))]
    found = newest_first(found)
    runs = found[:count]
    runs += takewhile(lambda event: event.entry_id == runs[-1].entry_id, found[count:])
    if len(found) > len(runs):
        return RunPage(runs, runs[-1].entry_id, search.looked_at)
    return RunPage(runs, horizon, search.looked_at, is_cut=horizon is not None)


def read_run(client: Client, entry_id: str, *, task: str = "", message_id: str = "") -> Event | None:
    """Return the attempt whose event has this id, or None.

    Different streams may have an entry of the same id: task and message id select one; without a task, all streams are
    searched. Raises InvalidValue for an id that no event can have.
    """
    if not _ENTRY_ID.fullmatch(entry_id):
        raise InvalidValue(f"{entry_id!r} is not the id of an event; it looks like 1795000000000-0")
    keys = [events_key(client.namespace), *success_keys(client, task or None)]
    for each in events_in(client, keys, entry_id):
        if task in ("", each.task) and message_id in ("", each.message_id):
            return each
    return None


def attempts_of(client: Client, run: Event, *, most_looked_at: int = MOST_LOOKED_AT) -> RunPage:
    """Return all attempts of the same call, newest first, including this one."""
    about = RunFilter(task_id=run.task_id) if run.task_id else RunFilter(message_id=run.message_id, queue=run.queue)
    # A server's clock may have been set back a little since.
    since_ms = None if run.enqueued_ms is None else max(0, run.enqueued_ms - 60_000)
    wanted = replace(about, since_ms=since_ms, task=None if not run.task else run.task)
    return find_runs(client, wanted, count=MAX_BATCH, most_looked_at=most_looked_at)


class Tail:
    """Follows attempts as they end: each call of `more()` returns the new ones, in order."""

    def __init__(self, client: Client, wanted: RunFilter = EVERY_RUN) -> None:
        self._client = client
        self._search = RunSearch(client, wanted, "+", lambda event: None)
        self._wanted = wanted
        #: Stream -> id of its last known entry. A stream that is not in it has been created since.
        self._known: dict[str, str] = {}
        keys = self._keys()
        for key, found in zip(keys, read_entries(client, [newest_command(key, "+", 1) for key in keys]), strict=True):
            self._known[key] = found[0][0].decode() if found else "-"

    def more(self) -> list[Event]:
        """Return the attempts that have ended since the last call, up to a thousand of each stream."""
        keys = self._keys()
        events: list[Event] = []
        firsts = [f"({self._known[key]}" if self._known.get(key, "-") != "-" else "-" for key in keys]
        commands = [("XRANGE", key, first, "+", "COUNT", MAX_BATCH) for key, first in zip(keys, firsts, strict=True)]
        for key, found in zip(keys, read_entries(self._client, commands), strict=True):
            if found:
                self._known[key] = found[-1][0].decode()
                events += self._search.fitting(found)
        return sorted(events, key=lambda event: as_number(event.entry_id))

    def _keys(self) -> list[str]:
        wanted = self._wanted
        keys = success_keys(self._client, wanted.task) if wanted.may_have_succeeded else []
        return [events_key(self._client.namespace), *keys]
