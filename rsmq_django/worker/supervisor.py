"""The supervisor: forks worker processes, keeps their number, renews their leases, and frees what a dead one held.

It runs no task, so nothing a task does can stop it; a task that holds the interpreter lock of its process for an hour
keeps its lease. It has one thread, because it forks.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import FrameType

from django.db import connections

from ..conf import QueueSettings
from ..core import Client, RsmqError
from .board import Board
from .delivery import WorkQueue
from .holds import BEAT_EVERY_S, beat, expire_holds, forget, renew_holds
from .memory import resident_bytes
from .outage import Outage
from .provision import SHORTEST_LEASE_S, SettingsMismatch
from .recovery import recover
from .waiter import Waiter
from .worker import STOP_SIGNALS, Worker, WorkerOptions, random_worker_id, work_queues_by_client

logger = logging.getLogger(__name__)

#: How often children are looked after when no signal asks for it earlier.
LOOK_EVERY_S = 1.0
#: A child that lived for less than this ended too soon: the next one waits, longer each time.
SHORT_LIFE_S = 1.0
FIRST_RESTART_WAIT_S = 0.1
LONGEST_RESTART_WAIT_S = 5.0
#: After the time that running tasks have to end, children have this long to give the rest back before they are killed.
KILL_AFTER_S = 5.0
#: Exit statuses of a child: everything ended; something was given back unfinished; its main loop failed; the settings
#: do not fit. Not 1, which tasks choose that end their process.
ENDED, UNFINISHED, BROKEN, MISCONFIGURED = 0, 75, 70, 78


@dataclass(frozen=True, kw_only=True)
class SupervisorOptions:
    """How many processes there are, and how they live."""

    processes: int
    worker: WorkerOptions
    #: A process that uses more memory is replaced once its tasks have ended; None for no limit.
    max_memory_bytes: int | None = None
    #: Deaths in the middle of a message after which it goes to the dead-letter queue.
    max_crashes: int = 3


@dataclass(slots=True, eq=False)
class Child:
    """One worker process."""

    pid: int
    worker_id: str
    board: Board
    queues: list[tuple[Client, list[WorkQueue]]]
    started_at: float = field(default_factory=time.monotonic)
    asked_to_stop: bool = False


class Supervisor:
    """Keeps worker processes running until it is told to stop, or until they are done."""

    def __init__(self, queues: Sequence[QueueSettings], options: SupervisorOptions) -> None:
        self.queues = list(queues)
        self.options = options
        self.children: list[Child] = []
        self.exit_status = 0
        self._waiter = Waiter()
        self._lifeline, self._lifeline_writer = os.pipe()
        self._missing = options.processes
        self._short_lives = 0
        self._start_at = 0.0
        self._stop_by: float | None = None
        self._next_beat = 0.0
        self._next_renewal = 0.0
        self._outage = Outage("supervisor")

    def run(self) -> int:
        """Work until stopped or done, and return the exit status: 0 when every task that began could end, else 1."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only to wake up
        self._waiter.watch_signals()
        try:
            while self._missing or self.children:
                self._start_missing()
                self._waiter.sleep(self._next_look_at, at_most_s=LOOK_EVERY_S)
                self._bury_the_dead()
                self._look_after_leases()
                self._limit_memory()
                self._enforce_end()
        finally:
            self._waiter.close()
        return self.exit_status

    # -- Children ------------------------------------------------------------------------------------------------------

    def _start_missing(self) -> None:
        while self._missing and time.monotonic() >= self._start_at:
            self._missing -= 1
            self.children.append(self._fork())

    def _fork(self) -> Child:
        worker_id = f"{self.options.worker.worker_id}-{random_worker_id()[-6:]}"
        worker = self.options.worker
        board = Board(worker.threads + worker.async_tasks)
        sys.stdout.flush()
        sys.stderr.flush()
        # A signal that arrives before the child has handlers of its own waits; it must not run the supervisor's.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        pid = os.fork()
        if pid == 0:
            self._be_a_child(replace(worker, worker_id=worker_id), board)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        logger.info("started process %d as worker %s", pid, worker_id)
        return Child(pid, worker_id, board, work_queues_by_client(self.queues, worker_id))

    def _be_a_child(self, options: WorkerOptions, board: Board) -> None:
        status = MISCONFIGURED
        try:
            os.close(self._lifeline_writer)
            connections.close_all()
            random.seed()  # forked processes must not back off in step
            worker = Worker(self.queues, options, board=board)
            worker.obey_supervisor(self._lifeline)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            status = ENDED if worker.run() else UNFINISHED
        except SettingsMismatch as error:
            logger.critical("%s", error)
        except BaseException:
            logger.exception("the worker's main loop failed; its messages are given back")
            status = BROKEN
        finally:
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _bury_the_dead(self) -> None:
        for child in list(self.children):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self.children.remove(child)
                self._on_death(child, os.waitstatus_to_exitcode(status))

    def _on_death(self, child: Child, code: int) -> None:
        logger.log(
            logging.INFO if code in (ENDED, UNFINISHED) else logging.ERROR,
            "process %d (%s) ended with %s",
            child.pid,
            child.worker_id,
            describe_exit(code),
        )
        self._free(child, code)
        child.board.close()
        if code in (UNFINISHED, MISCONFIGURED):
            self.exit_status = 1
        if code == MISCONFIGURED and self._stop_by is None:
            self._on_stop(signal.SIGTERM, None)  # the others would find the same
        if self._stop_by is None and not (code == ENDED and self._ends_when_done):
            self._restart(child)

    @property
    def _ends_when_done(self) -> bool:
        worker = self.options.worker
        return worker.until_drained or worker.until_empty or worker.max_tasks is not None

    def _restart(self, child: Child) -> None:
        lived_s = time.monotonic() - child.started_at
        self._short_lives = self._short_lives + 1 if lived_s < SHORT_LIFE_S and not child.asked_to_stop else 0
        if self._short_lives > 1:
            wait_s = min(LONGEST_RESTART_WAIT_S, FIRST_RESTART_WAIT_S * 2 ** min(self._short_lives, 10))
            self._start_at = time.monotonic() + wait_s
        self._missing += 1

    def _free(self, child: Child, code: int) -> None:
        how = describe_exit(code)
        for client, queues in child.queues:
            try:
                recover(
                    client,
                    queues,
                    child.board,
                    worker_id=child.worker_id,
                    how=how,
                    max_crashes=self.options.max_crashes,
                )
            except RsmqError as error:
                logger.error("what %s held comes back when its leases are over: %s", child.worker_id, error)

    # -- Leases --------------------------------------------------------------------------------------------------------

    def _look_after_leases(self) -> None:
        now = time.monotonic()
        if now < max(min(self._next_beat, self._next_renewal), self._outage.next_try_at) or not self.children:
            return
        try:
            if now >= self._next_renewal:
                self._next_renewal = now + self._renew()
            if now >= self._next_beat:
                self._beat()
                self._next_beat = now + BEAT_EVERY_S
            self._outage.over()
        except RsmqError as error:
            self._outage.note(error)

    def _renew(self) -> float:
        """Renew the leases of all children and return in how many seconds to do it again: half of the shortest.

        The children renew for themselves at a third of a lease; this is for those that cannot.
        """
        shortest_s = 10.0
        for child in self.children:
            for client, queues in child.queues:
                for work_queue in queues:
                    stored_s = work_queue.queue.attributes().visibility_timeout_s
                    work_queue.lease_s = max(SHORTEST_LEASE_S, stored_s)
                    shortest_s = min(shortest_s, work_queue.lease_s / 2)
                renew_holds(client, queues, queues[0].holds_key)
        return shortest_s

    def _beat(self) -> None:
        living = [child.worker_id for child in self.children]
        for client, _ in self.children[0].queues:
            for worker_id in beat(client, living):
                if worker_id not in living:
                    self._free_stranger(client, worker_id)

    def _free_stranger(self, client: Client, worker_id: str) -> None:
        """Free what a worker held whose supervisor is gone too, perhaps with its whole machine."""
        queues = dict(work_queues_by_client(self.queues, worker_id)).get(client, [])
        count = expire_holds(client, queues, worker_id)
        forget(client, [worker_id])
        logger.warning("worker %s has been silent for too long; %d messages of it are free again", worker_id, count)

    # -- Limits and the end --------------------------------------------------------------------------------------------

    def _limit_memory(self) -> None:
        limit = self.options.max_memory_bytes
        for child in self.children if limit is not None else ():
            used = resident_bytes(child.pid)
            if not child.asked_to_stop and used is not None and used > (limit or 0):
                logger.info("process %d uses %d MiB; it is replaced", child.pid, used >> 20)
                self._ask_to_stop(child)

    def _ask_to_stop(self, child: Child) -> None:
        child.asked_to_stop = True
        os.kill(child.pid, signal.SIGTERM)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        grace_s = self.options.worker.shutdown_timeout_s if self._stop_by is None else 0.0
        name = signal.Signals(number).name
        logger.info("%s: %s", name, f"tasks may run for {grace_s:.0f} s more" if grace_s else "stopping now")
        self._stop_by = time.monotonic() + grace_s
        self._missing = 0
        for child in self.children:
            self._ask_to_stop(child)

    def _enforce_end(self) -> None:
        if self._stop_by is None or time.monotonic() < self._stop_by + KILL_AFTER_S:
            return
        for child in self.children:
            logger.error("process %d does not end; it is killed", child.pid)
            os.kill(child.pid, signal.SIGKILL)

    def _next_look_at(self) -> float | None:
        times = [max(min(self._next_beat, self._next_renewal), self._outage.next_try_at)]
        if self._missing:
            times.append(self._start_at)
        return min(times)


def describe_exit(code: int) -> str:
    """Return in words how a process ended."""
    return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit status {code}"
