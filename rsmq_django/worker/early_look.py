"""The look of a worker at rest: put together before it falls asleep, sent as soon as something is published.

A task that nobody waits for else waits for what the worker does between waking up and asking. Only for a worker that
holds nothing, so that nothing else would have to go along; any other look is an ordinary step of an exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .flight import Flight
from .steps import FetchStep

if TYPE_CHECKING:
    from .fetcher import Fetcher


class EarlyLook:
    """At most one look that is ready."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._ready: Flight | None = None
        #: Whether what is ready may be sent: it is not kept up while the worker has something to do.
        self._is_current = False

    def get_ready(self, room: int, at_most: int) -> None:
        """Put a look together unless that is done already."""
        if not self._fits(room, at_most):
            step = FetchStep(self._fetcher, min(room, at_most), at_most)
            self._ready = Flight(self._fetcher.client, [step], step)
        self._is_current = True

    def put_aside(self) -> None:
        """Send nothing until get_ready() is called again."""
        self._is_current = False

    def _fits(self, room: int, at_most: int) -> bool:
        if self._ready is None:
            return False
        step = self._ready.fetch
        is_same = step.look.queues is self._fetcher.lineup.queues  # bands come and go, shares move
        return is_same and (step.room, step.at_most) == (min(room, at_most), at_most)

    def send(self) -> Flight | None:
        """Send the look that is ready and return it; None when there is none, or no open socket.

        Raises OutcomeUnknown: then nobody knows whether it was sent.
        """
        if self._ready is None or not self._is_current:
            return None
        flight, self._ready = self._ready, None
        return flight if flight.begin() else None
