"""Quarantine: runs messages alone whose process died while it ran them.

When a process dies, every message it was running is a suspect, and most are innocent. Each suspect therefore runs alone
the next time. If the process dies again, the cause is known; if not, the suspect was innocent and has ended.
"""

from __future__ import annotations

import time
from collections import deque

from .pool import Pool, Runnable

#: How long a suspect waits for the other tasks to end. After that it runs beside them, so that a task of an hour does
#: not delay it; if the process dies then, all of them are suspects.
WAIT_FOR_OTHERS_S = 10.0
#: How long a suspect runs alone in its process. A message that kills its process mostly does so at once.
ALONE_S = 5.0
#: How often to check whether the process is free.
CHECK_EVERY_S = 0.05


class Quarantine:
    """The suspects of one worker process, run one at a time while nothing else runs."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._suspects: deque[Runnable] = deque()
        self._waiting_since = 0.0
        self._alone_until = 0.0

    def submit(self, execution: Runnable) -> None:
        """Queue a suspect."""
        if not self._suspects:
            self._waiting_since = time.monotonic()
        self._suspects.append(execution)

    def is_wanted(self) -> bool:
        """Return whether no other message should be started now."""
        return bool(self._suspects) or (time.monotonic() < self._alone_until and not self._pool.is_idle)

    def advance(self, *, is_quiet: bool) -> None:
        """Run the next suspect when `is_quiet`, or when it has waited long enough.

        Quiet means that nothing else runs and that Redis knows all outcomes: an outcome that is lost with the process
        would count as its message's crash.
        """
        now = time.monotonic()
        if self._suspects and (is_quiet or now > max(self._waiting_since + WAIT_FOR_OTHERS_S, self._alone_until)):
            self._pool.submit(self._suspects.popleft())
            self._alone_until, self._waiting_since = now + ALONE_S, now

    def take_back(self) -> list[Runnable]:
        """Return the waiting suspects, and drop them here."""
        taken = list(self._suspects)
        self._suspects.clear()
        return taken

    def next_check_at(self) -> float | None:
        """Return when to call advance() again; None when no suspect waits or runs alone."""
        return time.monotonic() + CHECK_EVERY_S if self.is_wanted() else None
