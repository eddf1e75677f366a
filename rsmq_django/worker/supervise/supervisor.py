"""The supervisor: forks worker processes, keeps their number, and stops them. Its Maintenance objects talk to Redis.

It runs no task, so no task can stop it. A task that holds the interpreter lock of its process for an hour keeps its
lease, and a task that exceeds its `hard_timeout_s` is ended with its process. It has one thread, because it forks.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING

from django.db import connections

from ...conf.settings import QueueSettings
from ...core.log_lines import get_logger
from ...core.transport.handshake import set_process_role
from ..fetch.polling import IdleTurn, IdleTurns
from ..fetch.queues import SettingsMismatch, connections_of
from ..fetch.wakeup import Wakeup
from ..health import Report, make_report
from ..report.shared_state import SharedState
from ..stopping import STOP_SIGNALS
from ..worker import Worker, WorkerOptions, random_worker_id
from .control import ProcessControl
from .maintenance import make_maintenance, run_due
from .probes import ProbeOptions, Probes
from .process import (
    BROKEN,
    ENDED,
    INTERRUPTED,
    MISCONFIGURED,
    UNFINISHED,
    UNKNOWN_END,
    USED_UP,
    Child,
    ProcessEnd,
    ProcessSlot,
    flush_output,
    most_noted,
    resident_bytes,
)
from .recovery import Death

if TYPE_CHECKING:
    from ...outbox.relay_process import RelayProcess

logger = get_logger(__name__)

#: How often children are checked unless a signal asks for it earlier.
CHECK_EVERY_S = 1.0
#: A child that lived for less than this ended too soon: the next start is delayed, longer each time.
SHORT_LIFE_S = 1.0
FIRST_RESTART_WAIT_S = 0.1
LONGEST_RESTART_WAIT_S = 5.0
#: After the shutdown timeout, children have this long to release their messages before they are killed.
KILL_AFTER_S = 5.0
#: A main loop is not considered frozen before this time, for any maximum age of the health check: it sleeps for five
#: seconds at a time.
SHORTEST_FREEZE_S = 10.0
#: Nor before it can have waited this many times for each of its servers in one turn: to connect and for a reply, and
#: once more for both.
WAITS_PER_TURN = 4
#: The maximum time that counts between two checks of the main loops: the supervisor itself may have been suspended.
MOST_COUNTED_S = 5.0


@dataclass(frozen=True, kw_only=True)
class SupervisorOptions:
    """The number of processes, and their limits."""

    processes: int
    worker: WorkerOptions
    #: A process that uses more memory is replaced once its tasks have ended; None for no limit.
    max_memory_bytes: int | None = None
    #: Each process may receive up to this many messages more than `worker.max_tasks`, so that not all are replaced
    #: at once.
    max_tasks_jitter: int = 0
    #: Crashes after which a message moves to the dead-letter queue.
    max_crashes: int
    #: Whether schedules are fired, as long as there are processes.
    fires_schedules: bool = False
    #: Whether a separate process relays the outbox.
    relays_outbox: bool = False
    probes: ProbeOptions = field(default_factory=ProbeOptions)


class Supervisor:
    """Keeps worker processes running until it is told to stop, or until they are done.

    Raises OSError or PidFileTaken when a requested probe cannot be opened.
    """

    def __init__(self, queues: Sequence[QueueSettings], options: SupervisorOptions) -> None:
        self.queues = list(queues)
        self.options = options
        self.children: list[Child] = []
        self.exit_status = 0
        self._maintenance = make_maintenance(
            self.queues,
            max_crashes=options.max_crashes,
            fires_schedules=options.fires_schedules,
            process_control=ProcessControl(self.children, shutdown_timeout_s=options.worker.shutdown_timeout_s),
            reliable=options.worker.reliable,
        )
        self._wakeup = Wakeup()
        self._lifeline, self._lifeline_writer = os.pipe()
        self._free_slots = [ProcessSlot(number) for number in range(options.processes)]
        self._idle_turns = IdleTurns(options.processes)
        self._short_lives = 0
        self._start_at = 0.0
        self._stop_by: float | None = None
        used = connections_of(self.queues, options.worker.reliable, options.worker.topics)
        #: How long the main loop of a child may be blocked.
        self._freeze_s = max(
            options.probes.health_max_age_s, SHORTEST_FREEZE_S, WAITS_PER_TURN * sum(each.timeout_s for each in used)
        )
        #: When the main loops of children were last checked.
        self._looked_at = time.monotonic()
        self._probes = Probes(options.probes, self.report)
        self._relay_process: RelayProcess | None = None
        if options.relays_outbox:
            # Only here: its tables belong to an application that most projects do not install.
            from ...outbox.relay_process import RelayProcess

            self._relay_process = RelayProcess()

    def run(self) -> int:
        """Work until stopped or done, and return the exit status: 0 when every task that began could end, else 1."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only to wake up
        self._wakeup.watch_signals()
        self._probes.watch(self._wakeup)
        try:
            while self.children or self._wants_more:
                self._start_missing()
                self._wakeup.sleep(self._next_check_at, at_most_s=CHECK_EVERY_S)
                self._reap_children()
                self._keep_relay_process()
                self._probes.update()  # before the maintenance, which may wait for a server that does not answer
                living = [child.worker_id for child in self.children]
                run_due(self._maintenance, living)
                self._limit_time()
                self._replace_frozen()
                self._limit_memory()
                self._replace_interrupted()
                self._enforce_end()
        finally:
            if self._relay_process is not None:
                self._relay_process.stop(within_s=KILL_AFTER_S)
            for maintenance in self._maintenance:
                maintenance.close()
            self._probes.close()
            self._wakeup.close()
        return self.exit_status

    def end_with(self, lifeline: int) -> None:
        """Stop when the other end of this pipe is closed: the process that started the supervisor has ended."""
        self._wakeup.watch(lifeline, lambda: self._stop(by=time.monotonic() + self.options.worker.shutdown_timeout_s))

    def report(self) -> Report:
        """Return the health of the processes, for probes."""
        processes: list[tuple[int | None, float]] = [(child.pid, child.last_poll) for child in self.children]
        processes += [(None, process_slot.last_poll) for process_slot in self._free_slots]
        return make_report(
            self.options.worker.worker_id,
            processes,
            max_age_s=self.options.probes.health_max_age_s,
            is_stopping=self._stop_by is not None,
        )

    @property
    def _wants_more(self) -> bool:
        return bool(self._free_slots) and self._stop_by is None

    # -- Children ------------------------------------------------------------------------------------------------------

    def _start_missing(self) -> None:
        # A signal that arrived after a fork and before the child is in the list would not be passed on to it.
        with signals_held():
            while self._wants_more and time.monotonic() >= self._start_at:
                try:
                    self.children.append(self._fork(self._free_slots[0]))
                except OSError as error:
                    logger.error("cannot start a process: %s; trying again in %.0f s", error, LONGEST_RESTART_WAIT_S)
                    self._start_at = time.monotonic() + LONGEST_RESTART_WAIT_S
                    return
                del self._free_slots[0]

    def _fork(self, process_slot: ProcessSlot) -> Child:
        options = self._options_of_a_child()
        shared_state = SharedState(most_noted(options))
        sys.stdout.flush()
        sys.stderr.flush()
        reader, writer = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if pid == 0:
            os.close(writer)
            self._run_child(options, shared_state, self._idle_turns.member(process_slot.number), reader)
        os.close(reader)
        os.set_blocking(writer, False)
        logger.info("started process %d as worker %s", pid, options.worker_id)
        return Child(pid, options.worker_id, shared_state, process_slot, requests=writer)

    def _options_of_a_child(self) -> WorkerOptions:
        options = self.options.worker
        max_tasks = options.max_tasks
        if max_tasks is not None:
            max_tasks += random.randint(0, self.options.max_tasks_jitter)  # noqa: S311 - spreads load
        return replace(options, worker_id=f"{options.worker_id}-{random_worker_id()[-6:]}", max_tasks=max_tasks)

    def _run_child(
        self, options: WorkerOptions, shared_state: SharedState, idle_turns: IdleTurn, requests: int
    ) -> None:
        status, holds_nothing = BROKEN, False
        try:
            os.close(self._lifeline_writer)
            for sibling in self.children:
                sibling.close_pipe()
            self._probes.leave_to_parent()
            connections.close_all()
            set_process_role("worker")
            random.seed()  # forked processes must not back off in step
            # Imported objects live as long as the process: the garbage collector need not check them again and again.
            gc.freeze()
            worker = Worker(self.queues, options, shared_state=shared_state, idle_turns=idle_turns)
            worker.handle_supervisor(self._lifeline)
            worker.answer_supervisor(requests, shared_state)
            # Signals were blocked until now: they must not run the supervisor's handlers here.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            has_finished = worker.run()
            holds_nothing = worker.holds_nothing
            is_used_up = options.max_tasks is not None and worker.taken >= options.max_tasks
            was_interrupted = shared_state.interrupted_at is not None
            status = INTERRUPTED if was_interrupted else USED_UP if is_used_up else ENDED
            status = status if has_finished else UNFINISHED
        except SettingsMismatch as error:
            status = MISCONFIGURED
            logger.critical("%s", error)
        except BaseException:
            logger.exception("the worker's main loop failed; its messages are given back")
        finally:
            try:
                flush_output(may_hang=shared_state.interrupted_at is not None)
            finally:  # even if the flush failed: no code of the supervisor may run here
                shared_state.note_end(holds_nothing=holds_nothing)
                os._exit(status)

    def _keep_relay_process(self) -> None:
        """Keep a separate process running that relays the outbox."""
        if self._relay_process is None:
            return
        self._relay_process.check()
        if not self._relay_process.is_due or self._stop_by is not None:
            return
        with signals_held():
            try:
                pid = os.fork()
            except OSError as error:
                logger.error("cannot start a process to relay the outbox: %s", error)
                return
            if pid == 0:
                self._run_relay_process(self._relay_process)
            self._relay_process.started(pid)

    def _run_relay_process(self, relay_process: RelayProcess) -> None:
        try:
            os.close(self._lifeline_writer)
            self._probes.leave_to_parent()
            connections.close_all()
            set_process_role("outbox-relay")
            random.seed()
            relay_process.be(self._lifeline)
        except BaseException:
            logger.exception("relaying the outbox failed; its backlog is sent later")
        finally:
            logging.shutdown()
            os._exit(ENDED)

    def _reap_children(self) -> None:
        for child in list(self.children):
            with signals_held():  # a signal must not be passed on to a pid that is free again
                code = child.reap()
                if code is not None:
                    self.children.remove(child)
            if code is not None:
                child.close_pipe()
                self._on_death(child, code)

    def _on_death(self, child: Child, code: int) -> None:
        child.note_interruption()
        end = ProcessEnd.of(child, code)
        level = logging.INFO if end.is_expected else logging.ERROR
        logger.log(level, "process %d (%s) ended with %s", child.pid, child.worker_id, end.how)
        running = frozenset() if end.is_expected or child.killed else child.shared_state.running()
        death = Death(
            worker_id=child.worker_id,
            how=end.how,
            running=running,
            overdue=child.overdue,
            was_sudden=not end.by_itself,
            held_nothing=end.by_itself and child.shared_state.holds_nothing,
        )
        for maintenance in self._maintenance:
            maintenance.note_death(death)
        self._set_exit_status(child, end)
        if not (child.is_dismissed or (end.is_done and self._ends_when_done)):
            is_at_fault = code == UNKNOWN_END or not (end.is_expected or running or child.asked_to_stop)
            self._restart(child, is_at_fault=is_at_fault or child.interruption_is_noted)

    def _set_exit_status(self, child: Child, end: ProcessEnd) -> None:
        if end.is_misconfigured or end.is_unfinished or child.killed:
            self.exit_status = 1
        if end.is_misconfigured and self._stop_by is None:  # the others would fail the same way
            self._stop(by=time.monotonic() + self.options.worker.shutdown_timeout_s)

    @property
    def _ends_when_done(self) -> bool:
        return self.options.worker.until_drained or self.options.worker.until_empty

    def _restart(self, child: Child, *, is_at_fault: bool) -> None:
        """Start another process: at once, but later each time when processes end before they begin to work.

        A message that kills its process is delayed itself, so other messages need not wait.
        """
        lived_s = time.monotonic() - child.started_at
        self._short_lives = self._short_lives + 1 if is_at_fault and lived_s < SHORT_LIFE_S else 0
        if self._short_lives > 1:
            wait_s = min(LONGEST_RESTART_WAIT_S, FIRST_RESTART_WAIT_S * 2 ** min(self._short_lives, 10))
            self._start_at = time.monotonic() + wait_s
        process_slot = child.process_slot
        self._idle_turns.leave(process_slot.number)
        self._free_slots.append(
            ProcessSlot(process_slot.number, last_poll=child.last_poll, replaced=process_slot.replaced + 1)
        )

    # -- Limits and shutdown -------------------------------------------------------------------------------------------

    def _limit_time(self) -> None:
        """Kill processes whose tasks exceed their `hard_timeout_s`: code inside the process may not be able to."""
        now = time.monotonic()
        for child in self.children:
            overdue = child.shared_state.overdue(now)
            if overdue and not (child.killed or child.overdue):
                names = ", ".join(sorted(overdue))
                logger.error("process %d is killed: message %s runs longer than its hard_timeout_s", child.pid, names)
                child.kill_for(overdue)

    def _replace_frozen(self) -> None:
        """Kill processes with a blocked main loop: it would renew no leases, see no stop and report no outcomes.

        Only time in which the supervisor itself was running counts, so that a suspended machine kills nothing.
        """
        now = time.monotonic()
        looked_s, self._looked_at = min(now - self._looked_at, MOST_COUNTED_S), now
        for child in self.children:
            if child.blocked_s(looked_s) > self._freeze_s and not (child.killed or child.overdue or child.is_frozen):
                logger.error(
                    "process %d is killed and replaced: its main loop was blocked for %.0f s; "
                    "its messages are recovered",
                    child.pid,
                    self._freeze_s,
                )
                child.kill_frozen()

    def _limit_memory(self) -> None:
        limit = self.options.max_memory_bytes
        for child in self.children if limit is not None else ():
            used = resident_bytes(child.pid)
            if not child.asked_to_stop and used is not None and used > (limit or 0):
                logger.info("process %d uses %d MiB; it is replaced when its tasks have ended", child.pid, used >> 20)
                child.ask_to_stop(by=math.inf)

    def _replace_interrupted(self) -> None:
        """Kill processes that do not end after a function was interrupted in them: a lost lock may block them."""
        now, grace_s = time.monotonic(), self.options.worker.shutdown_timeout_s + KILL_AFTER_S
        for child in self.children:
            child.note_interruption()
            at = child.shared_state.interrupted_at
            if at is not None and now >= at + grace_s and not (child.killed or child.overdue):
                logger.error("process %d does not end after an interruption; it is killed", child.pid)
                child.kill()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        grace_s = self.options.worker.shutdown_timeout_s if self._stop_by is None else 0.0
        self._stop(by=time.monotonic() + grace_s)  # before the log line: writing it may take long
        name = signal.Signals(number).name
        logger.info("%s: %s", name, f"tasks may run for {grace_s:.0f} s more" if grace_s else "stopping now")

    def _stop(self, *, by: float) -> None:
        self._stop_by = by if self._stop_by is None else min(by, self._stop_by)
        for child in self.children:
            child.ask_to_stop(by=self._stop_by)

    def _enforce_end(self) -> None:
        if self._stop_by is None or time.monotonic() < self._stop_by + KILL_AFTER_S:
            return
        for child in self.children:
            if not child.killed:
                logger.error("process %d does not end; it is killed", child.pid)
                child.kill()

    def _next_check_at(self) -> float | None:
        times = [maintenance.next_check_at(has_children=bool(self.children)) for maintenance in self._maintenance]
        times += [child.shared_state.next_limit() for child in self.children if not child.overdue]
        if self._wants_more:
            times.append(self._start_at)
        return min((when for when in times if when is not None), default=None)


@contextmanager
def signals_held() -> Iterator[None]:
    """Block stop signals until the end of the block. Signals that arrived before have been handled when it begins."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
