"""The exchanges of one turn on several connections: all requests are sent before the first reply is read.

One after the other, a turn over the 16 shards of a queue would take 16 round trips. Replies are read as they arrive, so
a server that does not answer keeps no message of the others, and delays the next turn by one timeout at most, however
many connections lead to it.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Iterator, Sequence

from .fetch.exchange import PendingExchange
from .sources.queues import QueueSource
from .sources.source import Source


def can_overlap(sources: Sequence[Source]) -> bool:
    """Return whether exchanges of these sources may be sent before others are read."""
    return sum(isinstance(source, QueueSource) for source in sources) > 1


class SideBySide:
    """Exchanges of several sources, with the room for messages divided between those that fetch."""

    def __init__(self) -> None:
        self._turns = 0
        #: For how many calls a source may fetch in this turn, and in which turn each last could, by the source's id().
        self._rooms: dict[int, int] = {}
        self._last_room: dict[int, int] = {}

    def room_of(self, source: Source) -> int:
        """Return for how many calls a source may fetch in this turn."""
        return self._rooms.get(id(source), 0)

    def exchange(self, sources: Sequence[Source], room: int, *, at_most: int) -> Iterator[Source]:
        """Send what can be sent, and yield each source whose replies have arrived, or which has to send by itself."""
        self._divide(sources, room)
        sent, others = list[QueueSource](), list[Source]()
        for source in sources:
            if not isinstance(source, QueueSource):
                others.append(source)
            elif not source.begin_exchange(self.room_of(source), at_most=at_most):
                others.append(source)
            elif source.is_fetch_pending:
                sent.append(source)
        yield from _until_one_fails_again(others)
        yield from _as_replies_arrive(sent)

    def _divide(self, sources: Sequence[Source], room: int) -> None:
        """Divide the room; if it is for a few only, for those that could not fetch for longest."""
        self._turns += 1
        fetching = [source for source in sources if not isinstance(source, QueueSource) or source.is_fetch_due]
        fetching.sort(key=lambda source: self._last_room.get(id(source), 0))
        share, more = divmod(room, len(fetching) or 1)
        self._rooms = {id(source): share + (at < more) for at, source in enumerate(fetching)}
        self._last_room |= {source: self._turns for source, room in self._rooms.items() if room}


def _until_one_fails_again(sources: Sequence[Source]) -> Iterator[Source]:
    """Yield sources; those that were unavailable only until one of them fails again, which may take a timeout."""
    has_failed = False
    for source in sources:
        was_unavailable = source.is_unavailable
        if not (has_failed and was_unavailable):
            yield source
            has_failed |= was_unavailable and source.is_unavailable


def _as_replies_arrive(sources: Sequence[QueueSource]) -> Iterator[QueueSource]:
    """Yield sources whose replies are there; those whose replies are overdue give up."""
    arriving = select.poll()
    waiting: dict[int, tuple[QueueSource, PendingExchange]] = {}
    for source in sources:
        pending_exchange = source.pending_exchange
        assert pending_exchange is not None
        waiting[pending_exchange.fileno()] = source, pending_exchange
        arriving.register(pending_exchange, select.POLLIN)
    while waiting:
        left_s = min(pending_exchange.overdue_at for _, pending_exchange in waiting.values()) - time.monotonic()
        ready = [descriptor for descriptor, _ in arriving.poll(max(0, math.ceil(left_s * 1000)))]
        for descriptor in ready:
            arriving.unregister(descriptor)
            yield waiting.pop(descriptor)[0]
        if not ready:  # replies may have waited in the kernel while this process was busy
            for descriptor in [at for at, (_, each) in waiting.items() if each.overdue_at <= time.monotonic()]:
                arriving.unregister(descriptor)
                waiting.pop(descriptor)[0].give_up()
