"""State shared by a supervisor and a worker process: running messages, their time limits, and the time of a stop.

It is shared memory, written with plain copies: it can still be read after the process was killed, and neither side
waits for the other. One page per process; each field has one writer.
"""

from __future__ import annotations

import math
import mmap
import struct
import time
from collections import deque
from collections.abc import Iterator

_TIME = struct.Struct("d")
_POLLED_AT, _STOP_BY_AT, _HAS_ENDED_AT, _IS_PAUSED_AT, _TURNED_AT, _INTERRUPTED_AT, _SLOTS_AT = 0, 8, 16, 17, 24, 32, 64
#: Busy and all slots for functions, the same for coroutines.
_USE, _USE_AT = struct.Struct("4I"), 40
#: Value of the "has ended" field when the process holds no messages any more.
_HOLDS_NOTHING = 2
#: Monotonic times until when a message may run (0 for no limit) and since when it is running; its id. The times are
#: written first, because the supervisor may read between two writes: without an id a slot is free.
_SLOT = struct.Struct("dd64s")
_ID_AT, _ID_BYTES = 16, 64
#: Slots beside the ones of running messages: an outcome keeps its slot until Redis knows it.
_SPARE_SLOTS = 500


class SharedState:
    """A page shared with the one process that is forked after its creation."""

    def __init__(self, most_running: int) -> None:
        slots = most_running + _SPARE_SLOTS
        self._end = _SLOTS_AT + slots * _SLOT.size
        self._memory = mmap.mmap(-1, self._end)
        self._free = deque(range(_SLOTS_AT, self._end, _SLOT.size))

    # -- Written by the child -----------------------------------------------------------------------------------------

    def note_poll(self) -> None:
        """Note a successful fetch, or that the process would have fetched if it had room."""
        _TIME.pack_into(self._memory, _POLLED_AT, time.monotonic())

    def note_turn(self) -> None:
        """Note that a turn of the main loop begins, whether the server is available or not."""
        _TIME.pack_into(self._memory, _TURNED_AT, time.monotonic())

    def enter(self, message_id: str, began_at: float, run_by: float = 0.0) -> int | None:
        """Note when a message began to run, and until when it may, on the monotonic clock; return its slot.

        Without a free slot nothing is noted: a crash will not count for the message, and its time is not limited.
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
        """Note that a message has run: only its outcome is pending, and its time limit does not apply any more."""
        _TIME.pack_into(self._memory, slot, 0.0)

    def leave(self, *slots: int) -> None:
        """Free the slots of messages whose outcome Redis knows, or which will have none.

        Not already when they have run: damage that a task did to its process may show a moment later.
        """
        for slot in slots:
            self._memory[slot + _ID_AT] = 0
        self._free.extend(slots)

    def note_end(self, *, holds_nothing: bool = False) -> None:
        """Note that the process ends by itself. A task can end it with any exit status, but not set this."""
        self._memory[_HAS_ENDED_AT] = _HOLDS_NOTHING if holds_nothing else 1

    def note_interruption(self) -> None:
        """Note when a function was first interrupted in this process, which has to be replaced therefore."""
        if self.interrupted_at is None:
            _TIME.pack_into(self._memory, _INTERRUPTED_AT, time.monotonic())

    def note_use(self, functions: tuple[int, int], coroutines: tuple[int, int]) -> None:
        """Note how many functions and coroutines run, each with the most that can run at a time."""
        _USE.pack_into(self._memory, _USE_AT, *functions, *coroutines)

    # -- Written by the supervisor ------------------------------------------------------------------------------------

    def set_stop_by(self, by: float) -> None:
        """Set until when tasks may run, on the machine's monotonic clock; the process reads it when it gets SIGTERM."""
        _TIME.pack_into(self._memory, _STOP_BY_AT, by)

    def set_paused(self, is_paused: bool) -> None:
        """Set whether the process is paused."""
        self._memory[_IS_PAUSED_AT] = int(is_paused)

    # -- Read by the other side ---------------------------------------------------------------------------------------

    @property
    def stop_by(self) -> float | None:
        """Until when tasks may run; None unless the process was told to stop."""
        return float(_TIME.unpack_from(self._memory, _STOP_BY_AT)[0]) or None

    @property
    def is_paused(self) -> bool:
        """Whether the process is paused."""
        return bool(self._memory[_IS_PAUSED_AT])

    @property
    def last_poll(self) -> float | None:
        """The time of the last successful fetch, on the machine's monotonic clock; None before the first."""
        return float(_TIME.unpack_from(self._memory, _POLLED_AT)[0]) or None

    @property
    def last_turn(self) -> float:
        """The begin of the last turn of the main loop, on the machine's monotonic clock; 0 before the first."""
        return float(_TIME.unpack_from(self._memory, _TURNED_AT)[0])

    @property
    def interrupted_at(self) -> float | None:
        """The first interruption of a function in the process, on the machine's monotonic clock; None without one."""
        return float(_TIME.unpack_from(self._memory, _INTERRUPTED_AT)[0]) or None

    @property
    def holds_nothing(self) -> bool:
        """Whether the process ended by itself, and none of its messages needs recovery."""
        return self._memory[_HAS_ENDED_AT] == _HOLDS_NOTHING

    @property
    def has_ended(self) -> bool:
        """Whether the process ended by itself."""
        return bool(self._memory[_HAS_ENDED_AT])

    @property
    def use(self) -> tuple[tuple[int, int], tuple[int, int]] | None:
        """The last arguments of note_use(); None before the first."""
        busy, most, busy_coroutines, most_coroutines = _USE.unpack_from(self._memory, _USE_AT)
        return ((busy, most), (busy_coroutines, most_coroutines)) if most else None

    def running(self) -> frozenset[str]:
        """Return the ids of the messages that began to run and were not settled at the last write of the process."""
        return frozenset(message_id for message_id, _, _ in self._taken_slots())

    def running_since(self) -> dict[str, float]:
        """Return the ids of the messages that began to run, with the monotonic times."""
        return {message_id: began_at for message_id, _, began_at in self._taken_slots()}

    def overdue(self, now: float) -> frozenset[str]:
        """Return the ids of the messages that exceed their hard time limit."""
        return frozenset(message_id for message_id, run_by, _ in self._taken_slots() if 0 < run_by <= now)

    def next_limit(self) -> float:
        """Return when the next message exceeds its hard time limit; infinite without one."""
        return min((run_by for _, run_by, _ in self._taken_slots() if run_by), default=math.inf)

    def _taken_slots(self) -> Iterator[tuple[str, float, float]]:
        for run_by, began_at, name in _SLOT.iter_unpack(self._memory[_SLOTS_AT : self._end]):
            if name[0]:
                yield name.partition(b"\0")[0].decode("utf-8", "surrogateescape"), run_by, began_at
