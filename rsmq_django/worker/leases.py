"""Which messages this worker holds, and when their leases have to be renewed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from operator import attrgetter

from ..core import Settlement
from ..core.call import Call
from ..core.limits import batches
from .delivery import Delivery, WorkQueue

#: A lease is renewed at a tenth of its length, and while the server is away it is tried again as often: of a lease, at
#: least eight tenths are left for the time without the server.
RENEWALS_PER_LEASE = 10

_batch_of = attrgetter("batch")


class Leases:
    """The messages held on one connection, from their receive until their outcome has reached Redis."""

    def __init__(self) -> None:
        self._held: set[Delivery] = set()
        #: How many messages of each batch are held.
        self._left: Counter[str] = Counter()
        #: No lease has to be renewed before this time; a lower bound, so that looking costs nothing most of the time.
        self._quiet_until = math.inf

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, deliveries: Sequence[Delivery]) -> None:
        """Begin to renew the leases of messages just received."""
        self._held.update(deliveries)
        self._left.update(map(_batch_of, deliveries))
        # Those of one batch have one lease.
        for delivery in {delivery.batch: delivery for delivery in deliveries}.values():
            self._quiet_until = min(self._quiet_until, _renewal_at(delivery))

    def held(self) -> list[Delivery]:
        """Return the messages held now."""
        return list(self._held)

    def ending_batches(self, deliveries: Iterable[Delivery]) -> list[str]:
        """Return the batches of which nothing is held any more when these messages are dropped."""
        return self._ending(self._count(deliveries))

    def drop(self, deliveries: Sequence[Delivery]) -> list[str]:
        """Forget messages: their outcome is known to Redis, or somebody else holds them.

        Returns the batches of which nothing is held any more.
        """
        counts = self._count(deliveries)
        over = self._ending(counts)
        self._left -= counts  # which leaves no entries of zero
        self._held.difference_update(deliveries)
        return over

    def _ending(self, counts: Counter[str]) -> list[str]:
        return [batch for batch, count in counts.items() if count == self._left[batch]]

    def _count(self, deliveries: Iterable[Delivery]) -> Counter[str]:
        return Counter(map(_batch_of, self._held.intersection(deliveries)))

    def may_be_due(self, now: float) -> bool:
        """Say whether to ask which leases are due."""
        return now >= self._quiet_until

    def due(self, now: float, ended: Set[Delivery]) -> list[Delivery]:
        """Return the messages whose leases should be renewed now: not of those whose outcome is on its way."""
        kept = [held for held in self._held if not held.lease_lost and held not in ended]
        due = [held for held in kept if now >= _renewal_at(held)]
        if not due:
            self._quiet_until = min(map(_renewal_at, kept), default=math.inf)
        return due

    def next_renewal_at(self) -> float | None:
        """Return when to look at the leases again, on the monotonic clock; None when none has to be renewed."""
        return None if self._quiet_until == math.inf else self._quiet_until

    def longest_wait_s(self) -> float:
        """Return how long to wait at most before the server is tried again; infinite when nothing is held."""
        return min((held.work_queue.lease_s for held in self._held), default=math.inf) / RENEWALS_PER_LEASE

    def has_unnoted_start(self) -> bool:
        """Say whether a held message has not begun to run, or its result record does not say so yet."""
        return any(not held.start_noted for held in self._held)

    def renewed(self, deliveries: Sequence[Delivery], verdicts: Sequence[Settlement], now: float) -> list[Delivery]:
        """Note the answers to a renewal and return the messages that turned out to be lost."""
        lost = []
        for delivery, verdict in zip(deliveries, verdicts, strict=True):
            if verdict is Settlement.DONE:
                delivery.renewed_at = now
            else:
                delivery.lease_lost = True
                lost.append(delivery)
        return lost

    def expire(self, now: float) -> None:
        """Mark messages whose leases ran out while Redis could not be reached: somebody else may hold them."""
        for held in self._held:
            if now >= held.renewed_at + held.work_queue.lease_s:
                held.lease_lost = True


def _renewal_at(delivery: Delivery) -> float:
    return delivery.renewed_at + delivery.work_queue.lease_s / RENEWALS_PER_LEASE


def renewal_calls(deliveries: Sequence[Delivery]) -> list[tuple[list[Delivery], Call[list[Settlement]]]]:
    """Return the calls, per queue, that hide these messages for another lease."""
    by_queue: dict[str, tuple[WorkQueue, list[Delivery]]] = {}
    for delivery in deliveries:
        by_queue.setdefault(delivery.work_queue.name, (delivery.work_queue, []))[1].append(delivery)
    return [
        (batch, work_queue.queue.change_visibility_call([d.message for d in batch], work_queue.lease_s))
        for work_queue, held in by_queue.values()
        for batch in batches(held)
    ]
