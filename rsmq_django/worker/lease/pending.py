"""Pending writes for the next exchange with Redis: outcomes, starts to note, and messages without an outcome here.

The threads that run tasks add outcomes; only the main thread takes them out. So there is no lock, and outcomes that an
exchange could not deliver return to this list. Starts are noted in the result records of runs that take some time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Set

from ...core import Client, RsmqError
from ...core.limits import MAX_BATCH
from ...core.transport.backoff import ReconnectBackoff
from ..delivery import Delivery
from ..outcomes import NOTHING_RETURNED, Released, Settlement, Succeeded

#: A worker that is to end by itself waits this long for a damaged queue to accept outcomes.
GIVE_UP_REFUSED_AFTER_S = 10.0
#: An outcome that could not be sent alone is tried again after this time; a long one after twice this time, then after
#: twice as long each time.
FIRST_LATE_WAIT_S = 0.1
LONGEST_LATE_WAIT_S = 30.0
#: Bytes of values in one exchange, unless a single one is longer.
MOST_BYTES = 1_048_576
#: Shorter values fit through any network: if one fails, the server is away, and it is sent when the server is back.
LONG_BYTES = 65_536
#: Shorter runs never show as RUNNING: noting the start would cost more than it is worth.
NOTE_START_AFTER_S = 0.1


class LateSettlements:
    """Outcomes of exchanges that failed. They are tried again apart from everything else.

    An outcome that is too long to be sent within the time limit of an exchange must not delay other outcomes, nor the
    next fetch. So after a failure a single one is tried, a long one at growing intervals; each success doubles how many
    are sent together.
    """

    def __init__(self) -> None:
        self.settlements: deque[Settlement] = deque()
        self.most = 1
        #: Monotonic time of the next try.
        self.next_try_at = 0.0
        self._failures = 0

    def is_time(self) -> bool:
        """Return whether there are outcomes that may be tried now."""
        return bool(self.settlements) and time.monotonic() >= self.next_try_at

    def add(self, settlements: Iterable[Settlement], *, were_late: bool) -> None:
        """Keep outcomes; `were_late` when they were tried apart from everything else."""
        added = [*settlements]
        if not were_late:  # first: the other ones have failed more often
            self.settlements.extendleft(reversed(added))
            self.next_try_at = 0.0
        else:
            self.settlements.extend(added)
            if self.most == 1:
                self._failures += any(_bytes_of(each) > LONG_BYTES for each in added)
                wait_s = min(LONGEST_LATE_WAIT_S, FIRST_LATE_WAIT_S * 2 ** min(self._failures, 10))
                self.next_try_at = time.monotonic() + wait_s
        self.most = 1

    def arrived(self) -> None:
        """Note that the outcomes tried last were delivered."""
        self.most, self._failures = min(2 * self.most, MAX_BATCH), 0


class PendingSettlements:
    """The pending writes of one worker to one server."""

    def __init__(self, client: Client) -> None:
        self.settlements: deque[Settlement] = deque()
        #: Outcomes that a damaged queue refused, to be tried again later; everything else continues.
        self.refused: list[Settlement] = []
        self.damage = ReconnectBackoff(f"outcomes on {client.connection!r}")
        self.late = LateSettlements()
        #: The pending exchange carries late outcomes.
        self.tries_late = False
        self._abandon: deque[Delivery] = deque()
        #: Batches without held messages, to be removed from the in-flight record.
        self.over: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Return whether Redis knows all outcomes."""
        return not self.count and not self.refused

    @property
    def count(self) -> int:
        """Return the number of pending outcomes."""
        return len(self.settlements) + len(self.late.settlements)

    def is_stuck(self, held: int) -> bool:
        """Return whether all held messages have outcomes that a damaged queue has refused for a while."""
        only_refused = bool(self.refused) and not self.count and held == len(self.refused)
        return only_refused and self.damage.lasts_s > GIVE_UP_REFUSED_AFTER_S

    # -- Outcomes -----------------------------------------------------------------------------------------------------

    def take_settlements(self) -> list[Settlement]:
        """Take out as many outcomes as fit into one exchange; only late ones when these may be tried."""
        self.tries_late = self.late.is_time()
        if self.tries_late:
            return _take(self.late.settlements, self.late.most)
        return _take(self.settlements, MAX_BATCH)

    def have_arrived(self) -> None:
        """Note that outcomes were delivered."""
        if self.tries_late:
            self.late.arrived()

    def put_back(self, settlements: Iterable[Settlement]) -> None:
        """Keep outcomes for a later exchange, because the server did not answer."""
        self.late.add(settlements, were_late=self.tries_late)

    def refuse(self, settlements: Iterable[Settlement], error: RsmqError) -> None:
        """Keep outcomes that a damaged queue refused until it may be repaired."""
        self.refused.extend(settlements)
        self.damage.note(error)
        for settlement in self.refused:
            settlement.delivery.release_waiter()  # the repair may take any time, and other messages can run meanwhile

    def offer_refused_again(self, now: float) -> None:
        """Offer refused outcomes to the next exchange if it is time."""
        if self.refused and now >= self.damage.next_try_at:
            self.settlements.extend(self.refused)
            self.refused.clear()

    def settled(self, settlements: Iterable[Settlement]) -> set[Delivery]:
        """Return the messages whose outcomes are pending, including these settlements."""
        return {settlement.execution.delivery for settlement in [*settlements, *self.all_settlements()]}

    def all_settlements(self) -> list[Settlement]:
        """Return all outcomes that Redis does not know."""
        return [*self.settlements, *self.late.settlements, *self.refused]

    # -- Messages without an outcome ----------------------------------------------------------------------------------

    def abandon(self, deliveries: Iterable[Delivery], over: Iterable[str] = ()) -> None:
        """Remove messages and batches from the in-flight record with the next exchange."""
        self._abandon.extend(deliveries)
        self.over.extend(over)

    def take_abandoned(self) -> list[Delivery]:
        """Take out as many abandoned messages as fit into one exchange."""
        return [self._abandon.popleft() for _ in range(min(len(self._abandon), MAX_BATCH))]

    def take_over(self) -> list[str]:
        """Take out the finished batches."""
        over, self.over = self.over, []
        return over


def _take(settlements: deque[Settlement], most: int) -> list[Settlement]:
    taken: list[Settlement] = []
    size = 0
    while settlements and len(taken) < most and size < MOST_BYTES:
        settlement = settlements.popleft()
        taken.append(settlement)
        outcome = settlement.outcome
        if outcome is not NOTHING_RETURNED and type(outcome) is Succeeded:  # all other outcomes are short
            size += len(outcome.value)
    return taken


def _bytes_of(settlement: Settlement) -> int:
    """Return the length of a return value; all other outcomes are short."""
    outcome = settlement.outcome
    return len(outcome.value) if isinstance(outcome, Succeeded) else 0


class StartNotes:
    """The times at which to look for starts to note, on the monotonic clock."""

    def __init__(self) -> None:
        self._check_at = 0.0

    def is_time(self, now: float) -> bool:
        """Return whether to look for starts now."""
        return now >= self._check_at

    def checked(self, now: float) -> None:
        """Note that starts were just looked for."""
        self._check_at = now + NOTE_START_AFTER_S

    def next_check_at(self, now: float) -> float:
        """Return when to look again: there is no event when a message starts, or waits for a thread."""
        return max(self._check_at, now + NOTE_START_AFTER_S / 2)


def starts_to_note(held: Iterable[Delivery], settled: Set[Delivery], *, now_ms: float) -> list[Settlement]:
    """Return the runs whose start is to be noted, as settlements whose outcome is not used."""
    since_ms = now_ms - NOTE_START_AFTER_S * 1000
    unnoted = [each for each in held if each not in settled and _is_unnoted(each, since_ms)]
    settlements = [Settlement(each.execution, Released()) for each in unnoted if each.execution is not None]
    for settlement in settlements:
        settlement.delivery.start_noted = not settlement.result_keys  # without a result there is no record
    return [settlement for settlement in settlements if settlement.result_keys]


def _is_unnoted(delivery: Delivery, since_ms: float) -> bool:
    return not delivery.start_noted and delivery.started_ms is not None and delivery.started_ms <= since_ms
