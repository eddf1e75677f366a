"""The exchanges of one turn on several connections: all requests are sent before the first reply is read.

One after the other, a turn over the 16 shards of a queue would take 16 round trips. Replies are read as they arrive, so
a server that does not answer keeps no message of the others, and delays the next turn by one timeout at most, however
many connections lead to it. Until it answers again, other threads try to connect, so it delays no further turn.
"""

from __future__ import annotations

import math
import select
import threading
import time
from collections.abc import Iterable, Iterator, Sequence

from ..core import RsmqError
from .fetch.exchange import PendingExchange
from .shared_polls import SharedPoll, shared_polls
from .sources.queues import QueueSource
from .sources.source import Source


def can_overlap(sources: Sequence[Source]) -> bool:
    """Return whether exchanges of these sources may be sent before others are read."""
    return sum(isinstance(source, QueueSource) for source in sources) > 1


class SideBySide:
    """Exchanges of several sources, with the room for messages divided between the fetching ones."""

    def __init__(self) -> None:
        self._turns = 0
        #: For how many calls a source may fetch in this turn, and in which turn each last could, by the source's id().
        self._rooms: dict[int, int] = {}
        self._last_room: dict[int, int] = {}
        self._trials: dict[int, Trial] = {}

    def room_of(self, source: Source) -> int:
        """Return for how many calls a source may fetch in this turn."""
        return self._rooms.get(id(source), 0)

    def exchange(self, sources: Sequence[Source], room: int, *, at_most: int) -> Iterator[Source]:
        """Send what can be sent, and yield each source whose replies have arrived, or which has to send by itself."""
        polls = shared_polls(each for each in sources if isinstance(each, QueueSource)) if room > 0 else []
        self._divide(sources, room)
        sent, others = list[QueueSource](), list[Source]()
        for source in sources:
            if not isinstance(source, QueueSource) or self._has_connected(source):
                others.append(source)
            elif not source.begin_exchange(self.room_of(source), at_most=at_most):
                if source.client.connection.must_connect:
                    self._trials[id(source)] = Trial(source)
                else:
                    others.append(source)
            elif source.is_fetch_pending:
                sent.append(source)
        yield from _as_replies_arrive([*sent, *(each for each in polls if each.begin())])
        yield from others

    def _has_connected(self, source: QueueSource) -> bool:
        """Return whether a trial has just connected this source."""
        trial = self._trials.get(id(source))
        if trial is None or not trial.is_over:
            return False
        del self._trials[id(source)]
        return trial.end()

    def _divide(self, sources: Sequence[Source], room: int) -> None:
        """Divide the room; if it is for a few only, for those that could not fetch for longest."""
        self._turns += 1
        fetching = [source for source in sources if not isinstance(source, QueueSource) or source.is_fetch_due]
        fetching.sort(key=lambda source: self._last_room.get(id(source), 0))
        share, more = divmod(room, len(fetching) or 1)
        self._rooms = {id(source): share + (at < more) for at, source in enumerate(fetching)}
        self._last_room |= {source: self._turns for source, room in self._rooms.items() if room}


class Trial:
    """Connects the client of a source in a thread of its own, and wakes the worker then. The source waits meanwhile."""

    def __init__(self, source: QueueSource) -> None:
        self._source = source
        self._error: RsmqError | None = None
        self.is_over = False
        source.backoff.next_try_at = math.inf
        thread = threading.Thread(target=self._run, name=f"connect {source.client.connection!r}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the limit of the system
            self._run()

    def _run(self) -> None:
        try:
            self._source.client.go_to_keys()
            self._source.client.ask([("PING",)])
        except RsmqError as error:
            self._error = error
        finally:
            self.is_over = True
            self._source.wake()

    def end(self) -> bool:
        """Let the source continue, or wait for the next trial; return whether there is a connection."""
        self._source.backoff.next_try_at = 0.0
        if self._error is not None:
            self._source.note_unreachable(self._error)
        return self._error is None


def _as_replies_arrive(sent: Iterable[QueueSource | SharedPoll]) -> Iterator[QueueSource]:
    """Yield sources whose replies are there; those whose replies are overdue give up."""
    arriving = select.poll()
    waiting: dict[int, tuple[QueueSource | SharedPoll, PendingExchange | SharedPoll]] = {}
    for each in sent:
        pending_exchange = each if isinstance(each, SharedPoll) else each.pending_exchange
        assert pending_exchange is not None
        waiting[pending_exchange.fileno()] = each, pending_exchange
        arriving.register(pending_exchange, select.POLLIN)
    while waiting:
        left_s = min(pending_exchange.overdue_at for _, pending_exchange in waiting.values()) - time.monotonic()
        ready = [descriptor for descriptor, _ in arriving.poll(max(0, math.ceil(left_s * 1000)))]
        for descriptor in ready:
            arriving.unregister(descriptor)
            arrived, _ = waiting.pop(descriptor)
            if isinstance(arrived, SharedPoll):
                arrived.finish()
            else:
                yield arrived
        if not ready:  # replies may have waited in the kernel while this process was busy
            for descriptor in [at for at, (_, each) in waiting.items() if each.overdue_at <= time.monotonic()]:
                arriving.unregister(descriptor)
                waiting.pop(descriptor)[0].give_up()
