"""From a message to the function it asks for: decode, look up, check the arguments. Nothing runs here."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..core import Message
from ..tasks.arguments import misfit, surely_fit
from ..tasks.envelope import Envelope, Unreadable, decode
from ..tasks.membership import Membership, membership_of
from ..tasks.options import TaskOptions
from ..tasks.registry import Function, find_consumer, find_followers, find_task
from ..tasks.sealing import unseal
from ..tasks.task import Task
from .delivery import WorkQueue
from .followers import followed_by


@dataclass(slots=True)
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
    #: How the call belongs to a workflow from which it gets its first argument; None is in its place until then.
    takes_from: Membership | None = None

    def give(self, argument: Any) -> None:
        """Put what the workflow gives in front of the arguments."""
        assert self.envelope is not None
        self.args = [argument, *self.envelope.args]


def read_work(message: Message, work_queue: WorkQueue) -> Work:
    """Return what the message asks for. Raises Unreadable with the reason when no attempt could ever run it."""
    if work_queue.is_sealed:
        body = unseal(message.body, work_queue.settings, name=work_queue.base_name)
        message = Message(message.id, body, message.receive_count, message.first_received_ms)
    consumer = find_consumer(work_queue.base_name)
    if consumer is not None:
        is_async = inspect.iscoroutinefunction(consumer.func)
        followers = find_followers(work_queue.base_name)
        func = followed_by(consumer, followers) if followers else consumer.func
        return Work(consumer.module_path, func, consumer.options, is_async, [message], {})
    envelope = decode(message.body, message_id=message.id)
    task = find_task(envelope.task)
    if task is None:
        raise Unreadable(
            "unknown_task",
            f"no task {envelope.task!r} is declared in this worker; is its app in INSTALLED_APPS, was it renamed?",
            envelope,
        )
    takes_from = None
    if envelope.meta is not None:
        membership = membership_of(envelope.meta)
        takes_from = membership if membership is not None and membership.takes else None
    given = task.takes_context + (takes_from is not None)
    if task.options.batch is None and not surely_fit(task.func, len(envelope.args) + given, envelope.kwargs):
        text = misfit(task.func, envelope.args, envelope.kwargs, given=given)
        if text:
            raise Unreadable("wrong_arguments", f"{envelope.task}{text}", envelope)
    args, kwargs = envelope.args if takes_from is None else [None, *envelope.args], envelope.kwargs
    return Work(envelope.task, task.func, task.options, _is_async(task.func), args, kwargs, task, envelope, takes_from)


@cache
def _is_async(func: Function) -> bool:
    return inspect.iscoroutinefunction(func)
