"""The messages that this worker holds: when to renew their leases, and which of them were cancelled.

Cancellations are read after one was published, and when a held message is gone.
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

#: A lease is renewed at a tenth of its length, and while the server is unavailable this is retried as often: at least
#: eight tenths of a lease are left to survive that time.
RENEWALS_PER_LEASE = 10

_batch_of = attrgetter("batch")


class Leases:
    """The messages held on one connection, from their receive until their outcome has reached Redis."""

    def __init__(self) -> None:
        self._held: set[Delivery] = set()
        #: Number of held messages of each batch.
        self._left: Counter[str] = Counter()
        #: No lease has to be renewed before this time; a lower bound, so that the check is almost free.
        self._quiet_until = math.inf

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, deliveries: Sequence[Delivery]) -> None:
        """Begin to renew the leases of messages just received."""
        self._held.update(deliveries)
        self._left.update(map(_batch_of, deliveries))
        # The messages of a batch share one lease.
        for delivery in {delivery.batch: delivery for delivery in deliveries}.values():
            self._quiet_until = min(self._quiet_until, _renewal_at(delivery))

    def held(self) -> list[Delivery]:
        """Return the messages held now."""
        return list(self._held)

    def completed_batches(self, deliveries: Iterable[Delivery]) -> list[str]:
        """Return the batches of which no message is held any more when these are dropped."""
        return self._completed(self._count(deliveries))

    def drop(self, deliveries: Sequence[Delivery]) -> list[str]:
        """Forget messages: their outcome is known to Redis, or another worker holds them.

        Returns the batches of which no message is held any more.
        """
        counts = self._count(deliveries)
        over = self._completed(counts)
        self._left -= counts  # this removes entries of zero
        self._held.difference_update(deliveries)
        return over

    def _completed(self, counts: Counter[str]) -> list[str]:
        return [batch for batch, count in counts.items() if count == self._left[batch]]

    def _count(self, deliveries: Iterable[Delivery]) -> Counter[str]:
        return Counter(map(_batch_of, self._held.intersection(deliveries)))

    def may_be_due(self, now: float) -> bool:
        """Return whether a lease may be due for renewal."""
        return now >= self._quiet_until

    def due(self, now: float, ended: Set[Delivery]) -> list[Delivery]:
        """Return the messages whose leases are due for renewal, without the ones whose outcome is being sent."""
        kept = [held for held in self._held if not held.lease_lost and held not in ended]
        due = [held for held in kept if now >= _renewal_at(held)]
        if not due:
            self._quiet_until = min(map(_renewal_at, kept), default=math.inf)
        return due

    def next_renewal_at(self) -> float | None:
        """Return when to look at the leases again, on the monotonic clock; None when none has to be renewed."""
        return None if self._quiet_until == math.inf else self._quiet_until

    def longest_wait_s(self) -> float:
        """Return the maximum wait before the server is tried again; infinite when no message is held."""
        return min((held.work_queue.lease_s for held in self._held), default=math.inf) / RENEWALS_PER_LEASE

    def has_unnoted_start(self) -> bool:
        """Return whether a held message has not started, or its result record does not contain the start yet."""
        return any(not held.start_noted for held in self._held)

    def renewed(self, deliveries: Sequence[Delivery], verdicts: Sequence[SettleResult], now: float) -> list[Delivery]:
        """Note the replies to a renewal and return the messages whose lease is lost."""
        lost = []
        for delivery, verdict in zip(deliveries, verdicts, strict=True):
            if verdict is SettleResult.DONE:
                delivery.renewed_at = now
            else:
                delivery.lease_lost = True
                lost.append(delivery)
        return lost

    def expire(self, now: float) -> None:
        """Mark messages whose leases expired while Redis was unavailable: another worker may hold them."""
        for held in self._held:
            if now >= held.renewed_at + held.work_queue.lease_s:
                held.lease_lost = True


def _renewal_at(delivery: Delivery) -> float:
    return delivery.renewed_at + delivery.work_queue.lease_s / RENEWALS_PER_LEASE


def renewal_calls(deliveries: Sequence[Delivery]) -> list[tuple[list[Delivery], Call[list[SettleResult]]]]:
    """Return the calls, per queue, that renew the leases of these messages."""
    by_queue: dict[str, tuple[WorkQueue, list[Delivery]]] = {}
    for delivery in deliveries:
        by_queue.setdefault(delivery.work_queue.name, (delivery.work_queue, []))[1].append(delivery)
    return [
        (batch, work_queue.queue.change_visibility_call([d.message for d in batch], work_queue.lease_s))
        for work_queue, held in by_queue.values()
        for batch in batches(held)
    ]


class Cancellations:
    """Cancelled tasks on one connection. Only the worker's main thread uses it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cancelled: set[str] = set()
        #: Ids of messages that may have been cancelled.
        self._suspects: list[str] = []
        self._suspects_all = False
        self._backoff = ReconnectBackoff(f"cancellations on {client.connection!r}", server=client.connection)

    def suspect(self, deliveries: Iterable[Delivery]) -> None:
        """Ask about messages that are gone although they are running here."""
        self._suspects += [delivery.message.id for delivery in deliveries]

    def suspect_all(self) -> None:
        """Ask about all held messages: a cancellation was published, or the subscription was interrupted."""
        self._suspects_all = True

    @property
    def has_suspects(self) -> bool:
        """Return whether there is a question."""
        return self._suspects_all or bool(self._suspects)

    def question(self, held: Callable[[], Sequence[Delivery]]) -> tuple[list[str], Call[list[bool]]] | None:
        """Return the ids to ask about and the call; None when there is no suspicion."""
        if self._suspects_all:
            self._suspects_all = False
            self._suspects = [delivery.message.id for delivery in held()]
        ids, self._suspects = self._suspects[:MAX_BATCH], self._suspects[MAX_BATCH:]
        if not ids:
            return None
        key = cancelled_key(self._client.namespace)
        return ids, Call("worker/read_cancelled", (key,), tuple(ids), _read_flags, repeatable=True)

    def answered(self, ids: Sequence[str], flags: Sequence[bool]) -> None:
        """Store an answer."""
        self._backoff.over()
        self._cancelled.update(each for each, is_cancelled in zip(ids, flags, strict=True) if is_cancelled)

    def ask_again(self, ids: Iterable[str]) -> None:
        """Keep the ids for the next question."""
        self._suspects += ids

    def refused(self, error: RsmqError) -> None:
        """Note that the key of the cancellations is damaged: the caller of cancel() gets the error, too."""
        self._backoff.note(error)

    def take(self, held: Callable[[], Sequence[Delivery]]) -> list[Delivery]:
        """Return the messages that were cancelled since the last call, and mark them."""
        if not self._cancelled:
            return []
        ids, self._cancelled = self._cancelled, set()
        cancelled = [each for each in held() if each.message.id in ids and not each.cancelled]
        for delivery in cancelled:
            delivery.cancelled = delivery.lease_lost = True
        return cancelled


def _read_flags(reply: list[int]) -> list[bool]:
    return [number == 1 for number in reply]
