"""Confirmation of outcomes: an exchange that settles them also waits until replicas or disks have them.

Only for queues whose DURABILITY says so with ACKNOWLEDGE. The wait is the last step of the exchange, so its writes are
all covered. Outcomes that are not confirmed are stored nevertheless: a failover may lose them, and then their tasks run
again. A server whose replicas are gone must not stop the work: after a failed wait there is none for a while.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...core import Client, RsmqError
from ...core.log_lines import get_logger
from ...core.transport.call import Call
from ...core.transport.durability import Durability, why_not_confirmed
from ..outcomes import Settlement
from .steps import SettleStep

logger = get_logger(__name__)

#: After a failed wait, exchanges do not wait for this time.
PAUSE_S = 5.0
LOG_EVERY_S = 60.0


class OutcomeConfirmation:
    """The waits of one worker for one server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        #: Monotonic time of the next wait.
        self._wait_at = 0.0
        self._log_at = 0.0
        self._failed = False

    def steps(self, settlements: Sequence[Settlement], sent_by: Sequence[SettleStep]) -> list[ConfirmStep]:
        """Return the steps that wait for these outcomes, which other steps of the exchange send."""
        wanted: dict[Durability, None] = {}
        for settlement in settlements:
            asked = settlement.delivery.work_queue.settings.durability
            if asked is not None and asked.acknowledge:
                wanted[asked.durability] = None
        if not wanted or time.monotonic() < self._wait_at:
            return []
        return [ConfirmStep(self, wait, sent_by) for durability in wanted for wait in durability.waits()]

    def note(self, answer: str | RsmqError) -> None:
        """Note the result of a wait."""
        missing, now = why_not_confirmed([answer]), time.monotonic()
        if not missing:
            if self._failed:
                logger.info("%r: outcomes of tasks are confirmed again", self._client.connection)
            self._failed, self._log_at = False, 0.0
            return
        self._failed, self._wait_at = True, now + PAUSE_S
        if now >= self._log_at:
            self._log_at = now + LOG_EVERY_S
            logger.warning(
                "%r: outcomes of tasks are stored, but not confirmed: %s. A failover may lose them, then their tasks "
                "run again. Waiting for a confirmation every %.0f s",
                self._client.connection,
                missing,
                PAUSE_S,
            )


@dataclass(slots=True)
class ConfirmStep:
    """Waits until replicas or disks have the writes of the exchange."""

    confirmation: OutcomeConfirmation
    call: Call[Any]
    sent_by: Sequence[SettleStep]

    def done(self, answer: str) -> None:
        """Note whether they are confirmed."""
        self._note(answer)

    def failed(self, error: RsmqError) -> None:
        """Note why the server refused to wait."""
        self._note(error)

    def _note(self, answer: str | RsmqError) -> None:
        # Otherwise the server has stored none of them, or did not answer: they are sent, and waited for, again.
        if any(step.is_done for step in self.sent_by):
            self.confirmation.note(answer)
