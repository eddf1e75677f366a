"""Pending exchanges, which were sent and not yet read, and the prepared fetch of an idle worker.

A prepared fetch is put together before the worker falls asleep, and sent as soon as a message is published. Otherwise
an idle worker would do this work between the wake-up and the request, and the task would start later. It is only for a
worker that holds nothing, so that nothing else has to go along; any other fetch is an ordinary step of an exchange.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core import Client
from ...core.transport.prepared_calls import ReadiedCalls
from .steps import FetchStep, Step

if TYPE_CHECKING:
    from ..sources.queues import QueueSource


@dataclass(slots=True)
class PendingExchange:
    """A request that was sent, or is ready to be sent at once and without waiting."""

    client: Client
    steps: Sequence[Step]
    fetch: FetchStep
    _calls: ReadiedCalls = field(init=False)

    def __post_init__(self) -> None:
        self._calls = ReadiedCalls(self.client, [step.call for step in self.steps])

    def begin(self) -> bool:
        """Send the request; return False when there is no open socket, and nothing was sent.

        Raises OutcomeUnknown when it may have been sent or not.
        """
        self.fetch.sent_at = time.monotonic()
        return self._calls.send()

    def results(self) -> list[Any]:
        """Wait for the replies and return what each step reads. Raises as Client.run_many() does."""
        return self._calls.results()


class PreparedFetch:
    """A fetch that is ready to be sent, or none."""

    def __init__(self, source: QueueSource) -> None:
        self._source = source
        self._ready: PendingExchange | None = None
        #: Whether the prepared fetch may be sent: it is not kept current while the worker is busy.
        self._is_current = False

    def get_ready(self, room: int, at_most: int) -> None:
        """Prepare a fetch unless a current one exists."""
        if not self._fits(room, at_most):
            step = FetchStep(self._source, min(room, at_most), at_most)
            self._ready = PendingExchange(self._source.client, [step], step)
        self._is_current = True

    def put_aside(self) -> None:
        """Send nothing until get_ready() is called again."""
        self._is_current = False

    def _fits(self, room: int, at_most: int) -> bool:
        if self._ready is None:
            return False
        step = self._ready.fetch
        is_same = step.look.queues is self._source.selector.queues  # bands appear and disappear, shares change
        return is_same and (step.room, step.at_most) == (min(room, at_most), at_most)

    def send(self) -> PendingExchange | None:
        """Send the prepared fetch and return it; None when there is none, or no open socket.

        Raises OutcomeUnknown when it may have been sent or not.
        """
        if self._ready is None or not self._is_current:
            return None
        pending_exchange, self._ready = self._ready, None
        return pending_exchange if pending_exchange.begin() else None
