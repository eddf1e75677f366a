"""All tasks of the project, for pages that list them: a web process has imported only the tasks that it sends."""

from __future__ import annotations

from typing import Any

from django.utils.module_loading import autodiscover_modules

from ..conf.settings import get_settings
from .registry import registered_consumers
from .task import Task, registered_tasks
from .topic_task import TopicTask, registered_topic_tasks


def known_tasks() -> dict[str, Task[..., Any]]:
    """Return the tasks of all installed apps by dotted path. Only modules named `tasks` of those apps are imported."""
    autodiscover_modules("tasks")
    return dict(sorted(registered_tasks().items()))


def known_functions() -> set[str]:
    """Return the dotted paths of functions that receive messages without calls: consumers and topic tasks."""
    autodiscover_modules("tasks")
    return {each.module_path for each in registered_consumers()} | {each.module_path for each in _topic_tasks()}


def other_homes() -> dict[str, str]:
    """Return the connection alias of reliable queues and topic groups, by the name under which attempts are counted."""
    homes = {f"{each.topic}:{each.group}": each.connection for each in _topic_tasks()}
    return homes | {name: queue.connection for name, queue in get_settings().reliable.items()}


def _topic_tasks() -> list[TopicTask]:
    return [each for each in registered_topic_tasks() if isinstance(each, TopicTask)]
