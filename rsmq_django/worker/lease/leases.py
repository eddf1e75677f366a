"""Which messages this worker holds, and when their leases have to be renewed.

Which of the messages that a worker holds were cancelled: asked when something was, or when one is gone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from operator import attrgetter

from ...core import Client, RsmqError, SettleResult
from ...core.backoff import ReconnectBackoff
from ...core.call import Call
from ...core.keys import cancelled_key
from ...core.limits import MAX_BATCH, batches
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

    def settle_batches(self, deliveries: Iterable[Delivery]) -> list[str]:
        """Return the batches of which nothing is held any more when these messages are dropped."""
        return self._settlement(self._count(deliveries))

    def drop(self, deliveries: Sequence[Delivery]) -> list[str]:
        """Forget messages: their outcome is known to Redis, or somebody else holds them.

        Returns the batches of which nothing is held any more.
        """
        counts = self._count(deliveries)
        over = self._settlement(counts)
        self._left -= counts  # which leaves no entries of zero
        self._held.difference_update(deliveries)
        return over

    def _settlement(self, counts: Counter[str]) -> list[str]:
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

    def renewed(self, deliveries: Sequence[Delivery], verdicts: Sequence[SettleResult], now: float) -> list[Delivery]:
        """Note the answers to a renewal and return the messages that turned out to be lost."""
        lost = []
        for delivery, verdict in zip(deliveries, verdicts, strict=True):
            if verdict is SettleResult.DONE:
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


def renewal_calls(deliveries: Sequence[Delivery]) -> list[tuple[list[Delivery], Call[list[SettleResult]]]]:
    """Return the calls, per queue, that hide these messages for another lease."""
    by_queue: dict[str, tuple[WorkQueue, list[Delivery]]] = {}
    for delivery in deliveries:
        by_queue.setdefault(delivery.work_queue.name, (delivery.work_queue, []))[1].append(delivery)
    return [
        (batch, work_queue.queue.change_visibility_call([d.message for d in batch], work_queue.lease_s))
        for work_queue, held in by_queue.values()
        for batch in batches(held)
    ]


class Cancellations:
    """Those on one connection. Only the worker's main thread uses them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cancelled: set[str] = set()
        #: Messages of which somebody should ask whether they were cancelled.
        self._suspects: list[str] = []
        self._suspects_all = False
        self._backoff = ReconnectBackoff(f"cancellations on {client.connection!r}", server=client.connection)

    def suspect(self, deliveries: Iterable[Delivery]) -> None:
        """Ask about messages that are gone although they are worked on here."""
        self._suspects += [delivery.message.id for delivery in deliveries]

    def suspect_all(self) -> None:
        """Ask about everything that is held: something was cancelled, or nobody listened for a while."""
        self._suspects_all = True

    @property
    def has_suspects(self) -> bool:
        """Say whether there is something to ask."""
        return self._suspects_all or bool(self._suspects)

    def question(self, held: Callable[[], Sequence[Delivery]]) -> tuple[list[str], Call[list[bool]]] | None:
        """Return what to ask and the call that does; None when nothing is suspicious."""
        if self._suspects_all:
            self._suspects_all = False
            self._suspects = [delivery.message.id for delivery in held()]
        ids, self._suspects = self._suspects[:MAX_BATCH], self._suspects[MAX_BATCH:]
        if not ids:
            return None
        key = cancelled_key(self._client.namespace)
        return ids, Call("worker/read_cancelled", (key,), tuple(ids), _read_flags, repeatable=True)

    def answered(self, ids: Sequence[str], flags: Sequence[bool]) -> None:
        """Take over an answer."""
        self._backoff.over()
        self._cancelled.update(each for each, is_cancelled in zip(ids, flags, strict=True) if is_cancelled)

    def ask_again(self, ids: Iterable[str]) -> None:
        """Keep what could not be asked."""
        self._suspects += ids

    def refused(self, error: RsmqError) -> None:
        """Note that the key with the cancellations is damaged: whoever cancels hears of it, too."""
        self._backoff.note(error)

    def take(self, held: Callable[[], Sequence[Delivery]]) -> list[Delivery]:
        """Return those that were cancelled since this was last asked, marked as such."""
        if not self._cancelled:
            return []
        ids, self._cancelled = self._cancelled, set()
        cancelled = [each for each in held() if each.message.id in ids and not each.cancelled]
        for delivery in cancelled:
            delivery.cancelled = delivery.lease_lost = True
        return cancelled


def _read_flags(reply: list[int]) -> list[bool]:
    return [number == 1 for number in reply]
