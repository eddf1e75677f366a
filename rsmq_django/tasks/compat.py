"""Django's Tasks framework, wherever it lives: `django.tasks` from Django 6.0 on, the backport `django_tasks` before.

Everything else in this package imports these names from here. The native framework wins when both are installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

HAS_NATIVE_TASKS = find_spec("django.tasks") is not None

if TYPE_CHECKING or HAS_NATIVE_TASKS:
    from django.tasks import DEFAULT_TASK_QUEUE_NAME, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task as BaseTask
    from django.tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    import django_tasks.exceptions
    from django_tasks import DEFAULT_TASK_QUEUE_NAME, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task as BaseTask
    from django_tasks.base import TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

    # The backport 0.12 still has a name that Django dropped.
    InvalidTask = getattr(django_tasks.exceptions, "InvalidTask", None) or django_tasks.exceptions.InvalidTaskError

__all__ = [
    "DEFAULT_TASK_QUEUE_NAME",
    "HAS_NATIVE_TASKS",
    "BaseTask",
    "BaseTaskBackend",
    "InvalidTask",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
