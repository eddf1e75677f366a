"""The sums of queues with shards: a list of queues has a row for each shard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..core.stats.depth import Depth, together
from .glance import Glance
from .places import QueueRef


@dataclass(frozen=True, slots=True)
class ShardTotal:
    """What all shards of a queue contain."""

    name: str
    #: Number of shards that were read: a server may not answer, and the queue may not exist in some yet.
    found: int
    shards: int
    depth: Depth
    #: None when dead letters are deleted.
    dead: int | None
    #: The time of the first server, in epoch milliseconds.
    now_ms: int


def totals_of(shown: Iterable[QueueRef], glance: Glance) -> list[ShardTotal]:
    """Return the totals of those queues that have a shard on the page, in the order of the page."""
    groups: dict[str, list[QueueRef]] = {place.name: [] for place in shown if place.shard is not None}
    for place in glance.places if groups else ():
        if place.name in groups and place.shard is not None:
            groups[place.name].append(place)
    every = {place: place.dead_letters for places in groups.values() for place in places}
    glance.summaries_of([*every, *(dead for dead in every.values() if dead is not None)])
    return [_total_of(name, places, glance) for name, places in groups.items() if places]


def _total_of(name: str, places: Sequence[QueueRef], glance: Glance) -> ShardTotal:
    depths = [summary.depth for summary in glance.summaries_of(places).values()]
    dead = None if places[0].dead_letters is None else sum(glance.dead(place) or 0 for place in places)
    _, shards = places[0].shard or (0, len(places))
    return ShardTotal(name, len(places), shards, together(depths), dead, depths[0].now_ms)
