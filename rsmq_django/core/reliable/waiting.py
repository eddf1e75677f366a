"""How a pop blocks. Pure decisions about time, and the one command that waits.

Each queue has a list `wake` that holds one token exactly while messages are undelivered. Who finds nothing takes that
token by BLPOP: the server serves those who wait in the order in which they came, one token wakes one of them, and the
next pop puts it back when something is left. A push between the two is no problem, for the token stays. A waiter that
dies with the token in hand costs the others one slice, because everybody looks again after that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from ..connection import Command, Connection
from ..keys import RELIABLE_PARTS

#: The longest single BLPOP: how late a message is taken whose token was lost.
SLICE_S = 2.0
#: A server looks at the time-outs of blocked clients ten times a second, so that its answer may be late by so much. The
#: end of a wait is therefore spent looking, every few milliseconds.
SERVER_TICK_S = 0.1
LOOK_EVERY_S = 0.005
#: The server's answer to a BLPOP is overdue after this: its process hangs, or the network is cut.
MARGIN_S = 5.0

_patient: WeakKeyDictionary[Connection, Connection] = WeakKeyDictionary()


def patient(connection: Connection) -> Connection:
    """Return a connection to the same server, with sockets of its own, whose replies may take as long as a slice."""
    found = _patient.get(connection)
    return found if found is not None else _patient.setdefault(connection, connection.with_timeout(SLICE_S + MARGIN_S))


class Wait:
    """The time that one pop may take: `block_ms` milliseconds, none (0), or without end (negative)."""

    def __init__(self, block_ms: int) -> None:
        self.is_wanted = block_ms != 0
        self._deadline = None if block_ms < 0 else time.monotonic() + block_ms / 1000

    @property
    def is_over(self) -> bool:
        """Say whether the time is over."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def next_block_s(self, next_due_ms: int | None) -> float:
        """Return for how long the server may be asked to wait now; 0 when it is time for a short nap instead."""
        block_s = min(SLICE_S, self._left_s(next_due_ms) - SERVER_TICK_S)
        return block_s if block_s >= LOOK_EVERY_S else 0.0  # the server takes a zero for "without end"

    def nap_s(self, next_due_ms: int | None) -> float:
        """Return how long a nap is."""
        return max(0.001, min(LOOK_EVERY_S, self._left_s(next_due_ms)))

    def _left_s(self, next_due_ms: int | None) -> float:
        left_s = SLICE_S + SERVER_TICK_S if self._deadline is None else self._deadline - time.monotonic()
        return left_s if next_due_ms is None else min(left_s, next_due_ms / 1000)


def wake_keys(keys: Sequence[str]) -> Sequence[str]:
    """Return those keys of a pop that hold tokens."""
    return keys[1 + RELIABLE_PARTS.index("wake") :: len(RELIABLE_PARTS)]


def take_token(keys: Sequence[str], block_s: float) -> Command:
    """Return the command that waits for one of these tokens."""
    return ("BLPOP", *keys, f"{block_s:.3f}")
