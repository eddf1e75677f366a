"""The messages that this worker holds: when to renew their leases, and which of them were cancelled.

Cancellations are read after one was published, and when a held message is gone. A supervisor renews the leases of its
processes as well, in case they cannot do it themselves.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from operator import attrgetter

from ...conf.settings import QueueSettings
from ...core import Client, RsmqError, SettleResult
from ...core.keys import cancelled_key, queue_keys, worker_key
from ...core.limits import MAX_BATCH, batches, stored_seconds
from ...core.queue.replies import number
from ...core.transport.backoff import ReconnectBackoff
from ...core.transport.call import Call
from ...core.transport.client import raise_or_return
from ...core.transport.shared_exchanges import Exchanges
from ..delivery import SHORTEST_LEASE_S, Delivery, WorkQueue
from .inflight import held_batches, queues_of, renew_inflight

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

    def add(self, deliveries: Sequence[Delivery]) -> None:
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
        """Return the batches of which no message is held any more when these are removed."""
        return self._completed(self._count(deliveries))

    def remove(self, deliveries: Sequence[Delivery]) -> list[str]:
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

    def put_off(self, now: float) -> None:
        """Look at the leases again later: a damaged queue or group refuses to renew its own."""
        self._quiet_until = now + self.longest_wait_s()

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
        return ids, Call("ZMSCORE", (key,), tuple(ids), _read_flags, repeatable=True)

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


def _read_flags(scores: list[bytes | None]) -> list[bool]:
    return [score is not None for score in scores]


# -- Renewal by the supervisor ----------------------------------------------------------------------------------------

#: The longest time between two renewals; also the time in which a changed visibility timeout is noticed.
LONGEST_WAIT_S = 10.0
#: Slices of a thousand queues per round trip.
SLICES_AT_ONCE = 5

#: Returns the work queues of these names, with the in-flight key of a worker.
FindQueues = Callable[[str, Iterable[str]], list[WorkQueue]]


class Renewal:
    """Renews the leases of a supervisor's worker processes on one connection.

    Two round trips for all processes together, for any number of queues: one finds the batches of messages that they
    hold, one renews; more of them for a process that holds more than twenty batches. The visibility timeouts of all
    queues are read by the thousand, to compute how often to renew.
    While nothing is held, the exchanges are shared with other connections.
    """

    def __init__(self, client: Client, queues: Sequence[QueueSettings], find_queues: FindQueues) -> None:
        self._client = client
        self._queues = queues
        self._find_queues = find_queues
        self._read_at = 0.0
        #: The shortest and longest visibility timeouts of these queues.
        self.shortest_s = min((float(each.visibility_timeout_s) for each in queues), default=LONGEST_WAIT_S)
        self.longest_s = max((float(each.visibility_timeout_s) for each in queues), default=0.0)

    @property
    def wait_s(self) -> float:
        """Return the time between two renewals, and the maximum wait before an unavailable server is tried again."""
        return min(LONGEST_WAIT_S, max(SHORTEST_LEASE_S, self.shortest_s) / RENEWALS_PER_LEASE)

    def renew(self, living: Sequence[str]) -> Exchanges[float]:
        """Renew all leases of these workers and return the number of seconds until the next renewal."""
        if time.monotonic() >= self._read_at:
            yield from self._read_lease_times()
        keys = [worker_key(self._client.namespace, worker_id) for worker_id in living]
        replies = yield [held_batches(key) for key in keys]
        held = dict(zip(keys, map(raise_or_return, replies), strict=True))
        records = [(key, own, self._find_queues(key, queues_of(own))) for key, own in held.items()]
        shortest_s = renew_inflight(self._client, records)
        self.shortest_s = min(self.shortest_s, shortest_s)
        return self.wait_s

    def _read_lease_times(self) -> Exchanges[None]:
        settings = list(self._queues)
        slices = list(batches(settings))
        stored: list[bytes] = []
        for at in range(0, len(slices), SLICES_AT_ONCE):
            for reply in (yield [self._read_slice(each) for each in slices[at : at + SLICES_AT_ONCE]]):
                stored += raise_or_return(reply)
        found = [_lease_s(each, raw) for each, raw in zip(settings, stored, strict=True)]
        self.shortest_s, self.longest_s = min(found), max(found)
        self._read_at = time.monotonic() + LONGEST_WAIT_S

    def _read_slice(self, settings: Sequence[QueueSettings]) -> Call[list[bytes]]:
        keys = tuple(queue_keys(self._client.namespace, each.name).settings for each in settings)
        return Call("tasks/worker/lease_times", keys, (), lambda reply: reply, repeatable=True)


def _lease_s(settings: QueueSettings, stored: bytes) -> float:
    """Return the lease of a queue: the stored visibility timeout, or that of the settings."""
    seconds = stored_seconds(number(stored, -1.0), settings.vt_unit) if stored else -1.0
    return max(SHORTEST_LEASE_S, seconds if seconds >= 0 else float(settings.visibility_timeout_s))
