"""Selects the queues of a fetch on one connection, and their order.

Each configured queue comes with its priority bands, highest priority first; lanes of one priority take turns. A band or
lane is created by its first sender, so they are read again whenever the number of queues in Redis changes. Between the
configured queues the order is that of the worker's list, or by weight when one of them has a weight. Of very many
queues only those with messages are fetched from.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ...conf.settings import get_settings
from ...core import Client
from ...core.errors import BrokenQueue
from ...core.keys import paused_key, queues_key
from ...core.queue.bands import bands_of, by_queue
from ...core.transport.backoff import ReconnectBackoff
from ...core.transport.call import Call
from ...queues import queue_on
from ...tasks.registry import batch_size
from ..delivery import NO_LANE, WorkQueue
from .queues import provision

#: The number of queues when the key of the list cannot be read.
UNKNOWN_COUNT = -1


@dataclass(frozen=True, slots=True)
class FetchOrder:
    """The queues of one fetch: in which order, and how many messages each may give before the others had their turn."""

    #: Number of calls; a batch of messages is one call.
    room: int
    queues: Sequence[WorkQueue]
    #: Limit of each queue; "" for bands that share the limit of the queue before them, and without a limit.
    limits: Sequence[int | str]
    #: By configured queue; None when the order is strict.
    quotas: Mapping[str, int] | None
    #: Only some queues are included, because the others were empty a moment ago.
    is_partial: bool = False
    #: The position of each queue with batches, followed by its batch size.
    batches: Sequence[int] = ()


class QueueSelector:
    """The queues of one worker on one connection."""

    def __init__(self, client: Client, queues: Sequence[WorkQueue], *, ends_by_itself: bool = False) -> None:
        self._client = client
        self._ends_by_itself = ends_by_itself
        self._bands = {work_queue.name: [work_queue] for work_queue in queues}
        weights = {work_queue.name: work_queue.settings.weight for work_queue in queues}
        is_weighted = len(weights) > 1 and any(weights.values())
        self._weights = Weights({name: weight or 1 for name, weight in weights.items()}) if is_weighted else None
        #: How many queues Redis had when the bands were read.
        self.known_count = UNKNOWN_COUNT
        self._list = ReconnectBackoff("list of queues")
        self._lane_rotation = LaneRotation()
        #: Whether all queues exist and were compared with the settings; False after a missing queue was noticed.
        self.is_provisioned = False
        #: False when the number of queues in Redis has changed: a priority may have been used for the first time.
        self.bands_are_known = False
        #: Queues that a fetch could not read: those are provisioned, unless it is not known which ones are missing.
        self._unreadable: list[WorkQueue] = []
        #: Finds the queues with messages, if there are too many to fetch from all of them each time; else None.
        self.scan: QueueProbe | None = None
        #: The rest of a provisioning that has begun.
        self._rest: Iterator[None] | None = None
        self._arrange()

    def _arrange(self) -> None:
        self.queues = [work_queue for bands in self._bands.values() for work_queue in bands]
        #: The configured queue of each queue.
        self._homes = {work_queue.name: name for name, bands in self._bands.items() for work_queue in bands}
        self._no_limits = [""] * len(self.queues)
        sizes = {name: batch_size(name) for name in self._bands}
        #: Batch sizes by configured queue; queues without batches are missing.
        self._batch_sizes = {name: size for name, size in sizes.items() if size is not None}
        self._has_lanes = any(work_queue.lane != NO_LANE for work_queue in self.queues)
        is_long = len(self.queues) > MANY and self._weights is None
        if not is_long:
            self.scan = None
        elif self.scan is None or self.scan.queues != self.queues:
            self.scan = QueueProbe(self._client.namespace, self.queues, self._in_turn, in_one_step=self._ends_by_itself)

    def _in_turn(self, queues: Sequence[WorkQueue]) -> Sequence[WorkQueue]:
        return self._lane_rotation.arrange(queues) if self._has_lanes else queues

    def choose(self, room: int) -> FetchOrder:
        """Return the queues and limits of the next fetch."""
        if self.scan is not None:
            queues = self.scan.choose()
            return FetchOrder(room, queues, self._no_limits[: len(queues)], None, True, self._batches(queues))
        if self._weights is None:
            queues = self._in_turn(self.queues)
            return FetchOrder(room, queues, self._no_limits, None, batches=self._batches(queues))
        quotas = self._weights.quotas(room)
        queues = self._in_turn([work_queue for name in quotas for work_queue in self._bands[name]])
        limits: list[int | str] = []
        for name, quota in quotas.items():
            limits += (quota, *[""] * (len(self._bands[name]) - 1))
        return FetchOrder(room, queues, limits, quotas, batches=self._batches(queues))

    def _batches(self, queues: Sequence[WorkQueue]) -> Sequence[int]:
        if not self._batch_sizes:
            return ()
        sizes = [(position, self._batch_sizes.get(self._homes[each.name])) for position, each in enumerate(queues, 1)]
        return [number for position, size in sizes if size is not None for number in (position, size)]

    def note_fetched(self, order: FetchOrder, served: Counter[WorkQueue]) -> None:
        """Note how many messages of a fetch came from each queue, in its order."""
        if self._has_lanes:
            self._lane_rotation.note_served(served)
        if self.scan is not None:
            last = next(reversed(served), None)
            self.scan.fetched(order.queues, last, is_full=served.total() >= order.room)
        if self._weights is not None and order.quotas is not None:
            counts = Counter[str]()
            for work_queue, count in served.items():
                counts[self._homes[work_queue.name]] += count
            calls = {name: math.ceil(count / self._batch_sizes.get(name, 1)) for name, count in counts.items()}
            self._weights.note(order.quotas, calls, order.room)

    def note_unreadable(self, queues: Sequence[WorkQueue]) -> None:
        """Note queues that are missing or damaged."""
        self.is_provisioned = False
        self._unreadable += queues
        if self.scan is not None:
            self.scan.note_unreadable(queues)

    @property
    def is_settled(self) -> bool:
        """Return whether nothing has to be provisioned before the next fetch."""
        return self.is_provisioned and self.bands_are_known

    def provision(self) -> bool:
        """Create missing queues and read their bands, if something has changed since this was last done.

        Of very many queues a call creates some. Returns whether all are there.
        """
        if self.is_settled:
            return True
        rest, self._rest = self._rest or self._provision(), None
        for _ in rest:
            self._rest = rest
            return False
        self.is_provisioned = self.bands_are_known = True
        return True

    def _provision(self) -> Iterator[None]:
        new = self.find_bands()  # first: a deleted band is not created again
        unreadable, self._unreadable = self._unreadable, []
        if unreadable:
            new += [each for each in self.queues if each in unreadable and each not in new]
        yield from provision(new if self.is_provisioned or unreadable else self.queues)

    def find_bands(self) -> list[WorkQueue]:
        """Read the existing bands, and return the new ones.

        While another program uses the key of the list, the known bands are kept.
        """
        try:
            names = self._client.run(read_names(self._client.namespace))
        except BrokenQueue as error:
            self.known_count = UNKNOWN_COUNT
            self._list.note(error)
            return []
        self._list.over()
        new: list[WorkQueue] = []
        grouped = by_queue(names)
        for name, bands in self._bands.items():
            known = {work_queue.name: work_queue for work_queue in bands}
            home = known[name]
            # A band that is in the worker's list by name has its own position; no queue is included twice.
            found = [band for band in bands_of(name, grouped.get(name, ())) if band == name or band not in self._bands]
            for band in set(found) - known.keys():
                known[band] = _as_band(home, band)
                new.append(known[band])
            # A deleted band is dropped; its configured queue stays, so that it is created again.
            self._bands[name] = [known[band] for band in found]
        self.known_count = len(names)
        self._arrange()
        return new


def _as_band(home: WorkQueue, name: str) -> WorkQueue:
    """Return a priority band or lane of a queue."""
    alias = home.settings.connection
    settings = get_settings().queue_on(name, alias)
    assert settings is not None  # it is where its queue is
    return WorkQueue(settings, queue_on(name, alias), home.lease_s, home.inflight_key)


def read_names(namespace: str) -> Call[list[str]]:
    """Return the call that reads the names of all queues."""
    return Call("SMEMBERS", (queues_key(namespace),), (), _read_names, repeatable=True)


def _read_names(reply: list[bytes]) -> list[str]:
    return [name.decode("utf-8", "backslashreplace") for name in reply]


# -- Very many queues -------------------------------------------------------------------------------------------------

#: With fewer queues, each fetch includes all of them: one round trip instead of two.
MANY = 50
#: While there is work, a message in an earlier queue is noticed within this time.
SCAN_EVERY_S = 0.1
#: A scan after this time also finds queues that were deleted.
CHECK_EVERY_S = 10.0
#: Queues in one call of a scan, which takes the server a few milliseconds: other clients have their turns between two.
SCANNED_AT_A_TIME = 500


@dataclass(slots=True)
class ProbeResult:
    """The reply of a scan."""

    server_ms: int
    #: Time until a message becomes visible in a queue without ready ones; negative when none does.
    next_ms: float
    queue_count: int
    #: Positions from 1, in the order of the queues.
    positions: list[int]


@dataclass(slots=True)
class QueueProbe:
    """Remembers which of very many queues have messages: one small script finds them.

    No fetch names all of them: it passes four keys of each queue, and the server would do nothing else meanwhile.
    """

    namespace: str
    queues: Sequence[WorkQueue]
    #: Sorts lanes by their next turns.
    in_turn: Callable[[Sequence[WorkQueue]], Sequence[WorkQueue]]
    #: Scan all queues in one call. A message that moves to another queue between two calls may be in neither reply.
    #: A worker finds it with its next scan. It must not end because of this scan, if it ends when all queues are empty.
    in_one_step: bool = False
    ready: Sequence[WorkQueue] = field(default_factory=list)
    #: The time of the next scan that also finds deleted queues.
    check_at: float = -math.inf
    #: Queues that could not be read once, and a second time: until the next check, these are not read again.
    _suspects: set[WorkQueue] = field(default_factory=set)
    left_out: set[WorkQueue] = field(default_factory=set)
    _calls: list[Call[ProbeResult]] = field(init=False)
    _scanned_at: float = 0.0

    def __post_init__(self) -> None:
        self._calls = self._scan_calls()

    def _scan_calls(self, *, finds_deleted: bool = False) -> list[Call[ProbeResult]]:
        size = len(self.queues) if self.in_one_step else SCANNED_AT_A_TIME
        return [
            scan_call(self.namespace, self.queues[at : at + size], first=at + 1, finds_deleted=finds_deleted)
            for at in range(0, len(self.queues), size)
        ]

    def is_due(self, now: float) -> bool:
        """Return whether a scan is due."""
        return not self.ready or now >= self._scanned_at + SCAN_EVERY_S

    def next_calls(self, now: float) -> list[Call[ProbeResult]]:
        """Return the calls of a scan that is made now."""
        if now < self.check_at:
            return self._calls
        self.check_at = now + CHECK_EVERY_S
        self._suspects, self.left_out = set(), set()
        return self._scan_calls(finds_deleted=True)

    def scanned(self, found: ProbeResult, now: float) -> None:
        """Note the result of a scan."""
        self._scanned_at = now
        queues = [self.queues[position - 1] for position in found.positions]
        self.ready = self.in_turn([each for each in queues if each not in self.left_out])

    def note_unreadable(self, queues: Iterable[WorkQueue]) -> None:
        """Note queues that are missing or damaged: a missing one is created before it is read for the second time."""
        self.left_out |= self._suspects.intersection(queues)
        self._suspects.update(queues)

    def choose(self) -> Sequence[WorkQueue]:
        """Return the queues to fetch from."""
        return self.ready[:MANY]

    def fetched(self, queues: Sequence[WorkQueue], last: WorkQueue | None, *, is_full: bool) -> None:
        """Note the result of a fetch: if its room was used up, the queue of the last message may have more."""
        exhausted = queues.index(last) if is_full and last is not None else len(queues)
        self.ready = self.ready[exhausted:]


def scan_call(
    namespace: str, queues: Sequence[WorkQueue], *, first: int = 1, finds_deleted: bool = False
) -> Call[ProbeResult]:
    """Return the call that finds out which of these queues have messages, and perhaps which were deleted.

    `first` is the position of the first one.
    """
    keys = [queues_key(namespace), paused_key(namespace), *(each.queue.keys.messages for each in queues)]
    if finds_deleted:
        keys += [each.queue.keys.settings for each in queues]
    names = tuple(each.base_name for each in queues)

    def read(reply: list[bytes | int]) -> ProbeResult:
        server_ms, next_ms, queue_count, *found = (float(number) for number in reply)
        positions = sorted({int(position) + first - 1 for position in found})
        return ProbeResult(int(server_ms), next_ms, int(queue_count), positions)

    return Call("tasks/worker/scan", tuple(keys), names, read, repeatable=True)


def together(parts: Sequence[ProbeResult]) -> ProbeResult:
    """Return the result of a scan of several calls, in the order of the queues."""
    positions = [position for part in parts for position in part.positions]
    next_ms = min((part.next_ms for part in parts if part.next_ms >= 0), default=-1.0)
    return ProbeResult(parts[0].server_ms, next_ms, parts[-1].queue_count, positions)


# -- Lanes ------------------------------------------------------------------------------------------------------------

BEFORE_ALL = NO_LANE - 1


class LaneRotation:
    """The order of the lanes of each queue and priority: after a lane has given messages, the next one comes first.

    So a customer with ten thousand calls delays another customer's call by one turn of a worker, not by ten thousand.
    A turn is the room of a worker in one fetch. Lanes of a higher priority still come before all others. No I/O here.
    """

    def __init__(self) -> None:
        #: The lane that gave messages first in the last fetch, by queue and priority.
        self._last: dict[tuple[str, int], int] = {}

    def arrange(self, queues: Sequence[WorkQueue]) -> list[WorkQueue]:
        """Return the queues in the order to fetch from; only lanes of one priority change places.

        The queues may be a part of all: a turn continues after the number of the last lane, whether it exists or not.
        """
        arranged: list[WorkQueue] = []
        for band, lanes in groupby(queues, key=lambda work_queue: work_queue.band):
            last, run = self._last.get(band, BEFORE_ALL), list(lanes)
            arranged += [work_queue for work_queue in run if work_queue.lane > last]
            arranged += [work_queue for work_queue in run if work_queue.lane <= last]
        return arranged

    def note_served(self, served: Iterable[WorkQueue]) -> None:
        """Note which queues gave messages in a fetch, in its order."""
        firsts: dict[tuple[str, int], int] = {}
        for work_queue in dict.fromkeys(served):
            firsts.setdefault(work_queue.band, work_queue.lane)
        self._last.update(firsts)


# -- Weights ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Weight:
    """The share of one queue."""

    name: str
    weight: int
    #: Messages that the queue is behind its share; negative when it is ahead.
    credit: float = 0.0
    #: The last fetch found as much as it was allowed to take.
    has_backlog: bool = True


class Weights:
    """The shares of all queues of a fetch: how much each may take in the next one, and in which order.

    Weights 6, 4 and 2 give 600, 400 and 200 of the first 1200 messages when all three queues have a backlog. An empty
    queue leaves its share to the others, in proportion to their weights, and does not save it for later. No I/O here.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = [Weight(name, weight) for name, weight in weights.items()]
        self._total_weight = sum(weights.values())

    def quotas(self, room: int) -> dict[str, int]:
        """Return how many messages each queue may take, in the order to fetch from: the furthest behind comes first.

        The numbers may add up to more than `room`, which ends the fetch early. The remaining room is for any queue.
        """
        self._weights.sort(key=lambda share: -share.credit)
        return {share.name: self._quota(share, room) for share in self._weights}

    def _quota(self, share: Weight, room: int) -> int:
        fair = round(room * share.weight / self._total_weight + share.credit)
        # At least one for a queue that was empty: nothing else would notice that it has messages again.
        return max(fair, 0 if share.has_backlog else 1)

    def note(self, quotas: Mapping[str, int], served: Mapping[str, int], room: int) -> None:
        """Note the result of a fetch with these quotas and this much room."""
        for share in self._weights:
            took = served.get(share.name, 0)
            if room > 0:  # otherwise it was not fetched from
                share.has_backlog = took >= min(quotas[share.name], room)
            room -= min(took, quotas[share.name])
        self._settle([share for share in self._weights if share.has_backlog], served)
        for share in self._weights:
            if not share.has_backlog:
                share.credit = 0.0

    def _settle(self, contending: Sequence[Weight], served: Mapping[str, int]) -> None:
        total = sum(served.get(share.name, 0) for share in contending)
        weights = sum(share.weight for share in contending)
        for share in contending:
            share.credit += total * share.weight / weights - served.get(share.name, 0)
