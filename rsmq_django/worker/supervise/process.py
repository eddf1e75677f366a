"""The worker processes of a supervisor: their slots, how they are told to stop, their exit statuses and memory."""

from __future__ import annotations

import contextlib
import inspect
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
from ...tasks import tracing
from ...tasks.middleware import chain
from ...tasks.registry import largest_batch
from ...tasks.topic_task import TopicTask, registered_topic_tasks
from ..execute.pool import MOST_PREFETCHED
from ..report.shared_state import SharedState
from ..worker import WorkerOptions

logger = get_logger(__name__)

#: Exit statuses of a child: everything ended; messages were released unfinished; its main loop failed; the settings
#: are wrong; it has run its maximum number of tasks; a function was interrupted in it. Not 1, which tasks choose that
#: end their process.
ENDED, UNFINISHED, BROKEN, MISCONFIGURED, USED_UP, INTERRUPTED = 0, 75, 70, 78, 79, 80

#: Maximum number of messages of a process that are noted as running, however large the batches are.
MOST_NOTED = 20_000


def most_noted(options: WorkerOptions) -> int:
    """Return how many messages of a process may run, or have run without their outcomes being sent, at most MOST_NOTED.

    The outcomes of messages of a topic that run one after another are sent together. Each group holds as many calls as
    it has consumers, however few threads there are: those that wait for a thread may begin before the next exchange.
    """
    topic_tasks = [each for each in registered_topic_tasks() if isinstance(each, TopicTask)]
    of_topics = sum(each.consumers * _messages_of_a_call(each) for each in topic_tasks)
    return min((options.threads + options.async_tasks) * largest_batch() + of_topics, MOST_NOTED)


def _messages_of_a_call(task: TopicTask) -> int:
    return task.batch or (1 if inspect.iscoroutinefunction(task.func) else MOST_PREFETCHED)


@dataclass(slots=True, eq=False)
class ProcessSlot:
    """The slot of one process. When the process ends, another one takes the slot; health is a property of the slot.

    So processes that keep ending before their first successful fetch do not look healthy because they are young.
    """

    number: int = 0
    #: Monotonic time of the last successful fetch of its processes, or of the creation of the slot.
    last_poll: float = field(default_factory=time.monotonic)
    #: Number of earlier processes of the slot.
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
    #: The interruption of a function in it was logged.
    interruption_is_noted: bool = False
    #: It is not replaced when it ends.
    is_dismissed: bool = False
    #: It was killed because its main loop was blocked.
    is_frozen: bool = False
    #: Ids of the messages that exceeded their hard time limit, for which it was killed.
    overdue: frozenset[str] = frozenset()
    #: The pipe for requests: see execute/stacks.py.
    requests: int | None = None

    #: The last turn of its main loop that the supervisor has seen, and for how long there was no newer one.
    _seen_turn: float = 0.0
    _still_s: float = 0.0

    def blocked_s(self, looked_s: float) -> float:
        """Return for how long its main loop has been blocked; `looked_s` seconds have passed since the last call."""
        turn = self.shared_state.last_turn
        self._still_s = self._still_s + looked_s if turn == self._seen_turn else 0.0
        self._seen_turn = turn
        return self._still_s

    @property
    def last_poll(self) -> float:
        """The last successful fetch of it or its predecessor, on the monotonic clock."""
        return max(self.shared_state.last_poll or 0.0, self.process_slot.last_poll)

    def note_interruption(self) -> None:
        """Note that a function was interrupted in it and that it stops by itself; log it once.

        The process does not log this itself, because its log handlers may hang.
        """
        if self.interruption_is_noted or self.shared_state.interrupted_at is None:
            return
        self.interruption_is_noted = self.asked_to_stop = True
        text = "a function was interrupted in process %d; the process is replaced when its tasks have ended"
        logger.warning(text, self.pid)

    def ask_to_stop(self, *, by: float) -> None:
        """Tell it to stop: its tasks may run until `by` on the monotonic clock."""
        self.asked_to_stop = True
        self.shared_state.set_stop_by(by)
        self._send(signal.SIGTERM)

    def ask_for(self, what: bytes) -> None:
        """Request the stacks of its running tasks, or how many there are."""
        if self.requests is not None:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):  # a request is pending already, or it ends
                os.write(self.requests, what)

    def close_pipe(self) -> None:
        """Close the descriptor of its requests: it has ended, or this is another child."""
        if self.requests is not None:
            os.close(self.requests)
            self.requests = None

    def kill(self) -> None:
        """Kill it. Its messages are not to blame."""
        self.killed = True
        self._send(signal.SIGKILL)

    def kill_frozen(self) -> None:
        """Kill it because its main loop is blocked."""
        self.is_frozen = True
        self._send(signal.SIGKILL)

    def kill_for(self, overdue: frozenset[str]) -> None:
        """Kill it because of messages that exceeded their hard time limit."""
        self.overdue = overdue
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            # Already reaped by other code (a library that waits for any child); the supervisor notices that itself.
            pass

    def reap(self) -> int | None:
        """Return how it ended, as a negative signal or an exit status; None while it is running."""
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # reaped by other code: its exit status is lost
            return UNKNOWN_END
        return os.waitstatus_to_exitcode(status) if pid else None


_MEANINGS = {
    UNFINISHED: "messages were released unfinished",
    USED_UP: "it has received its maximum number of messages",
    INTERRUPTED: "a function was interrupted in it",
}
#: Not a real status: these are below 256.
UNKNOWN_END = 256
_PLANNED = (ENDED, UNFINISHED, USED_UP, INTERRUPTED, UNKNOWN_END)
#: Maximum time that a process with an interrupted function has to flush its log.
FLUSH_WITHIN_S = 1.0


def describe_exit(code: int) -> str:
    """Return a description of the end of a process."""
    if code == UNKNOWN_END:
        return "an unknown exit status: other code has reaped it"
    if code < 0:
        return f"signal {-code} ({_signal_name(-code)})"
    meaning = _MEANINGS.get(code, "")
    return f"exit status {code}{meaning and f' ({meaning})'}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time"  # most of these have no name


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a child ended."""

    #: A description for logs and failure records.
    how: str
    #: The child set its status itself; otherwise a task may have chosen it.
    by_itself: bool
    #: It ended as planned, or was killed for messages that exceeded their hard time limit.
    is_expected: bool
    is_misconfigured: bool
    #: It released messages unfinished.
    is_unfinished: bool
    #: There is nothing left to do for it.
    is_done: bool

    @classmethod
    def of(cls, child: Child, code: int) -> ProcessEnd:
        """Return the end of a child with this exit status, or negative signal."""
        by_itself = child.shared_state.has_ended and code >= 0
        as_planned = by_itself and code in _PLANNED
        is_unfinished = by_itself and code == UNFINISHED
        return cls(
            how=describe_exit(code) + (", because its main loop was blocked" if child.is_frozen else ""),
            by_itself=by_itself,
            is_expected=as_planned or bool(child.overdue),
            is_misconfigured=by_itself and code == MISCONFIGURED,
            is_unfinished=is_unfinished,
            is_done=by_itself and code in (ENDED, UNFINISHED) and not child.asked_to_stop,
        )


def flush_output(*, may_hang: bool) -> None:
    """Flush the log and the standard streams; for a second at most if a lock may never be released."""
    if not may_hang:
        _flush()
        return
    thread = threading.Thread(target=_flush, daemon=True)
    thread.start()
    thread.join(FLUSH_WITHIN_S)


def _flush() -> None:
    with contextlib.suppress(Exception):  # a mistake in the settings, which was logged
        middleware = chain()
        if middleware is not None:
            middleware.flush()
    with contextlib.suppress(Exception):  # likewise
        tracing.flush()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process; None when it has ended or cannot be examined."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return _ask_ps(pid)


def _ask_ps(pid: int) -> int | None:
    """See resident_bytes(); for systems without /proc, such as macOS."""
    done = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
    return int(done.stdout) * 1024 if done.stdout.strip() else None
