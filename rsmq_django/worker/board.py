"""What a supervisor must know about a child even after it was killed: which messages it was running.

Shared memory, written by the child with a plain copy and read by the supervisor: no call, no lock between processes.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections import deque

_BEAT = struct.Struct("d")
_SLOT_BYTES = 64


class Board:
    """A table of message ids in memory shared with the child processes that are forked after it was made."""

    def __init__(self, slots: int) -> None:
        self._memory = mmap.mmap(-1, _BEAT.size + slots * _SLOT_BYTES)
        self._free = deque(range(slots))
        self._slots: dict[str, int] = {}
        self._slot_count = slots
        self.beat()

    def beat(self) -> None:
        """Note that the child has talked to Redis just now."""
        _BEAT.pack_into(self._memory, 0, time.monotonic())

    def last_beat(self) -> float:
        """Return when the child last talked to Redis, on the machine's monotonic clock."""
        return float(_BEAT.unpack_from(self._memory, 0)[0])

    def enter(self, message_id: str) -> None:
        """Note that a message begins to run. Without a free slot it goes unnoted: a crash will not count for it."""
        try:
            slot = self._free.popleft()
        except IndexError:
            return
        self._slots[message_id] = slot
        at = _BEAT.size + slot * _SLOT_BYTES
        self._memory[at : at + _SLOT_BYTES] = _as_slot(message_id)

    def leave(self, message_id: str) -> None:
        """Note that a message has run."""
        slot = self._slots.pop(message_id, None)
        if slot is not None:
            self._memory[_BEAT.size + slot * _SLOT_BYTES] = 0
            self._free.append(slot)

    def is_running(self, message_id: str) -> bool:
        """Say whether the child was running this message when it last wrote here."""
        wanted = _as_slot(message_id)
        starts = range(_BEAT.size, _BEAT.size + self._slot_count * _SLOT_BYTES, _SLOT_BYTES)
        return any(self._memory[at : at + _SLOT_BYTES] == wanted for at in starts)

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


def _as_slot(message_id: str) -> bytes:
    return message_id.encode("utf-8", "surrogateescape")[:_SLOT_BYTES].ljust(_SLOT_BYTES, b"\0")
