"""What the sources have in common: held messages, pending outcomes, and one exchange with the server per turn.

A source adds the steps of its structure: what settles, renews and fetches.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from ...core import Client, RsmqError, SettleResult
from ...core.limits import MAX_BATCH
from ..delivery import Delivery
from ..execute.batch import Batch, in_batches
from ..execute.execution import Execution
from ..fetch.polling import PollSchedule
from ..lease.pending import PendingSettlements
from ..lease.settle import SettleCall
from ..lease.steps import CleanupStep, SettleStep, Step
from ..outcomes import Outcome, Postponed, Released, RetryIn, Settlement
from ..report.notifications import Notifier
from ..report.shared_state import SharedState
from ..report.statistics import MOST_LAST_REPORTS
from .common import CommonSource

#: Maximum number of failed exchanges in a row while the last outcomes of a worker are sent.
MOST_LAST_FAILURES = 2


class Fetching(Protocol):
    """The step of an exchange that fetches."""

    #: The messages, once the exchange is read.
    deliveries: list[Delivery]


class BaseSource(CommonSource, ABC):
    """Messages of one connection, held under leases."""

    is_released_by_supervisor: bool

    def __init__(
        self,
        client: Client,
        *,
        title: str,
        notifier: Notifier,
        poll_schedule: PollSchedule,
        wake: Callable[[], None],
        shared_state: SharedState | None = None,
        ends_by_itself: bool = False,
    ) -> None:
        super().__init__(client, title=title, notifier=notifier, wake=wake, shared_state=shared_state)
        self.poll_schedule = poll_schedule
        self.pending = PendingSettlements(client)
        self._wake = wake
        self._ends_by_itself = ends_by_itself
        self._shared_state = shared_state
        #: Whether the last fetch found no message at all, neither ready nor invisible; None before the first fetch.
        self.is_empty: bool | None = None
        #: Whether the last fetch left nothing ready; None before the first fetch.
        self.is_drained: bool | None = None
        #: Ids of messages that were given back because their task is not known here, in a worker that ends by itself.
        self._unknown: set[str] = set()
        #: The number of messages if no others are left, else 0; None: not asked since the last exchange.
        self._left_to_others: int | None = None

    # -- Called by any thread -----------------------------------------------------------------------------------------

    def settle(self, execution: Execution, outcome: Outcome) -> None:
        """Accept an outcome for the next exchange. The code that runs executions wakes the worker afterwards."""
        if execution.hard_timeout_s is not None:
            self._lift_limit(execution)
        ended_ms = (execution.ended_at or time.monotonic()) * 1000 + self.clock.offset_ms
        # The clock may have been corrected since the start of the attempt: nothing ends before it began.
        execution.finished_ms = max(ended_ms, execution.delivery.started_ms or 0.0)
        self.pending.settlements.append(Settlement(execution, outcome))

    def abandon(self, execution: Execution) -> None:
        """Stop renewing the lease of a message that will have no outcome here, so that it becomes visible again."""
        self._lift_limit(execution)
        self.pending.abandon([execution.delivery])
        self._wake()

    def fetch_now(self) -> None:
        """Fetch at the next exchange: a message was sent."""
        self.poll_schedule.has_wakeup = True
        self._wake()

    # -- Called by the main thread ------------------------------------------------------------------------------------

    def in_calls(self, executions: Iterable[Execution]) -> Iterator[Execution | Batch]:
        """Return single messages, and batches of messages with the same function."""
        return in_batches(executions)

    @property
    @abstractmethod
    def is_fetch_pending(self) -> bool:
        """Return whether a fetch was sent whose reply the next exchange will read."""

    @property
    def has_settlements(self) -> bool:
        """Return whether outcomes are pending, or were sent without a reply yet."""
        return bool(self.pending.count) or self.is_fetch_pending

    @property
    def is_idle(self) -> bool:
        """Return whether no message is held and nothing is pending."""
        return self.pending.is_empty and not len(self.leases) and not self.is_fetch_pending

    @property
    def is_stuck(self) -> bool:
        """Return whether only outcomes are left that a damaged queue has refused for a while."""
        return self.pending.is_stuck(len(self.leases))

    @property
    def left_to_others(self) -> int:
        """Return the number of messages if all are calls of tasks that are not known here, else 0. Asks the server."""
        if not (self.is_drained and 0 < len(self._unknown) < MAX_BATCH):
            return 0
        if self._left_to_others is None:
            try:
                ids = self._ids_left(len(self._unknown))
            except RsmqError:
                return 0  # the next exchange shows the error
            self._left_to_others = len(ids) if self._unknown.issuperset(ids) else 0
        return self._left_to_others

    @abstractmethod
    def _ids_left(self, at_most: int) -> list[str]:
        """Return the ids of the messages in the queues; of a queue that has more than `at_most`, at least one more."""

    @property
    def unreported(self) -> int:
        """Return the number of outcomes of completed runs that Redis does not know."""
        return sum(not isinstance(each.outcome, Released) for each in self.pending.all_settlements())

    def forget(self, deliveries: Sequence[Delivery], *, removed: Sequence[str]) -> None:
        """Stop holding messages: Redis knows their outcomes, or there will be none."""
        self.pending.over += [batch for batch in self.leases.remove(deliveries) if batch not in removed]
        slots = []
        for delivery in deliveries:
            delivery.execution = None
            if delivery.ack_waiter is not None:
                delivery.release_waiter()
            if delivery.slot is not None:
                slots.append(delivery.slot)
                delivery.slot = None
        if self._shared_state is not None:
            self._shared_state.leave(*slots)

    # -- The exchange -------------------------------------------------------------------------------------------------

    def exchange(self, room: int, *, at_most: int = MAX_BATCH) -> list[Delivery]:
        """Send outcomes, renew leases, and fetch messages for `room` calls: one round trip, or none when idle.

        A call takes one message, or a batch; `at_most` is the maximum number of messages.

        Never raises errors of the server: steps that could not be carried out stay for a later exchange.
        """
        if time.monotonic() < self.backoff.next_try_at:
            self.leases.expire(time.monotonic())
            return []
        if room > 0:
            self.poll_schedule.take_turn()
        return self._exchange(room, at_most)

    def flush(self) -> None:
        """Send all pending outcomes for the last time. Messages whose outcome is lost become visible again later."""
        left, failures = -1, 0
        while left and failures < MOST_LAST_FAILURES:  # at least once: undelivered messages are released, too
            before = self.pending.count
            # Outcomes that have not failed yet come first: there is no time for those that cannot be sent.
            self.pending.late.next_try_at = math.inf if self.pending.settlements else 0.0
            self._exchange(0)
            left = self.pending.count
            failures = 0 if left < before else failures + 1
        self._report_the_rest()

    def _report_the_rest(self) -> None:
        if self.statistics is None:
            return
        for _ in range(MOST_LAST_REPORTS):
            if self.statistics.is_empty or self.backoff.is_on:
                return
            self.statistics.flush_soon()
            self._exchange(0)

    def _exchange(self, room: int, at_most: int = MAX_BATCH) -> list[Delivery]:
        self.pending.offer_refused_again(time.monotonic())
        steps: list[Step] = []
        fetch = None
        try:
            room = self._prepare(room)
            steps, fetch = self._steps(room, min(at_most, MAX_BATCH))
            replies = self.client.run_many([step.call for step in steps]) if steps else []
        except RsmqError as error:
            self._keep_for_later(steps, error)
            return []
        self._read(steps, replies)
        return fetch.deliveries if fetch is not None else []

    @abstractmethod
    def _prepare(self, room: int) -> int:
        """Do what has to be done before the exchange, now and then, in round trips of its own.

        Returns for how many calls to fetch: 0 if there is more to do before.
        """

    @abstractmethod
    def _steps(self, room: int, at_most: int) -> tuple[list[Step], Fetching | None]:
        """Return the steps of the next exchange, and the step that fetches, if any does."""

    def _put_back_steps(self, steps: Iterable[Step], error: RsmqError) -> None:
        for step in steps:
            if not isinstance(step, CleanupStep):  # it is made again with its outcome
                step.failed(error)

    def _keep_for_later(self, steps: Sequence[Step], error: RsmqError) -> None:
        """Keep steps for a later exchange that may have been carried out or not."""
        self._put_back_steps(steps, error)
        self.poll_schedule.fetch_within(0)  # the wake-up was not acted on yet
        self.backoff.note(error, at_most_s=self.leases.longest_wait_s())
        self.leases.expire(time.monotonic())

    def _read(self, steps: Sequence[Step], replies: Sequence[Any]) -> None:
        self._left_to_others = None
        failures: list[tuple[Step, RsmqError]] = []
        for step, reply in zip(steps, replies, strict=True):
            if isinstance(reply, RsmqError):
                step.failed(reply)
                failures.append((step, reply))
            else:
                step.done(reply)
        self._note_failures(failures)
        # A damaged queue refuses its own outcomes and renewals only, while fetches concern all queues. Counters that
        # cannot be written, locks and tags that cannot be removed, and unreadable cancellations never stop the work.
        trouble = [error for step, error in failures if not self._is_apart(step, error)]
        if trouble:
            self.backoff.note(trouble[0], at_most_s=self.leases.longest_wait_s())
        elif steps:
            self.backoff.over()
            if self._shared_state is not None:
                self._shared_state.note_poll()
        if not self.pending.refused:
            self.pending.damage.over()
        if self._ends_by_itself and self.is_idle and any(isinstance(step, SettleStep) for step in steps):
            # The settled message may have been the last one, which `until_empty` waits for. A fetch in the same
            # exchange does not show that: a script that the server did not know yet is carried out after it.
            self.poll_schedule.fetch_soon()
            self.is_drained = self.is_empty = False

    @abstractmethod
    def _note_failures(self, failures: Sequence[tuple[Step, RsmqError]]) -> None:
        """Note which steps of an exchange the server refused."""

    @abstractmethod
    def _is_apart(self, step: Step, error: RsmqError) -> bool:
        """Return whether other work can continue in spite of this failure."""

    def _note_settled(self, settle_call: SettleCall, verdicts: Sequence[SettleResult]) -> None:
        """Forget settled messages, and report lost leases."""
        settlements = settle_call.settlements
        self.is_drained = False  # tasks that have ended may have sent messages since the last fetch
        self.forget([settlement.execution.delivery for settlement in settlements], removed=settle_call.over)
        if self.statistics is not None:
            self.statistics.settled(settlements, verdicts)
        outcome = settlements[0].outcome  # a step with several outcomes has one kind only
        if isinstance(outcome, (RetryIn, Postponed)):
            self.poll_schedule.fetch_within(outcome.after_s)
            if self._ends_by_itself and len(self._unknown) < MAX_BATCH:
                unknown = [each.execution for each in settlements if each.execution.handler is None]
                self._unknown.update(each.delivery.message.id for each in unknown)
        if SettleResult.LEASE_LOST in verdicts and not isinstance(outcome, Released):
            for settlement, verdict in zip(settlements, verdicts, strict=True):
                if verdict is SettleResult.LEASE_LOST:
                    self.notifier.lost(settlement.delivery)
        # MISSING: the reply to an earlier try was lost, or the message was deleted. In both cases it is gone.

    # -- Time of the next exchange ------------------------------------------------------------------------------------

    def next_exchange_at(self, room: int, *, settle_within_s: float = 0.0) -> float | None:
        """Return when the next exchange is due, on the monotonic clock; None when only an event can start it.

        Outcomes may wait for `settle_within_s`, so that more of them are sent together.
        """
        if self.is_fetch_pending:
            return 0.0
        times = self._times(room)
        if self.pending.settlements:
            times.append(time.monotonic() + settle_within_s if settle_within_s else 0.0)
        if self.pending.late.settlements:
            times.append(self.pending.late.next_try_at)
        if self.pending.refused:
            times.append(self.pending.damage.next_try_at)
        if room > 0:
            times += self.poll_schedule.times()
        renewal_at = self.leases.next_renewal_at()
        if renewal_at is not None:
            times.append(renewal_at)
        report_at = self.statistics.next_report_at() if self.statistics is not None else None
        if report_at is not None:
            times.append(report_at)
        soonest = max(min(times, default=math.inf), self.backoff.next_try_at)
        return soonest if soonest < math.inf else None

    @abstractmethod
    def _times(self, room: int) -> list[float]:
        """Return the times at which the structure has something to do, on the monotonic clock."""
