"""What a supervisor and a child tell each other without a call: what runs, how long it may, when the child has to end.

Shared memory, written with plain copies: it can still be read after the child was killed, and neither waits for the
other. One page per child; each field has one writer.
"""

from __future__ import annotations

import math
import mmap
import struct
import time
from collections import deque
from collections.abc import Iterator

_TIME = struct.Struct("d")
_POLLED_AT, _STOP_BY_AT, _HAS_ENDED_AT, _IS_QUIET_AT, _TURNED_AT, _INTERRUPTED_AT, _SLOTS_AT = 0, 8, 16, 17, 24, 32, 64
#: What stands in the place of "has ended" when the child holds nothing any more.
_HOLDS_NOTHING = 2
#: On the monotonic clock until when a message may run (0 for no limit) and since when it does; its id. The times come
#: first, because the supervisor may look between two writes: without an id a slot is free.
_SLOT = struct.Struct("dd64s")
_ID_AT, _ID_BYTES = 16, 64
#: Slots beside those of running messages: outcomes wait for a moment until Redis knows them.
_SPARE_SLOTS = 500


class SharedState:
    """A page shared with the one child that is forked after it was made."""

    def __init__(self, most_running: int) -> None:
        slots = most_running + _SPARE_SLOTS
        self._end = _SLOTS_AT + slots * _SLOT.size
        self._memory = mmap.mmap(-1, self._end)
        self._free = deque(range(_SLOTS_AT, self._end, _SLOT.size))

    # -- Written by the child -----------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Note that the child has just looked for messages, or would have if it had room, and that all is well."""
        _TIME.pack_into(self._memory, _POLLED_AT, time.monotonic())

    def note_turn(self) -> None:
        """Note that a turn of the child's main loop begins, whether the server can be reached or not."""
        _TIME.pack_into(self._memory, _TURNED_AT, time.monotonic())

    def enter(self, message_id: str, *, began_at: float, run_by: float = 0.0) -> int | None:
        """Note when on the monotonic clock a message began to run, and until when it may; returns its slot.

        Without a free slot it goes unnoted: a crash will not count for it, and nobody limits it.
        """
        name = message_id.encode("utf-8", "surrogateescape")
        if len(name) >= _ID_BYTES:  # an id of RSMQ has 32 characters
            return None
        try:
            slot = self._free.popleft()
        except IndexError:
            return None
        _SLOT.pack_into(self._memory, slot, run_by, began_at, name)
        return slot

    def lift_limit(self, slot: int) -> None:
        """Note that a message has run: only its outcome waits to be told, and nothing is to be stopped any more."""
        _TIME.pack_into(self._memory, slot, 0.0)

    def leave(self, *slots: int) -> None:
        """Note that Redis knows how it went with messages, or that nobody will tell.

        Not already when they have run: what a task did to its process may show a moment later.
        """
        for slot in slots:
            self._memory[slot + _ID_AT] = 0
        self._free.extend(slots)

    def note_end(self, *, holds_nothing: bool = False) -> None:
        """Note that the child ends by itself. A task that ends the process can choose any exit status, but not this."""
        self._memory[_HAS_ENDED_AT] = _HOLDS_NOTHING if holds_nothing else 1

    def note_interruption(self) -> None:
        """Note when a function was first interrupted in this process, which is to be replaced for that."""
        if self.interrupted_at is None:
            _TIME.pack_into(self._memory, _INTERRUPTED_AT, time.monotonic())

    # -- Written by the supervisor ------------------------------------------------------------------------------------

    def tell_to_stop(self, by: float) -> None:
        """Say until when tasks may run, on the machine's monotonic clock; the child looks when it gets SIGTERM."""
        _TIME.pack_into(self._memory, _STOP_BY_AT, by)

    def tell_quiet(self, is_quiet: bool) -> None:
        """Say whether the child is to take no messages."""
        self._memory[_IS_QUIET_AT] = int(is_quiet)

    # -- Read by the other one ----------------------------------------------------------------------------------------

    @property
    def stop_by(self) -> float | None:
        """Until when tasks may run; None while nobody told the child to stop."""
        return float(_TIME.unpack_from(self._memory, _STOP_BY_AT)[0]) or None

    @property
    def is_quiet(self) -> bool:
        """Whether the child is to take no messages."""
        return bool(self._memory[_IS_QUIET_AT])

    @property
    def last_poll(self) -> float | None:
        """When the child last looked for messages with success, on the machine's monotonic clock; None for never."""
        return float(_TIME.unpack_from(self._memory, _POLLED_AT)[0]) or None

    @property
    def last_turn(self) -> float:
        """When the last turn of the child's main loop began, on the machine's monotonic clock; 0 before the first."""
        return float(_TIME.unpack_from(self._memory, _TURNED_AT)[0])

    @property
    def interrupted_at(self) -> float | None:
        """When a function was first interrupted in the child, on the machine's monotonic clock; None for never."""
        return float(_TIME.unpack_from(self._memory, _INTERRUPTED_AT)[0]) or None

    @property
    def holds_nothing(self) -> bool:
        """Whether the child ended by itself, and no message has to come back from it."""
        return self._memory[_HAS_ENDED_AT] == _HOLDS_NOTHING

    @property
    def has_ended(self) -> bool:
        """Whether the child ended by itself."""
        return bool(self._memory[_HAS_ENDED_AT])

    def running(self) -> frozenset[str]:
        """Return the ids of the messages that began to run here and were not settled when the child last wrote."""
        return frozenset(message_id for message_id, _, _ in self._taken_slots())

    def running_since(self) -> dict[str, float]:
        """Return the ids of the messages that began to run here, and when on the monotonic clock."""
        return {message_id: began_at for message_id, _, began_at in self._taken_slots()}

    def overdue(self, now: float) -> frozenset[str]:
        """Return the ids of the messages that run longer than they may."""
        return frozenset(message_id for message_id, run_by, _ in self._taken_slots() if 0 < run_by <= now)

    def next_limit(self) -> float:
        """Return when the next message will have run longer than it may; infinite when nothing here has a limit."""
        return min((run_by for _, run_by, _ in self._taken_slots() if run_by), default=math.inf)

    def _taken_slots(self) -> Iterator[tuple[str, float, float]]:
        for run_by, began_at, name in _SLOT.iter_unpack(self._memory[_SLOTS_AT : self._end]):
            if name[0]:
                yield name.partition(b"\0")[0].decode("utf-8", "surrogateescape"), run_by, began_at
