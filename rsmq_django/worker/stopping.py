"""Stops of a worker: which signals request one, and until when running tasks may continue.

Signal handlers only write here and wake the main thread, which acts in its next turn.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from types import FrameType

from ..core.log_lines import get_logger
from .fetch.wakeup import Wakeup
from .report.shared_state import SharedState

logger = get_logger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class Stopping:
    """The requested stop of one worker."""

    def __init__(self, wakeup: Wakeup, *, grace_s: float, shared_state: SharedState | None) -> None:
        #: Monotonic time at which running tasks are abandoned; None while the worker is not stopping.
        self.by: float | None = None
        #: Since when an operator waits for the end, on the monotonic clock. None when the process is to be replaced
        #: after an interruption, or for its memory: without a server there is no work for the next one.
        self.awaited_since: float | None = None
        #: Whether `by` was set after the last turn began.
        self.is_news = False
        self._wakeup = wakeup
        self._grace_s = grace_s
        self._shared_state = shared_state

    def handle_signals(self) -> None:
        """Stop on SIGTERM, SIGINT and SIGQUIT; at once on the second one."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        self._wakeup.watch_signals()

    def handle_supervisor(self) -> None:
        """Stop on SIGTERM, which the supervisor sends.

        A Ctrl-C reaches every process of the terminal; only the supervisor acts on it.
        """
        signal.signal(signal.SIGTERM, self._on_supervisor_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGQUIT, signal.SIG_IGN)
        self._wakeup.watch_signals()

    def stop(self, *, within_s: float) -> None:
        """Let running tasks continue for up to this time."""
        self._note_awaited()
        self._stop_by(time.monotonic() + within_s)

    def stop_sooner(self) -> None:
        """Limit the time of running tasks to the shutdown timeout, unless they have less already."""
        by = time.monotonic() + self._grace_s
        self._stop_by(by if self.by is None else min(by, self.by))

    def _stop_by(self, by: float) -> None:
        self.by, self.is_news = by, True
        self._wakeup.wake()

    def _note_awaited(self) -> None:
        if self.awaited_since is None:
            self.awaited_since = time.monotonic()

    def _on_supervisor_signal(self, number: int, frame: FrameType | None) -> None:
        """Stop at the time that the supervisor has set.

        Service managers send SIGTERM to every process of a service, and the supervisor passes on its own: the second
        signal must not shorten the time of running tasks.
        """
        requested = self._shared_state.stop_by if self._shared_state is not None else None
        by = requested or self.by or time.monotonic() + self._grace_s
        is_news = self.by is None or by < self.by - 1
        if math.isfinite(by):
            self._note_awaited()
        self._stop_by(by)
        if is_news:
            logger.info("%s: finishing running tasks%s", _name(number), _within(by - time.monotonic()))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.by is None:
            logger.info("%s: finishing running tasks, at most %.0f s", _name(number), self._grace_s)
            self.stop(within_s=self._grace_s)
        else:
            logger.warning("%s again: stopping now", _name(number))
            self.stop(within_s=0)


class _Fork(threading.local):
    """Signals that this thread blocked before its fork; None if SIGTERM has no handler of Stopping."""

    mask: set[int | signal.Signals] | None = None


_fork = _Fork()


def _block_sigterm() -> None:
    """Block SIGTERM during a fork, so that the child gets it after its handler is reset."""
    handler = signal.getsignal(signal.SIGTERM)
    is_ours = isinstance(getattr(handler, "__self__", None), Stopping)
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]) if is_ours else None


def _unblock_sigterm() -> None:
    if _fork.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _end_child_on_sigterm() -> None:
    """End the child of a task on SIGTERM, as usual: `multiprocessing` stops its processes with it."""
    if _fork.mask is not None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _unblock_sigterm()


os.register_at_fork(before=_block_sigterm, after_in_parent=_unblock_sigterm, after_in_child=_end_child_on_sigterm)


def _within(seconds: float) -> str:
    return f", at most {max(0.0, seconds):.0f} s" if math.isfinite(seconds) else ""


def _name(number: int) -> str:
    return signal.Signals(number).name
