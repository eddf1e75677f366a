"""The look of a worker at rest: put together before it falls asleep, sent as soon as something is published.

A task that nobody waits for else waits for what the worker does between waking up and asking. Only for a worker that
holds nothing, so that nothing else would have to go along; any other look is an ordinary step of an exchange.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..core import RsmqError
from ..core.readied import ReadiedCall
from .steps import Fetched, FetchStep

if TYPE_CHECKING:
    from .fetcher import Fetcher


class EarlyLook:
    """At most one look that is ready, and at most one that is under way."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._ready: tuple[FetchStep, ReadiedCall[Fetched]] | None = None
        #: Whether what is ready may be sent: it is not kept up while the worker has something to do.
        self._is_current = False
        self._under_way: tuple[FetchStep, ReadiedCall[Fetched]] | None = None

    @property
    def is_under_way(self) -> bool:
        """Say whether a look was sent of which nobody has read the answer."""
        return self._under_way is not None

    def get_ready(self, room: int, at_most: int) -> None:
        """Put a look together unless that is done already."""
        if not self._fits(room, at_most):
            step = FetchStep(self._fetcher, min(room, at_most), at_most)
            self._ready = step, ReadiedCall(self._fetcher.client, step.call)
        self._is_current = True

    def put_aside(self) -> None:
        """Send nothing until get_ready() is called again."""
        self._is_current = False

    def _fits(self, room: int, at_most: int) -> bool:
        if self._ready is None:
            return False
        step, _ = self._ready
        is_same = step.look.queues is self._fetcher.lineup.queues  # bands come and go, shares move
        return is_same and (step.room, step.at_most) == (min(room, at_most), at_most)

    def send(self) -> bool:
        """Send the look that is ready; False when there is none, or no open socket.

        Raises OutcomeUnknown: then nobody knows whether it was sent.
        """
        if self._ready is None or not self._is_current:
            return False
        (step, call), self._ready = self._ready, None
        step.sent_at = time.monotonic()
        if not call.send():
            return False
        self._under_way = step, call
        return True

    def read(self) -> tuple[FetchStep, Fetched | RsmqError]:
        """Wait for the answer and return it with its look. Raises as Client.run_many() does."""
        assert self._under_way is not None
        (step, call), self._under_way = self._under_way, None
        return step, call.reply()
