"""The context that a function runs in: a copy of its thread's own, so that nothing it sets there outlives it.

Language, time zone and context variables live in the context. So do the objects that Django makes for CACHES and TASKS,
and a cache opens a connection for each object. They are made once per thread, before any copy, so that all functions
of the thread, and all coroutines of the event loop, share them.
"""

from __future__ import annotations

from contextlib import suppress

from django.core.cache import caches

from ...tasks.compat import task_backends


def share_handlers() -> None:
    """Make the objects of CACHES and TASKS in the context of this thread. Opens no connection."""
    for handler in (caches, task_backends):
        with suppress(Exception):  # settings of the project: who uses them gets the error
            for alias in handler:
                with suppress(Exception):
                    handler[alias]
