"""Shares of several queues by weight: how much each may take in the next fetch, and in which order.

Weights 6, 4 and 2 give 600, 400 and 200 of the first 1200 messages when all three queues have a backlog. An empty queue
leaves its share to the others, in proportion to their weights, and does not save it for later. No I/O here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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
    """The shares of all queues of a fetch."""

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
