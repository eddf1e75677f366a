"""The route of the calls of a task: data that all of them share, looked up once.

Valid until a setting changes, which happens in tests only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.signals import setting_changed
from django.dispatch import receiver

from ..conf.instrumented import instrumentation
from ..conf.settings import QueueSettings, get_settings
from ..conf.shards import shard_alias
from ..core import Client, Queue
from ..core.keys import queue_keys, result_key, waiting_key
from ..core.limits import MAX_BODY_BYTES
from ..core.queue.bands import band_name
from ..core.transport.call import Argument, Call
from ..core.transport.client import PreparedCall
from ..queues import durable_client, get_queue
from .envelope import head_of
from .middleware import chain
from .results import UNFINISHED_TTL_S
from .task import Task, find_task
from .tracing import tracer
from .typed_arguments import types_of_task

#: Maximum number of cached routes; using() creates a new task each time.
MAX_ROUTES = 1000


@dataclass(frozen=True, slots=True)
class Destination:
    """The route of a task's calls."""

    task: Task[..., Any]
    path: str
    #: The queue, or its band or lane, that stores them.
    queue: Queue
    #: The client that sends them: it may wait for replicas or disks.
    client: Client
    #: Channel for the wake-up: workers subscribe to the task's queue, and may not know this band or lane yet.
    channel: str
    #: Key of the worker processes that wait for messages of the queue.
    waiting_key: str
    #: Setting of the task's queue.
    settings: QueueSettings
    #: The number of the shard that stores them; None for a queue without shards.
    shard: int | None
    keeps_result: bool
    #: Key of a result without its task id.
    result_prefix: bytes
    #: Whether the calls consist of task, id and arguments, and one script sends them.
    is_plain: bool
    #: Beginning of the bodies of plain calls, up to their id.
    body_head: str
    #: No body up to this size is too long.
    safe_size_bytes: int
    #: The request for one plain call, which needs its id and its body; None for other calls.
    request: PreparedCall[str] | None
    #: Maximum number of attempts in the messages, if using() has changed the declared one; None: not in them.
    max_attempts: int | None
    #: The database whose transaction the calls wait for: True for the default one, an alias, or False for none.
    enqueue_on_commit: bool | str

    def delay_ms(self) -> Argument:
        """Return the delay from now in ms, or the unit of the queue's own delay, to use that."""
        if self.task.run_after is None:
            return self.queue.vt_unit  # the queue's own delay
        return ms_until(self.task.run_after)


def ms_until(when: datetime) -> int:
    """Return how many milliseconds are left until a time, at least 0; local time if it has no zone (USE_TZ is off).

    By the two timestamps: a difference of two times of one zone ignores that its clocks change in between.
    """
    return max(0, round((when.timestamp() - time.time()) * 1000))


_routes: dict[tuple[int, int | None], Destination] = {}
_shard_routes: dict[tuple[int, int | None, int], Destination] = {}


def route_of(task: Task[..., Any], lane: int | None = None) -> Destination:
    """Return the route of a task's calls, or of those in one lane; for a queue with shards, to the first shard."""
    route = _routes.get((id(task), lane))
    if route is None or route.task is not task:
        if len(_routes) >= MAX_ROUTES:
            _routes.clear()
        route = _routes[id(task), lane] = _find_route(task, lane)
    return route


def route_to_shard(task: Task[..., Any], lane: int | None, shard: int) -> Destination:
    """Return the route of a task's calls in one shard of its queue."""
    route = _shard_routes.get((id(task), lane, shard))
    if route is None or route.task is not task:
        if len(_shard_routes) >= MAX_ROUTES:
            _shard_routes.clear()
        route = _shard_routes[id(task), lane, shard] = _find_route(task, lane, shard)
    return route


def result_ttl_s(task: Task[..., Any]) -> int:
    """Return how many seconds a finished result of this task is kept; 0 means that none is stored."""
    own = task.options.result_ttl_s
    return get_settings().tasks.result_ttl_s if own is None else own


def _find_route(task: Task[..., Any], lane: int | None, shard: int | None = None) -> Destination:
    settings, max_attempts = get_settings().queue(task.queue_name), own_max_attempts(task)
    # The first shard of calls that are not spread: those of workflows and schedules.
    stored_in = (shard or 0) if settings.shards > 1 else None
    queue = get_queue(band_name(task.queue_name, int(task.priority), lane), shard=stored_in)
    channel, keeps_result = queue_keys(queue.client.namespace, task.queue_name).channel, result_ttl_s(task) > 0
    waiting = waiting_key(queue.client.namespace, task.queue_name)
    # Each call of a queue with shards is prepared for its shard.
    is_plain = max_attempts is None and _is_plain(task, settings) and stored_in == shard
    return Destination(
        task=task,
        path=task.module_path,
        queue=queue,
        client=_find_client(task, settings, queue, stored_in),
        channel=channel,
        waiting_key=waiting,
        settings=settings,
        shard=stored_in,
        keeps_result=keeps_result,
        result_prefix=result_key(queue.client.namespace, "").encode(),
        is_plain=is_plain,
        body_head=head_of(task.module_path),
        safe_size_bytes=settings.max_size_bytes if settings.max_size_bytes >= 0 else MAX_BODY_BYTES,
        request=_request(queue, channel, waiting, keeps_result) if is_plain and task.run_after is None else None,
        max_attempts=max_attempts,
        enqueue_on_commit=enqueue_on_commit_of(task),
    )


def enqueue_on_commit_of(task: Task[..., Any]) -> bool | str:
    """Return the database whose transaction calls wait for: True for the default one, an alias, or False for none."""
    own: bool | str | None = getattr(task.get_backend(), "enqueue_on_commit", None)  # other backends have none
    return get_settings().tasks.enqueue_on_commit if own is None else own


def _find_client(task: Task[..., Any], settings: QueueSettings, queue: Queue, shard: int | None) -> Client:
    own = task.options.durability
    if own is None:
        return queue.sender
    return durable_client(shard_alias(settings.connection, shard or 0), own) if own else queue.client


def _is_plain(task: Task[..., Any], settings: QueueSettings) -> bool:
    options, middleware = task.options, chain()
    has_meta = options.tags or options.expires_in_s is not None or (middleware is not None and middleware.adds_context)
    has_way_of_its_own = options.unique is not None or options.fair_by is not None or settings.outbox
    is_typed = types_of_task(task).arguments is not None
    return not (has_meta or has_way_of_its_own or is_typed or settings.is_sealed or tracer() is not None)


def _request(queue: Queue, channel: str, waiting: str, keeps_result: bool) -> PreparedCall[str]:
    """Return the call that sends one message with the queue's own delay; open are its result's key, its id and body."""
    args = (queue.vt_unit, channel, UNFINISHED_TTL_S, queue.name)
    keys = (queue.keys.messages, queue.keys.settings, waiting)
    call = Call("tasks/enqueue", keys, args, _read_id, subject=queue.name)
    return PreparedCall(call, open_keys=int(keeps_result), open_args=2)


def _read_id(reply: bytes) -> str:
    return reply.decode()


def own_max_attempts(task: Task[..., Any]) -> int | None:
    """Return the maximum number of attempts of a call, which using() has set; None for that of the declaration."""
    declared = find_task(task.module_path)
    is_declared = declared is None or declared.options.max_attempts == task.options.max_attempts
    return None if is_declared else task.options.max_attempts


@receiver(setting_changed)
def _forget_routes(**_: object) -> None:
    _routes.clear()
    _shard_routes.clear()


instrumentation.on_change.append(_forget_routes)
