"""Selects the queues of a fetch on one connection, and their order.

Each configured queue comes with its priority bands, highest priority first; lanes of one priority take turns. A band or
lane is created by its first sender, so they are read again whenever the number of queues in Redis changes. Between the
configured queues the order is that of the worker's list, or by weight when one of them has a weight.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...conf import get_settings
from ...core import Client
from ...core.backoff import ReconnectBackoff
from ...core.bands import bands_of, by_queue
from ...core.call import Call
from ...core.errors import BrokenQueue
from ...core.keys import queues_key
from ...queues import get_queue
from ...tasks.registry import batch_size
from ..lease.delivery import NO_LANE, WorkQueue
from .lanes import LaneRotation
from .provision import provision
from .queue_probe import MANY, QueueProbe
from .weights import Weights

#: The number of queues when the key of the list cannot be read.
NO_LIST = -1


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

    def __init__(self, client: Client, queues: Sequence[WorkQueue]) -> None:
        self._client = client
        self._bands = {work_queue.name: [work_queue] for work_queue in queues}
        weights = {work_queue.name: work_queue.settings.weight for work_queue in queues}
        is_weighted = len(weights) > 1 and any(weights.values())
        self._weights = Weights({name: weight or 1 for name, weight in weights.items()}) if is_weighted else None
        #: How many queues Redis had when the bands were read.
        self.known_count = NO_LIST
        self._list = ReconnectBackoff("list of queues")
        self._lane_rotation = LaneRotation()
        #: Whether all queues exist and were compared with the settings; False after a missing queue was noticed.
        self.is_provisioned = False
        #: False when the number of queues in Redis has changed: a priority may have been used for the first time.
        self.bands_are_known = False
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
        #: Finds the queues with messages, if there are too many to fetch from all of them each time; else None.
        self.scan = QueueProbe(self._client.namespace, self.queues, self._in_turn) if is_long else None

    def _in_turn(self, queues: Sequence[WorkQueue]) -> Sequence[WorkQueue]:
        return self._lane_rotation.arrange(queues) if self._has_lanes else queues

    def look(self, room: int) -> FetchOrder:
        """Return the queues and limits of the next fetch."""
        if self.scan is not None:
            queues = self.scan.choose(time.monotonic())
            is_partial = queues is not self.queues
            return FetchOrder(room, queues, self._no_limits[: len(queues)], None, is_partial, self._batches(queues))
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

    def looked(self, look: FetchOrder, served: Counter[WorkQueue]) -> None:
        """Note how many messages of a fetch came from each queue, in its order."""
        if self._has_lanes:
            self._lane_rotation.gave(served)
        if self.scan is not None:
            last = next(reversed(served), None)
            self.scan.fetched(look.queues, last, is_full=served.total() >= look.room)
        if self._weights is not None and look.quotas is not None:
            counts = Counter[str]()
            for work_queue, count in served.items():
                counts[self._homes[work_queue.name]] += count
            calls = {name: math.ceil(count / self._batch_sizes.get(name, 1)) for name, count in counts.items()}
            self._weights.note(look.quotas, calls, look.room)

    @property
    def is_settled(self) -> bool:
        """Return whether nothing has to be provisioned before the next fetch."""
        return self.is_provisioned and self.bands_are_known

    def provision(self) -> None:
        """Create missing queues and read their bands, if something has changed since this was last done."""
        if not self.is_provisioned:
            self.find_bands()  # first: a deleted band is not created again
            provision(self.queues)
        elif not self.bands_are_known:
            provision(self.find_bands())
        self.is_provisioned = self.bands_are_known = True

    def find_bands(self) -> list[WorkQueue]:
        """Read the existing bands, and return the new ones.

        While another program uses the key of the list, the known bands are kept.
        """
        try:
            names = self._client.run(read_names(self._client.namespace))
        except BrokenQueue as error:
            self.known_count = NO_LIST
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
                known[band] = WorkQueue(get_settings().queue(band), get_queue(band), home.lease_s, home.inflight_key)
                new.append(known[band])
            # A deleted band is dropped; its configured queue stays, so that it is created again.
            self._bands[name] = [known[band] for band in found]
        self.known_count = len(names)
        self._arrange()
        return new


def read_names(namespace: str) -> Call[list[str]]:
    """Return the call that reads the names of all queues."""
    return Call("queue/list", (queues_key(namespace),), (), _read_names, repeatable=True)


def _read_names(reply: list[bytes]) -> list[str]:
    return [name.decode("utf-8", "backslashreplace") for name in reply]
