"""All tasks of the project, for pages that list them: a web process has imported only those that it sends."""

from __future__ import annotations

from typing import Any

from django.utils.module_loading import autodiscover_modules

from .registry import registered_tasks
from .task import Task


def known_tasks() -> dict[str, Task[..., Any]]:
    """Return the tasks of all installed apps by dotted path. Only modules named `tasks` of those apps are imported."""
    autodiscover_modules("tasks")
    return dict(sorted(registered_tasks().items()))
