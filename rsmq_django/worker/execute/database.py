"""Database connections in a worker: never used stale, never held open without need."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections
from django.db.backends.signals import connection_created
from django.dispatch import receiver

#: A connection that was looked at so recently cannot have been idle for long.
_FRESH_S = 1.0


class _Looks(threading.local):
    #: Whether this thread ever connected to a database. Asking Django costs more than a short task.
    has_connected = False
    #: When its connections were last looked at, on the monotonic clock.
    looked_at = 0.0
    #: They belong to whoever runs tasks in this thread.
    are_kept = False


_here = _Looks()

#: Async tasks share one database thread; looking at it after each of them would cost more than the task.
_ASYNC_INTERVAL_S = 1.0
_last_async_look = 0.0


def close_stale_connections() -> None:
    """Before a task: close this thread's connections that may have broken while it waited for work."""
    if _here.has_connected and time.monotonic() - _here.looked_at > _FRESH_S:
        close_unusable_connections()


def close_unusable_connections() -> None:
    """Close this thread's connections that are broken or older than CONN_MAX_AGE, as Django does around a request."""
    if _here.has_connected and not _here.are_kept:
        _here.looked_at = time.monotonic()
        close_old_connections()


def drop_connections() -> None:
    """Throw this thread's connections away after an interruption, in any state.

    It may have come at any step of Django's: an atomic block may be left open, or its connection be closed for good.
    """
    if not _here.has_connected or _here.are_kept:
        return
    for connection in connections.all(initialized_only=True):
        with suppress(Exception):
            connection.close()
        with suppress(Exception):  # Django leaves that of an SQLite database in memory open
            connection.connection.close()
        with suppress(Exception):
            del connections[connection.alias]


@contextmanager
def connections_kept() -> Iterator[None]:
    """Leave this thread's connections alone: they belong to whoever runs tasks in it, a test for example."""
    _here.are_kept = True
    try:
        yield
    finally:
        _here.are_kept = False


def is_look_due(now: float) -> bool:
    """Say whether it is time for close_unusable_connections_async(), on the monotonic clock."""
    return now - _last_async_look >= _ASYNC_INTERVAL_S


async def close_unusable_connections_async() -> None:
    """See close_unusable_connections(); on the thread that async code uses for the database."""
    global _last_async_look
    _last_async_look = time.monotonic()
    await sync_to_async(close_unusable_connections)()


@receiver(connection_created)
def _note_connection(**_: object) -> None:
    _here.has_connected = True
