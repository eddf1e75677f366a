"""The worker's conversation with one Redis server about reliable queues: acknowledge, extend, recover, pop.

Stands beside Fetcher and looks the same from outside. What a worker holds is on record in the queue itself, under the
worker's id, and is extended at a third of the queue's lease; what nobody has extended for a whole lease is recovered by
whichever worker looks next. Tasks in reliable queues keep no results.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..conf import QueueSettings, ReliableQueueSettings, get_settings
from ..core import Client, Message, Queue, RsmqError, Settlement
from ..core.call import Call
from ..core.errors import QueueFull, QueueNotFound
from ..core.limits import MAX_BATCH
from ..core.reliable import Popped, ReliableMessage, ReliableQueue
from ..queues import get_client
from .announcer import Announcer
from .board import Board
from .clock import ServerClock
from .delivery import Delivery, WorkQueue
from .error_text import one_line
from .execution import Execution
from .leases import Leases
from .outage import Outage
from .outcomes import Dead, Outcome, Postponed, Released, RetryIn, Succeeded
from .reliable_wake_up import ReliableWakeUp

logger = logging.getLogger(__name__)

#: Abandoned messages are looked for after a quarter to a half of a lease, at random: workers should
#: not do it in step.
RECOVERIES_PER_LEASE = (2.0, 4.0)
#: For messages that may be delivered as often as it takes.
NO_LIMIT = 1_000_000
MAX_REASON_LENGTH = 200


@dataclass(slots=True)
class ReliableWork:
    """One reliable queue that this worker takes messages from."""

    settings: ReliableQueueSettings
    queue: ReliableQueue
    #: The same queue as executions know it: a name, and how many attempts there are.
    work_queue: WorkQueue
    recover_at: float = field(default=0.0)

    def choose_recovery(self) -> None:
        """Choose when to look for abandoned messages next."""
        self.recover_at = time.monotonic() + self.settings.lease_s / random.uniform(*RECOVERIES_PER_LEASE)  # noqa: S311


@dataclass(frozen=True, slots=True)
class Settled:
    """An outcome on its way to Redis."""

    delivery: Delivery
    outcome: Outcome

    @property
    def group(self) -> tuple[str, object]:
        """Return what those have in common that can go out together."""
        match self.outcome:
            case RetryIn(after_s) | Postponed(after_s):
                return self.delivery.work_queue.name, f"{type(self.outcome).__name__} {after_s}"
            case Dead(reason, error):
                return self.delivery.work_queue.name, f"{reason}: {one_line(error)}"
        return self.delivery.work_queue.name, type(self.outcome)


class ReliableFetcher:
    """Works on some reliable queues of one connection, in the order given: the first queue's messages come first."""

    def __init__(
        self,
        client: Client,
        works: Sequence[ReliableWork],
        *,
        announcer: Announcer,
        poll_interval_s: float,
        wake: Callable[[], None],
        board: Board | None = None,
    ) -> None:
        self.client = client
        self.works = {work.settings.name: work for work in works}
        self.announcer = announcer
        self.leases = Leases()
        self.clock = ServerClock()
        self.outage = Outage(f"reliable queues on {client.connection!r}")
        self.wake_up = ReliableWakeUp([work.queue for work in works], on_token=self.look_now)
        self._poll_interval_s = poll_interval_s
        self._wake = wake
        self._board = board
        self._settled: deque[Settled] = deque()
        self._let_go: deque[Delivery] = deque()
        #: Their settling may have been carried out although its reply was lost.
        self._uncertain: set[Delivery] = set()
        self._look_at = 0.0
        self._was_told_to_look = False
        self._provisioned = False
        #: The last look found no message at all; None before the first look.
        self.is_empty: bool | None = None
        #: The last look found nothing to pop.
        self.is_drained: bool | None = None

    # -- What others tell it, from any thread -------------------------------------------------------------------------

    def began(self, execution: Execution) -> None:
        """Nothing is noted when an attempt begins: the delivery is on record."""

    def settle(self, execution: Execution, outcome: Outcome) -> None:
        """Take over an outcome; the next exchange carries it out."""
        self._settled.append(Settled(execution.delivery, outcome))
        self._wake()

    def let_go(self, execution: Execution) -> None:
        """Extend a message no longer that will have no outcome here, so that it is recovered."""
        self._let_go.append(execution.delivery)
        self._wake()

    def look_now(self) -> None:
        """Look for messages at the next exchange: there is one."""
        self._was_told_to_look = True
        self._wake()

    @property
    def has_endings(self) -> bool:
        """Say whether Redis does not know yet how something went."""
        return bool(self._settled)

    @property
    def is_idle(self) -> bool:
        """Say whether nothing is held and nothing waits to be carried out."""
        return not self._settled and not len(self.leases)

    #: Tasks in reliable queues cannot be cancelled, and what a queue refuses is an outage there.
    is_stuck = False

    def take_cancelled(self) -> list[Execution]:
        """Return none; see Fetcher."""
        return []

    # -- The exchange -------------------------------------------------------------------------------------------------

    def exchange(self, room: int, *, at_most: int = MAX_BATCH) -> list[Delivery]:
        """Carry out what ended, extend what is held, and take up to `room` messages; never more than `at_most`.

        Never raises for the server's troubles: what could not be carried out stays for a later exchange.
        """
        if time.monotonic() < self.outage.next_try_at:
            self.leases.expire(time.monotonic())
            return []
        taken: list[Delivery] = []
        try:
            self._provision()
            self._settle()
            self._extend()
            self._take(min(room, at_most), taken)
        except RsmqError as error:
            self.outage.note(error)
            self.leases.expire(time.monotonic())
        else:
            self.outage.over()
            if self._board is not None:
                self._board.beat()
        return taken

    def flush(self) -> None:
        """Carry out all that ended, now: it is the last chance. What cannot be carried out is recovered."""
        left = math.inf
        while len(self._settled) < left:
            left = len(self._settled)
            try:
                self._settle()
            except RsmqError as error:
                self.outage.note(error)

    def _provision(self) -> None:
        """Store in each queue how often its messages may be delivered, for consumers in other languages, too."""
        if self._provisioned:
            return
        for work in self.works.values():
            try:
                work.queue.configure(max_deliveries=work.settings.max_deliveries)
            except QueueFull:
                logger.warning(
                    "queue %s: the server is full; its limit of deliveries is not stored yet", work.queue.name
                )
        self._provisioned = True

    def _settle(self) -> None:
        while self._let_go:
            self.leases.drop([self._let_go.popleft()])
        groups: dict[tuple[str, object], list[Settled]] = {}
        for _ in range(min(len(self._settled), MAX_BATCH)):
            settled = self._settled.popleft()
            groups.setdefault(settled.group, []).append(settled)
        while groups:
            key = next(iter(groups))
            try:
                self._carry_out(groups[key])
            except RsmqError:
                rest = [settled for group in groups.values() for settled in group]
                self._uncertain |= {settled.delivery for settled in groups[key]}
                self._settled.extendleft(reversed(rest))
                raise
            del groups[key]

    def _carry_out(self, group: Sequence[Settled]) -> None:
        outcome, queue = group[0].outcome, self.works[group[0].delivery.work_queue.name].queue
        receipts = [_receipt(settled.delivery) for settled in group]
        match outcome:
            case Succeeded():
                done = queue.ack(*receipts)
            case RetryIn(after_s):
                done = queue.nack(*receipts, delay_s=after_s)
            case Postponed(after_s):
                done = queue.nack(*receipts, delay_s=after_s, is_unused=True)
            case Released():
                done = queue.nack(*receipts, is_unused=True)
            case Dead(reason, error):
                done = queue.bury(*receipts, reason=_printable(f"{reason}: {one_line(error)}"))
        for settled in group:
            delivery = settled.delivery
            if delivery.message.id not in (done or ()) and delivery not in self._uncertain:
                self.announcer.lost(delivery)
            self._uncertain.discard(delivery)
            self.leases.drop([delivery])

    def _extend(self) -> None:
        now = time.monotonic()
        ended = {settled.delivery for settled in list(self._settled)}
        due: dict[str, list[Delivery]] = {}
        for held in self.leases.due(now):
            if held not in ended:
                due.setdefault(held.work_queue.name, []).append(held)
        for name, deliveries in due.items():
            extended = set(self.works[name].queue.extend(*map(_receipt, deliveries)) or ())
            verdicts = [
                Settlement.DONE if delivery.message.id in extended else Settlement.LEASE_LOST for delivery in deliveries
            ]
            self.leases.renewed(deliveries, verdicts, now)

    # -- Taking messages ----------------------------------------------------------------------------------------------

    def _take(self, room: int, taken: list[Delivery]) -> None:
        if room <= 0:
            if self._was_told_to_look:
                # The token of this look is in our hands, and there is no room: somebody else may have some.
                self._was_told_to_look = False
                self._look_at = 0.0
                self.client.run(self._pop_call(0))
            return
        if not (self._was_told_to_look or time.monotonic() >= self._next_look_at()):
            return
        self._was_told_to_look = False
        room = min(room, MAX_BATCH)
        self._recover(room, taken)
        began_at = time.monotonic()
        popped = self.client.run(self._pop_call(room - len(taken)))
        taken += self._held(popped.messages, began_at)
        self._note_look(len(taken), room, popped.next_due_ms)

    def _recover(self, room: int, taken: list[Delivery]) -> None:
        for work in self.works.values():
            if time.monotonic() < work.recover_at or len(taken) == room:
                continue
            began_at = time.monotonic()
            recovered = work.queue.recover_messages(room - len(taken), work.settings.lease_s * 1000)
            if len(recovered) < room - len(taken):
                work.choose_recovery()
            if recovered:
                logger.warning("queue %s: %d messages of silent consumers", work.queue.name, len(recovered))
            taken += self._held(recovered, began_at)

    def _pop_call(self, room: int) -> Call[Popped]:
        first, *others = [work.queue for work in self.works.values()]
        return first.pop_call(room, others)

    def _held(self, messages: Sequence[ReliableMessage], began_at: float) -> list[Delivery]:
        deliveries = [
            Delivery(
                self.works[each.queue].work_queue,
                Message(each.id, each.body, each.deliveries, None),
                each.attempt,
                began_at,
                batch=each.queue,  # those of one queue have one lease
            )
            for each in messages
        ]
        self.leases.hold(deliveries)
        return deliveries

    def _note_look(self, found: int, room: int, next_due_ms: int | None) -> None:
        self.is_drained = found == 0
        self.is_empty = found == 0 and next_due_ms is None and not self._is_any_delivered()
        wait_s = 0.0 if found == room else self._poll_interval_s
        if next_due_ms is not None:
            wait_s = min(wait_s, next_due_ms / 1000)
        self._look_at = time.monotonic() + wait_s
        if found < room:
            self.wake_up.expect()

    def _is_any_delivered(self) -> bool:
        for work in self.works.values():
            try:
                if work.queue.info()[3]:
                    return True
            except QueueNotFound:
                self._provisioned = False  # somebody deleted it: it is made again
        return False

    # -- How long to wait ---------------------------------------------------------------------------------------------

    def _next_look_at(self) -> float:
        return min(self._look_at, *(work.recover_at for work in self.works.values()))

    def next_exchange_at(self, room: int, *, patience_s: float = 0.0) -> float | None:
        """Return when there is something to do, on the monotonic clock; None when only an event can tell.

        Outcomes may wait for `patience_s`, so that more of them go out together.
        """
        times = []
        if self._settled:
            times.append(time.monotonic() + patience_s if patience_s else 0.0)
        if self._was_told_to_look:
            times.append(0.0)
        if room > 0:
            times.append(self._next_look_at())
        renewal_at = self.leases.next_renewal_at()
        if renewal_at is not None:
            times.append(renewal_at)
        return max(min(times), self.outage.next_try_at) if times else None


def _receipt(delivery: Delivery) -> str:
    return f"{delivery.message.id}:{delivery.message.receive_count}"


def _printable(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return shown[:MAX_REASON_LENGTH]


def make_reliable_fetchers(
    names: Sequence[str],
    *,
    announcer: Announcer,
    poll_interval_s: float,
    wake: Callable[[], None],
    board: Board | None = None,
) -> list[ReliableFetcher]:
    """Return a fetcher for each connection that these reliable queues are on."""
    by_connection: dict[str, list[ReliableQueueSettings]] = {}
    for name in names:
        settings = get_settings().reliable[name]
        by_connection.setdefault(settings.connection, []).append(settings)
    return [
        ReliableFetcher(
            get_client(alias),
            [_work(each, announcer.worker_id) for each in group],
            announcer=announcer,
            poll_interval_s=poll_interval_s,
            wake=wake,
            board=board,
        )
        for alias, group in by_connection.items()
    ]


def _work(settings: ReliableQueueSettings, worker_id: str) -> ReliableWork:
    client = get_client(settings.connection)
    as_executions_know_it = QueueSettings(
        name=settings.name,
        connection=settings.connection,
        visibility_timeout_s=settings.lease_s,
        max_attempts=settings.max_deliveries or NO_LIMIT,
        dead_letter=settings.name,
    )
    # The Queue only gives its name; nothing is ever sent to it.
    work_queue = WorkQueue(as_executions_know_it, Queue(settings.name, client), float(settings.lease_s), "")
    return ReliableWork(settings, ReliableQueue(settings.name, client, consumer=worker_id), work_queue)
