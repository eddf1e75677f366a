"""Reliable queues of the settings, and the message format of tasks in them.

Resolves the server of a queue, and creates messages that workers run as tasks.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .conf.options import nearest
from .conf.settings import get_settings
from .core.ids import random_suffix
from .core.reliable import ReliableQueue
from .queues import get_client, get_sender

__all__ = ["get_reliable_queue", "task_body"]


def get_reliable_queue(name: str, *, consumer: str = "") -> ReliableQueue:
    """Return a queue of RSMQ['RELIABLE']. Raises ImproperlyConfigured for any other name. Does no I/O."""
    configured = get_settings().reliable
    if name not in configured:
        raise ImproperlyConfigured(f"Queue {name!r} is not in RSMQ['RELIABLE']. {nearest(name, configured)}")
    alias = configured[name].connection
    return ReliableQueue(name, get_client(alias), consumer=consumer, sender=get_sender(alias))


def task_body(task: Any, *args: Any, **kwargs: Any) -> bytes:
    """Return the body of a message with which a worker calls `task` with these arguments.

    Raises TypeError if `task` is not a task or does not accept the arguments, TypeError or ValueError for arguments
    that JSON cannot represent, InvalidTask for an option that does not work in reliable queues.
    """
    from .tasks.envelope import encode  # an outer layer of the package: most reliable queues contain no tasks
    from .tasks.reliable_calls import body_of

    if not hasattr(task, "module_path"):
        raise TypeError(f"{task!r} is not a task; decorate the function with @task (a @consumer receives raw bodies)")
    if hasattr(task, "options"):
        return body_of(task, args, kwargs)
    return encode(task.module_path, random_suffix(), args, kwargs, None)  # tasks of other backends have no options
