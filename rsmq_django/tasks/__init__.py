"""Declaring and sending tasks: Django's Tasks framework with retries, dead letters, time limits and raw consumers."""

from .compat import TaskContext, TaskResult, TaskResultStatus
from .retry import Retry, TaskTimeout, exponential, fixed
from .task import Task, consumer, task

__all__ = [
    "Retry",
    "Task",
    "TaskContext",
    "TaskResult",
    "TaskResultStatus",
    "TaskTimeout",
    "consumer",
    "exponential",
    "fixed",
    "task",
]
