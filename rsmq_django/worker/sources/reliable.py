"""The source for reliable queues of one Redis server: outcomes, extensions, recovery and pop in one round trip.

The messages that a worker holds are recorded in the queue itself, under the worker's id, and extended at a tenth of
the queue's lease. Messages that were not extended for a whole lease are recovered by the next worker that looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ...conf.settings import ReliableQueueSettings, get_settings
from ...core import Client, RsmqError, SettleResult
from ...core.limits import MAX_BATCH
from ...core.log_lines import get_logger
from ...core.reliable import Kind, Popped
from ...queues import get_client
from ..delivery import Delivery
from ..execute.execution import Execution
from ..execute.limits import free
from ..fetch.polling import PollSchedule
from ..fetch.wakeup import Wakeup
from ..lease.settle import SettleCall
from ..lease.steps import CleanupStep, SettleStep, Step, is_damage
from ..outcomes import Settlement
from ..report.event_log import EventLog, RecentStep, settled_events
from ..report.notifications import Notifier
from ..report.shared_state import SharedState
from ..report.statistics import ReportStep
from .base import BaseSource
from .reliable_queue import ReliableQueueState, ReliableWakeUp, make_state
from .reliable_steps import (
    RECOVERED_AT_ONCE,
    EventStep,
    ExtendStep,
    PopStep,
    RecoverStep,
    ReliableFetch,
    ReliableSettleStep,
    settle_calls,
)

logger = get_logger(__name__)


class ReliableSource(BaseSource):
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
        ends_by_itself: bool = False,
    ) -> None:
        super().__init__(
            client,
            title=f"reliable queues on {client.connection!r}",
            notifier=notifier,
            poll_schedule=PollSchedule(poll_interval_s=poll_interval_s, idle_turns=None, connection_number=0),
            wake=wake,
            shared_state=shared_state,
            ends_by_itself=ends_by_itself,
        )
        self.states = {state.settings.name: state for state in states}
        self.wake_up = ReliableWakeUp([state.queue for state in states], on_token=self.fetch_now)
        #: Messages whose settling may have been carried out although its reply was lost.
        self._uncertain: set[Delivery] = set()
        #: Events of settled messages, for the next exchange.
        self._events: list[EventStep] = []
        #: The error of a pop that one of the queues caused, until it is known which one.
        self._damage: RsmqError | None = None

    # -- Start and end ------------------------------------------------------------------------------------------------

    def start(self, _wakeup: Wakeup, _may_fetch: Callable[[], bool]) -> None:
        """Start the thread that takes tokens."""
        self.wake_up.start()

    def stop_soon(self) -> None:
        """Let that thread end."""
        self.wake_up.stop_soon()

    def stop(self) -> None:
        """End it."""
        self.wake_up.stop()

    def fetch_ahead(self, room: int, *, at_most: int) -> None:
        """Do nothing; see QueueSource."""

    def prepare_fetch(self, room: int, *, at_most: int = MAX_BATCH) -> None:
        """Do nothing; see QueueSource."""

    def take_cancelled(self) -> list[Execution]:
        """Return an empty list: tasks in reliable queues cannot be cancelled."""
        return []

    # -- The exchange -------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send all pending outcomes and events for the last time. Messages whose outcome is lost are recovered."""
        super().flush()
        if self._events and not self.backoff.is_on:
            self._exchange(0)

    def _prepare(self, room: int) -> int:
        for state in self.states.values():
            if not state.is_provisioned and state.is_usable:
                with state.apart():
                    state.provision()
        if self._damage is not None:
            self._find_damage(self._damage)
        return room

    def _find_damage(self, error: RsmqError) -> None:
        """Find the queues that a pop has failed for. Raises its error if there is none."""
        usable = [state for state in self.states.values() if state.is_usable]
        for state in usable:
            with state.apart():
                state.check()
        self._damage = None
        if all(state.is_usable for state in usable):
            raise error

    def _steps(self, room: int, at_most: int) -> tuple[list[Step], ReliableFetch | None]:
        self.forget(self.pending.take_abandoned(), removed=())
        self.pending.take_over()  # there is no record of batches
        settlements = self.pending.take_settlements()
        steps: list[Step] = [
            ReliableSettleStep(each, self.pending, self._note_settled, self._uncertain)
            for each in settle_calls(settlements, self._uncertain)
        ]
        steps += [CleanupStep(free(each.execution)) for each in settlements if each.execution.places]
        steps += self._extend_steps(settlements)
        if self.statistics is not None:
            steps += self.statistics.steps()
        steps += self._events
        self._events = []
        if self.event_log is not None and self.event_log.recent is not None:
            steps += self.event_log.recent.steps()
        if self.pending.tries_late:
            return steps, None
        fetching, fetch = self._fetch_steps(min(room, at_most))
        return [*steps, *fetching], fetch

    def _extend_steps(self, settlements: Sequence[Settlement]) -> list[ExtendStep]:
        now = time.monotonic()
        if not self.leases.may_be_due(now):
            return []
        due: dict[str, list[Delivery]] = {}
        for held in self.leases.due(now, self.pending.settled(settlements)):
            due.setdefault(held.work_queue.name, []).append(held)
        return [
            ExtendStep(self.states[name], self.leases, deliveries[at : at + MAX_BATCH])
            for name, deliveries in due.items()
            for at in range(0, len(deliveries), MAX_BATCH)
        ]

    def _fetch_steps(self, room: int) -> tuple[list[Step], ReliableFetch | None]:
        usable = [state for state in self.states.values() if state.is_usable]
        if room <= 0:
            if not self.poll_schedule.has_wakeup or not usable:
                return [], None
            # This worker took the token of a message and has no room: another worker may have some.
            self.poll_schedule.has_wakeup = False
            return [self._pop_step(ReliableFetch(usable, 0), 0)], None
        abandoned = next((state for state in usable if time.monotonic() >= state.recover_at), None)
        if abandoned is None and not self.poll_schedule.is_time():
            return [], None
        self.poll_schedule.begin()
        if not usable:
            self._plan_next(found=0, next_due_ms=None, is_filled=False)
            return [], None
        fetch, steps = ReliableFetch(usable, room), list[Step]()
        left = room
        if abandoned is not None:
            left -= RECOVERED_AT_ONCE
            steps.append(RecoverStep(abandoned, fetch, self.leases, self._note_dead))
        return [*steps, self._pop_step(fetch, left)], fetch

    def _pop_step(self, fetch: ReliableFetch, room: int) -> PopStep:
        return PopStep(fetch, room, self.leases, self._note_popped, self._note_damage)

    def _note_dead(self, state: ReliableQueueState, ids: Sequence[str]) -> None:
        """Log and count messages that became dead because no worker has reported an outcome of their last delivery."""
        for message_id in ids:
            text = "message %s of queue %s is dead: its last worker vanished, and it has no deliveries left"
            logger.error(text, message_id, state.settings.name)
            if self.statistics is not None:
                self.statistics.ended(state.settings.name, "", "dead")

    def _note_popped(self, fetch: ReliableFetch, popped: Popped) -> None:
        """Plan the next fetch."""
        self.clock.set(popped.server_ms, asked_at=fetch.sent_at)
        for position in popped.missing:
            fetch.states[position - 1].is_provisioned = False  # the queue was deleted: it is created again
        if fetch.room == 0:
            self.poll_schedule.fetch_soon()
            return
        self._plan_next(len(fetch.deliveries), popped.next_due_ms, is_filled=fetch.is_filled)
        self.is_empty = self.is_drained and popped.next_due_ms is None and not popped.in_flight
        if not fetch.is_filled:
            self.wake_up.expect()

    def _ids_left(self, at_most: int) -> list[str]:
        kinds: tuple[Kind, ...] = ("undelivered", "delayed", "delivered")
        queues = [state.queue for state in self.states.values()]
        found = [queue.messages(kind, count=at_most + 1, body_bytes=0) for queue in queues for kind in kinds]
        return [message.id for messages in found for message in messages]

    def _plan_next(self, found: int, next_due_ms: int | None, *, is_filled: bool) -> None:
        is_damaged = any(state.damage.is_on for state in self.states.values())
        self.is_drained = found == 0 and not is_filled and not is_damaged
        next_s = -1 if next_due_ms is None else next_due_ms / 1000
        self.poll_schedule.plan_next(found=found, next_s=next_s, is_partial=False, may_be_more=is_filled)

    def _note_damage(self, error: RsmqError) -> None:
        self._damage = error
        self.is_drained = self.is_empty = False
        self.poll_schedule.fetch_soon()

    def _note_failures(self, failures: Sequence[tuple[Step, RsmqError]]) -> None:
        """Do nothing: each step notes its own queue."""

    def _is_apart(self, step: Step, error: RsmqError) -> bool:
        is_of_one_queue = isinstance(step, SettleStep | ExtendStep | RecoverStep | PopStep) and is_damage(error)
        return is_of_one_queue or isinstance(step, ReportStep | CleanupStep | EventStep | RecentStep)

    # -- After the exchange -------------------------------------------------------------------------------------------

    def _note_settled(self, settle_call: SettleCall, verdicts: Sequence[SettleResult]) -> None:
        super()._note_settled(settle_call, verdicts)
        settlements = settle_call.settlements
        if self._uncertain:
            self._uncertain.difference_update(settlement.delivery for settlement in settlements)
        if self.event_log is not None:
            self._log(self.event_log, settlements, verdicts)

    def _log(self, log: EventLog, group: Sequence[Settlement], verdicts: Sequence[SettleResult]) -> None:
        """Prepare the events of outcomes of one kind."""
        queue_name = group[0].delivery.work_queue.name
        for kind, attempts, error in settled_events(group, verdicts):
            calls = log.calls_afterwards(self.client.namespace, queue_name, kind, attempts, error)
            self._events += [EventStep(call, queue_name, self._events.append) for call in calls]

    def _times(self, room: int) -> list[float]:
        times = [0.0] if self._events or self.poll_schedule.has_wakeup else []
        if room > 0:
            times += [state.next_recovery_at() for state in self.states.values()]
        return times


def make_reliable_sources(
    names: Sequence[str],
    *,
    notifier: Notifier,
    poll_interval_s: float,
    wake: Callable[[], None],
    shared_state: SharedState | None = None,
    ends_by_itself: bool = False,
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
            ends_by_itself=ends_by_itself,
        )
        for alias, group in by_connection.items()
    ]
