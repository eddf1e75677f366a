"""The separate process that relays the outbox. The supervisor starts it, and replaces it when it dies.

It is a separate process so that no task can stop it or hold its interpreter lock, and so that the supervisor, which
must never wait, does not use the database.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable

from django.db import Error, ProgrammingError, connections

from ..conf.settings import get_settings
from ..core.log_lines import get_logger
from .listening import RowListener
from .relay import Relay, prune

logger = get_logger(__name__)

#: How often old rows are deleted.
PRUNE_EVERY_S = 60.0
#: While very many rows are sent or deleted, how often the relay looks for queues that have got some meanwhile.
LOOK_AGAIN_S = 2.0
#: Waits after an error of the database.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 5.0
LOG_EVERY_S = 60.0

#: The exit status of a process whose status other code has read; no real status is that large.
UNKNOWN_END = 256


class StopRequest:
    """A request to end this process: a signal, or a pipe that was closed at the other end."""

    def __init__(self, lifeline: int | None = None) -> None:
        self._was_told = False
        self._lifeline = lifeline
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def on_signals(self, *numbers: signal.Signals) -> None:
        """Treat these signals as a request."""
        for number in numbers:
            signal.signal(number, self._tell)

    @property
    def watched(self) -> list[int]:
        """Return the file descriptors that become readable on a request."""
        return [self._reader] if self._lifeline is None else [self._reader, self._lifeline]

    @property
    def is_made(self) -> bool:
        """Return whether the process has to end."""
        if not self._was_told and self._lifeline is not None:
            self._was_told = bool(select.select([self._lifeline], [], [], 0)[0])
        return self._was_told

    def or_after(self, seconds: float) -> Callable[[], bool]:
        """Return a function that says whether the process has to end, or this time has passed."""
        ends_at = time.monotonic() + seconds
        return lambda: self.is_made or time.monotonic() >= ends_at

    def _tell(self, number: int, frame: object) -> None:
        self._was_told = True


def relay_until(stop: StopRequest) -> None:
    """Relay and prune until asked to stop. Errors of the database or Redis are logged, and the work is tried again."""
    settings = get_settings().outbox
    relay, failures, logged_at, prune_at = Relay(), 0, -LOG_EVERY_S, 0.0
    row_listener = RowListener(relay.database)
    while not stop.is_made:
        wait_s = settings.poll_interval_s
        try:
            row_listener.listen()
            relay.relay_waiting(stop.or_after(LOOK_AGAIN_S))
            if time.monotonic() >= prune_at:
                over = stop.or_after(LOOK_AGAIN_S)
                prune(keep_sent_s=settings.keep_sent_s, keep_done_s=settings.keep_done_s, is_over=over)
                prune_at = time.monotonic() + PRUNE_EVERY_S
            failures = 0
            if not relay.leaves_some:
                row_listener.wait(wait_s, watched=stop.watched)
        except Error as error:
            connections[relay.database].close()
            wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(failures, 10))
            failures += 1
            if time.monotonic() - logged_at >= LOG_EVERY_S:
                logged_at = time.monotonic()
                logger.error("outbox: %s Trying again until it works.", said(error))
            select.select(stop.watched, [], [], wait_s)


def said(error: Error) -> str:
    """Return the text of an error of the database, with a remedy for missing tables."""
    text = str(error).strip().rstrip(".") + "."
    is_missing = isinstance(error, ProgrammingError) or "no such table" in text  # SQLite has another error for it
    return f"{text} If its tables are missing, run `manage.py migrate`." if is_missing else text


class RelayProcess:
    """The supervisor's view of the relay process."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self._start_at = 0.0
        self._failures = 0

    @property
    def is_due(self) -> bool:
        """Return whether the process has to be started."""
        return self.pid is None and time.monotonic() >= self._start_at

    def started(self, pid: int) -> None:
        """Note that it runs."""
        self.pid = pid
        logger.info("started process %d to relay the outbox", pid)

    def check(self) -> None:
        """Note when it has ended, and when to start the next one."""
        status = None if self.pid is None else _ended_with(self.pid)
        if status is not None:
            if status:
                logger.error("process %d, which relays the outbox, has ended; another one takes over", self.pid)
            else:  # by a signal to the whole process group, perhaps before the supervisor has got it
                logger.info("process %d, which relays the outbox, has stopped", self.pid)
            self.pid = None
            self._start_at = time.monotonic() + min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(self._failures, 10))
            self._failures += 1

    def stop(self, *, within_s: float) -> None:
        """Stop the process, by force if needed. The next one sends the remaining messages."""
        if self.pid is None:
            return
        _send(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + within_s
        while _ended_with(self.pid) is None:
            if time.monotonic() >= deadline:
                _send(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                break
            time.sleep(0.01)
        self.pid = None

    def be(self, lifeline: int) -> None:
        """Run the relay in this process, until told to stop or until the supervisor has ended."""
        stop = StopRequest(lifeline)
        stop.on_signals(signal.SIGTERM)
        # A Ctrl-C reaches every process of the terminal; only the supervisor acts on it.
        for number in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT))
        relay_until(stop)


def _ended_with(pid: int) -> int | None:
    """Return how a process ended, as a negative signal or an exit status; None while it lives."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # a library has read its status
        return UNKNOWN_END
    return os.waitstatus_to_exitcode(status) if ended else None


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
