"""Development: restarts a worker when a source file changes.

Django's own reloader runs the program on a thread beside the watcher. A supervisor forks and handles signals, so it
needs its own process, which the watcher forks. After a change the watcher starts the same command line in a new
process, because its own imports are outdated by then, and waits: the new process watches for itself, and ends with the
status CHANGED after the next change. A process that cannot even start (a file with an error was saved meanwhile) is
started again after another change.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

from django.utils.autoreload import StatReloader, autoreload_started, get_child_arguments

from ...core.log_lines import get_logger
from ...tasks.task_modules import project_modules
from ..fetch.wakeup import Wakeup
from ..stopping import STOP_SIGNALS

logger = get_logger(__name__)

LOOK_EVERY_S = 1.0
#: How long tasks may continue after a change; then they are released, and run again in the new worker.
STOP_WITHIN_S = 3.0
#: Exit status of a restarted process when a source file has changed again.
CHANGED = 3
#: Passes a file descriptor to a restarted process; it is closed when the process that started it has ended.
LIFELINE = "RSMQ_RELOAD_LIFELINE"

#: Runs a worker until the other end of the pipe is closed, and returns its exit status.
RunWorker = Callable[[int], int]


def modification_times() -> dict[Path, float]:
    """Return when the source files of the project's apps have changed; to be called before they are imported."""
    times: dict[Path, float] = {}
    for path in project_modules():
        with contextlib.suppress(OSError):  # it was deleted meanwhile
            times[path.resolve()] = path.stat().st_mtime
    return times


def run_with_reload(run_worker: RunWorker, before: Mapping[Path, float]) -> int:
    """Run a worker, and a new process of the same command line after each change of a source file.

    `before` are the times from before the imports: a file that was edited meanwhile has changed, too.
    Returns the worker's exit status when it succeeded or was told to stop. After a failure it waits for a change.
    """
    watcher = Watcher(run_worker, before, lifeline=os.environ.pop(LIFELINE, None))
    logger.info("watching source files; the worker restarts after a change")
    return watcher.run()


class Watcher:
    """The current worker process, and the source files that it was started with."""

    def __init__(self, run_worker: RunWorker, before: Mapping[Path, float], *, lifeline: str | None) -> None:
        self._run_worker = run_worker
        #: This process was started by another one, which has ended when this descriptor is readable.
        self._starter = None if lifeline is None else int(lifeline)
        #: The worker is a restarted process, which watches for itself.
        self._is_anew = False
        self._reloader = StatReloader()
        autoreload_started.send(sender=self._reloader)
        self._seen = {**self._snapshot(), **before}
        self._wakeup = Wakeup()
        self._lifeline, self._lifeline_writer = os.pipe()
        self._pid: int | None = None
        self._status = 0
        self._is_stopping = False

    def run(self) -> int:
        """Return the exit status of the worker; CHANGED when the process that started this one should restart it."""
        self._pid = self._start()
        for number in STOP_SIGNALS:
            signal.signal(number, self._pass_on)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only to wake up
        self._wakeup.watch_signals()
        if self._starter is not None:
            self._wakeup.watch(self._starter, lambda: self._pass_on(signal.SIGTERM, None))
        try:
            while not self._is_over():
                changed = self._changed() if self._watches else None
                if changed is not None:
                    logger.info("%s has changed; the worker restarts", changed)
                    self._end_worker()
                    if self._starter is not None:
                        return CHANGED
                    self._start_anew()
                self._wakeup.sleep(lambda: None, at_most_s=LOOK_EVERY_S)
        finally:
            self._wakeup.close()
        return self._status

    @property
    def _watches(self) -> bool:
        is_anew = self._is_anew and self._pid is not None
        return not (self._is_stopping or is_anew)

    def _start_anew(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._is_anew = True
        os.set_inheritable(self._lifeline, True)
        arguments = get_child_arguments()
        environment = {**os.environ, LIFELINE: str(self._lifeline)}
        # A group of its own: a Ctrl-C reaches the waiting process, which passes it on.
        self._pid = os.posix_spawn(arguments[0], arguments, environment, setpgroup=0)

    def _start(self) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            os.setpgid(0, 0)  # a Ctrl-C reaches the watcher, which passes it on
            os.close(self._lifeline_writer)
            status = self._run_worker(self._lifeline)
        except BaseException:
            logger.exception("the worker failed")
        finally:
            try:
                logging.shutdown()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status)

    def _is_over(self) -> bool:
        if self._pid is not None and self._reap(os.WNOHANG) and self._status and not self._is_stopping:
            if self._is_anew and self._status == CHANGED:
                self._seen |= self._snapshot()
                self._start_anew()
            else:
                logger.error("the worker ended with status %d; it restarts after a change", self._status)
        return self._pid is None and (self._is_stopping or self._status == 0)

    def _reap(self, options: int) -> bool:
        assert self._pid is not None
        pid, status = os.waitpid(self._pid, options)
        if pid:
            self._pid = None
            self._status = abs(os.waitstatus_to_exitcode(status))
        return bool(pid)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping = True
        if self._pid is not None:
            os.kill(self._pid, number)

    def _end_worker(self) -> None:
        if self._pid is None:
            return
        os.kill(self._pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_WITHIN_S
        while not self._reap(os.WNOHANG):
            if time.monotonic() >= deadline:
                os.kill(self._pid, signal.SIGTERM)  # the second one releases running tasks
                self._reap(0)
                return
            self._wakeup.sleep(lambda: deadline, at_most_s=LOOK_EVERY_S)

    # -- Files --------------------------------------------------------------------------------------------------------

    def _snapshot(self) -> dict[Path, float]:
        return dict(self._reloader.snapshot_files())

    def _changed(self) -> Path | None:
        """Return a file that is new or has changed and can be compiled: a half-finished edit should not stop work."""
        seen = self._snapshot()
        changed = [path for path, modified in seen.items() if self._seen.get(path, modified) != modified]
        self._seen = {**self._seen, **seen}
        return next((path for path in changed if _compiles(path)), None)


def _compiles(path: Path) -> bool:
    if path.suffix != ".py":
        return True
    try:
        compile(path.read_bytes(), str(path), "exec")
    except (OSError, SyntaxError, ValueError) as error:
        logger.error("%s has changed, but cannot be imported: %s", path, error)
        return False
    return True
