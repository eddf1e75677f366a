"""Calls of tasks for reliable queues: the body of a message, and the options that have no place there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.ids import random_suffix
from .arguments import check_arguments
from .compat import InvalidTask
from .envelope import encode
from .middleware import SentCall, chain
from .route import own_max_attempts
from .task import Task
from .tracing import carried_by, current_span
from .typed_arguments import as_sent


@dataclass(frozen=True, slots=True)
class RefusedOption:
    """An option that a call in a reliable queue cannot have."""

    #: Returns whether a task uses it.
    is_used: Callable[[Task[..., Any]], bool]
    reason: str
    instead: str
    #: The argument of using() that leaves the option out of a call; "" if only the declaration can.
    without: str = ""


def _option(name: str) -> Callable[[Task[..., Any]], bool]:
    return lambda task: bool(getattr(task.options, name))


#: By the name of the option.
REFUSED: Mapping[str, RefusedOption] = {
    "priority": RefusedOption(
        lambda task: task.priority != 0,
        "a reliable queue keeps the order of its messages",
        "push urgent calls to a second reliable queue, and name that one first in RSMQ['RELIABLE']",
        "priority=0",
    ),
    "run_after": RefusedOption(
        lambda task: task.run_after is not None,
        "the time is not part of the body",
        "push the body with delay_s",
    ),
    "unique": RefusedOption(
        _option("unique"),
        "a push does not look for equal messages",
        "send it to a queue of RSMQ['QUEUES']",
        "unique=None",
    ),
    "tags": RefusedOption(
        _option("tags"),
        "their messages are not found or cancelled by tags",
        "send it to a queue of RSMQ['QUEUES']",
        "tags=()",
    ),
    "fair_by": RefusedOption(
        _option("fair_by"),
        "a reliable queue keeps the order of its messages",
        "send it to a queue of RSMQ['QUEUES']",
        "fair_by=None",
    ),
    "shard_by": RefusedOption(
        _option("shard_by"),
        "a reliable queue has no shards",
        "send it to a queue of RSMQ['QUEUES']",
        "shard_by=None",
    ),
    "result_ttl_s": RefusedOption(
        _option("result_ttl_s"),
        "a push returns the id of a message, and no result is kept for it",
        "send it to a queue of RSMQ['QUEUES'], or let the function store its result",
        "result_ttl_s=0",
    ),
    "durability": RefusedOption(
        lambda task: task.options.durability is not None,
        "a push waits as the DURABILITY of the connection says",
        "set it there",
        "durability=None",
    ),
    "dead_letter_queue": RefusedOption(
        lambda task: task.options.named_dead_letters is not None,
        "a reliable queue keeps its dead messages itself",
        "leave it out; DISCARD deletes them",
    ),
}


def check_options(task: Task[..., Any]) -> None:
    """Raise InvalidTask for the first option of a task that has no effect in a reliable queue."""
    for name, refusal in REFUSED.items():
        if refusal.is_used(task):
            without = f", or push {task.name}.using({refusal.without})" if refusal.without else ""
            raise InvalidTask(
                f"Task {task.module_path}: {name} does not work in reliable queues: {refusal.reason}; "
                f"{refusal.instead}{without}"
            )


def body_of(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Return the body of a call. Raises InvalidTask, TypeError or ValueError."""
    check_arguments(task, args, kwargs)
    check_options(task)
    args, kwargs = as_sent(task, args, kwargs)
    task_id, middleware = random_suffix(), chain()
    sent = None if middleware is None else middleware.sending(task.module_path, task.queue_name, [task_id])
    body = encode(task.module_path, task_id, args, kwargs, _meta(task, sent))
    if middleware is not None and sent is not None:
        middleware.encoded(sent, [body])
    return body


def _meta(task: Task[..., Any], sent: SentCall | None) -> dict[str, Any]:
    """Return the metadata of tracing, the project's middleware, and the options of the call."""
    meta = carried_by(current_span())
    options, most = task.options, own_max_attempts(task)
    if sent is not None and sent.context:
        meta["context"] = sent.context
    if options.expires_in_s is not None:
        meta["expires_in_s"] = options.expires_in_s
    if most is not None:
        meta["max_attempts"] = most
    return meta
