"""The worker process: a main thread that talks to Redis and hands out messages, and the pool that runs tasks."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from ..conf.settings import QueueSettings, WorkerSettings
from ..core.limits import MAX_BATCH, UNLIMITED
from ..core.log_lines import get_logger
from ..core.texts import counted
from .delivery import Delivery
from .execute.batch import executions_of, to_interrupt
from .execute.execution import Execution
from .execute.plain import read_all
from .execute.pool import Pool, Runnable
from .execute.quarantine import Quarantine
from .execute.stacks import StackReporter
from .fetch.polling import IdleTurn
from .fetch.primary_watch import watches
from .fetch.queues import split_reliable
from .fetch.wakeup import Wakeup
from .lease.inflight import sign_off
from .outcomes import Outcome, Released
from .report.notifications import Notifier, log_outcome
from .report.shared_state import SharedState
from .side_by_side import SideBySide, can_overlap
from .sources.making import make_sources
from .sources.source import Source, SourceContext
from .stopping import Stopping

logger = get_logger(__name__)

#: While there is a backlog, outcomes wait for up to this time, so that many are sent together.
SETTLE_WITHIN_S = 0.005
#: When tasks have ended, a stop by an operator waits this long for an unavailable server, to report their outcomes.
RECONNECT_WITHIN_S = 5.0
#: The longest sleep. All relevant events end it earlier.
LONGEST_SLEEP_S = 5.0


def random_worker_id() -> str:
    """Return a unique name for this process that contains host and pid."""
    return f"{socket.gethostname()[:30]}-{os.getpid()}-{secrets.token_hex(3)}"


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Options of one worker process; the defaults of the first four come from RSMQ["WORKER"]."""

    threads: int
    async_tasks: int
    poll_interval_s: float
    shutdown_timeout_s: float
    #: Stop when nothing is ready any more.
    until_drained: bool = False
    #: Stop when no message is left: none ready, delayed or in flight anywhere.
    until_empty: bool = False
    #: Stop after this many messages.
    max_tasks: int | None = None
    worker_id: str = field(default_factory=random_worker_id)
    #: Names of reliable queues to work on, in addition to the queues.
    reliable: tuple[str, ...] = ()
    #: Topics whose tasks and bridges run here; None for all declared ones.
    topics: tuple[str, ...] | None = None

    @classmethod
    def from_settings(cls, settings: WorkerSettings, **changes: object) -> WorkerOptions:
        """Return the options of the settings, replaced by the given ones that are not None."""
        values: dict[str, object] = {
            "threads": settings.threads,
            "async_tasks": settings.async_tasks,
            "poll_interval_s": settings.poll_interval_s,
            "shutdown_timeout_s": settings.shutdown_timeout_s,
        }
        values |= {name: value for name, value in changes.items() if value is not None}
        return cls(**values)  # type: ignore[arg-type]


class Worker:
    """Works on queues until it is told to stop."""

    def __init__(
        self,
        queues: Sequence[QueueSettings],
        options: WorkerOptions,
        *,
        shared_state: SharedState | None = None,
        idle_turns: IdleTurn | None = None,
    ) -> None:
        self.options = options
        self._idle_turns = idle_turns
        self.shared_state = shared_state
        self.notifier = Notifier(options.worker_id)
        self.wakeup = Wakeup()
        self.pool = Pool(
            threads=options.threads,
            async_tasks=options.async_tasks,
            wake=self.wakeup.wake,
            on_interruption=self._on_interruption,
            renews_threads=shared_state is None,
        )
        context = SourceContext(
            notifier=self.notifier,
            poll_interval_s=options.poll_interval_s,
            wake=self.pool.wake_unless_ahead,
            shared_state=shared_state,
            idle_turns=idle_turns,
            ends_by_itself=options.until_drained or options.until_empty,
        )
        self.sources: list[Source] = make_sources(queues, options.reliable, options.topics, context)
        #: Whether messages may be longer than RSMQ allows, so that few of them fill the memory.
        self._may_be_long = bool(options.reliable) or any(each.max_size_bytes == UNLIMITED for each in queues)
        self.quarantine = Quarantine(self.pool)
        self.taken = 0
        may_overlap = options.max_tasks is None and can_overlap(self.sources)
        #: None for exchanges one after the other, which also keep a maximum number of messages.
        self._side_by_side = SideBySide() if may_overlap else None
        #: The number of the source that comes first in this turn.
        self._first_source = -1
        self._awaited_was_logged = False
        #: Whether the supervisor has ended.
        self._is_orphan = False
        self._stopping = Stopping(self.wakeup, grace_s=options.shutdown_timeout_s, shared_state=shared_state)

    # -- Start and signals --------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Work until stopped or done. Returns whether every task that was begun could end."""
        self.pool.start()
        primary_watches = watches(source.client for source in self.sources)
        try:
            for source in self.sources:
                source.start(self.wakeup, self._may_fetch)
            for watch in primary_watches:
                self.wakeup.subscribe(watch)
            while not self._is_done():
                self._turn()
                self._prepare_fetches()
                at_most_s = SETTLE_WITHIN_S if self.pool.is_ahead else LONGEST_SLEEP_S
                self.wakeup.sleep(self._next_turn_at, at_most_s=at_most_s)
            return self._release_the_rest()
        finally:
            self.pool.stop()
            for source in self.sources:
                source.stop()
            for watch in primary_watches:
                watch.stop()
            self.wakeup.close()

    def handle_signals(self) -> None:
        """Stop on SIGTERM, SIGINT and SIGQUIT; at once on the second one."""
        self._stopping.handle_signals()

    def handle_supervisor(self, lifeline: int) -> None:
        """Stop on SIGTERM, which the supervisor sends, and when the lifeline closes: the supervisor has ended."""
        self._stopping.handle_supervisor()
        self.wakeup.watch(lifeline, self._on_orphaned)

    def answer_supervisor(self, requests: int, shared_state: SharedState) -> None:
        """Report how many tasks run, or their stacks, each time a byte is written into this pipe."""
        clients = [source.client for source in self.sources]
        StackReporter(requests, self.pool, clients, self.options.worker_id, shared_state).start()

    def _on_orphaned(self) -> None:
        logger.warning("the supervisor has ended; finishing running tasks")
        self._is_orphan = True
        self._stopping.stop_sooner()

    def _on_interruption(self, runnable: Runnable) -> None:
        """Have the process replaced: an interruption may have broken a lock or a connection of any of its threads.

        Without a supervisor it cannot be replaced and continues, with a new thread.
        """
        if self.shared_state is not None and self.shared_state.interrupted_at is None:
            self.shared_state.note_interruption()
            self._stopping.stop_sooner()
        for execution in executions_of([runnable]):
            execution.sink.note_interruption(execution)

    @property
    def stop_by(self) -> float | None:
        """Return the monotonic time at which running tasks are abandoned; None while the worker is not stopping."""
        return self._stopping.by

    def stop(self, *, within_s: float) -> None:
        """Stop receiving, release waiting messages, and let running tasks continue for up to this time."""
        self._stopping.stop(within_s=within_s)

    # -- One turn of the main loop ------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._stopping.is_news = False  # before it is read: a signal may come between
        if self.shared_state is not None:
            self.shared_state.note_turn()
        if self.stop_by is not None or self.pool.is_stuck():
            self._give_back_waiting()
        was_idle = self.pool.is_idle
        overlapped = self._side_by_side
        for source in self._sources_in_turn() if overlapped is None else self._overlapping(overlapped):
            for runnable in source.in_calls(self._take(source)):
                (self.quarantine if runnable.is_suspect else self.pool).submit(runnable)
            for cancelled in to_interrupt(source.take_cancelled()):
                self.pool.cancel(cancelled)
        if was_idle and not self.pool.is_idle:
            self.wakeup.step_aside()
        self._note_health()
        if self.stop_by is not None:
            for execution in executions_of(self.pool.running()):
                execution.is_worker_stopping = True
        self.quarantine.advance(is_quiet=self.pool.is_idle and not any(each.has_settlements for each in self.sources))
        self.pool.interrupt_overdue()
        self._log_what_is_awaited()

    def _sources_in_turn(self) -> Sequence[Source]:
        """Return the sources, another one first in each turn: no backlog keeps the room from the others."""
        self._first_source = first = (self._first_source + 1) % len(self.sources) if self.sources else 0
        return self.sources[first:] + self.sources[:first] if first else self.sources

    def _overlapping(self, side_by_side: SideBySide) -> Iterable[Source]:
        """Return the sources in turn for exchanges that overlap."""
        return side_by_side.exchange(self._sources_in_turn(), min(self._room(), self.pool.portion), at_most=self._left)

    def _note_health(self) -> None:
        """Tell the supervisor and the other processes that the main loop turns."""
        if self.shared_state is not None and not any(source.is_unavailable for source in self.sources):
            self.shared_state.note_poll()
        if self._idle_turns is not None:
            self._idle_turns.note_idle(self._room() > 0)

    def _prepare_fetches(self) -> None:
        """Prepare the fetches that are sent after a wake-up, while there is time."""
        room = self._room() if self.pool.is_idle else 0
        for source in self.sources:
            source.prepare_fetch(room, at_most=self._left)

    def _may_fetch(self) -> bool:
        """Return whether messages are wanted, and are not being fetched for the free room already."""
        is_paused = self.shared_state is not None and self.shared_state.is_paused
        return self.stop_by is None and not is_paused and not any(source.is_fetch_pending for source in self.sources)

    def _take(self, source: Source) -> Iterator[Execution]:
        overlapped = self._side_by_side
        room = min(self._room(), self.pool.portion) if overlapped is None else overlapped.room_of(source)
        deliveries = source.exchange(room, at_most=self._left)
        if deliveries and self._may_be_long:
            self.pool.note_longest(max([len(each.message.body) for each in deliveries]))
        if deliveries and self._may_fetch_ahead(deliveries):
            room = min(self._room() - len(deliveries), self.pool.portion)
            source.fetch_ahead(room, at_most=self._left - len(deliveries))
        arrived = read_all(deliveries, sink=source, notifier=self.notifier)
        source.note_arrived(arrived)
        if self.stop_by is not None:  # the exchange was pending when the stop came
            _give_back(arrived)
            return
        if arrived:
            self.notifier.find_listeners()
        for execution in source.admit(arrived):
            self.taken += 1
            yield execution

    def _may_fetch_ahead(self, deliveries: Sequence[Delivery]) -> bool:
        """Return whether the next exchange may be sent before these are handed out.

        No other server waits for its turn then, and none of the messages has to run alone.
        """
        return len(self.sources) == 1 and not any(map(attrgetter("crashes"), deliveries))

    def _log_what_is_awaited(self) -> None:
        """Log once, in a worker that stops when no message is left, why it does not stop yet."""
        if not self.options.until_empty or self._awaited_was_logged or not self.pool.is_idle:
            return
        if all(source.is_idle and source.is_drained for source in self.sources) and not self._is_done():
            self._awaited_was_logged = True
            logger.info(
                "nothing is ready; waiting for delayed messages and messages in flight elsewhere (--batch stops here)"
            )

    def _room(self) -> int:
        if not self._may_fetch() or self.quarantine.is_wanted():
            return 0
        return min(self.pool.room(), self._left)

    @property
    def _left(self) -> int:
        """Return how many messages may be received before the worker stops."""
        return MAX_BATCH if self.options.max_tasks is None else self.options.max_tasks - self.taken

    def _give_back_waiting(self) -> None:
        waiting = self.pool.take_back()
        if self.stop_by is not None:
            waiting += self.quarantine.take_back()
        _give_back(executions_of(waiting))
        self.pool.slow_down()

    def _next_turn_at(self) -> float | None:
        if self._is_done() or self._stopping.is_news:
            return 0.0
        room = self._room()
        settle_within_s = SETTLE_WITHIN_S if self.pool.is_ahead else 0.0
        times = [source.next_exchange_at(room, settle_within_s=settle_within_s) for source in self.sources]
        times += [self.pool.next_interruption_at(), self.quarantine.next_check_at()]
        if self.stop_by is not None:
            times.append(self.stop_by)
        return min((when for when in times if when is not None), default=None)

    # -- Shutdown -----------------------------------------------------------------------------------------------------

    def _is_done(self) -> bool:
        if self.stop_by is not None and time.monotonic() >= self.stop_by:
            return True
        if not (self.pool.is_idle and all(source.is_idle for source in self.sources)):
            return self.pool.is_idle and (self._is_cut_off if self.stop_by else self._ends_by_itself and self._is_stuck)
        if self.stop_by is not None:
            return True
        if self.options.max_tasks is not None and self.taken >= self.options.max_tasks:
            return True
        return self._ends_by_itself and self._is_out_of_messages()

    def _is_out_of_messages(self) -> bool:
        if self.options.until_empty:
            return all(source.is_empty or source.left_to_others for source in self.sources)
        return all(source.is_drained for source in self.sources)

    @property
    def _ends_by_itself(self) -> bool:
        return self.options.until_drained or self.options.until_empty

    @property
    def _is_cut_off(self) -> bool:
        """Return whether a stop waits only for a server that has been unavailable for a while: all tasks have ended."""
        if self._stopping.awaited_since is None:
            return False
        since = max(self._stopping.awaited_since, self.pool.moved_at)
        waiting = [source for source in self.sources if not source.is_idle]
        is_patient = time.monotonic() < since + RECONNECT_WITHIN_S
        return not is_patient and all(each.is_unavailable for each in waiting)

    @property
    def _is_stuck(self) -> bool:
        """Return whether a damaged queue refuses the last outcomes, for which this worker would wait forever."""
        return any(each.is_stuck for each in self.sources) and all(
            each.is_idle or each.is_stuck for each in self.sources
        )

    @property
    def holds_nothing(self) -> bool:
        """Return whether it is certain that no message of this worker needs recovery."""
        return all(source.holds_nothing for source in self.sources)

    def _release_the_rest(self) -> bool:
        """Release running messages, so that another worker can run them at once. Returns whether there were none."""
        if self.stop_by is None and self.options.until_empty:
            _log_left_to_others(self.sources)
        if stuck := self._ends_by_itself and self._is_stuck:
            logger.error("outcomes refused by a damaged queue are dropped; those messages run again after its repair")
        # Before the coroutines are cancelled: a coroutine that ends at once because of that is unfinished, too.
        waiting, running = list(executions_of(self.pool.take_back())), list(executions_of(self.pool.running()))
        unfinished = [(each, each.end_unfinished()) for each in [*waiting, *running] if not each.is_settled]
        left_to_supervisor = self._left_to_supervisor(running)
        for execution, outcome in unfinished:
            if not (execution in left_to_supervisor and isinstance(outcome, Released)):
                execution.sink.settle(execution, outcome)
        self.pool.cancel_coroutines()  # only now: their ends are not settled again
        for source in self.sources:
            source.stop_soon()
        # Queues first: the others are stopped before, which may take a second.
        for source in sorted(self.sources, key=lambda each: not each.is_released_by_supervisor):
            # Its released messages wake another process; this one ends at once then, because functions may still run.
            if not source.is_released_by_supervisor:
                source.stop()
            source.flush()
        if self._is_orphan:
            sign_off([source.client for source in self.sources], self.options.worker_id)
        # Only now: an interrupted function may have left the locks of log handlers behind.
        return not (_log_unfinished(unfinished) or _log_unreported(self.sources) or stuck)

    def _left_to_supervisor(self, running: Sequence[Execution]) -> set[Execution]:
        """Return the running executions whose messages the supervisor releases after the end of this process.

        Their functions continue until then, and no other worker may run the same message at the same time.
        """
        is_supervised = self.shared_state is not None and not self._is_orphan
        released = [source for source in self.sources if source.is_released_by_supervisor]
        return {each for each in running if is_supervised and each.sink in released}


def _log_left_to_others(sources: Sequence[Source]) -> None:
    if left := sum(source.left_to_others for source in sources):
        calls = counted(left, "call")
        logger.warning("left %s of unknown tasks in the queues, for workers that know the tasks", calls)


def _log_unreported(sources: Sequence[Source]) -> int:
    """Log how many outcomes Redis does not know, and return the number."""
    unreported = sum(source.unreported for source in sources)
    if unreported:
        outcomes = counted(unreported, "outcome")
        logger.error("%s could not be reported to Redis; the message of each runs again later", outcomes)
    return unreported


def _log_unfinished(unfinished: Sequence[tuple[Execution, Outcome]]) -> int:
    """Log the outcomes of unfinished messages; return how many were released."""
    given_back = sum(isinstance(outcome, Released) for _, outcome in unfinished)
    if given_back:
        logger.warning("released %s unfinished", counted(given_back))
    for execution, outcome in unfinished:
        if not isinstance(outcome, Released):
            log_outcome(execution, outcome)
    return given_back


def _give_back(executions: Iterable[Execution]) -> None:
    for execution in executions:
        execution.sink.settle(execution, Released())


def make_worker(queue_names: Sequence[str], options: WorkerOptions) -> Worker:
    """Return a worker on these queues, in this order; without names, on all of RSMQ["QUEUES"] and RSMQ["RELIABLE"]."""
    queues, reliable = split_reliable(queue_names)
    return Worker(queues, replace(options, reliable=reliable))
