"""A worker whose supervisor is gone, until its tasks have ended: it says itself that it lives.

Supervisors beat for their workers. One that is silent for half a minute counts as dead, and others free what it holds;
tasks may go on for longer than that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from ..core import Client, RsmqError
from .holds import BEAT_EVERY_S, beat, forget

logger = logging.getLogger(__name__)


class Orphan:
    """Beats for one worker on its connections."""

    def __init__(self, clients: Sequence[Client], worker_id: str) -> None:
        self._clients = clients
        self._worker_id = worker_id
        self.next_beat_at = 0.0

    def beat_if_due(self) -> None:
        """Say that the worker lives, if that was not done a moment ago."""
        if time.monotonic() < self.next_beat_at:
            return
        self.next_beat_at = time.monotonic() + BEAT_EVERY_S
        for client in self._clients:
            try:
                beat(client, [self._worker_id])
            except RsmqError as error:
                logger.warning("cannot say that this worker lives: %s", error)

    def end(self) -> None:
        """Take the worker off the list. Where that fails, somebody does it when it has been silent for long enough."""
        for client in self._clients:
            try:
                forget(client, self._worker_id, with_record=False)
            except RsmqError as error:
                logger.warning("worker %s stays on the list for a while: %s", self._worker_id, error)
