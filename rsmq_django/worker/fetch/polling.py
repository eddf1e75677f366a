"""When to fetch on one connection: at due times and wake-ups, and by polling for senders that do not publish.

The idle processes of a supervisor take turns at fetching published messages, so that one message wakes one process.
"""

from __future__ import annotations

import math
import mmap
import struct
import time

#: Wait after a fetch that found nothing although a message seemed due (another client is between two steps of a send).
NOTHING_FOUND_S = 0.05
#: Not every sender publishes. While messages of such a sender keep coming, polls follow each other this quickly ...
QUICKEST_POLL_S = 0.008
#: ... and slow down as time passes without one: the wait grows by a tenth of that time.
SILENCE_PER_POLL = 10


class PollSchedule:
    """Computes the time of the next fetch. `note_publish()` may be called by any thread."""

    def __init__(
        self,
        *,
        poll_interval_s: float,
        idle_turns: IdleTurn | None,
        connection_number: int,
        polls_from: float | None = None,
    ) -> None:
        self._poll_interval_s = poll_interval_s
        #: Idle polls are this time plus a multiple of the interval, so those of several connections fall into one turn;
        #: None for a connection on its own.
        self._polls_from = polls_from
        #: The turns of the processes of the same supervisor, which receive the same wake-ups.
        self._idle_turns = idle_turns
        self._connection_number = connection_number
        #: When a message was last published, and when to fetch it after other processes had their turn (monotonic).
        self._published_at = 0.0
        self._my_turn_at = math.inf
        self._fetch_at = 0.0
        #: The time of an idle poll, if that is the reason for the next fetch.
        self._idle_poll_at = math.inf
        #: A message was published and has not been fetched for yet.
        self.has_wakeup = False
        #: The next fetch is only a poll for senders that do not publish.
        self._next_is_poll = False
        #: When a poll last found something.
        self._poll_found_at = -math.inf

    def note_publish(self) -> bool:
        """Plan a fetch for a wake-up: now, or after the turns of other processes. Returns whether it was news."""
        turn_s = self.turn_s
        if turn_s == 0.0:
            self.has_wakeup = True
            return True
        self._published_at = time.monotonic()
        if self._my_turn_at < math.inf:
            return False
        self._my_turn_at = self._published_at + turn_s
        return True

    @property
    def turn_s(self) -> float:
        """Return how long to leave a published message to other processes."""
        return 0.0 if self._idle_turns is None else self._idle_turns.turn_s()

    def take_turn(self) -> None:
        """Fetch now, unless a fetch of another process since the wake-up left nothing ready."""
        if time.monotonic() >= self._my_turn_at:
            self._my_turn_at = math.inf
            assert self._idle_turns is not None
            if not self._idle_turns.is_drained_since(self._connection_number, self._published_at):
                self.has_wakeup = True

    def note_drained(self, began_at: float) -> None:
        """Note for the other processes that a fetch which began at this time left nothing ready."""
        if self._idle_turns is not None:
            self._idle_turns.note_drained(self._connection_number, began_at)

    def is_time(self) -> bool:
        """Return whether to fetch now."""
        return self.has_wakeup or time.monotonic() >= self._fetch_at

    def times(self) -> tuple[float, ...]:
        """Return the times at which there will be a reason to fetch, on the monotonic clock."""
        return 0.0 if self.has_wakeup else self._fetch_at, self._my_turn_at

    def is_idle_poll(self, now: float) -> bool:
        """Return whether a fetch is due, and only because none has been for the poll interval."""
        return self._idle_poll_at == self._fetch_at <= now and not self.has_wakeup and self._my_turn_at == math.inf

    def begin_scan(self) -> None:
        """Note the begin of a poll that does not fetch; plan_next() or fetch_soon() follows."""
        self.begin()
        self._fetch_at = math.inf

    def begin(self) -> None:
        """Note the begin of a fetch. Called before it, not after: a publish that arrives meanwhile must not be lost."""
        self._next_is_poll &= not self.has_wakeup
        self.has_wakeup = False

    def fetch_soon(self) -> None:
        """Fetch again as soon as possible; the reason for the last fetch remains."""
        self._fetch_at = 0.0

    def fetch_within(self, seconds: float) -> None:
        """Fetch within this time: a message becomes visible then."""
        fetch_at = time.monotonic() + seconds
        if fetch_at < self._fetch_at:
            self._fetch_at, self._next_is_poll = fetch_at, False

    def plan_next(self, *, found: int, next_s: float, is_partial: bool, may_be_more: bool) -> None:
        """Plan the next fetch after one with `found` messages; the next message is due in `next_s`, unless negative.

        `is_partial` means that it did not include all queues, `may_be_more` that it did not return everything.
        """
        now = time.monotonic()
        if found and self._next_is_poll:
            self._poll_found_at = now
        poll_s = self._poll_s(now)
        if may_be_more:
            wait_s = 0.0
        elif is_partial:
            wait_s = 0.0 if found else NOTHING_FOUND_S  # a scan of all queues comes next
        elif next_s < 0:
            wait_s = poll_s
        else:
            wait_s = min(max(next_s, NOTHING_FOUND_S if found == 0 else 0.0), poll_s)
        self._fetch_at, self._next_is_poll = now + wait_s, wait_s == poll_s
        if self._polls_from is not None and wait_s == self._poll_interval_s:
            self._fetch_at -= (self._fetch_at - self._polls_from) % wait_s
            self._idle_poll_at = self._fetch_at

    def _poll_s(self, now: float) -> float:
        """Return the wait until the next poll for senders that do not publish."""
        wait_s = max(QUICKEST_POLL_S, (now - self._poll_found_at) / SILENCE_PER_POLL)
        return min(wait_s, self._poll_interval_s)


# -- Turns of idle processes ------------------------------------------------------------------------------------------

#: How long the next idle process waits for the one before it. A fetch takes a tenth of this on an idle machine.
TURN_S = 0.01
#: The longest wait: of many messages sent at once, all processes soon take a part.
LONGEST_WAIT_S = 0.1
#: A process whose main thread has not written for this time is ignored: a task may hold the interpreter.
FRESH_S = 10.0

#: Since when the process is idle (0: it is not), on the machine's monotonic clock; then the same of its latest fetch
#: that left nothing ready, for each connection.
_TIME = struct.Struct("d")
MAX_CONNECTIONS = 127
_SLOT_BYTES = _TIME.size * (1 + MAX_CONNECTIONS)


class IdleTurns:
    """The turns of one supervisor's idle processes. Created before they are forked.

    Every process receives each wake-up, because any of them may be the only one with room. Without turns, each would
    ask Redis for the same message. The first idle one asks at once; the next one a little later, and so on, unless
    another process has asked since and found that nothing more was ready. A waiting process fetches by itself when its
    turn comes, so a process that dies or hangs costs its successors a moment, and no message is lost.

    Turns exist only among the processes of one supervisor. Supervisors share no memory: of each, one idle process asks.

    The memory is shared, one page for all processes; each field has one writer, and a stale one only costs a fetch or
    a moment.
    """

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
