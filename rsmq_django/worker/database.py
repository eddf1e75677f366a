"""Database connections in a worker: never used stale, never held open without need."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections

#: A connection that was looked at so recently cannot have been idle for long.
_FRESH_S = 1.0
_looked = threading.local()

#: Async tasks share one database thread; looking at it after each of them would cost more than the task.
_ASYNC_INTERVAL_S = 1.0
_last_async_look = 0.0


def close_stale_connections() -> None:
    """Before a task: close this thread's connections that may have broken while it waited for work."""
    if time.monotonic() - getattr(_looked, "at", 0.0) > _FRESH_S:
        close_unusable_connections()


def close_unusable_connections() -> None:
    """Close this thread's connections that are broken or older than CONN_MAX_AGE, as Django does around a request."""
    _looked.at = time.monotonic()
    if getattr(_looked, "are_kept", False):
        return
    if connections.all(initialized_only=True):
        close_old_connections()


@contextmanager
def connections_kept() -> Iterator[None]:
    """Leave this thread's connections alone: they belong to whoever runs tasks in it, a test for example."""
    _looked.are_kept = True
    try:
        yield
    finally:
        _looked.are_kept = False


async def close_unusable_connections_async() -> None:
    """See close_unusable_connections(); on the thread that async code uses for the database, at most once a second."""
    global _last_async_look
    now = time.monotonic()
    if now - _last_async_look >= _ASYNC_INTERVAL_S:
        _last_async_look = now
        await sync_to_async(close_unusable_connections)()
