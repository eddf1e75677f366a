"""The supervisor: forks worker processes, keeps their number, and ends them. What concerns Redis, its keepers do.

It runs no task, so nothing a task does can stop it; a task that holds the interpreter lock of its process for an hour
keeps its lease. It has one thread, because it forks.
"""

from __future__ import annotations

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

from django.db import connections

from ..conf import QueueSettings
from .board import Board
from .keeper import make_keepers
from .memory import resident_bytes
from .provision import SettingsMismatch
from .recovery import Death
from .waiter import Waiter
from .worker import STOP_SIGNALS, Worker, WorkerOptions, random_worker_id

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
    started_at: float = field(default_factory=time.monotonic)
    asked_to_stop: bool = False
    killed: bool = False

    def ask_to_stop(self, *, by: float) -> None:
        """Let it end what runs until `by` on the monotonic clock, and then itself."""
        self.asked_to_stop = True
        self.board.tell_to_stop(by)
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it at once. What it runs is not to blame."""
        self.killed = True
        os.kill(self.pid, signal.SIGKILL)


class Supervisor:
    """Keeps worker processes running until it is told to stop, or until they are done."""

    def __init__(self, queues: Sequence[QueueSettings], options: SupervisorOptions) -> None:
        self.queues = list(queues)
        self.options = options
        self.children: list[Child] = []
        self.exit_status = 0
        self._keepers = make_keepers(self.queues, max_crashes=options.max_crashes)
        self._waiter = Waiter()
        self._lifeline, self._lifeline_writer = os.pipe()
        self._missing = options.processes
        self._short_lives = 0
        self._start_at = 0.0
        self._stop_by: float | None = None

    def run(self) -> int:
        """Work until stopped or done, and return the exit status: 0 when every task that began could end, else 1."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only to wake up
        self._waiter.watch_signals()
        try:
            while self.children or self._wants_more:
                self._start_missing()
                self._waiter.sleep(self._next_look_at, at_most_s=LOOK_EVERY_S)
                self._bury_the_dead()
                living = [child.worker_id for child in self.children]
                for keeper in self._keepers:
                    keeper.look(living)
                self._limit_memory()
                self._enforce_end()
        finally:
            for keeper in self._keepers:
                keeper.close()
            self._waiter.close()
        return self.exit_status

    @property
    def _wants_more(self) -> bool:
        return self._missing > 0 and self._stop_by is None

    # -- Children ------------------------------------------------------------------------------------------------------

    def _start_missing(self) -> None:
        # One that arrived after a fork and before the child is in the list would not be passed on to it.
        with signals_held():
            while self._wants_more and time.monotonic() >= self._start_at:
                try:
                    self.children.append(self._fork())
                except OSError as error:
                    logger.error("cannot start a process: %s; trying again in %.0f s", error, LONGEST_RESTART_WAIT_S)
                    self._start_at = time.monotonic() + LONGEST_RESTART_WAIT_S
                    return
                self._missing -= 1

    def _fork(self) -> Child:
        worker_id = f"{self.options.worker.worker_id}-{random_worker_id()[-6:]}"
        worker = self.options.worker
        board = Board(worker.threads + worker.async_tasks)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._be_a_child(replace(worker, worker_id=worker_id), board)
        logger.info("started process %d as worker %s", pid, worker_id)
        return Child(pid, worker_id, board)

    def _be_a_child(self, options: WorkerOptions, board: Board) -> None:
        status = BROKEN
        try:
            os.close(self._lifeline_writer)
            connections.close_all()
            random.seed()  # forked processes must not back off in step
            worker = Worker(self.queues, options, board=board)
            worker.obey_supervisor(self._lifeline)
            # Signals waited until now: they must not run the supervisor's handlers here.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            status = ENDED if worker.run() else UNFINISHED
        except SettingsMismatch as error:
            status = MISCONFIGURED
            logger.critical("%s", error)
        except BaseException:
            logger.exception("the worker's main loop failed; its messages are given back")
        finally:
            try:
                logging.shutdown()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:  # whatever happened to the output: nothing of the supervisor may run here
                board.note_end()
                os._exit(status)

    def _bury_the_dead(self) -> None:
        for child in list(self.children):
            with signals_held():  # a signal must not be passed on to a pid that is free again
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid:
                    self.children.remove(child)
            if pid:
                self._on_death(child, os.waitstatus_to_exitcode(status))

    def _on_death(self, child: Child, code: int) -> None:
        ended = child.board.has_ended and code >= 0  # else a task may have chosen the status
        as_planned = ended and code in (ENDED, UNFINISHED)
        how = describe_exit(code)
        level = logging.INFO if as_planned else logging.ERROR
        logger.log(level, "process %d (%s) ended with %s", child.pid, child.worker_id, how)
        is_innocent = as_planned or child.killed
        running = frozenset() if is_innocent else child.board.running()
        death = Death(worker_id=child.worker_id, how=how, running=running, was_sudden=not ended)
        for keeper in self._keepers:
            keeper.note_death(death)
        misconfigured = ended and code == MISCONFIGURED
        if misconfigured or child.killed or (ended and code == UNFINISHED):
            self.exit_status = 1
        if misconfigured and self._stop_by is None:
            self._stop(by=time.monotonic() + self.options.worker.shutdown_timeout_s)  # the others would find the same
        if not (ended and code == ENDED and self._ends_when_done):
            self._restart(child, died_at_work=bool(running))

    @property
    def _ends_when_done(self) -> bool:
        worker = self.options.worker
        return worker.until_drained or worker.until_empty or worker.max_tasks is not None

    def _restart(self, child: Child, *, died_at_work: bool) -> None:
        """Start another one: at once, but later each time when processes end before they begin to work.

        A message that kills its process waits by itself, so the other messages need not.
        """
        lived_s = time.monotonic() - child.started_at
        is_too_short = lived_s < SHORT_LIFE_S and not child.asked_to_stop and not died_at_work
        self._short_lives = self._short_lives + 1 if is_too_short else 0
        if self._short_lives > 1:
            wait_s = min(LONGEST_RESTART_WAIT_S, FIRST_RESTART_WAIT_S * 2 ** min(self._short_lives, 10))
            self._start_at = time.monotonic() + wait_s
        self._missing += 1

    # -- Limits and the end --------------------------------------------------------------------------------------------

    def _limit_memory(self) -> None:
        limit = self.options.max_memory_bytes
        for child in self.children if limit is not None else ():
            used = resident_bytes(child.pid)
            if not child.asked_to_stop and used is not None and used > (limit or 0):
                logger.info("process %d uses %d MiB; it is replaced when its tasks have ended", child.pid, used >> 20)
                child.ask_to_stop(by=math.inf)

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
            logger.error("process %d does not end; it is killed", child.pid)
            child.kill()

    def _next_look_at(self) -> float | None:
        times = [keeper.next_look_at(has_children=bool(self.children)) for keeper in self._keepers]
        if self._wants_more:
            times.append(self._start_at)
        return min((when for when in times if when is not None), default=None)


@contextmanager
def signals_held() -> Iterator[None]:
    """Let stop signals wait until the end of the block. What arrived before has been handled when it begins."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def describe_exit(code: int) -> str:
    """Return in words how a process ended."""
    return f"signal {-code} ({_signal_name(-code)})" if code < 0 else f"exit status {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time"  # most of those have no name
