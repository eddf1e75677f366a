"""When to look for messages on one connection: at what is due or published, and for senders who do not tell."""

from __future__ import annotations

import math
import time

from .idle_turns import IdleTurn

#: After a look that found nothing although a message seemed due (another client is between two steps of sending it).
NOTHING_FOUND_S = 0.05
#: Not every sender publishes. While messages of such a one keep coming, polls follow each other as quickly as this ...
QUICKEST_POLL_S = 0.008
#: ... and slow down the longer none has come: the wait grows by a tenth of the silence.
SILENCE_PER_POLL = 10


class PollSchedule:
    """Knows the time of the next look. `heard()` may be called by any thread."""

    def __init__(self, *, poll_interval_s: float, idle_turns: IdleTurn | None, connection_number: int) -> None:
        self._poll_interval_s = poll_interval_s
        #: The other processes of the same supervisor, which hear of the same messages.
        self._idle_turns = idle_turns
        self._connection_number = connection_number
        #: When something was last published, and when to look for it after others had their turn (monotonic clock).
        self._heard_at = 0.0
        self._my_turn_at = math.inf
        self._look_at = 0.0
        #: Somebody sent a message that was not looked for yet.
        self.was_told = False
        #: The next look has no reason but that there are senders who do not tell.
        self._next_is_poll = False
        #: When a poll last found something.
        self._poll_found_at = -math.inf

    def heard(self) -> bool:
        """Look for what was published: at once, or when others have had their turn. Says whether that is news."""
        turn_s = self.turn_s
        if turn_s == 0.0:
            self.was_told = True
            return True
        self._heard_at = time.monotonic()
        if self._my_turn_at < math.inf:
            return False
        self._my_turn_at = self._heard_at + turn_s
        return True

    @property
    def turn_s(self) -> float:
        """How long to leave what is published to others."""
        return 0.0 if self._idle_turns is None else self._idle_turns.turn_s()

    def take_turn(self) -> None:
        """Look, unless somebody has looked since something was published and left nothing."""
        if time.monotonic() >= self._my_turn_at:
            self._my_turn_at = math.inf
            assert self._idle_turns is not None
            if not self._idle_turns.is_drained_since(self._connection_number, self._heard_at):
                self.was_told = True

    def note_drained(self, began_at: float) -> None:
        """Note for the others that a look which began then left nothing ready."""
        if self._idle_turns is not None:
            self._idle_turns.note_drained(self._connection_number, began_at)

    def is_time(self) -> bool:
        """Say whether to look now."""
        return self.was_told or time.monotonic() >= self._look_at

    def times(self) -> tuple[float, ...]:
        """Return when there will be a reason to look, on the monotonic clock."""
        return 0.0 if self.was_told else self._look_at, self._my_turn_at

    def begin(self) -> None:
        """Take over that a look begins. Before the call, not after: who sends while it runs must not be forgotten."""
        self._next_is_poll &= not self.was_told
        self.was_told = False

    def look_soon(self) -> None:
        """Look again as soon as possible; what the last look was for has not changed."""
        self._look_at = 0.0

    def look_within(self, seconds: float) -> None:
        """Look in so many seconds at the latest: a message becomes visible then."""
        look_at = time.monotonic() + seconds
        if look_at < self._look_at:
            self._look_at, self._next_is_poll = look_at, False

    def looked(self, *, found: int, next_s: float, is_partial: bool, may_be_more: bool) -> None:
        """Choose the next time: a look found so much, and the next message is due in so many seconds, if not negative.

        `is_partial` says that it was not for all queues, `may_be_more` that it did not bring everything.
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
        self._look_at, self._next_is_poll = now + wait_s, wait_s == poll_s

    def _poll_s(self, now: float) -> float:
        """Return how long to wait for senders who do not tell."""
        wait_s = max(QUICKEST_POLL_S, (now - self._poll_found_at) / SILENCE_PER_POLL)
        return min(wait_s, self._poll_interval_s)
