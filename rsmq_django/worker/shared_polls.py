"""Polls of many idle connections to one server: one request asks which of them have messages, and takes none.

A poll that fetches needs room for a message. With eight threads and a hundred shards, thirteen turns would follow each
other in every poll interval, each with a round trip on eight sockets. So most idle polls only ask, all in one turn, and
the fetch follows where there is something. Each connection fetches now and then, which also finds damaged queues.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Sequence

from ..core import RsmqError
from ..core.transport.prepared_calls import OneNodeCalls
from .sources.queues import QueueSource


class SharedPoll:
    """A request about the queues of several sources, on the socket of one of them."""

    def __init__(self, sources: Sequence[QueueSource]) -> None:
        self._sources = sources
        self._calls: OneNodeCalls | None = None
        self._asked_at = 0.0
        #: When the replies are overdue, on the monotonic clock.
        self.overdue_at = math.inf

    def begin(self) -> bool:
        """Send the request; return False, with nothing to wait for, when that was not possible."""
        carrier = next((each.client for each in self._sources if not each.is_fetch_pending), None)
        if carrier is not None:
            self._calls = OneNodeCalls(carrier, [each.scan_call for each in self._sources])
            self._asked_at = time.monotonic()
            self.overdue_at = self._asked_at + carrier.connection.timeout_s
            try:
                if self._calls.send():
                    return True
            except RsmqError as error:
                self._fail(error)
                return False
        for source in self._sources:
            source.poll_schedule.fetch_soon()
        return False

    def fileno(self) -> int:
        """Return the descriptor on which the replies arrive."""
        assert self._calls is not None
        return self._calls.fileno()

    def finish(self) -> None:
        """Read the replies."""
        assert self._calls is not None
        try:
            results = self._calls.results()
        except RsmqError as error:
            self._fail(error)
            return
        for source, found in zip(self._sources, results, strict=True):
            source.note_scanned(found, asked_at=self._asked_at)

    def give_up(self) -> None:
        """Treat the server as unavailable: the replies are overdue."""
        assert self._calls is not None
        try:
            self._calls.give_up()
        except RsmqError as error:
            self._fail(error)

    def _fail(self, error: RsmqError) -> None:
        """Have all sources connect again, in threads of their own: none waits for the same server once more."""
        for source in self._sources:
            if source.is_fetch_pending:  # its own request finds out
                source.poll_schedule.fetch_soon()
            else:
                source.client.connection.close()
                source.note_unreachable(error)


def shared_polls(sources: Iterable[QueueSource]) -> list[SharedPoll]:
    """Return the idle polls that are due among these sources, by server, and note that they begin.

    A poll of a single source is left to its own exchange.
    """
    by_server: dict[Hashable, list[QueueSource]] = {}
    now = time.monotonic()
    for source in sources:
        if source.may_scan(now):
            by_server.setdefault(source.client.connection.open_server, []).append(source)
    groups = [group for server, group in by_server.items() if server is not None and len(group) > 1]
    for group in groups:
        for source in group:
            source.poll_schedule.begin_scan()
    return [SharedPoll(group) for group in groups]
