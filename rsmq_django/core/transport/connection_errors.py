"""The errors of connections that cannot be opened, break off, or lead to a server that refuses everything."""

from __future__ import annotations

from collections.abc import Sequence

import redis

from ..errors import ConnectionFailed, DatabaseNotFound, OutcomeUnknown, PermissionDenied, RedisFailure, ServerRefused
from .factories import USER_ALONE, database_of, masked
from .handshake import CredentialsFailed
from .packing import Reply
from .tls import tls_remedy


def not_connected(url: str, error: Exception) -> RedisFailure:
    """Return the error for a socket that could not be opened: nothing was sent."""
    where = masked(url)
    if isinstance(error.__cause__, redis.RedisError):  # the async client wraps the server's error
        error = error.__cause__
    if isinstance(error, CredentialsFailed):
        return ConnectionFailed(f"cannot connect to {where}: {error}; nothing was sent")
    if isinstance(error, (redis.AuthenticationError, redis.exceptions.NoPermissionError)):
        hint = "; a password without a user is written redis://:password@host" if USER_ALONE.search(url) else ""
        return PermissionDenied(
            f"{where} refused the user or password ({error}); correct them in the URL, or in the credential provider"
            f"{hint}"
        )
    if isinstance(error, redis.BusyLoadingError):
        return ServerRefused(f"{where} is still loading its data; try again in a moment")
    if "max number of clients" in str(error):
        return ServerRefused(
            f"{where} has reached its maximum number of clients; raise maxclients, or close some of them"
        )
    if "DB index" in str(error) or "Invalid Database" in str(error):
        return DatabaseNotFound(f"{where} has no database {database_of(url)} ({error}); correct the number in the URL")
    if isinstance(error, redis.ResponseError):
        return ServerRefused(f"{where} refused the connection: {error}")
    why = str(error) or type(error).__name__  # our own timeouts have no text
    remedy = tls_remedy(url, error)
    return ConnectionFailed(
        f"cannot connect to {where} ({why}); nothing was sent. {remedy or 'Is the server running there?'}"
    )


def refused(url: str, error: Exception, replies: Sequence[Reply], count: int) -> list[Reply]:
    """Return the error for each command. Raises OutcomeUnknown when the server had replied to some commands before."""
    if replies:
        raise connection_lost(url, error) from error
    return [error] * count


def connection_lost(url: str, error: Exception) -> OutcomeUnknown:
    """Return the error for an exchange that broke off."""
    why = str(error) or type(error).__name__
    return OutcomeUnknown(f"{masked(url)} did not answer ({why}); the command may have been carried out or not")
