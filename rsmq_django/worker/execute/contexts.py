"""The context that a function runs in: a copy of its thread's context, so that changes do not outlive the function.

Language, time zone and context variables are stored in the context. So are the objects that Django creates for CACHES
and TASKS, and a cache opens a connection for each object. They are created once per thread, before any copy, so that
all functions of the thread, and all coroutines of the event loop, share them.
"""

from __future__ import annotations

from contextlib import suppress

from django.core.cache import caches

from ...tasks.compat import task_backends


def share_handlers() -> None:
    """Create the objects of CACHES and TASKS in the context of this thread. Opens no connection."""
    for handler in (caches, task_backends):
        with suppress(Exception):  # a mistake in the project's settings: the code that uses them gets the error
            for alias in handler:
                with suppress(Exception):
                    handler[alias]
