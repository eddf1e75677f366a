"""Which queues a worker looks at on one connection, and in which order.

Each configured queue comes with its priority bands, highest priority first; lanes of one priority take turns. A band or
lane is created by whoever first sends to it, so they are read again whenever the number of queues in Redis changes.
Between the configured queues the order is that of the worker's list, or by weight when one of them has a weight.
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

#: How many queues there are according to a key that cannot be read.
NO_LIST = -1


@dataclass(frozen=True, slots=True)
class FetchOrder:
    """One look at the queues: in which order, and how many messages each may give before the others had their turn."""

    #: For how many calls; a batch of messages is one.
    room: int
    queues: Sequence[WorkQueue]
    #: Of each queue; "" for the bands that share the limit of the queue before them, and where there is no limit.
    limits: Sequence[int | str]
    #: By configured queue; None when the order is strict.
    quotas: Mapping[str, int] | None
    #: Only some queues are looked at, because the others had nothing a moment ago.
    is_partial: bool = False
    #: The position of each queue whose messages are taken in batches, followed by the size of these.
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
        #: Whether the queues exist and were compared with the settings, as far as anybody has noticed.
        self.is_provisioned = False
        #: False when the number of queues in Redis has changed: a priority may have been used for the first time.
        self.bands_are_known = False
        self._arrange()

    def _arrange(self) -> None:
        self.queues = [work_queue for bands in self._bands.values() for work_queue in bands]
        #: Under which name of the worker's list each queue is here.
        self._homes = {work_queue.name: name for name, bands in self._bands.items() for work_queue in bands}
        self._no_limits = [""] * len(self.queues)
        sizes = {name: batch_size(name) for name in self._bands}
        #: How many messages make one call, by configured queue; those are missing whose messages run one by one.
        self._batch_sizes = {name: size for name, size in sizes.items() if size is not None}
        self._has_lanes = any(work_queue.lane != NO_LANE for work_queue in self.queues)
        is_long = len(self.queues) > MANY and self._weights is None
        #: What finds the queues that have something, where there are too many to look at all of them each time.
        self.scan = QueueProbe(self._client.namespace, self.queues, self._in_turn) if is_long else None

    def _in_turn(self, queues: Sequence[WorkQueue]) -> Sequence[WorkQueue]:
        return self._lane_rotation.arrange(queues) if self._has_lanes else queues

    def look(self, room: int) -> FetchOrder:
        """Return what the next fetch asks for."""
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
        """Note how many messages of a look came from where, in its order."""
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
        """Say whether nothing has to be provisioned before the next look."""
        return self.is_provisioned and self.bands_are_known

    def provision(self) -> None:
        """See that the queues exist, and find their bands, when something has changed since that was last done."""
        if not self.is_provisioned:
            self.find_bands()  # first: a band that somebody deleted is not created again
            provision(self.queues)
        elif not self.bands_are_known:
            provision(self.find_bands())
        self.is_provisioned = self.bands_are_known = True

    def find_bands(self) -> list[WorkQueue]:
        """Read which bands there are, and return those that are new.

        While another program uses the key of the list, it goes on with those that are known.
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
            # A band that the worker was told by its name has a place of its own; nothing is in the list twice.
            found = [band for band in bands_of(name, grouped.get(name, ())) if band == name or band not in self._bands]
            for band in set(found) - known.keys():
                known[band] = WorkQueue(get_settings().queue(band), get_queue(band), home.lease_s, home.inflight_key)
                new.append(known[band])
            # A band that was deleted is looked at no longer; its queue itself stays, so that it is created again.
            self._bands[name] = [known[band] for band in found]
        self.known_count = len(names)
        self._arrange()
        return new


def read_names(namespace: str) -> Call[list[str]]:
    """Return the call that reads the names of all queues."""
    return Call("queue/list", (queues_key(namespace),), (), _read_names, repeatable=True)


def _read_names(reply: list[bytes]) -> list[str]:
    return [name.decode("utf-8", "backslashreplace") for name in reply]
