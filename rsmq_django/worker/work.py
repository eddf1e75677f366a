"""From a message to the function it asks for: decode, look up, check the arguments. Nothing runs here."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..core import Message
from ..tasks.envelope import Envelope, Unreadable, decode
from ..tasks.options import TaskOptions
from ..tasks.registry import Function, find_consumer, find_task
from ..tasks.task import Task


@dataclass(frozen=True, slots=True)
class Work:
    """What one message asks for."""

    #: The dotted path of the function.
    path: str
    func: Function
    options: TaskOptions
    is_async: bool
    args: list[Any]
    kwargs: dict[str, Any]
    #: The task and the call as sent; None for messages of a raw queue.
    task: Task[..., Any] | None = None
    envelope: Envelope | None = None


def read_work(message: Message, queue_name: str) -> Work:
    """Return what the message asks for. Raises Unreadable with the reason when no attempt could ever run it."""
    consumer = find_consumer(queue_name)
    if consumer is not None:
        is_async = inspect.iscoroutinefunction(consumer.func)
        return Work(consumer.module_path, consumer.func, consumer.options, is_async, [message], {})
    envelope = decode(message.body, message_id=message.id)
    task = find_task(envelope.task)
    if task is None:
        raise Unreadable(
            "unknown_task",
            f"no task {envelope.task!r} is declared in this worker; is its app in INSTALLED_APPS, was it renamed?",
            envelope,
        )
    _check_arguments(task, envelope)
    is_async = inspect.iscoroutinefunction(task.func)
    return Work(envelope.task, task.func, task.options, is_async, envelope.args, envelope.kwargs, task, envelope)


def _check_arguments(task: Task[..., Any], envelope: Envelope) -> None:
    context = [None] if task.takes_context else []
    try:
        _signature(task.func).bind(*context, *envelope.args, **envelope.kwargs)
    except TypeError as error:
        text = f"{envelope.task}{_signature(task.func)}: {error}"
        raise Unreadable("wrong_arguments", text, envelope) from error


@cache
def _signature(func: Function) -> inspect.Signature:
    return inspect.signature(func)
