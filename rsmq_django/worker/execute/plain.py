"""Reads the messages of a fetch: the plain ones on a short path, all others as Execution.read() does.

A message is plain if it needs nothing but a call of its function: the first delivery of a call that is written exactly
as our senders write it, without `meta`, of a task without options that concern the call (a time limit may be there),
from a queue without keys. Nearly all messages are plain. A worker works on many of them at a time, so what they have
in common is found once, and of a message only its id and its arguments are read.

A plain message is an Execution like any other, and `Execution.run()` takes the short path with it. Whatever turns out
to be unusual continues on the long path: a return value, an exception, a cancellation, signals with receivers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.signals import setting_changed
from django.dispatch import receiver

from ...tasks.arguments import positional_counts, surely_fit
from ...tasks.envelope import Envelope, scan_json
from ...tasks.registry import find_consumer
from ...tasks.task import Task, find_task
from ..delivery import Delivery, WorkQueue
from ..report.notifications import Notifier
from .execution import AckSink, Execution
from .resolve import handler_of

#: A call as envelope.encode() writes it; our senders' ids have 22 characters.
_TASK, _ID, _ARGS, _KWARGS, _NO_KWARGS = b'{"task":"', b'","id":"', b'","args":', ',"kwargs":', ',"kwargs":{}}'
_ID_LENGTH = 22
#: The name of a task ends before.
_LONGEST_HEAD = 300


class PlainTask:
    """A task whose calls may be plain, and the bytes that all of them begin with."""

    __slots__ = ("_args_at", "_func", "_id_at", "_name", "_positional", "handler", "head", "task")

    def __init__(self, head: bytes, name: str, task: Task[..., Any]) -> None:
        self.head = head
        self.task = task
        self.handler = handler_of(task)
        self._name = name
        self._func = task.func
        self._positional = positional_counts(task.func)
        self._id_at = len(head)
        self._args_at = len(head) + _ID_LENGTH

    def call_in(self, body: bytes) -> Envelope | None:
        """Return the call in a body that begins with the head; None if it may not be plain."""
        task_id = body[self._id_at : self._args_at]
        if not (task_id.isalnum() and body.startswith(_ARGS, self._args_at)):
            return None
        try:
            text = body[self._args_at + len(_ARGS) :].decode()
            args, end = scan_json(text, 0)
            if text[end:] == _NO_KWARGS:
                fits = type(args) is list and len(args) in self._positional
                return Envelope(self._name, task_id.decode(), args, {}) if fits else None
            if type(args) is not list or not text.startswith(_KWARGS, end):
                return None
            kwargs, end = scan_json(text, end + len(_KWARGS))
        except (ValueError, StopIteration, RecursionError):
            return None
        is_whole = type(kwargs) is dict and text[end:] == "}"
        if not is_whole or not surely_fit(self._func, len(args), kwargs):
            return None
        return Envelope(self._name, task_id.decode(), args, kwargs)


#: By head; None for tasks whose calls are never plain.
_plain_tasks: dict[bytes, PlainTask | None] = {}


@receiver(setting_changed)
def _forget_plain_tasks(**_: object) -> None:
    _plain_tasks.clear()


def read_all(deliveries: Sequence[Delivery], *, sink: AckSink, notifier: Notifier) -> list[Execution]:
    """Return the executions of these messages, in order."""
    executions: list[Execution] = []
    work_queue: WorkQueue | None = None
    has_calls, head, plain = False, b"", None
    for delivery in deliveries:
        if delivery.work_queue is not work_queue:
            work_queue = delivery.work_queue
            is_for_tasks = work_queue.handler is None and find_consumer(work_queue.base_name) is None
            has_calls = is_for_tasks and not work_queue.is_sealed
            head, plain = b"", None
        body, call = delivery.message.body, None
        if has_calls and delivery.attempt == 1 and not delivery.crashes:
            if not (head and body.startswith(head)):
                head, plain = _find(body)
            if plain is not None:
                call = plain.call_in(body)
                if call is None:  # so are most of the calls behind it: those of some options always have `meta`
                    plain = None
        if call is None or plain is None:
            executions.append(Execution(delivery, sink, notifier))
        else:
            executions.append(Execution(delivery, sink, notifier, call, plain.handler))
    return executions


def _find(body: bytes) -> tuple[bytes, PlainTask | None]:
    """Return the head of a body, and the task if its calls may be plain."""
    id_at = body.find(_ID, len(_TASK), _LONGEST_HEAD)
    if id_at < 0 or not body.startswith(_TASK):
        return b"", None
    head, name = body[: id_at + len(_ID)], body[len(_TASK) : id_at].decode("utf-8", "replace")
    task = find_task(name)
    if task is None:  # also when the name is not what it seems to be: it contains escapes or quotation marks
        return b"", None
    plain = _plain_tasks.get(head)
    if head not in _plain_tasks or (plain is not None and plain.task is not task):
        found = PlainTask(head, name, task)
        plain = _plain_tasks[head] = found if found.handler.is_plain else None
    return head, plain
