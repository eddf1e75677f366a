"""Call the function of a message, inside what surrounds it: the middleware, a span, the inbox of `once=True`.

Raises what the function raises, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ..tasks.middleware import chain
from ..tasks.running import CurrentTask, TaskContext, current_run
from ..tracing import processing, tracer

if TYPE_CHECKING:
    from .execution import Execution


def call(execution: Execution) -> Any:
    """Call the function on this thread and return what it returns."""
    current_run.set(execution)
    if _is_bare():
        return _call(execution)
    with _span(execution), _middleware(execution):
        return _call(execution)


def acall(execution: Execution) -> Awaitable[Any]:
    """Call the coroutine function and return what is to be awaited."""
    current_run.set(execution)
    awaitable: Awaitable[Any] = _call(execution) if _is_bare() else _acall_surrounded(execution)
    return awaitable


async def _acall_surrounded(execution: Execution) -> Any:
    with _span(execution), _middleware(execution):
        return await _call(execution)


def _is_bare() -> bool:
    """Say whether nothing surrounds calls of functions: neither spans nor middleware."""
    return tracer() is None and chain() is None


def _call(execution: Execution) -> Any:
    if execution.work is None or not execution.work.options.once:
        return _call_function(execution)
    # Only here: its table belongs to an application that most projects do not install.
    from ..outbox.inbox import run_once

    return run_once(execution.task_id, execution.path, lambda: _call_function(execution))


def _call_function(execution: Execution) -> Any:
    work = execution.work
    assert work is not None
    if work.task is not None and work.task.takes_context:
        context = TaskContext.of(execution, task_result=execution.announcer.task_result(execution))
        return work.func(context, *work.args, **work.kwargs)
    return work.func(*work.args, **work.kwargs)


def _middleware(execution: Execution) -> AbstractContextManager[None]:
    middleware = chain()
    return nullcontext() if middleware is None else middleware.around(CurrentTask(execution))


def _span(execution: Execution) -> AbstractContextManager[object]:
    delivery, envelope = execution.delivery, execution.envelope
    return processing(
        delivery.work_queue.name,
        execution.path,
        meta=envelope.meta if envelope else None,
        message_id=delivery.message.id,
        task_id=envelope.id if envelope else "",
        attempt=delivery.attempt,
        body_bytes=len(delivery.message.body),
        worker_id=execution.announcer.worker_id,
    )
