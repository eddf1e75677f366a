"""Messages that Redis counts as held by this worker and that never arrived here.

The reply to a fetch was lost; or the fetch is carried out much later, when a cut network is mended. The supervisor
would renew their leases for ever. So the record of what is held is compared with what is known after a lost reply, and
now and then.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from ..core import Client
from .delivery import Delivery, WorkQueue
from .holds import release_unknown

GHOSTS_EVERY_S = 30.0


class Ghosts:
    """What one worker knows of its ghosts on one server."""

    def __init__(self, client: Client, holds_key: str) -> None:
        self._client = client
        self._holds_key = holds_key
        #: A reply to a fetch was lost.
        self.may_be = False
        #: The same, without fetches of which it is certain that nothing was sent.
        self.are_likely = False
        self._look_at = time.monotonic() + GHOSTS_EVERY_S

    def suspect(self, *, are_likely: bool) -> None:
        """Look for them at the next exchange."""
        self.may_be = True
        self.are_likely |= are_likely

    def is_due(self) -> bool:
        """Say whether to look for them now."""
        return self.may_be or time.monotonic() >= self._look_at

    def release(self, queues: Sequence[WorkQueue], held: Iterable[Delivery]) -> None:
        """Give back what is on record and not among what is held."""
        release_unknown(self._client, queues, self._holds_key, {delivery.receipt for delivery in held})
        self.may_be = self.are_likely = False
        self._look_at = time.monotonic() + GHOSTS_EVERY_S
