"""The processes of a supervisor, as it sees them: where they sit, how they are told to stop, how they ended.

How much memory a process uses.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from ...core.log_lines import get_logger
from .shared_state import SharedState

logger = get_logger(__name__)

#: Exit statuses of a child: everything ended; something was given back unfinished; its main loop failed; the settings
#: do not fit; it has run as many tasks as one process may; a function was interrupted in it. Not 1, which tasks choose
#: that end their process.
ENDED, UNFINISHED, BROKEN, MISCONFIGURED, USED_UP, INTERRUPTED = 0, 75, 70, 78, 79, 80


@dataclass(slots=True, eq=False)
class ProcessSlot:
    """The place of one process. When it ends, another one takes the place; health is asked of the seat.

    So processes that end before they have looked for messages even once do not look well because they are young.
    """

    number: int = 0
    #: Monotonic time at which its processes last looked for messages with success, or at which the seat was made.
    last_poll: float = field(default_factory=time.monotonic)
    #: How many processes have sat here before.
    replaced: int = 0


@dataclass(slots=True, eq=False)
class Child:
    """One worker process."""

    pid: int
    worker_id: str
    shared_state: SharedState
    process_slot: ProcessSlot
    started_at: float = field(default_factory=time.monotonic)
    asked_to_stop: bool = False
    killed: bool = False
    #: The log says that a function was interrupted in it.
    interruption_is_noted: bool = False
    #: Nobody takes its place.
    is_dismissed: bool = False
    #: It was killed because its main loop stood still.
    is_frozen: bool = False
    #: Ids of the messages that ran longer than they may, for which it was killed.
    overdue: frozenset[str] = frozenset()
    #: Where it is asked for the stacks of its tasks.
    stack_requests: int | None = None

    #: The last turn of its main loop that the supervisor has seen, and for how long there was no other.
    _seen_turn: float = 0.0
    _still_s: float = 0.0

    def stands_still(self, looked_s: float) -> float:
        """Return for how long its main loop has stood still; `looked_s` seconds have passed since this was asked."""
        turn = self.shared_state.last_turn
        self._still_s = self._still_s + looked_s if turn == self._seen_turn else 0.0
        self._seen_turn = turn
        return self._still_s

    @property
    def last_poll(self) -> float:
        """When it, or the one before it, last looked for messages with success, on the monotonic clock."""
        return max(self.shared_state.last_poll or 0.0, self.process_slot.last_poll)

    def note_interruption(self) -> None:
        """Take over that a function was interrupted in it and that it stops by itself; log it once.

        Not in the process, where the log's handlers may hang.
        """
        if self.interruption_is_noted or self.shared_state.interrupted_at is None:
            return
        self.interruption_is_noted = self.asked_to_stop = True
        text = "a function was interrupted in process %d; the process is replaced when its tasks have ended"
        logger.warning(text, self.pid)

    def ask_to_stop(self, *, by: float) -> None:
        """Let it end what runs until `by` on the monotonic clock, and then itself."""
        self.asked_to_stop = True
        self.shared_state.tell_to_stop(by)
        self._send(signal.SIGTERM)

    def ask_for_stacks(self) -> None:
        """Have it tell where its running tasks are in their code."""
        if self.stack_requests is not None:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):  # it was asked already, or ends
                os.write(self.stack_requests, b"?")

    def close_pipe(self) -> None:
        """Give back the descriptor of its requests: it is gone, or this is another child."""
        if self.stack_requests is not None:
            os.close(self.stack_requests)
            self.stack_requests = None

    def kill(self) -> None:
        """End it at once. What it runs is not to blame."""
        self.killed = True
        self._send(signal.SIGKILL)

    def kill_frozen(self) -> None:
        """End it at once because its main loop stands still."""
        self.is_frozen = True
        self._send(signal.SIGKILL)

    def kill_for(self, overdue: frozenset[str]) -> None:
        """End it at once because of messages that ran longer than they may."""
        self.overdue = overdue
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            # Somebody else has reaped it (a library that waits for any child); the supervisor finds out by itself.
            pass

    def reap(self) -> int | None:
        """Return how it ended, as a negative signal or an exit status; None while it lives."""
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # reaped by somebody else: how it ended nobody will ever know
            return UNKNOWN_END
        return os.waitstatus_to_exitcode(status) if pid else None


_MEANINGS = {
    UNFINISHED: "messages were given back unfinished",
    USED_UP: "it has taken as many messages as one process may",
    INTERRUPTED: "a function was interrupted in it",
}
#: No process ends with it: statuses are below 256.
UNKNOWN_END = 256
#: A process in which a function was interrupted has this long to write out its log.
FLUSH_WITHIN_S = 1.0


def describe_exit(code: int) -> str:
    """Return in words how a process ended."""
    if code == UNKNOWN_END:
        return "an exit status that somebody else has read"
    if code < 0:
        return f"signal {-code} ({_signal_name(-code)})"
    meaning = _MEANINGS.get(code, "")
    return f"exit status {code}{meaning and f' ({meaning})'}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time"  # most of those have no name


def flush_output(*, may_hang: bool) -> None:
    """Write out what the log and the standard streams still buffer; for a second at most if a lock may be lost."""
    if not may_hang:
        _flush()
        return
    thread = threading.Thread(target=_flush, daemon=True)
    thread.start()
    thread.join(FLUSH_WITHIN_S)


def _flush() -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process, or None when it is gone or cannot be asked."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return _ask_ps(pid)


def _ask_ps(pid: int) -> int | None:
    """See resident_bytes(); for systems without /proc, such as macOS."""
    done = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
    return int(done.stdout) * 1024 if done.stdout.strip() else None
