"""What waits for the next exchange with Redis: outcomes, and messages of which there will be none here.

Whoever runs executions puts outcomes in, from any thread; only the main thread takes anything out. So nothing is
locked, and what an exchange could not carry out comes back here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ..core import Client, RsmqError
from ..core.limits import MAX_BATCH
from .delivery import Delivery
from .endings import Ending
from .outage import Outage

#: A worker that is to end by itself waits so long for a damaged queue to take outcomes.
GIVE_UP_REFUSED_AFTER_S = 10.0


class Tray:
    """What one worker has for one server."""

    def __init__(self, client: Client) -> None:
        self.endings: deque[Ending] = deque()
        #: Outcomes that a damaged queue refused, to be tried again later; everything else goes on.
        self.refused: list[Ending] = []
        self.damage = Outage(f"outcomes on {client.connection!r}")
        self._let_go: deque[Delivery] = deque()
        #: Batches of which nothing is held any more, to be struck off the record.
        self.over: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Say whether Redis knows all outcomes."""
        return not self.endings and not self.refused

    def is_stuck(self, held: int) -> bool:
        """Say whether the messages held are those whose outcomes a damaged queue has refused for a while."""
        only_refused = bool(self.refused) and not self.endings and held == len(self.refused)
        return only_refused and self.damage.lasts_s > GIVE_UP_REFUSED_AFTER_S

    # -- Outcomes -----------------------------------------------------------------------------------------------------

    def take_endings(self) -> list[Ending]:
        """Take out as many outcomes as one exchange carries."""
        return [self.endings.popleft() for _ in range(min(len(self.endings), MAX_BATCH))]

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
        return {ending.execution.delivery for ending in [*endings, *self.endings, *self.refused]}

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
