"""Ends the sockets to a former primary when a sentinel publishes that another server was promoted.

A server whose host has failed closes no socket. Without this, its listeners would wait for the kernel to notice that,
and threads that wait for a reply for their time-out. Used only by workers with Sentinel.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from ...core import Client, RsmqError
from ...core.log_lines import get_logger
from ...core.transport.backoff import ReconnectBackoff
from ...core.transport.connection import Connection
from ...core.transport.listener import Listener
from ...core.transport.sentinel_url import Address

logger = get_logger(__name__)

#: The worker must not wait long for a sentinel.
CONNECT_WITHIN_S = 0.5


class PrimaryWatch:
    """A subscription at one sentinel of a connection; see Wakeup.subscribe()."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection.with_timeout(min(connection.timeout_s, CONNECT_WITHIN_S))
        self._backoff = ReconnectBackoff(f"promotions at the sentinels of {connection!r}")
        self._listener: Listener | None = None
        self._sentinel: Address | None = None

    @property
    def descriptor(self) -> int | None:
        """Return the descriptor to wait for; None when there is none at the moment."""
        return None if self._listener is None else self._listener.fileno()

    def reconnect_if_due(self) -> float | None:
        """Reconnect when it is time; return when to call this again, None while the subscription is open."""
        if self._listener is None and time.monotonic() >= self._backoff.next_try_at:
            try:
                self._listener, self._sentinel = self._connection.switch_listener()
            except RsmqError as error:
                self._backoff.note(error)
        return self._backoff.next_try_at if self._listener is None else None

    def read_and_fetch(self) -> None:
        """Read what the sentinel has published, and leave former primaries."""
        assert self._listener is not None and self._sentinel is not None
        try:
            # The confirmation counts, too: a promotion may have been missed before it.
            if self._listener.drain():
                self._backoff.over()
                closed = self._connection.leave_former_primary(self._sentinel)
                if closed:
                    text = "%r has another primary now; sockets to the former one that were closed: %d"
                    logger.warning(text, self._connection, closed)
        except RsmqError as error:
            self.stop()
            self._backoff.note(error)

    def stop(self) -> None:
        """Close the socket."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None


def watches(clients: Iterable[Client]) -> list[PrimaryWatch]:
    """Return a watch for each connection of these clients that has sentinels."""
    connections = dict.fromkeys(client.connection for client in clients)
    return [PrimaryWatch(connection) for connection in connections if connection.has_sentinels]
