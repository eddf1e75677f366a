"""Database connections in a worker: never used when stale, never kept open without need."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections
from django.db.backends.signals import connection_created
from django.dispatch import receiver

#: A connection that was checked within this time cannot have been idle for long.
_FRESH_S = 1.0


class _Looks(threading.local):
    #: Whether this thread ever connected to a database. Asking Django costs more than a short task.
    has_connected = False
    #: When its connections were last checked, on the monotonic clock.
    looked_at = 0.0
    #: The connections belong to the code that runs tasks in this thread (a test), so they are not closed.
    are_kept = False


_here = _Looks()

#: Async tasks share one database thread; checking it after each of them would cost more than the task.
_ASYNC_INTERVAL_S = 1.0
_last_async_look = 0.0


def close_stale_connections() -> None:
    """Close this thread's connections that may have broken while it was idle. Called before a task."""
    if _here.has_connected and time.monotonic() - _here.looked_at > _FRESH_S:
        close_unusable_connections()


def close_unusable_connections() -> None:
    """Close this thread's connections that are broken or older than CONN_MAX_AGE, as Django does around a request."""
    if _here.has_connected and not _here.are_kept:
        _here.looked_at = time.monotonic()
        close_old_connections()


def drop_connections() -> None:
    """Discard this thread's connections after an interruption, in any state.

    The interruption may have come at any step of Django's: an atomic block may be left open, or its connection be
    closed permanently.
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
    """Keep this thread's connections open: they belong to the code that runs tasks in it, for example a test."""
    _here.are_kept = True
    try:
        yield
    finally:
        _here.are_kept = False


def is_look_due(now: float) -> bool:
    """Return whether close_unusable_connections_async() is due; `now` is on the monotonic clock."""
    return now - _last_async_look >= _ASYNC_INTERVAL_S


async def close_unusable_connections_async() -> None:
    """See close_unusable_connections(); runs on the thread that async code uses for the database."""
    global _last_async_look
    _last_async_look = time.monotonic()
    await sync_to_async(close_unusable_connections)()


@receiver(connection_created)
def _note_connection(**_: object) -> None:
    _here.has_connected = True
