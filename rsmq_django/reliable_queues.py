"""Reliable queues as the project has configured them, and how a task travels in one.

Knows which server a queue is on, and the one form of a message that workers read as a task.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .conf import get_settings
from .core.ids import random_suffix
from .core.reliable import ReliableQueue
from .options import nearest
from .queues import get_client


def get_reliable_queue(name: str, *, consumer: str = "") -> ReliableQueue:
    """Return a queue of RSMQ['RELIABLE']. Raises ImproperlyConfigured for any other name. Does no I/O."""
    configured = get_settings().reliable
    if name not in configured:
        raise ImproperlyConfigured(f"Queue {name!r} is not in RSMQ['RELIABLE']. {nearest(name, configured)}")
    return ReliableQueue(name, get_client(configured[name].connection), consumer=consumer)


def task_body(task: Any, *args: Any, **kwargs: Any) -> bytes:
    """Return the body of a message that has a worker call `task` with these arguments.

    Raises TypeError for what is no task and for arguments that it does not take, TypeError or ValueError for those that
    JSON cannot hold.
    """
    from .tasks.arguments import check_arguments  # the outer part of the package: most queues carry no tasks
    from .tasks.envelope import new_envelope

    if not hasattr(task, "module_path"):
        raise TypeError(f"{task!r} is no task; decorate the function with @task (a @consumer gets bodies as they are)")
    if hasattr(task, "options"):  # a task of another backend has none
        check_arguments(task, args, kwargs)
    return new_envelope(task.module_path, random_suffix(), args, kwargs).encode()
