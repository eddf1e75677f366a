"""A worker whose supervisor is gone, until its tasks have ended: it takes itself off the list of workers.

Its heartbeats it sends as always, with its exchanges (see Fetcher).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...core import Client, RsmqError
from ...core.log_lines import get_logger
from ..lease.inflight import forget

logger = get_logger(__name__)


def sign_off(clients: Iterable[Client], worker_id: str) -> None:
    """Take a worker off the list. Where that fails, another supervisor does it after half a minute of silence."""
    for client in clients:
        try:
            forget(client, worker_id)
        except RsmqError as error:
            logger.warning("worker %s stays on the list for a while: %s", worker_id, error)
