"""One message wakes one process: the idle processes of a supervisor take turns at fetching published messages.

Every process receives each wake-up, because any of them may be the only one with room. Without turns, each would ask
Redis for the same message. The first idle one asks at once; the next one a little later, and so on, unless another
process has asked since and found that nothing more was ready. A waiting process fetches by itself when its turn comes,
so a process that dies or hangs costs its successors a moment, and no message is lost.

Turns exist only among the processes of one supervisor. Supervisors share no memory: of each, one idle process asks.

The memory is shared, one page for all processes; each field has one writer, and a stale one only costs a fetch or a
moment.
"""

from __future__ import annotations

import mmap
import struct
import time

#: How long the next idle process waits for the one before it. A fetch takes a tenth of this on an idle machine.
TURN_S = 0.01
#: The longest wait: of many messages sent at once, all processes soon take a part.
LONGEST_WAIT_S = 0.1
#: A process whose main thread has not written for this time is ignored: a task may hold the interpreter.
FRESH_S = 10.0

#: Since when the process is idle (0: it is not), on the machine's monotonic clock; then the same of its latest fetch
#: that left nothing ready, for each connection.
_TIME = struct.Struct("d")
MAX_CONNECTIONS = 7
_SLOT_BYTES = _TIME.size * (1 + MAX_CONNECTIONS)


class IdleTurns:
    """The turns of one supervisor's idle processes. Created before they are forked."""

    def __init__(self, process_slots: int) -> None:
        self._process_slots = process_slots
        self._memory = mmap.mmap(-1, process_slots * _SLOT_BYTES)

    def member(self, process_slot: int) -> IdleTurn:
        """Return the turn of the process in this slot."""
        return IdleTurn(self, process_slot)

    def leave(self, process_slot: int) -> None:
        """Note that the process of this slot has ended."""
        self.write(process_slot, 0, 0.0)

    def write(self, process_slot: int, field: int, at: float) -> None:
        """Write one time."""
        _TIME.pack_into(self._memory, process_slot * _SLOT_BYTES + field * _TIME.size, at)

    def read(self, field: int) -> list[float]:
        """Return one time of all slots."""
        first, step = field * _TIME.size, _SLOT_BYTES
        return [
            float(_TIME.unpack_from(self._memory, process_slot * step + first)[0])
            for process_slot in range(self._process_slots)
        ]


class IdleTurn:
    """The turn of one process."""

    def __init__(self, idle_turns: IdleTurns, process_slot: int) -> None:
        self._idle_turns = idle_turns
        self._process_slot = process_slot

    def note_idle(self, is_idle: bool) -> None:
        """Note whether this process could take a message now. Called repeatedly."""
        self._idle_turns.write(self._process_slot, 0, time.monotonic() if is_idle else 0.0)

    def turn_s(self) -> float:
        """Return how long to leave a published message to idle processes before this one."""
        if self._process_slot == 0:
            return 0.0
        now = time.monotonic()
        before = self._idle_turns.read(0)[: self._process_slot]
        return min(LONGEST_WAIT_S, TURN_S * sum(now - idle_at < FRESH_S for idle_at in before))

    def note_drained(self, connection: int, at: float) -> None:
        """Note that a fetch which began at this time left nothing ready."""
        if connection < MAX_CONNECTIONS:
            self._idle_turns.write(self._process_slot, 1 + connection, at)

    def is_drained_since(self, connection: int, at: float) -> bool:
        """Return whether a fetch of any process that began after this time left nothing ready."""
        return connection < MAX_CONNECTIONS and max(self._idle_turns.read(1 + connection)) > at
