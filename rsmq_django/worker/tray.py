"""What waits for the next exchange with Redis: outcomes, and messages of which there will be none here.

Whoever runs executions puts outcomes in, from any thread; only the main thread takes anything out. So nothing is
locked, and what an exchange could not carry out comes back here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from ..core import Client, RsmqError
from ..core.limits import MAX_BATCH
from .delivery import Delivery
from .endings import Ending
from .outage import Outage
from .outcomes import NOTHING_RETURNED, Succeeded

#: A worker that is to end by itself waits so long for a damaged queue to take outcomes.
GIVE_UP_REFUSED_AFTER_S = 10.0


#: An outcome that failed to go out alone is tried again after this time; a long one after twice this time, then after
#: twice as long each time.
FIRST_LATE_WAIT_S = 0.1
LONGEST_LATE_WAIT_S = 30.0
#: Values that go out in one exchange, unless a single one is longer.
MOST_BYTES = 1_048_576
#: No network is too slow for a shorter value: when that fails the server is away, and it goes out when it is back.
LONG_BYTES = 65_536


class LateEndings:
    """Outcomes of exchanges that failed. They are tried again apart from everything else.

    One that cannot go out within the time limit of an exchange, because it is too long for the network, must not delay
    others, nor the next fetch. So after a failure a single one is tried, a long one longer and longer apart; each
    success doubles how many go out together.
    """

    def __init__(self) -> None:
        self.endings: deque[Ending] = deque()
        self.most = 1
        #: Monotonic time before which none is tried.
        self.next_try_at = 0.0
        self._failures = 0

    def is_time(self) -> bool:
        """Return whether there are some that may be tried now."""
        return bool(self.endings) and time.monotonic() >= self.next_try_at

    def add(self, endings: Iterable[Ending], *, were_late: bool) -> None:
        """Keep outcomes; `were_late` when they were tried apart from everything else."""
        added = [*endings]
        if not were_late:  # first: the others have failed more often
            self.endings.extendleft(reversed(added))
            self.next_try_at = 0.0
        else:
            self.endings.extend(added)
            if self.most == 1:
                self._failures += any(_bytes_of(each) > LONG_BYTES for each in added)
                wait_s = min(LONGEST_LATE_WAIT_S, FIRST_LATE_WAIT_S * 2 ** min(self._failures, 10))
                self.next_try_at = time.monotonic() + wait_s
        self.most = 1

    def arrived(self) -> None:
        """Note that the outcomes tried last were carried out."""
        self.most, self._failures = min(2 * self.most, MAX_BATCH), 0


class Tray:
    """What one worker has for one server."""

    def __init__(self, client: Client) -> None:
        self.endings: deque[Ending] = deque()
        #: Outcomes that a damaged queue refused, to be tried again later; everything else goes on.
        self.refused: list[Ending] = []
        self.damage = Outage(f"outcomes on {client.connection!r}")
        self.late = LateEndings()
        #: The exchange under way carries late outcomes.
        self.tries_late = False
        self._let_go: deque[Delivery] = deque()
        #: Batches of which nothing is held any more, to be struck off the record.
        self.over: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Say whether Redis knows all outcomes."""
        return not self.count and not self.refused

    @property
    def count(self) -> int:
        """Return how many outcomes wait for an exchange."""
        return len(self.endings) + len(self.late.endings)

    def is_stuck(self, held: int) -> bool:
        """Say whether the messages held are those whose outcomes a damaged queue has refused for a while."""
        only_refused = bool(self.refused) and not self.count and held == len(self.refused)
        return only_refused and self.damage.lasts_s > GIVE_UP_REFUSED_AFTER_S

    # -- Outcomes -----------------------------------------------------------------------------------------------------

    def take_endings(self) -> list[Ending]:
        """Take out as many outcomes as one exchange carries; only late ones when these may be tried."""
        self.tries_late = self.late.is_time()
        if self.tries_late:
            return _take(self.late.endings, self.late.most)
        return _take(self.endings, MAX_BATCH)

    def have_arrived(self) -> None:
        """Note that outcomes were carried out."""
        if self.tries_late:
            self.late.arrived()

    def put_back(self, endings: Iterable[Ending]) -> None:
        """Keep outcomes for a later exchange, because the server did not answer."""
        self.late.add(endings, were_late=self.tries_late)

    def refuse(self, endings: Iterable[Ending], error: RsmqError) -> None:
        """Keep outcomes that a damaged queue refused until it may be mended."""
        self.refused.extend(endings)
        self.damage.note(error)
        for ending in self.refused:
            ending.delivery.tell_outcome()  # nobody knows when the queue is mended, and there are others

    def offer_refused_again(self, now: float) -> None:
        """Let the next exchange carry what was refused, if it is time to try that."""
        if self.refused and now >= self.damage.next_try_at:
            self.endings.extend(self.refused)
            self.refused.clear()

    def settled(self, endings: Iterable[Ending]) -> set[Delivery]:
        """Return the messages whose outcomes wait here, and those of these."""
        return {ending.execution.delivery for ending in [*endings, *self.all_endings()]}

    def all_endings(self) -> list[Ending]:
        """Return all outcomes that Redis does not know."""
        return [*self.endings, *self.late.endings, *self.refused]

    # -- Messages without an outcome ----------------------------------------------------------------------------------

    def let_go(self, deliveries: Iterable[Delivery], over: Iterable[str] = ()) -> None:
        """Strike messages and batches off the record of what is held with the next exchange."""
        self._let_go.extend(deliveries)
        self.over.extend(over)

    def take_let_go(self) -> list[Delivery]:
        """Take out as many of the messages as one exchange carries."""
        return [self._let_go.popleft() for _ in range(min(len(self._let_go), MAX_BATCH))]

    def take_over(self) -> list[str]:
        """Take out the batches."""
        over, self.over = self.over, []
        return over


def _take(endings: deque[Ending], most: int) -> list[Ending]:
    taken: list[Ending] = []
    size = 0
    while endings and len(taken) < most and size < MOST_BYTES:
        ending = endings.popleft()
        taken.append(ending)
        if ending.outcome is not NOTHING_RETURNED:
            size += _bytes_of(ending)
    return taken


def _bytes_of(ending: Ending) -> int:
    """Return the length of what a function returned; the words of all other outcomes are few."""
    outcome = ending.outcome
    return len(outcome.value) if isinstance(outcome, Succeeded) else 0
