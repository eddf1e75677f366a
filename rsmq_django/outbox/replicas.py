"""Calls that count as carried out only when a replica has their writes, if there are replicas.

A primary that was suspended may answer and learn a moment later that another server has taken over: the writes that it
confirmed are lost. `WAIT 1` detects this.
"""

from __future__ import annotations

import time
from typing import TypeVar

import redis

from ..core import Client
from ..core.errors import RedisFailure
from ..core.log_lines import get_logger
from ..core.transport.call import Call
from ..core.transport.client import as_our_error, by_digest

logger = get_logger(__name__)
T = TypeVar("T")

#: How often to ask a server without replicas whether it has one.
PROBE_EVERY_S = 5.0
#: The longest wait for a replica.
WAIT_MS = 1000
#: After this time without a replica, a server counts as a server without replicas.
WITHOUT_REPLICA_S = 60.0
#: A call is sent again when its script had to be loaded, or another node of a cluster has its keys.
TRIES = 3
_WAIT = Call("WAIT", (), (1, 1), int, repeatable=True)


class NotReplicated(RedisFailure):
    """The server has carried out a call, and none of its replicas has confirmed the write."""


class Replicas:
    """The replicas of a client's server, and whether a replica has the latest writes."""

    def __init__(self) -> None:
        #: Monotonic time at which a replica was last connected; None when the server has none.
        self._seen_at: float | None = None
        self._probe_at = 0.0
        self._may_not_wait = False

    def run(self, client: Client, call: Call[T]) -> T:
        """Carry out a call that writes. Raises NotReplicated when it may be lost with the server.

        The call must be repeatable, and what it writes the second time too: WAIT is about the writes of its socket.
        """
        if not self._expects_one(client):
            return client.run(call)
        first: T | None = None
        for _ in range(TRIES):
            wait = ("WAIT", 1, min(WAIT_MS, round(client.connection.timeout_s * 800)))
            reply, count = client.connection.exchange_with_one_node([by_digest(call), wait])
            if isinstance(reply, redis.RedisError):  # not carried out: the client finds out what to do
                result = client.run(call)
                first = result if first is None else first
                continue
            self._check(client, count)
            return call.read(reply) if first is None else first
        raise NotReplicated(f"{client.connection!r} has changed its mind {TRIES} times about who carries out a call")

    def _expects_one(self, client: Client) -> bool:
        now = time.monotonic()
        if self._may_not_wait:
            return False
        if self._seen_at is not None and now - self._seen_at < WITHOUT_REPLICA_S:
            return True
        if now >= self._probe_at:
            has_one = self._has_one(client)
            self._probe_at = now + PROBE_EVERY_S  # only now: without an answer nothing is known
            if has_one:
                self._seen_at = now
                return True
        if self._seen_at is not None:
            logger.warning("%r has had no replica for a minute; going on without", client.connection)
            self._seen_at = None
        return False

    def _has_one(self, client: Client) -> bool:
        """Return whether the server has a replica, or at the first look, had one in the last hour.

        A primary that was suspended has lost its replica when another one has taken over, and may not know that yet.
        """
        # On a socket that has written nothing, any replica that is connected counts, and WAIT does not wait for it.
        connection = client.connection.with_timeout(client.connection.timeout_s)
        try:
            count, replication = connection.exchange([("WAIT", 1, 1), ("INFO", "replication")])
        finally:
            connection.close()
        if isinstance(count, redis.RedisError):
            if _is_passing(count):
                raise as_our_error(_WAIT, count)
            self._may_not_wait = True
            logger.warning(
                "%r: %s. Rows of the outbox are noted as sent without asking replicas; its user needs +wait",
                client.connection,
                str(count).rstrip("."),
            )
            return False
        return int(count) > 0 or (not self._probe_at and self._had_one(client, replication))

    def _had_one(self, client: Client, replication: object) -> bool:
        if isinstance(replication, redis.RedisError):
            logger.warning(
                "%r: %s. Whether it has just lost its replica is unknown; its user needs +info",
                client.connection,
                str(replication).rstrip("."),
            )
        # The server drops its backlog for replicas an hour after the last one has gone (repl-backlog-ttl).
        return isinstance(replication, bytes) and b"repl_backlog_active:1" in replication

    def _check(self, client: Client, count: object) -> None:
        if isinstance(count, redis.RedisError):
            raise NotReplicated(f"{client.connection!r} has stopped waiting for its replicas ({count})") from count
        if count == 0:
            raise NotReplicated(f"no replica of {client.connection!r} has confirmed the write in time")
        self._seen_at = time.monotonic()


def _is_passing(refusal: redis.RedisError) -> bool:
    """Return whether a server may wait a moment later: it is loading its data, or is a replica at the moment."""
    return isinstance(refusal, redis.BusyLoadingError) or "replica" in str(refusal)
