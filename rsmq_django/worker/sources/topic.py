"""The source for the topics of one Redis server: settle, renew, read, forward, in one round trip for all groups.

A group is read only while fewer reads than its `consumers` are held, one message or one batch each, so it keeps its
order. Bridges move messages to queues in the same exchange, without an execution. Messages of a process that died are
delivered again after the visibility timeout.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any

from ...core import Client, RsmqError, SettleResult
from ...core.limits import MAX_BATCH
from ...core.log_lines import get_logger
from ...core.texts import counted
from ...core.topic import Topic, TopicBatch
from ...core.topic.bridge import Forwarded
from ...core.topic.group import BEAT_EVERY_S
from ...core.topic.keys import dead_letter_topic
from ...core.topic.listing import register_call
from ...tasks.topic_task import TopicBridge, TopicTask, registered_topic_tasks
from ..delivery import AttemptState, Delivery
from ..execute.batch import Batch
from ..execute.execution import Execution
from ..execute.sequence import MessageSequence
from ..fetch.wakeup import Wakeup
from ..lease.pending import GIVE_UP_REFUSED_AFTER_S
from ..outcomes import Outcome, Released, Settlement
from ..report.event_log import settled_events
from ..report.statistics import ReportStep
from .common import CommonSource
from .source import SourceContext
from .topic_batch import FailedCall, in_topic_calls
from .topic_group import BridgeState, ConsumerState, GroupState, ReadPlan, bridge_state, consumer_state
from .topic_steps import (
    BeatStep,
    ForwardStep,
    ReadStep,
    RegisterStep,
    TopicRenewStep,
    TopicSettleStep,
    TopicStep,
    Upkeep,
    kind_of,
    note_lags,
    trim,
)
from .topic_wake_up import TopicWakeUps

logger = get_logger(__name__)

#: Interval at which topics apply their retention, and forget idle groups.
TRIM_EVERY_S = 60.0
#: Interval at which the lag of all groups of the consumed topics is noted for charts, whose finest points are minutes.
NOTE_LAG_EVERY_S = 15.0
#: While messages run one after another, their outcomes are sent together, after this time or when all have ended.
SETTLE_SEQUENCE_WITHIN_S = 0.1
#: Maximum number of failed exchanges in a row while the last outcomes of a worker are sent.
MOST_LAST_FAILURES = 2


class TopicGroupSource(CommonSource):
    """Reads groups of topics on one connection for their functions, and moves messages of others to queues."""

    #: Wake-ups come from a stream, not from published messages: there is no prepared fetch.
    is_fetch_pending = False
    is_released_by_supervisor = False
    holds_nothing = True

    def __init__(self, client: Client, groups: Sequence[GroupState], context: SourceContext) -> None:
        super().__init__(
            client,
            title=f"topics on {client.connection!r}",
            notifier=context.notifier,
            wake=context.wake,
            shared_state=context.shared_state,
        )
        self.consumers = {each.work_queue.name: each for each in groups if isinstance(each, ConsumerState)}
        self.bridges = [each for each in groups if isinstance(each, BridgeState)]
        self._groups = deque(groups)
        self.wake_ups = TopicWakeUps(client.connection, [each.wake_key for each in groups], on_news=self._note_news)
        self._ends_by_itself = context.ends_by_itself
        self._may_fetch: Callable[[], bool] = lambda: True
        self._settled: deque[Settlement] = deque()
        self._failed_calls: deque[FailedCall] = deque()
        self._abandoned: deque[Delivery] = deque()
        #: Messages whose settling may have been carried out although its reply was lost.
        self._uncertain: set[Delivery] = set()
        self._taken: list[Delivery] = []
        #: Those of which some messages had not begun at the last exchange.
        self._sequences: list[MessageSequence] = []
        #: The last error of a call, or of the server; None after an exchange without one.
        self.failure: RsmqError | None = None
        #: Topics that are not in the list of topics yet.
        self._unlisted = {each.topic_name for each in groups}
        topics = {each.topic_name: Topic(each.topic_name, client) for each in groups}.values()
        self._upkeep = [Upkeep("trimming", each, trim, every_s=TRIM_EVERY_S) for each in topics]
        self._upkeep += [Upkeep("the lag of groups", each, note_lags, every_s=NOTE_LAG_EVERY_S) for each in topics]

    # -- Start and end ------------------------------------------------------------------------------------------------

    def start(self, _wakeup: Wakeup, may_fetch: Callable[[], bool]) -> None:
        """Start to wait for publishes."""
        self._may_fetch = may_fetch
        if not self._ends_by_itself:
            self.wake_ups.start()

    def stop_soon(self) -> None:
        """Let that end."""
        self.wake_ups.stop_soon()

    def stop(self) -> None:
        """End that."""
        self.wake_ups.stop()

    def flush(self) -> None:
        """Send all pending outcomes for the last time, and say that the groups are not read here any more."""
        left, failures = -1, 0
        while left and failures < MOST_LAST_FAILURES:
            before = len(self._settled)
            self._run(self._settle_steps())
            left = len(self._settled)
            failures = 0 if left < before else failures + 1
        self._run([BeatStep(each, each.group.leave_call()) for each in self._groups])
        if self.statistics is not None and not self.backoff.is_on:
            try:
                self.statistics.report_the_rest(self.client)
            except RsmqError as error:
                self.backoff.note(error)

    # -- Called by any thread -----------------------------------------------------------------------------------------

    def began(self, execution: Execution) -> None:
        """Note that an attempt began, for the time limit of the supervisor. The group has the message in flight."""
        if execution.delivery.slot is not None:  # of a call for several messages that failed
            self._leave_slots([execution.delivery])
        super().began(execution)

    def settle(self, execution: Execution, outcome: Outcome) -> None:
        """Accept the first outcome of an execution for the next exchange."""
        if execution.is_settled:
            return  # given back while it ran: another consumer may have it
        if execution.hard_timeout_s is not None:
            self._lift_limit(execution)
        execution.finished_ms = max(self.clock.now_ms(), execution.delivery.started_ms or 0.0)
        self._settled.append(Settlement(execution, outcome))

    def note_failed_call(self, members: Sequence[AttemptState], error: BaseException) -> None:
        """Count a call of several messages that failed; they are tried one by one now."""
        self._failed_calls.append(FailedCall(members, error))
        self._wake()

    def abandon(self, execution: Execution) -> None:
        """Stop renewing the lease of a message that will have no outcome here."""
        self._abandoned.append(execution.delivery)
        self._wake()

    def _note_news(self, wake_keys: Sequence[str]) -> None:
        """Read the groups of topics soon that were published to."""
        for state in list(self._groups):
            if state.wake_key in wake_keys:
                state.read_at = 0.0
        self._wake()

    # -- A turn -------------------------------------------------------------------------------------------------------

    def exchange(self, room: int, *, at_most: int = MAX_BATCH) -> list[Delivery]:
        """Settle, renew, and read up to `room` single messages or batches, `at_most` messages in all.

        Never raises errors of the server: steps that could not be carried out stay for a later exchange.
        """
        now = time.monotonic()
        if now < self.backoff.next_try_at:
            self.leases.expire(now)
            return []
        self._drop_abandoned()
        self._sequences = [each for each in self._sequences if each.has_waiting]
        for sequence in self._sequences:
            sequence.give_back_if_stuck(now)
        settle_steps = self._settle_steps()
        ending = [settlement.delivery for step in settle_steps for settlement in step.settlements]
        steps: list[TopicStep] = [*settle_steps, *self._renew_steps(now, ending)]
        if self._may_fetch():
            ended = frozenset(self.leases.completed_batches(ending))
            steps += [RegisterStep(register_call(name), self._unlisted, name) for name in self._unlisted]
            steps += self._read_steps(room, at_most, now, ended)
            steps += [step for each in self._upkeep for step in each.steps(now)]
        self._run(steps)
        taken, self._taken = self._taken, []
        return taken

    def _run(self, steps: Sequence[TopicStep]) -> None:
        reports = self.statistics.steps() if self.statistics is not None else []
        parts: list[TopicStep | ReportStep] = [*steps, *reports]
        if not parts:
            return self._note_failed_calls()
        self.failure = None
        try:
            replies: list[Any] = self.client.run_many([step.call for step in parts])
        except RsmqError as error:
            for step in steps:
                step.lost()
            for report in reports:
                report.failed(error)
            self.failure = error
            self.backoff.note(error, at_most_s=self.leases.longest_wait_s())
            return self.leases.expire(time.monotonic())
        self.backoff.over()
        if self._shared_state is not None:
            self._shared_state.note_poll()
        self._note_failed_calls()
        for part, reply in zip(parts, replies, strict=True):
            if isinstance(reply, RsmqError):
                self.failure = reply
                part.failed(reply)
            else:
                part.done(reply)
        if self.is_idle and any(isinstance(step, TopicSettleStep) for step in steps):
            # It may have been the last message, and may have published to other topics before it ended.
            for state in self._groups:
                state.read_soon()

    def fetch_ahead(self, room: int, *, at_most: int) -> None:
        """Do nothing; see QueueSource."""

    def prepare_fetch(self, room: int, *, at_most: int = MAX_BATCH) -> None:
        """Do nothing; see QueueSource."""

    def in_calls(self, executions: Iterable[Execution]) -> Iterator[Execution | Batch | MessageSequence]:
        """Return what the pool runs: single messages, batches, or messages that run one after another."""
        for each in in_topic_calls(executions, self):
            if isinstance(each, MessageSequence):
                self._sequences.append(each)
            yield each

    def take_cancelled(self) -> list[Execution]:
        """Return an empty list: the messages of a topic cannot be cancelled."""
        return []

    # -- Outcomes -----------------------------------------------------------------------------------------------------

    def _settle_steps(self) -> list[TopicSettleStep]:
        for state in self.consumers.values():
            if state.refused and time.monotonic() >= state.damage.next_try_at:
                self._settled.extend(state.refused)
                state.refused.clear()
        alike: dict[tuple[tuple[object, ...], bool], list[Settlement]] = {}
        for _ in range(min(len(self._settled), MAX_BATCH)):
            settlement = self._settled.popleft()
            is_repeat = settlement.execution.delivery in self._uncertain
            alike.setdefault((kind_of(settlement), is_repeat), []).append(settlement)
        return [
            TopicSettleStep(self._state_of(part[0].delivery), part, self._note_settled, self._put_back, is_repeat)
            for (_, is_repeat), part in alike.items()
        ]

    def _state_of(self, delivery: Delivery) -> ConsumerState:
        return self.consumers[delivery.work_queue.name]

    def _put_back(self, state: ConsumerState, settlements: Sequence[Settlement], error: RsmqError | None) -> None:
        if error is None:
            self._uncertain.update(each.delivery for each in settlements)
            self._settled.extendleft(reversed(settlements))
        else:
            state.damage.note(error)
            state.refused += settlements

    def _note_settled(
        self, state: ConsumerState, settlements: Sequence[Settlement], verdicts: Sequence[SettleResult]
    ) -> None:
        if self.statistics is not None:
            self.statistics.settled(settlements, verdicts)
        if (log := self.event_log) is not None:
            name = state.work_queue.name
            for kind, attempts, error in settled_events(settlements, verdicts):
                log.write(self.client, name, log.calls_afterwards(self.client.namespace, name, kind, attempts, error))
        if SettleResult.LEASE_LOST in verdicts and not isinstance(settlements[0].outcome, Released):
            for settlement, verdict in zip(settlements, verdicts, strict=True):
                if verdict is SettleResult.LEASE_LOST:
                    self.notifier.lost(settlement.delivery)
        for settlement in settlements:
            if (run_us := settlement.execution.run_us) is not None:
                state.pace.note(run_us / 1e6)
        self._forget(state, [settlement.execution.delivery for settlement in settlements])
        state.read_soon()

    def _note_failed_calls(self) -> None:
        while self._failed_calls:
            self._failed_calls.popleft().report(self.client, self.statistics, self.event_log)

    def _drop_abandoned(self) -> None:
        while self._abandoned:
            delivery = self._abandoned.popleft()
            self._forget(self._state_of(delivery), [delivery])

    def _forget(self, state: ConsumerState, deliveries: Sequence[Delivery]) -> None:
        """Stop holding messages of a group: Redis knows their outcomes, or there will be none."""
        state.over(self.leases.remove(deliveries))
        self._uncertain.difference_update(deliveries)
        self._leave_slots(deliveries)
        for delivery in deliveries:
            delivery.execution = None

    def _leave_slots(self, deliveries: Iterable[Delivery]) -> None:
        if self._shared_state is None:
            return
        for delivery in deliveries:
            if delivery.slot is not None:
                self._shared_state.leave(delivery.slot)
                delivery.slot = None

    # -- Leases -------------------------------------------------------------------------------------------------------

    def _renew_steps(self, now: float, ending: Iterable[Delivery]) -> list[TopicStep]:
        """Return the renewals that are due; `ending` are the messages that are settled in the same exchange."""
        steps: list[TopicStep] = []
        if self.leases.may_be_due(now):
            # Renewing a message whose outcome is decided could delay it: a retry would come a lease later.
            ended = {*ending, *(each.delivery for each in self._refused)}
            ended.update(each.delivery for each in list(self._settled))
            due: dict[str, list[Delivery]] = {}
            for delivery in self.leases.due(now, ended):
                due.setdefault(delivery.work_queue.name, []).append(delivery)
            for name, held in due.items():
                parts = [held[at : at + MAX_BATCH] for at in range(0, len(held), MAX_BATCH)]
                steps += [TopicRenewStep(self.consumers[name], self.leases, part) for part in parts]
        for state in self.consumers.values():
            if now >= state.beat_at:
                state.beat_at = now + BEAT_EVERY_S
                steps.append(BeatStep(state, state.group.beat_call()))
        return steps

    # -- Reading ------------------------------------------------------------------------------------------------------

    def _read_steps(self, room: int, at_most: int, now: float, ended: Set[str]) -> list[TopicStep]:
        """Return the reads that are due; `ended` are the names of reads that are settled in the same exchange."""
        steps: list[TopicStep] = [
            ForwardStep(each, self._note_forwarded) for each in self.bridges if now >= each.next_read_at
        ]
        self._groups.rotate(-1)  # a different group is the first one each time
        for state in self._groups:
            if not isinstance(state, ConsumerState) or now < state.next_read_at:
                continue
            for plan in state.reads(room, ended):
                calls, count = plan = ReadPlan(plan.calls, min(plan.messages, at_most))
                if count > 0:
                    room, at_most = room - calls, at_most - count
                    steps.append(ReadStep(state, plan, self._note_read))
        return steps

    def _note_read(self, state: ConsumerState, plan: ReadPlan, batch: TopicBatch, sent_at: float) -> None:
        deliveries = state.held(batch.messages, sent_at, plan.calls)
        self.leases.add(deliveries)
        self._taken += deliveries
        if batch.skipped:
            text = "%s missed %s, dropped before it had processed them"
            logger.warning(text, state.group, counted(batch.skipped))
        if batch.dead_lettered:
            where = dead_letter_topic(state.topic_name)
            self._unlisted.add(where)
            text = "%s: %s failed for good and moved to topic %s"
            logger.error(text, state.group, counted(batch.dead_lettered), where)
        state.note_read(found=len(deliveries) + batch.dead_lettered, left=batch.left, due_ms=batch.due_ms)
        self._expect_news(state, batch.last)

    def _note_forwarded(self, state: BridgeState, done: Forwarded) -> None:
        if done.dead_lettered:
            where = dead_letter_topic(state.topic_name)
            self._unlisted.add(where)
            text = "%s of %s went to topic %s: longer than queue %s allows"
            logger.error(text, counted(done.dead_lettered), state.group, where, state.bridge.queue.name)
        state.note_read(found=0, left=done.left, due_ms=None)
        self._expect_news(state, done.last)

    def _expect_news(self, state: GroupState, last: int) -> None:
        if state.is_drained and self.wake_ups.expect(state.wake_key, last):
            state.read_at = 0.0  # published before the reply of this read arrived

    # -- Time of the next exchange ------------------------------------------------------------------------------------

    def next_exchange_at(self, room: int, *, settle_within_s: float = 0.0) -> float | None:
        """Return when the next exchange is due, on the monotonic clock; None when only an event can start it.

        Outcomes may wait for `settle_within_s`, so that more of them are sent together.
        """
        now = time.monotonic()
        times = [each.beat_at for each in self.consumers.values()]
        times += [each.damage.next_try_at for each in self.consumers.values() if each.refused]
        if self._sequences:
            times.append(now + SETTLE_SEQUENCE_WITHIN_S)
        elif self._settled or self._failed_calls:
            times.append(now + settle_within_s)
        if self._abandoned:
            times.append(now)
        if self._may_fetch():
            times += [each.next_read_at for each in self.bridges] + [each.due_at for each in self._upkeep]
            times += [each.next_read_at for each in self.consumers.values() if room > 0 and each.has_room]
        report_at = self.statistics.next_report_at() if self.statistics is not None else None
        times += [at for at in (self.leases.next_renewal_at(), report_at) if at is not None]
        soonest = max(min(times, default=math.inf), self.backoff.next_try_at)
        return soonest if soonest < math.inf else None

    # -- State --------------------------------------------------------------------------------------------------------

    @property
    def has_settlements(self) -> bool:
        """Return whether outcomes are pending."""
        return bool(self._settled)

    @property
    def _refused(self) -> list[Settlement]:
        """Return the outcomes that damaged groups refused."""
        return [settled for state in self.consumers.values() for settled in state.refused]

    @property
    def is_idle(self) -> bool:
        """Return whether no message is held and nothing is pending."""
        return not self._settled and not self._failed_calls and not len(self.leases)

    @property
    def is_drained(self) -> bool | None:
        """Return whether the last reads left nothing ready; None when some group is not read yet."""
        return _all_are([state.is_drained for state in self._groups])

    @property
    def is_empty(self) -> bool | None:
        """Return whether the last reads left nothing at all, neither ready nor in flight."""
        return _all_are([state.is_empty for state in self._groups])

    @property
    def left_to_others(self) -> int:
        """Return 0: the function of a message is that of its group, and known."""
        return 0

    @property
    def is_stuck(self) -> bool:
        """Return whether only outcomes are left that a damaged group has refused for a while."""
        refused = self._refused
        longest_s = max((each.damage.lasts_s for each in self.consumers.values()), default=0.0)
        only_refused = bool(refused) and not self._settled and len(self.leases) == len(refused)
        return only_refused and longest_s > GIVE_UP_REFUSED_AFTER_S

    @property
    def unreported(self) -> int:
        """Return the number of outcomes of completed runs that Redis does not know."""
        return sum(not isinstance(each.outcome, Released) for each in [*self._settled, *self._refused])


def _all_are(answers: Sequence[bool | None]) -> bool | None:
    return None if None in answers else all(answers)


def make_topic_sources(names: Sequence[str] | None, context: SourceContext) -> list[TopicGroupSource]:
    """Return a source for each connection with declared topic tasks and bridges: of these topics, or of all."""
    return sources_of([each for each in registered_topic_tasks() if names is None or each.topic in names], context)


def sources_of(declared: Iterable[TopicTask | TopicBridge], context: SourceContext) -> list[TopicGroupSource]:
    """Return a source for each connection of these."""
    by_client: dict[int, list[GroupState]] = {}
    for each in declared:
        state = bridge_state(each) if isinstance(each, TopicBridge) else consumer_state(each)
        by_client.setdefault(id(state.group.client), []).append(state)
    return [TopicGroupSource(groups[0].group.client, groups, context) for groups in by_client.values()]
