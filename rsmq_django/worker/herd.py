"""One message wakes one process: who of a supervisor's idle children looks when something was published.

Every child hears what is published, because any of them may be the only one with room. Without this, each would ask
Redis for the same message. The first idle one asks at once; the next one a little later, and so on, unless somebody
has asked since and found that nothing more was ready. Whoever waits looks by itself when its turn comes, so a process
that dies or hangs costs its successors a moment and nobody a message.

Only among the children of one supervisor. Supervisors share no memory and take no turns: of each, one idle child asks.

Shared memory, one page for all children; each field has one writer, and a stale one only costs a look or a moment.
"""

from __future__ import annotations

import mmap
import struct
import time

#: How long the next idle process waits for the one before it. A look takes a tenth of this on a machine at rest.
TURN_S = 0.01
#: The longest wait: of many messages sent at once, all processes take their part soon.
LONGEST_WAIT_S = 0.1
#: A child whose main thread has not passed by for so long is not counted on: a task may hold the interpreter.
FRESH_S = 10.0

#: Since when it is idle (0: it is not), on the machine's monotonic clock; and the same of the latest look that left
#: nothing ready, for each connection.
_TIME = struct.Struct("d")
MAX_CONNECTIONS = 7
_SEAT_BYTES = _TIME.size * (1 + MAX_CONNECTIONS)


class Herd:
    """The idle children of one supervisor. Made before they are forked."""

    def __init__(self, seats: int) -> None:
        self._seats = seats
        self._memory = mmap.mmap(-1, seats * _SEAT_BYTES)

    def member(self, seat: int) -> Member:
        """Return the place of the child that sits there."""
        return Member(self, seat)

    def leave(self, seat: int) -> None:
        """Note that the child of this seat is gone."""
        self.write(seat, 0, 0.0)

    def write(self, seat: int, field: int, at: float) -> None:
        """Write one time."""
        _TIME.pack_into(self._memory, seat * _SEAT_BYTES + field * _TIME.size, at)

    def read(self, field: int) -> list[float]:
        """Read one time of all seats."""
        first, step = field * _TIME.size, _SEAT_BYTES
        return [float(_TIME.unpack_from(self._memory, seat * step + first)[0]) for seat in range(self._seats)]


class Member:
    """One child among the others."""

    def __init__(self, herd: Herd, seat: int) -> None:
        self._herd = herd
        self._seat = seat

    def note_idle(self, is_idle: bool) -> None:
        """Say whether this child could take a message now. To be repeated."""
        self._herd.write(self._seat, 0, time.monotonic() if is_idle else 0.0)

    def turn_s(self) -> float:
        """Return how long to leave a published message to idle children before this one."""
        if self._seat == 0:
            return 0.0
        now = time.monotonic()
        before = self._herd.read(0)[: self._seat]
        return min(LONGEST_WAIT_S, TURN_S * sum(now - idle_at < FRESH_S for idle_at in before))

    def note_drained(self, connection: int, at: float) -> None:
        """Say that a look which began then left nothing ready."""
        if connection < MAX_CONNECTIONS:
            self._herd.write(self._seat, 1 + connection, at)

    def is_drained_since(self, connection: int, at: float) -> bool:
        """Say whether a look that began later than that left nothing ready."""
        return connection < MAX_CONNECTIONS and max(self._herd.read(1 + connection)) > at
