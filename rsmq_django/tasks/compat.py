"""Django's Tasks framework, wherever it lives: `django.tasks` from Django 6.0 on, the backport `django_tasks` before.

Everything else in this package imports these names from here. The native framework wins when both are installed.
"""

from __future__ import annotations

import logging
import sys
import weakref
from importlib.util import find_spec
from typing import TYPE_CHECKING

from django.conf import settings
from django.dispatch import Signal
from django.utils.log import RequireDebugFalse, RequireDebugTrue

#: Whether this Django has its own Tasks framework (6.0 and newer).
HAS_NATIVE_TASKS = find_spec("django.tasks") is not None

if TYPE_CHECKING or HAS_NATIVE_TASKS:
    from django.tasks import DEFAULT_TASK_QUEUE_NAME, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TASK_REFRESH_ATTRS, TaskError, TaskResult, TaskResultStatus
    from django.tasks.base import Task as BaseTask
    from django.tasks.base import TaskContext as BaseTaskContext
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    import django_tasks.exceptions
    from django_tasks import DEFAULT_TASK_QUEUE_NAME, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import TASK_REFRESH_ATTRS, TaskError, TaskResult, TaskResultStatus
    from django_tasks.base import Task as BaseTask
    from django_tasks.base import TaskContext as BaseTaskContext
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

    # The backport 0.12 still has a name that Django dropped.
    InvalidTask = getattr(django_tasks.exceptions, "InvalidTask", None) or django_tasks.exceptions.InvalidTaskError

#: The logger to which Django's own receivers of its task signals write.
_signals_module = sys.modules["django.tasks.signals" if HAS_NATIVE_TASKS else "django_tasks.signals"]
#: Receivers that were found to be Django's: workers ask twice a message.
_djangos_own: list[object] = []
_signals_logger = logging.getLogger("django.tasks" if HAS_NATIVE_TASKS else "django_tasks")


def anybody_listens(signal: Signal, *, has_failed: bool = False) -> bool:
    """Return whether sending a task signal would have an effect; `has_failed`: it would say that a task has failed.

    Django connects a receiver of its own to each, which only logs; about a task that has failed it logs an error. Where
    no log takes that line and there are no other receivers, a worker need not make a `TaskResult` for every message,
    nor a sender call the receiver.
    """
    receivers = signal.receivers
    if len(receivers) != 1:
        return bool(receivers)
    (only,) = receivers
    if only not in _djangos_own:
        if not _is_djangos(only[1]):
            return True
        _djangos_own.append(only)
    if signal is task_enqueued:
        return _is_written(logging.DEBUG)
    return _is_written(logging.ERROR if has_failed else logging.INFO)


def _is_written(level: int) -> bool:
    """Return whether any handler takes a line of this level from Django's receivers.

    The level of the logger does not tell: in Django's own configuration it lets these lines pass, and then the filter
    of the only handler drops them unless DEBUG is on.
    """
    if not _signals_logger.isEnabledFor(level):
        return False
    if not _is_unchanged(_signals_logger):
        return True
    logger: logging.Logger | None = _signals_logger
    has_handlers = False
    while logger is not None:
        for handler in logger.handlers:
            has_handlers = True
            if handler.level <= level and not any(map(_drops_all, handler.filters)):
                return True
        logger = logger.parent if logger.propagate else None
    return not has_handlers and logging.lastResort is not None and logging.lastResort.level <= level


def _is_unchanged(logger: logging.Logger) -> bool:
    """Return whether lines reach handlers as Python does it; monitoring tools replace these methods."""
    methods = (type(logger).handle, type(logger).callHandlers)
    return all(getattr(each, "__globals__", None) is vars(logging) for each in methods)


def _drops_all(log_filter: object) -> bool:
    kind = type(log_filter)
    return kind is RequireDebugTrue and not settings.DEBUG or kind is RequireDebugFalse and settings.DEBUG


def _is_djangos(receiver: object) -> bool:
    function = receiver() if isinstance(receiver, weakref.ReferenceType) else receiver
    return getattr(function, "__module__", "") == _signals_module.__name__


__all__ = [
    "DEFAULT_TASK_QUEUE_NAME",
    "HAS_NATIVE_TASKS",
    "TASK_REFRESH_ATTRS",
    "BaseTask",
    "BaseTaskBackend",
    "BaseTaskContext",
    "InvalidTask",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "anybody_listens",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
