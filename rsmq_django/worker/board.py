"""What a supervisor and a child tell each other without a call: what runs, how the child ended, when it has to.

Shared memory, written with plain copies: it can still be read after the child was killed, and neither waits for the
other. One page per child; each field has one writer.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections import deque

_TIME = struct.Struct("d")
_BEAT_AT, _STOP_BY_AT, _HAS_ENDED_AT, _SLOTS_AT = 0, 8, 16, 64
_SLOT_BYTES = 64
#: Slots beside those of running messages: outcomes wait for a moment until Redis knows them.
_SPARE_SLOTS = 500


class Board:
    """A page shared with the one child that is forked after it was made."""

    def __init__(self, most_running: int) -> None:
        slots = most_running + _SPARE_SLOTS
        self._memory = mmap.mmap(-1, _SLOTS_AT + slots * _SLOT_BYTES)
        self._free = deque(range(_SLOTS_AT, _SLOTS_AT + slots * _SLOT_BYTES, _SLOT_BYTES))
        #: Receipt (id, receive count) -> where the slot begins. Two deliveries of a message may be here for a moment.
        self._slots: dict[tuple[str, int], int] = {}
        self.beat()

    # -- Written by the child -----------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Note that the child has talked to Redis just now."""
        _TIME.pack_into(self._memory, _BEAT_AT, time.monotonic())

    def enter(self, receipt: tuple[str, int]) -> None:
        """Note that a message begins to run. Without a free slot it goes unnoted: a crash will not count for it."""
        name = receipt[0].encode("utf-8", "surrogateescape")
        if len(name) > _SLOT_BYTES:  # an id of RSMQ has 32 characters
            return
        try:
            at = self._free.popleft()
        except IndexError:
            return
        self._slots[receipt] = at
        self._memory[at : at + _SLOT_BYTES] = name.ljust(_SLOT_BYTES, b"\0")

    def leave(self, receipt: tuple[str, int]) -> None:
        """Note that Redis knows how it went with a message, or that nobody will tell.

        Not already when it has run: what the task did to its process may show a moment later.
        """
        at = self._slots.pop(receipt, None)
        if at is not None:
            self._memory[at : at + _SLOT_BYTES] = bytes(_SLOT_BYTES)
            self._free.append(at)

    def note_end(self) -> None:
        """Note that the child ends by itself. A task that ends the process can choose any exit status, but not this."""
        self._memory[_HAS_ENDED_AT] = 1

    # -- Written by the supervisor ------------------------------------------------------------------------------------

    def tell_to_stop(self, by: float) -> None:
        """Say until when tasks may run, on the machine's monotonic clock; the child looks when it gets SIGTERM."""
        _TIME.pack_into(self._memory, _STOP_BY_AT, by)

    # -- Read by the other one ----------------------------------------------------------------------------------------

    @property
    def stop_by(self) -> float | None:
        """Until when tasks may run; None while nobody told the child to stop."""
        return float(_TIME.unpack_from(self._memory, _STOP_BY_AT)[0]) or None

    @property
    def last_beat(self) -> float:
        """When the child last talked to Redis, on the machine's monotonic clock."""
        return float(_TIME.unpack_from(self._memory, _BEAT_AT)[0])

    @property
    def has_ended(self) -> bool:
        """Whether the child ended by itself."""
        return bool(self._memory[_HAS_ENDED_AT])

    def running(self) -> frozenset[str]:
        """Return the ids of the messages that began to run here and were not settled when the child last wrote."""
        slots = (self._memory[at : at + _SLOT_BYTES] for at in range(_SLOTS_AT, len(self._memory), _SLOT_BYTES))
        names = (slot.rstrip(b"\0") for slot in slots)
        return frozenset(name.decode("utf-8", "surrogateescape") for name in names if name)
