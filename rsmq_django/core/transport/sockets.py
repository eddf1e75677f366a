"""A socket of redis-py: writes requests, reads replies, and tells whether it can be used any more.

What redis-py's socket does not know is noted on it: `wire`, the way past redis-py, and `is_elsewhere`.
"""

from __future__ import annotations

import math
import select
from typing import Any

import redis
from redis.exceptions import MasterDownError, MovedError, ReadOnlyError

from .packing import Reply

#: After an invalid reply the server is not a Redis, or the stream is out of step: the socket cannot be used any more.
LOST = (redis.ConnectionError, redis.TimeoutError, redis.exceptions.InvalidResponse, OSError)
#: Replies of a replica: the command was not carried out.
DEMOTED = (ReadOnlyError, MasterDownError)
#: Replies of a server that does not have the keys, or does not have them any more.
_ELSEWHERE = (MovedError, *DEMOTED)
#: Refusals of all commands, which redis-py treats as lost connections; nothing of the exchange was carried out.
REFUSED_ALL = (redis.BusyLoadingError, redis.AuthenticationError, redis.exceptions.AuthorizationError)


def new_socket(factory: Any) -> Any:
    """Return a socket that is not connected yet."""
    link = factory.make_connection()
    #: Whether a reply said that another server has the keys. A check of each reply would be slower.
    link.is_elsewhere = False
    #: The way past redis-py, while the socket is connected and has one.
    link.wire = None
    return link


def write(link: Any, request: bytes) -> None:
    """Send packed commands."""
    if link.wire is not None:
        link.wire.write(request)
    else:
        link.send_packed_command([request], check_health=False)


def read(link: Any) -> Reply:
    """Return the next reply; an error of the server is returned, unless the server refuses everything."""
    if link.wire is not None:
        reply = link.wire.read()
        return _error_read(link, reply) if isinstance(reply, redis.RedisError) else reply
    try:
        return link.read_response()
    except redis.ResponseError as error:
        return _noted(link, error)


def _error_read(link: Any, error: redis.RedisError) -> redis.ResponseError:
    """Return an error reply, or raise it as redis-py does: a server that is loading refuses everything."""
    if isinstance(error, redis.ResponseError):
        return _noted(link, error)
    raise error


async def aread(link: Any) -> Reply:
    """See read()."""
    try:
        return await link.read_response()
    except redis.ResponseError as error:
        return _noted(link, error)


def _noted(link: Any, error: redis.ResponseError) -> redis.ResponseError:
    if "-READONLY " in str(error):  # Redis 6.2 wraps an error in a script into a text
        error = ReadOnlyError(str(error))
    link.is_elsewhere = link.is_elsewhere or isinstance(error, _ELSEWHERE) or lacks_replicas(error)
    return error


def lacks_replicas(reply: Reply) -> bool:
    """Return whether a server refused a write because it has too few replicas (min-replicas-to-write)."""
    return isinstance(reply, redis.ResponseError) and "NOREPLICAS " in str(reply)


def is_stale(link: Any) -> bool:
    """Return whether the server closed a socket, or the socket has an unexpected reply."""
    if link.wire is not None:
        return bool(link.wire.is_readable())
    try:
        # redis-py changes the socket's timeout twice for this; TLS may have bytes that the socket does not show.
        return bool(link.can_read()) if isinstance(link, redis.SSLConnection) else _is_readable(link._sock)
    except (redis.RedisError, OSError, ValueError):  # ValueError: it is closed
        return True


def is_answered(link: Any, *, within_s: float) -> bool:
    """Return whether a socket of ask() gets a reply, or is closed, within `within_s` seconds."""
    if isinstance(link, redis.SSLConnection):
        return bool(link.can_read(within_s))
    return _is_readable(link._sock, within_s=within_s)


def _is_readable(sock: Any, *, within_s: float = 0.0) -> bool:
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(math.ceil(within_s * 1000)))


async def ais_stale(link: Any) -> bool:
    """See is_stale()."""
    writer = getattr(link, "_writer", None)
    if writer is not None:
        # After a reset, or an end that the event loop has not read yet: the check below finds neither.
        if writer.is_closing() or _is_readable(writer.get_extra_info("socket")):
            return True
    look = getattr(link, "can_read", None) or link.can_read_destructive  # redis-py before 8
    try:
        return bool(await look())
    except (redis.RedisError, OSError):
        return True
