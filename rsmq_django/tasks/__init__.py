"""Declaring and sending tasks: Django's Tasks framework with retries, dead letters, time limits and raw consumers.

Nothing here runs a task: that is `worker/`. Redis calls are in `core/`, rows sent by a transaction in `outbox/`.
"""

from ..core import Durability
from .batch import BatchCall
from .cancellation import acancel, cancel, cancel_tagged
from .compat import TaskResult, TaskResultStatus
from .expiry import TaskExpired
from .interrupts import HardTimeout, TaskCancelled
from .limits import Concurrency, Rate
from .options import DISCARD
from .progress import progress_of
from .registry import consumer
from .repeating import arepeat, repeat
from .retry import Postpone, Retry, TaskTimeout, exponential, fixed
from .running import TaskContext, current_task, is_cancelled, lease_lost
from .schedule import cron, every
from .tags import tagged
from .task import Task, task
from .topic_task import bridge_topic, topic_task
from .unique import Unique
from .workflow import amap_tasks, call, chain, group, map_tasks
from .workflow_state import Failure, Workflow, get_workflow, newest_workflows

__all__ = [
    "DISCARD",
    "BatchCall",
    "Concurrency",
    "Durability",
    "Failure",
    "HardTimeout",
    "Postpone",
    "Rate",
    "Retry",
    "Task",
    "TaskCancelled",
    "TaskContext",
    "TaskExpired",
    "TaskResult",
    "TaskResultStatus",
    "TaskTimeout",
    "Unique",
    "Workflow",
    "acancel",
    "amap_tasks",
    "arepeat",
    "bridge_topic",
    "call",
    "cancel",
    "cancel_tagged",
    "chain",
    "consumer",
    "cron",
    "current_task",
    "every",
    "exponential",
    "fixed",
    "get_workflow",
    "group",
    "is_cancelled",
    "lease_lost",
    "map_tasks",
    "newest_workflows",
    "progress_of",
    "repeat",
    "tagged",
    "task",
    "topic_task",
]
