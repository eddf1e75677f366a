"""The route of the calls of a task: data that all of them share, looked up once.

Valid until a setting changes, which happens in tests only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.signals import setting_changed
from django.dispatch import receiver

from ..conf.settings import QueueSettings, get_settings
from ..core import Queue
from ..core.queue.bands import band_name
from ..core.transport.call import Argument
from ..queues import get_queue
from .task import Task, find_task

#: Maximum number of cached routes; using() creates a new task each time.
MAX_ROUTES = 1000


@dataclass(frozen=True, slots=True)
class Destination:
    """The route of a task's calls."""

    task: Task[..., Any]
    path: str
    #: The queue, or its band or lane, that stores them.
    queue: Queue
    #: Channel for the wake-up: workers subscribe to the task's queue, and may not know this band or lane yet.
    channel: str
    #: Setting of the task's queue.
    settings: QueueSettings
    keeps_result: bool
    #: Maximum number of attempts in the messages, if using() has changed the declared one; None: not in them.
    max_attempts: int | None

    def delay_ms(self) -> Argument:
        """Return the delay from now in ms, or the unit of the queue's own delay, to use that."""
        if self.task.run_after is None:
            return self.queue.vt_unit  # the queue's own delay
        now = datetime.now(self.task.run_after.tzinfo)  # local time without a zone where USE_TZ is off
        return max(0, round((self.task.run_after - now).total_seconds() * 1000))


_routes: dict[tuple[int, int | None], Destination] = {}


def route_of(task: Task[..., Any], lane: int | None = None) -> Destination:
    """Return the route of a task's calls, or of those in one lane."""
    route = _routes.get((id(task), lane))
    if route is None or route.task is not task:
        if len(_routes) >= MAX_ROUTES:
            _routes.clear()
        route = _routes[id(task), lane] = _find_route(task, lane)
    return route


def result_ttl_s(task: Task[..., Any]) -> int:
    """Return how many seconds a finished result of this task is kept; 0 means that none is stored."""
    own = task.options.result_ttl_s
    return get_settings().tasks.result_ttl_s if own is None else own


def _find_route(task: Task[..., Any], lane: int | None) -> Destination:
    return Destination(
        task=task,
        path=task.module_path,
        queue=get_queue(band_name(task.queue_name, int(task.priority), lane)),
        channel=get_queue(task.queue_name).keys.channel,
        settings=get_settings().queue(task.queue_name),
        keeps_result=result_ttl_s(task) > 0,
        max_attempts=own_max_attempts(task),
    )


def own_max_attempts(task: Task[..., Any]) -> int | None:
    """Return the maximum number of attempts of a call, which using() has set; None for that of the declaration."""
    declared = find_task(task.module_path)
    is_declared = declared is None or declared.options.max_attempts == task.options.max_attempts
    return None if is_declared else task.options.max_attempts


@receiver(setting_changed)
def _forget_routes(**_: object) -> None:
    _routes.clear()
