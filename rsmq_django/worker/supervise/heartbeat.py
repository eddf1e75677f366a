"""Sign-off of an orphaned worker: when its tasks have ended, it removes itself from the list of workers.

Until then it sends its own heartbeats with its exchanges, as always (see fetch/steps.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...core import Client, RsmqError
from ...core.log_lines import get_logger
from ..lease.inflight import forget

logger = get_logger(__name__)


def sign_off(clients: Iterable[Client], worker_id: str) -> None:
    """Remove a worker from the list. If that fails, another supervisor removes it after 30 s without a heartbeat."""
    for client in clients:
        try:
            forget(client, worker_id)
        except RsmqError as error:
            logger.warning("worker %s stays in the list until its heartbeat is stale: %s", worker_id, error)
