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
_SLOT_BYTES = _TIME.size * (1 + MAX_CONNECTIONS)


class IdleTurns:
    """The idle children of one supervisor. Made before they are forked."""

    def __init__(self, process_slots: int) -> None:
        self._process_slots = process_slots
        self._memory = mmap.mmap(-1, process_slots * _SLOT_BYTES)

    def member(self, process_slot: int) -> IdleTurn:
        """Return the place of the child that sits there."""
        return IdleTurn(self, process_slot)

    def leave(self, process_slot: int) -> None:
        """Note that the child of this seat is gone."""
        self.write(process_slot, 0, 0.0)

    def write(self, process_slot: int, field: int, at: float) -> None:
        """Write one time."""
        _TIME.pack_into(self._memory, process_slot * _SLOT_BYTES + field * _TIME.size, at)

    def read(self, field: int) -> list[float]:
        """Read one time of all seats."""
        first, step = field * _TIME.size, _SLOT_BYTES
        return [
            float(_TIME.unpack_from(self._memory, process_slot * step + first)[0])
            for process_slot in range(self._process_slots)
        ]


class IdleTurn:
    """One child among the others."""

    def __init__(self, idle_turns: IdleTurns, process_slot: int) -> None:
        self._idle_turns = idle_turns
        self._process_slot = process_slot

    def note_idle(self, is_idle: bool) -> None:
        """Say whether this child could take a message now. To be repeated."""
        self._idle_turns.write(self._process_slot, 0, time.monotonic() if is_idle else 0.0)

    def turn_s(self) -> float:
        """Return how long to leave a published message to idle children before this one."""
        if self._process_slot == 0:
            return 0.0
        now = time.monotonic()
        before = self._idle_turns.read(0)[: self._process_slot]
        return min(LONGEST_WAIT_S, TURN_S * sum(now - idle_at < FRESH_S for idle_at in before))

    def note_drained(self, connection: int, at: float) -> None:
        """Say that a look which began then left nothing ready."""
        if connection < MAX_CONNECTIONS:
            self._idle_turns.write(self._process_slot, 1 + connection, at)

    def is_drained_since(self, connection: int, at: float) -> bool:
        """Say whether a look that began later than that left nothing ready."""
        return connection < MAX_CONNECTIONS and max(self._idle_turns.read(1 + connection)) > at
