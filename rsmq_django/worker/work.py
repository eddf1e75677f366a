"""From a message to the function it asks for: decode, look up, check the arguments. Nothing runs here."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..core import Message
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
    shape, takes_from = _shape(task.func), None
    if envelope.meta is not None:
        membership = membership_of(envelope.meta)
        takes_from = membership if membership is not None and membership.takes else None
    given = task.takes_context + (takes_from is not None)
    if task.options.batch is None and not shape.surely_takes(len(envelope.args) + given, envelope.kwargs):
        _check_arguments(task, envelope, given)
    args, kwargs = envelope.args if takes_from is None else [None, *envelope.args], envelope.kwargs
    return Work(envelope.task, task.func, task.options, shape.is_async, args, kwargs, task, envelope, takes_from)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a function takes, as far as a quick look can tell."""

    is_async: bool
    #: How many positional arguments always fit; empty when keyword arguments are required.
    positional: range
    #: Names that may be given by keyword when there are no positional arguments, and those that must be.
    allowed: frozenset[str]
    required: frozenset[str]

    def surely_takes(self, positional: int, kwargs: Mapping[str, Any]) -> bool:
        """Say whether these arguments fit without doubt; False means that a closer look is needed."""
        if not kwargs:
            return positional in self.positional
        return positional == 0 and self.required <= kwargs.keys() <= self.allowed


@cache
def _shape(func: Function) -> Shape:
    parameters = list(_signature(func).parameters.values())
    by_position = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    by_keyword = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    is_simple = len(by_keyword) == len(parameters)  # neither *args nor **kwargs nor positional-only
    needs_keyword = any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters)
    least = sum(p.default is p.empty for p in by_position)
    return Shape(
        is_async=inspect.iscoroutinefunction(func),
        positional=range(least, len(by_position) + 1) if is_simple and not needs_keyword else range(0),
        allowed=frozenset(p.name for p in by_keyword) if is_simple else frozenset(),
        required=frozenset(p.name for p in by_keyword if p.default is p.empty),
    )


def _check_arguments(task: Task[..., Any], envelope: Envelope, given: int) -> None:
    try:
        _signature(task.func).bind(*[None] * given, *envelope.args, **envelope.kwargs)
    except TypeError as error:
        text = f"{envelope.task}{_signature(task.func)}: {error}"
        raise Unreadable("wrong_arguments", text, envelope) from error


@cache
def _signature(func: Function) -> inspect.Signature:
    return inspect.signature(func)
