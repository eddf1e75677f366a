"""The source for reliable queues of one Redis server: acknowledge, extend, recover, pop.

It has the same interface as QueueSource. The messages that a worker holds are recorded in the queue itself, under the
worker's id, and extended at a tenth of the queue's lease. Messages that were not extended for a whole lease are
recovered by the next worker that looks. Tasks in reliable queues keep no results.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence

from ...conf.settings import ReliableQueueSettings, get_settings
from ...core import Client, Message, RsmqError, SettleResult
from ...core.limits import MAX_BATCH
from ...core.log_lines import get_logger
from ...core.reliable import Popped, ReliableMessage
from ...core.transport.backoff import ReconnectBackoff
from ...queues import get_client
from ..delivery import Delivery
from ..execute.execution import Execution
from ..fetch.wakeup import Wakeup
from ..lease.leases import Leases
from ..lease.pending import GIVE_UP_REFUSED_AFTER_S
from ..lease.steps import is_damage
from ..outcomes import Dead, Outcome, Postponed, Released, RetryIn, Settlement, Succeeded
from ..report.clock import ServerClock
from ..report.event_log import EventLog, line_of
from ..report.notifications import Notifier, event_name, one_line
from ..report.shared_state import SharedState
from ..report.statistics import Statistics
from .reliable_queue import ReliableQueueState, ReliableWakeUp, group_of, make_state

logger = get_logger(__name__)

MAX_REASON_LENGTH = 200


class ReliableSource:
    """Works on some reliable queues of one connection, in the given order: messages of the first queue come first."""

    #: Wake-ups come from tokens, not from published messages: there is no prepared fetch.
    is_fetch_pending = False
    #: Messages of a process that died are recovered by the next worker that looks, a lease later.
    is_released_by_supervisor = False
    holds_nothing = True

    def __init__(
        self,
        client: Client,
        states: Sequence[ReliableQueueState],
        *,
        notifier: Notifier,
        poll_interval_s: float,
        wake: Callable[[], None],
        shared_state: SharedState | None = None,
    ) -> None:
        self.client = client
        self.states = {state.settings.name: state for state in states}
        self.notifier = notifier
        self.leases = Leases()
        self.clock = ServerClock()
        self.backoff = ReconnectBackoff(f"reliable queues on {client.connection!r}", server=client.connection)
        self.wake_up = ReliableWakeUp([state.queue for state in states], on_token=self.fetch_now)
        self._poll_interval_s = poll_interval_s
        self._wake = wake
        self._shared_state = shared_state
        #: None when statistics are disabled.
        self.statistics = Statistics.from_settings(client.namespace, notifier.worker_id, now_ms=self.clock.now_ms)
        self.event_log = EventLog.from_settings(get_settings().events, notifier.worker_id, client.namespace)
        self._settled: deque[Settlement] = deque()
        self._abandon: deque[Delivery] = deque()
        #: Messages whose settling may have been carried out although its reply was lost.
        self._uncertain: set[Delivery] = set()
        self._fetch_at = 0.0
        self._has_wakeup = False
        #: Whether the last fetch found no message at all; None before the first fetch.
        self.is_empty: bool | None = None
        #: Whether the last fetch found nothing to pop; None before the first fetch.
        self.is_drained: bool | None = None

    # -- Start and end ------------------------------------------------------------------------------------------------

    def start(self, _wakeup: Wakeup, _may_fetch: Callable[[], bool]) -> None:
        """Start the thread that takes tokens."""
        self.wake_up.start()

    def stop(self) -> None:
        """End that thread."""
        self.wake_up.stop()

    # -- Called by any thread -----------------------------------------------------------------------------------------

    def began(self, execution: Execution) -> None:
        """Note that an attempt began, for the time limit of the supervisor. The delivery is recorded already."""
        delivery, limit_s = execution.delivery, execution.hard_timeout_s
        began_at = execution.began_at
        delivery.started_ms = began_at * 1000 + self.clock.offset_ms
        if self._shared_state is not None:
            run_by = 0.0 if limit_s is None else began_at + limit_s
            delivery.slot = self._shared_state.enter(delivery.message.id, began_at=began_at, run_by=run_by)
        if self.statistics is not None and execution.may_run:
            self.statistics.began(delivery.work_queue.name, execution.path)

    def settle(self, execution: Execution, outcome: Outcome) -> None:
        """Accept an outcome for the next exchange. The code that runs executions wakes the worker afterwards."""
        slot = execution.delivery.slot
        if self._shared_state is not None and slot is not None and execution.hard_timeout_s is not None:
            self._shared_state.lift_limit(slot)
        execution.finished_ms = self.clock.now_ms()
        self._settled.append(Settlement(execution, outcome))

    def note_interruption(self, execution: Execution) -> None:
        """Count that a function was interrupted."""
        if self.statistics is not None:
            self.statistics.interrupted(execution.delivery.work_queue.name, execution.path)

    def flush_soon(self) -> None:
        """Send pending outcomes soon."""
        self._wake()

    def abandon(self, execution: Execution) -> None:
        """Stop extending a message that will have no outcome here, so that it is recovered."""
        self._abandon.append(execution.delivery)
        self._wake()

    def fetch_ahead(self, room: int, *, at_most: int) -> None:
        """Do nothing; see QueueSource."""

    def prepare_fetch(self, room: int, *, at_most: int = MAX_BATCH) -> None:
        """Do nothing; see QueueSource."""

    def fetch_now(self) -> None:
        """Fetch at the next exchange: there is a message."""
        self._has_wakeup = True
        self._wake()

    def note_arrived(self, executions: Sequence[Execution]) -> None:
        """Count received messages."""
        if self.statistics is not None and executions:
            self.statistics.arrived(executions)

    def admit(self, executions: Sequence[Execution]) -> Sequence[Execution]:
        """Return all messages: limits have no effect here."""
        return executions

    @property
    def is_unavailable(self) -> bool:
        """Return whether the server did not answer the last exchange."""
        return self.backoff.is_on

    @property
    def has_settlements(self) -> bool:
        """Return whether outcomes are pending, or were sent without a reply yet."""
        return bool(self._settled)

    @property
    def is_idle(self) -> bool:
        """Return whether no message is held and nothing is pending."""
        return not self._settled and not self._refused and not len(self.leases)

    @property
    def _refused(self) -> list[Settlement]:
        """Return the outcomes that damaged queues refused."""
        return [settled for state in self.states.values() for settled in state.refused]

    @property
    def is_stuck(self) -> bool:
        """Return whether only outcomes are left that a damaged queue has refused for a while."""
        refused = self._refused
        longest_s = max(state.damage.lasts_s for state in self.states.values())
        only_refused = bool(refused) and not self._settled and len(self.leases) == len(refused)
        return only_refused and longest_s > GIVE_UP_REFUSED_AFTER_S

    @property
    def unreported(self) -> int:
        """Return the number of outcomes of completed runs that Redis does not know."""
        return sum(not isinstance(each.outcome, Released) for each in [*self._settled, *self._refused])

    def take_cancelled(self) -> list[Execution]:
        """Return an empty list: tasks in reliable queues cannot be cancelled."""
        return []

    # -- The exchange -------------------------------------------------------------------------------------------------

    def exchange(self, room: int, *, at_most: int = MAX_BATCH) -> list[Delivery]:
        """Send outcomes, extend held messages, and fetch up to `room` messages, but never more than `at_most`.

        Never raises errors of the server: steps that could not be carried out stay for a later exchange.
        """
        if time.monotonic() < self.backoff.next_try_at:
            self.leases.expire(time.monotonic())
            return []
        taken: list[Delivery] = []
        try:
            self._provision()
            self._settle()
            self._extend()
            self._take(min(room, at_most), taken)
            if self.statistics is not None:
                self.statistics.report_to(self.client)
        except RsmqError as error:
            self.backoff.note(error, at_most_s=self.leases.longest_wait_s())
            self.leases.expire(time.monotonic())
        else:
            self.backoff.over()
            if self._shared_state is not None:
                self._shared_state.note_poll()
        return taken

    def flush(self) -> None:
        """Send all pending outcomes now, for the last time. Messages whose outcome is lost are recovered."""
        left = math.inf
        while len(self._settled) < left:
            left = len(self._settled)
            try:
                self._settle()
            except RsmqError as error:
                self.backoff.note(error)
        if self.statistics is not None and not self.backoff.is_on:
            try:
                self.statistics.report_the_rest(self.client)
            except RsmqError as error:
                self.backoff.note(error)

    def _provision(self) -> None:
        for state in self.states.values():
            if not state.is_provisioned and state.is_usable:
                with state.apart():
                    state.provision()

    def _settle(self) -> None:
        while self._abandon:
            self._drop(self._abandon.popleft())
        for state in self.states.values():
            if state.is_usable:
                self._settled.extend(state.refused)
                state.refused.clear()
        groups: dict[tuple[str, object], list[Settlement]] = {}
        for _ in range(min(len(self._settled), MAX_BATCH)):
            settled = self._settled.popleft()
            groups.setdefault(group_of(settled), []).append(settled)
        while groups:
            key = next(iter(groups))
            try:
                self._carry_out(groups[key])
            except RsmqError as error:
                if not is_damage(error):
                    self._uncertain |= {settled.delivery for settled in groups[key]}
                    self._settled.extendleft(reversed([settled for group in groups.values() for settled in group]))
                    raise
                state = self.states[groups[key][0].delivery.work_queue.name]
                state.damage.note(error)
                state.refused += groups[key]
                for settled in state.refused:
                    settled.delivery.release_waiter()  # see PendingSettlements.refuse()
            del groups[key]

    def _drop(self, delivery: Delivery) -> None:
        self.leases.remove([delivery])
        delivery.release_waiter()
        if self._shared_state is not None and delivery.slot is not None:
            self._shared_state.leave(delivery.slot)
            delivery.slot = None

    def _carry_out(self, group: Sequence[Settlement]) -> None:
        outcome, queue = group[0].outcome, self.states[group[0].delivery.work_queue.name].queue
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
        known = set(done or ())
        verdicts = [
            SettleResult.DONE
            if settled.delivery.message.id in known or settled.delivery in self._uncertain
            else SettleResult.LEASE_LOST
            for settled in group
        ]
        if self.statistics is not None:
            self.statistics.settled(group, verdicts)
        if self.event_log is not None:
            self._log(self.event_log, group, verdicts)
        for settled, verdict in zip(group, verdicts, strict=True):
            if verdict is SettleResult.LEASE_LOST:
                self.notifier.lost(settled.delivery)
            self._uncertain.discard(settled.delivery)
            self._drop(settled.delivery)
        if self.is_idle:
            self._fetch_at = 0.0  # this may have been the last message, which `until_empty` waits for

    def _log(self, log: EventLog, group: Sequence[Settlement], verdicts: Sequence[SettleResult]) -> None:
        """Write the events of outcomes of one kind, which have just been carried out."""
        outcome, queue_name = group[0].outcome, group[0].delivery.work_queue.name
        if isinstance(outcome, Postponed) and not outcome.has_run:
            return  # it is postponed again and again
        error = outcome.error if isinstance(outcome, (RetryIn, Dead)) else None
        for verdict in set(verdicts):
            is_lost = verdict is SettleResult.LEASE_LOST
            if is_lost and isinstance(outcome, Released):
                continue  # released, and another worker has it already
            part = [settled.execution for settled, own in zip(group, verdicts, strict=True) if own is verdict]
            lines = [(execution.path, line_of(execution)) for execution in part]
            log.write(self.client, queue_name, "lost" if is_lost else event_name(outcome), lines, error)

    def _extend(self) -> None:
        now = time.monotonic()
        if not self.leases.may_be_due(now):
            return
        ended = {settled.delivery for settled in [*self._settled, *self._refused]}
        due: dict[str, list[Delivery]] = {}
        for held in self.leases.due(now, ended):
            due.setdefault(held.work_queue.name, []).append(held)
        for name, deliveries in due.items():
            # Messages of a damaged queue cannot be extended, and may be delivered again as soon as it is repaired.
            extended: set[str] = set()
            with self.states[name].apart():
                extended = set(self.states[name].queue.extend(*map(_receipt, deliveries)) or ())
            verdicts = [
                SettleResult.DONE if delivery.message.id in extended else SettleResult.LEASE_LOST
                for delivery in deliveries
            ]
            self.leases.renewed(deliveries, verdicts, now)

    # -- Fetching -----------------------------------------------------------------------------------------------------

    def _take(self, room: int, taken: list[Delivery]) -> None:
        if room <= 0:
            if self._has_wakeup:
                # This worker took the token of a message and has no room: another worker may have some.
                self._has_wakeup = False
                self._fetch_at = 0.0
                self._pop(0)
            return
        if not (self._has_wakeup or time.monotonic() >= self._next_fetch_at()):
            return
        self._has_wakeup = False
        room = min(room, MAX_BATCH)
        self._recover(room, taken)
        began_at = time.monotonic()
        popped = self._pop(room - len(taken))
        taken += self._held(popped.messages, began_at)
        self._plan_next(len(taken), room, popped.next_due_ms)

    def _recover(self, room: int, taken: list[Delivery]) -> None:
        for state in self.states.values():
            if time.monotonic() < state.next_recovery_at() or len(taken) == room:
                continue
            began_at, recovered = time.monotonic(), list[ReliableMessage]()
            with state.apart():
                recovered = state.queue.recover_messages(room - len(taken), state.settings.lease_s * 1000)
            if len(recovered) < room - len(taken):
                state.choose_recovery()
            if recovered:
                logger.warning(
                    "queue %s: recovered %d messages from unresponsive consumers", state.queue.name, len(recovered)
                )
            taken += self._held(recovered, began_at)

    def _pop(self, room: int) -> Popped:
        states = [state for state in self.states.values() if state.is_usable]
        if not states:
            return Popped([], None)
        try:
            popped = self.client.run(states[0].queue.pop_call(room, [state.queue for state in states[1:]]))
        except RsmqError as error:
            if not is_damage(error):
                raise
            # The script checks all queues before it pops anything, and does not say which of them is damaged.
            for state in states:
                with state.apart():
                    state.is_any_delivered()
            if all(state.is_usable for state in states):
                raise
            return self._pop(room)
        for state in states:
            if not state.refused:
                state.damage.over()  # the script has checked all keys of all of them
        return popped

    def _held(self, messages: Sequence[ReliableMessage], began_at: float) -> list[Delivery]:
        deliveries = [
            Delivery(
                self.states[each.queue].work_queue,
                Message(each.id, each.body, each.deliveries, None),
                each.attempt,
                began_at,
                batch=each.queue,  # the messages of a queue share one lease
            )
            for each in messages
        ]
        self.leases.add(deliveries)
        return deliveries

    def _plan_next(self, found: int, room: int, next_due_ms: int | None) -> None:
        is_damaged = any(state.damage.is_on for state in self.states.values())
        self.is_drained = found == 0 and not is_damaged
        self.is_empty = self.is_drained and next_due_ms is None and not self._is_any_delivered()
        wait_s = 0.0 if found == room else self._poll_interval_s
        if next_due_ms is not None:
            wait_s = min(wait_s, next_due_ms / 1000)
        self._fetch_at = time.monotonic() + wait_s
        if found < room:
            self.wake_up.expect()

    def _is_any_delivered(self) -> bool:
        for state in self.states.values():
            with state.apart():
                if state.is_any_delivered():
                    return True
        return False

    # -- Time of the next exchange ------------------------------------------------------------------------------------

    def _next_fetch_at(self) -> float:
        return min(self._fetch_at, *(state.next_recovery_at() for state in self.states.values()))

    def next_exchange_at(self, room: int, *, settle_within_s: float = 0.0) -> float | None:
        """Return when the next exchange is due, on the monotonic clock; None when only an event can start it.

        Outcomes may wait for `settle_within_s`, so that more of them are sent together.
        """
        times = []
        if self._settled:
            times.append(time.monotonic() + settle_within_s if settle_within_s else 0.0)
        times += [state.damage.next_try_at for state in self.states.values() if state.refused]
        if self._has_wakeup:
            times.append(0.0)
        if room > 0:
            times.append(self._next_fetch_at())
        renewal_at = self.leases.next_renewal_at()
        if renewal_at is not None:
            times.append(renewal_at)
        report_at = self.statistics.next_report_at() if self.statistics is not None else None
        if report_at is not None:
            times.append(report_at)
        return max(min(times), self.backoff.next_try_at) if times else None


def _receipt(delivery: Delivery) -> str:
    return f"{delivery.message.id}:{delivery.message.receive_count}"


def _printable(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return shown[:MAX_REASON_LENGTH]


def make_reliable_sources(
    names: Sequence[str],
    *,
    notifier: Notifier,
    poll_interval_s: float,
    wake: Callable[[], None],
    shared_state: SharedState | None = None,
) -> list[ReliableSource]:
    """Return a source for each connection that these reliable queues are on."""
    by_connection: dict[str, list[ReliableQueueSettings]] = {}
    for name in names:
        settings = get_settings().reliable[name]
        by_connection.setdefault(settings.connection, []).append(settings)
    return [
        ReliableSource(
            get_client(alias),
            [make_state(each, notifier.worker_id) for each in group],
            notifier=notifier,
            poll_interval_s=poll_interval_s,
            wake=wake,
            shared_state=shared_state,
        )
        for alias, group in by_connection.items()
    ]
