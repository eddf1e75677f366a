"""An exchange that is under way: it was sent, and nobody has read the replies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core import Client
from ..core.readied import ReadiedCalls
from .steps import FetchStep, Step


@dataclass(slots=True)
class Flight:
    """What was sent, or is ready to be sent, at once and without waiting."""

    client: Client
    steps: Sequence[Step]
    fetch: FetchStep
    _calls: ReadiedCalls = field(init=False)

    def __post_init__(self) -> None:
        self._calls = ReadiedCalls(self.client, [step.call for step in self.steps])

    def begin(self) -> bool:
        """Send it; False when there is no open socket, and nothing was sent.

        Raises OutcomeUnknown: then nobody knows whether it was sent.
        """
        self.fetch.sent_at = time.monotonic()
        return self._calls.send()

    def results(self) -> list[Any]:
        """Wait for the replies and return what each step reads. Raises as Client.run_many() does."""
        return self._calls.results()
