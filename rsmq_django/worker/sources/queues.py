"""The source for RSMQ queues of one Redis server: outcomes go out and new messages come in, in one round trip."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from ...core import Client, RsmqError
from ...core.errors import BrokenQueue, ConnectionFailed, QueueNotFound
from ...core.keys import paused_key, worker_key
from ...core.limits import MAX_BATCH
from ...core.log_lines import get_logger
from ...core.queue.replies import read_ids
from ...core.transport.backoff import ReconnectBackoff
from ...core.transport.call import Call
from ...core.transport.client import raise_or_return
from ..delivery import Delivery, WorkQueue
from ..execute.execution import Execution
from ..fetch.exchange import Fetched, FetchParts, FetchStep, PendingExchange, PreparedFetch
from ..fetch.polling import PollSchedule
from ..fetch.queue_selector import MANY, FetchOrder, ProbeResult, QueueSelector, scan_call, together
from ..fetch.waiting import StopWaitingStep, WaitingNote
from ..fetch.wakeup import Subscription, Wakeup
from ..lease.confirmation import ConfirmStep, OutcomeConfirmation
from ..lease.inflight import Heartbeat, Undelivered
from ..lease.leases import Cancellations, renewal_calls
from ..lease.pending import StartNotes, starts_to_note
from ..lease.settle import cleanup_calls, settle_calls
from ..lease.steps import (
    AbandonStep,
    CancellationStep,
    CleanupStep,
    HeartbeatStep,
    RenewStep,
    SettleStep,
    StartStep,
    Step,
    is_damage,
    is_of_outcome,
)
from ..outcomes import Settlement
from ..report.event_log import RecentStep
from ..report.statistics import ReportStep
from .base import BaseSource
from .source import SourceContext

logger = get_logger(__name__)

#: With many connections, an idle one fetches in each tenth poll. In the others it only asks whether there are messages.
POLLS_PER_FETCH = 10

#: Steps whose failure stops nothing else.
_APART = (ReportStep, CleanupStep, HeartbeatStep, RecentStep, StopWaitingStep, ConfirmStep)


class QueueSource(BaseSource):
    """Works on some queues of one connection, in the given order: messages of the first queue come first."""

    is_released_by_supervisor = True

    def __init__(
        self,
        client: Client,
        queues: Sequence[WorkQueue],
        context: SourceContext,
        *,
        connection_number: int = 0,
        is_alone: bool = True,
    ) -> None:
        notifier = context.notifier
        super().__init__(
            client,
            title=f"{client.connection!r}",
            notifier=notifier,
            poll_schedule=PollSchedule(
                poll_interval_s=context.poll_interval_s,
                idle_turns=context.idle_turns,
                connection_number=connection_number,
                polls_from=None if is_alone else context.polls_from,
            ),
            wake=context.wake,
            shared_state=context.shared_state,
            ends_by_itself=context.ends_by_itself,
        )
        self.selector = QueueSelector(client, queues, ends_by_itself=context.ends_by_itself)
        self.inflight_key = worker_key(client.namespace, notifier.worker_id)
        self.cancellations = Cancellations(client)
        self._pauses = ReconnectBackoff(f"key {paused_key(client.namespace)!r}")
        self._start_notes = StartNotes()
        self._undelivered = Undelivered(client, self.inflight_key)
        self.waiting = WaitingNote(client.namespace, notifier.worker_id, [each.base_name for each in queues])
        self.fetch_parts = FetchParts(
            client,
            self.inflight_key,
            self.selector,
            self.poll_schedule,
            self.leases,
            self.clock,
            self.waiting,
            self._note_fetched,
        )
        self._prepared_fetch = PreparedFetch(self.fetch_parts)
        self._subscription: Subscription | None = None
        #: The exchange that was sent and not read yet.
        self._pending_exchange: PendingExchange | None = None
        #: How many idle polls were due; of each connection others are fetches.
        self._idle_polls = connection_number
        #: For which queues the call of an idle poll was made, and the call.
        self._scan_call: tuple[Sequence[WorkQueue], Call[ProbeResult]] | None = None
        #: Without a supervisor there is none to send.
        self.heartbeat = Heartbeat(client, notifier.worker_id, is_needed=context.shared_state is not None)
        self._is_ending = False
        #: How many messages the last fetch returned, if that was all it asked for.
        self._filled = 0
        waits = any(each.settings.durability and each.settings.durability.acknowledge for each in queues)
        #: None when no queue waits for the confirmation of outcomes.
        self._confirmation = OutcomeConfirmation(client) if waits else None

    @property
    def queues(self) -> Sequence[WorkQueue]:
        """Return the queues and their priority bands, in the order of the worker's list."""
        return self.selector.queues

    # -- Start and end ------------------------------------------------------------------------------------------------

    def start(self, wakeup: Wakeup, may_fetch: Callable[[], bool]) -> None:
        """Subscribe to published messages and cancellations."""
        self._subscription = Subscription(
            self.client,
            [work_queue.queue.keys.channel for work_queue in self.queues],
            own_channel=self.waiting.channel,
            fetch=lambda: may_fetch() and self.send_prepared_fetch(),
            on_publish=self.note_publish,
            on_chosen=lambda: self._note_chosen(may_fetch()),
            on_cancellation=self.suspect_cancellations,
            has_wakeup=lambda: self.has_wakeup,
        )
        self._subscription.is_reachable = lambda: self.is_empty is not None and not self.backoff.is_on
        wakeup.subscribe(self._subscription)
        self.waiting.is_wanted = not self._ends_by_itself and len(self.queues) <= MANY

    def stop(self) -> None:
        """Close the subscription."""
        if self._subscription is not None:
            self._subscription.stop()

    # -- Called by any thread -----------------------------------------------------------------------------------------

    def note_publish(self) -> None:
        """Fetch soon because a message was published: at once, or after the turns of other processes."""
        if self.poll_schedule.note_publish():
            self._wake()

    def _note_chosen(self, may_fetch: bool) -> None:
        """Fetch at once: a sender has woken this process, and no other one."""
        if not (may_fetch and self.send_prepared_fetch(is_chosen=True)):
            self.waiting.was_chosen = self.waiting.is_wanted
            self.fetch_now()

    @property
    def has_wakeup(self) -> bool:
        """Return whether a message was published that has not been fetched for yet."""
        return self.poll_schedule.has_wakeup

    def prepare_fetch(self, room: int, *, at_most: int = MAX_BATCH) -> None:
        """Prepare the next fetch, if nothing else would have to go with it: the worker is about to sleep."""
        if room > 0 and self.is_idle and self.selector.is_settled and self.selector.scan is None:
            self._prepared_fetch.prepare_fetch(room, min(at_most, MAX_BATCH))
        else:
            self._prepared_fetch.put_aside()

    @property
    def is_fetch_pending(self) -> bool:
        """Return whether a fetch was sent whose reply the next exchange will read."""
        return self._pending_exchange is not None

    def send_prepared_fetch(self, *, is_chosen: bool = False) -> bool:
        """Send the prepared fetch, because a message was published; the next exchange reads the reply.

        Returns False when none is prepared, or when other processes have their turn first. A process that a sender has
        chosen does not wait for its turn.
        """
        if self.backoff.is_on or self._undelivered.may_be or not (is_chosen or self.poll_schedule.turn_s == 0):
            return False
        try:
            self._pending_exchange = self._prepared_fetch.send()
        except RsmqError as error:
            self._keep_for_later((), error)
            self._undelivered.suspect(are_likely=True)
            return True
        if self._pending_exchange is not None:
            self.poll_schedule.has_wakeup = True
            self.poll_schedule.begin()
            self.waiting.was_chosen = False
        return self.is_fetch_pending

    def fetch_ahead(self, room: int, *, at_most: int) -> None:
        """Send the next exchange before the messages of the last one are handed out: its reply arrives meanwhile.

        Only when the last fetch was filled, and there is room for as many messages again.
        """
        if not 0 < self._filled <= room or self._needs_more_than_an_exchange() or not self.poll_schedule.is_time():
            return
        steps, fetch = self._steps(room, min(at_most, MAX_BATCH))
        assert fetch is not None  # otherwise outcomes would be taken out and not sent
        self._begin(steps, fetch)

    @property
    def is_fetch_due(self) -> bool:
        """Return whether the next exchange would fetch."""
        return max(min(self.poll_schedule.times()), self.backoff.next_try_at) <= time.monotonic()

    def may_scan(self, now: float) -> bool:
        """Return whether only an idle poll is due, for which it is enough to ask whether there are messages."""
        if not self.poll_schedule.is_idle_poll(now) or self._ends_by_itself or self.selector.scan is not None:
            return False
        self._idle_polls += 1
        is_enough = self._idle_polls % POLLS_PER_FETCH != 0
        return is_enough and self.is_idle and not self._needs_more_than_an_exchange()

    @property
    def scan_call(self) -> Call[ProbeResult]:
        """Return the call that asks whether there are messages."""
        if self._scan_call is None or self._scan_call[0] is not self.queues:
            self._scan_call = self.queues, scan_call(self.client.namespace, self.queues)
        return self._scan_call[1]

    def note_scanned(self, found: ProbeResult | RsmqError, *, asked_at: float) -> None:
        """Note the reply to an idle poll, and plan the next one; fetch where there is something, or an error."""
        if isinstance(found, RsmqError) or found.positions or found.queue_count != self.selector.known_count:
            self.poll_schedule.fetch_soon()
            return
        self.clock.set(found.server_ms, asked_at=asked_at)
        next_s = found.next_ms / 1000
        self.poll_schedule.plan_next(found=0, next_s=next_s, is_partial=False, may_be_more=False)

    def begin_exchange(self, room: int, *, at_most: int = MAX_BATCH) -> bool:
        """Send the next exchange, if there is anything to send; exchange() then only reads the replies.

        Returns False when exchange() has to send it, because no socket is open, or one round trip is not enough.
        """
        if self._pending_exchange is not None:
            return True
        if time.monotonic() < self.backoff.next_try_at:
            self.leases.expire(time.monotonic())
            return True
        if self._needs_more_than_an_exchange() or not self.client.connection.has_open_socket:
            return False
        if room > 0:
            self.poll_schedule.take_turn()
        self._filled = 0
        steps, fetch = self._steps(room, min(at_most, MAX_BATCH))
        return not steps or self._begin(steps, fetch)

    def _begin(self, steps: Sequence[Step], fetch: FetchStep | None) -> bool:
        """Send an exchange; return False, with nothing sent, when its socket is closed."""
        pending_exchange = PendingExchange(self.client, steps, fetch)
        try:
            self._pending_exchange = pending_exchange if pending_exchange.begin() else None
        except RsmqError as error:
            self._keep_for_later(steps, error)
            return True
        if self._pending_exchange is None:
            self._put_back_steps(steps, ConnectionFailed("no socket is open"))
        return self.is_fetch_pending

    @property
    def pending_exchange(self) -> PendingExchange | None:
        """Return the exchange that was sent and not read yet."""
        return self._pending_exchange

    def give_up(self) -> None:
        """Treat the exchange that was sent as lost: its reply is overdue."""
        assert self._pending_exchange is not None
        pending_exchange, self._pending_exchange = self._pending_exchange, None
        try:
            pending_exchange.give_up()
        except RsmqError as error:
            self._keep_for_later(pending_exchange.steps, error)

    def note_unreachable(self, error: RsmqError) -> None:
        """Wait before the next exchange: connecting failed."""
        self._keep_for_later((), error)

    def wake(self) -> None:
        """Wake the worker. Called by any thread."""
        self._wake()

    def _needs_more_than_an_exchange(self) -> bool:
        scan, pending = self.selector.scan, self.pending
        is_settled = self.selector.is_settled and not pending.refused and not pending.late.settlements
        is_scan_due = scan is not None and scan.is_due(time.monotonic())
        return self.backoff.is_on or not is_settled or self._undelivered.is_due() or is_scan_due

    def suspect_cancellations(self) -> None:
        """Ask at the next exchange whether held messages were cancelled."""
        self.cancellations.suspect_all()
        self._wake()

    @property
    def holds_nothing(self) -> bool:
        """Return whether it is certain that no message has to be released from here."""
        return self.is_idle and not self._undelivered.are_likely

    def take_cancelled(self) -> list[Execution]:
        """Return the executions that were cancelled since the last call."""
        cancelled = self.cancellations.take(self.leases.held)
        return [delivery.execution for delivery in cancelled if isinstance(delivery.execution, Execution)]

    # -- The exchange -------------------------------------------------------------------------------------------------

    def exchange(self, room: int, *, at_most: int = MAX_BATCH) -> list[Delivery]:
        """Send outcomes, renew leases, and fetch messages for `room` calls: one round trip, or none when idle.

        A call takes one message, or a batch; `at_most` is the maximum number of messages.

        Never raises errors of the server: steps that could not be carried out stay for a later exchange.
        """
        self._filled = 0
        if self._pending_exchange is not None:
            return self._receive(self._pending_exchange)
        return super().exchange(room, at_most=at_most)

    def flush(self) -> None:
        """Send all pending outcomes for the last time. Messages whose outcome is lost become visible again later."""
        self._is_ending = True
        if self._pending_exchange is not None:
            # The messages that it returns will not run: they are released as undelivered.
            self.forget(self._receive(self._pending_exchange), removed=())
            self._undelivered.suspect(are_likely=True)
        super().flush()
        if self.waiting.is_noted and not self.backoff.is_on:
            self.waiting.was_chosen = True  # it may have been woken a moment ago
            self._exchange(0)

    def _prepare(self, room: int) -> int:
        if not (self.selector.is_settled or self._provision()):
            self.poll_schedule.fetch_soon()
            room = 0
        if self._undelivered.is_due():
            self._undelivered.release(self.queues, self.leases.held())
        self._scan(room)
        return room

    def _provision(self) -> bool:
        """Create missing queues, of very many some; return whether all are there.

        At the end of the worker it creates all for outcomes, as a dead-letter queue may be missing, and else none.
        """
        if self._is_ending and not self.pending.count:
            return False
        while not self.selector.provision():
            if not self._is_ending:
                return False
        return True

    def _receive(self, pending_exchange: PendingExchange) -> list[Delivery]:
        self._pending_exchange = None
        try:
            results = pending_exchange.results()
        except RsmqError as error:
            self._keep_for_later(pending_exchange.steps, error)
            return []
        self._read(pending_exchange.steps, results)
        return pending_exchange.fetch.deliveries if pending_exchange.fetch is not None else []

    def _keep_for_later(self, steps: Sequence[Step], error: RsmqError) -> None:
        # Also when the error says that nothing was sent: it may be about a second try of some of the calls.
        if any(isinstance(step, FetchStep) for step in steps):
            self._undelivered.suspect(are_likely=not isinstance(error, ConnectionFailed))
        super()._keep_for_later(steps, error)

    def _scan(self, room: int) -> None:
        """Find the queues with messages among very many; when there is none, this counts as the fetch."""
        scan = self.selector.scan
        if scan is None or room <= 0 or not self.poll_schedule.is_time() or not scan.is_due(time.monotonic()):
            return
        self.poll_schedule.begin()
        asked_at = time.monotonic()
        found = together(list(map(raise_or_return, self.client.run_many(scan.next_calls(asked_at)))))
        scan.scanned(found, time.monotonic())
        if scan.ready:
            self.poll_schedule.fetch_soon()
        else:
            self.clock.set(found.server_ms, asked_at=asked_at)
            nothing = Fetched(found.server_ms, found.next_ms, found.queue_count, [], [])
            self._note_fetched(nothing, FetchOrder(room, self.queues, [], None))
            if scan.left_out:
                self.is_drained = self.is_empty = False

    def _abandon_steps(self) -> list[AbandonStep]:
        deliveries = self.pending.take_abandoned()
        self.forget(deliveries, removed=())
        over = self.pending.take_over()
        return [AbandonStep(self.pending, self.inflight_key, deliveries, over)] if deliveries or over else []

    def _steps_for_held(self, settlements: Sequence[Settlement], now: float) -> list[Step]:
        # Renewing a message whose outcome is decided could delay it: a retry would come a lease later.
        settled = self.pending.settled(settlements)
        steps: list[Step] = [
            RenewStep(self.leases, self.cancellations, *renewal)
            for renewal in renewal_calls(self.leases.due(now, settled))
        ]
        to_note = starts_to_note(self.leases.held(), settled, now_ms=self.clock.now_ms())
        return steps + [StartStep(settlement) for settlement in to_note]

    def _steps(self, room: int, at_most: int) -> tuple[list[Step], FetchStep | None]:
        now, settlements = time.monotonic(), self.pending.take_settlements()
        calls = settle_calls(settlements, self.leases.completed_batches, self.event_log)
        settling = [SettleStep(each, self.pending, self._note_settled) for each in calls]
        steps: list[Step] = [*settling]
        steps += [CleanupStep(call) for call in cleanup_calls(settlements)]
        if self._start_notes.is_time(now) or self.leases.may_be_due(now):
            self._start_notes.checked(now)
            steps += self._steps_for_held(settlements, now)
        if now >= self.heartbeat.next_at:
            steps.append(HeartbeatStep(self.heartbeat))
        steps += self._abandon_steps()
        question = self.cancellations.question(self.leases.held)
        if question is not None:
            steps.append(CancellationStep(self.cancellations, *question))
        if self.statistics is not None:
            steps += self.statistics.steps()
        if self.event_log is not None and self.event_log.recent is not None:
            steps += self.event_log.recent.steps()
        if room <= 0 and self.waiting.was_chosen:
            steps.append(StopWaitingStep(self.waiting))
        confirm = self._confirmation.steps(settlements, settling) if self._confirmation is not None else ()
        if room <= 0 or self.pending.tries_late or not self.poll_schedule.is_time():
            return [*steps, *confirm], None
        self.poll_schedule.begin()
        self.waiting.was_chosen = False
        fetch = FetchStep(self.fetch_parts, min(room, at_most), at_most, len(self.leases) - len(settlements))
        return [*steps, fetch, *confirm], fetch

    def _note_failures(self, failures: Sequence[tuple[Step, RsmqError]]) -> None:
        if any(isinstance(error, QueueNotFound) for _, error in failures):
            self.selector.is_provisioned = False  # a queue was deleted: it is created again

    def _is_apart(self, step: Step, error: RsmqError) -> bool:
        if isinstance(step, SettleStep):
            return is_of_outcome(error)
        is_of_one_queue = isinstance(step, RenewStep | StartStep | CancellationStep) and is_damage(error)
        return is_of_one_queue or isinstance(step, _APART)

    def _note_fetched(self, fetched: Fetched, order: FetchOrder) -> None:
        """Note the result of a fetch, and plan the next one."""
        served = Counter[WorkQueue]()
        for portion in fetched.portions:  # a queue may have two portions
            served[order.queues[portion.position - 1]] += len(portion.ids)
        self.selector.note_fetched(order, served)
        found, next_s = served.total(), fetched.next_ms / 1000
        self._filled = found if found >= order.room else 0
        # A message that is due in less than a millisecond is as good as ready: a retry without a wait, for example.
        self.is_drained = found == 0 and next_s != 0 and not order.is_partial
        self.is_empty = self.is_drained and next_s < 0
        self._note_pauses(are_readable=0 not in fetched.unreadable)
        if unreadable := [position for position in fetched.unreadable if position]:
            queues = [order.queues[position - 1] for position in unreadable]
            names = ", ".join(each.name for each in queues)
            logger.error("queue %s is missing or damaged; a missing queue is created again", names)
            self.selector.note_unreadable(queues)
            self.is_drained = self.is_empty = False
        if fetched.queue_count != self.selector.known_count:
            self.selector.bands_are_known = self.is_drained = self.is_empty = False
        may_be_more = not self.selector.bands_are_known
        self.poll_schedule.plan_next(found=found, next_s=next_s, is_partial=order.is_partial, may_be_more=may_be_more)

    def _ids_left(self, at_most: int) -> list[str]:
        keys = [work_queue.queue.keys.messages for work_queue in self.queues]
        found = self.client.run_many([Call("ZRANGE", (key,), (0, at_most), read_ids, True) for key in keys])
        return [message_id for reply in found for message_id in raise_or_return(reply)]

    def _note_pauses(self, *, are_readable: bool) -> None:
        if are_readable:
            self._pauses.over()
        else:
            self._pauses.note(BrokenQueue("it is not a set, so no queue counts as paused; delete it and pause again"))

    # -- Time of the next exchange ------------------------------------------------------------------------------------

    def _times(self, room: int) -> list[float]:
        times = [self.heartbeat.next_at]
        if room <= 0 and self.waiting.was_chosen:
            times.append(0.0)
        if self.pending.over or self.cancellations.has_suspects:
            times.append(0.0)
        if self.leases.has_unnoted_start():
            times.append(self._start_notes.next_check_at(time.monotonic()))
        return times
