"""Notices that nothing has happened for a while."""

from __future__ import annotations

import time

#: A worker that has something to run begins sooner, also on a busy machine.
SILENCE_S = 1.0


class Silence:
    """Says when a state has stayed the same for a second: then a worker holds no messages that it knows of.

    Only then may a test let leases pass whose messages were lost on the way. While a worker runs messages, that would
    take away what it has not reported yet, and each time it comes back, again: nothing would ever be settled.
    """

    def __init__(self) -> None:
        self._state: object = None
        self._since = time.monotonic()

    def has_lasted(self, state: object) -> bool:
        """Return whether this state is a second old, and begin anew if so."""
        now = time.monotonic()
        is_old = state == self._state and now - self._since > SILENCE_S
        if is_old or state != self._state:
            self._state, self._since = state, now
        return is_old
