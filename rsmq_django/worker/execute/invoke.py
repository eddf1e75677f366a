"""Calls the function of a message with everything that surrounds it, and returns the result. Decides nothing.

A function is surrounded by its database connections, its time limit, interruption, the middleware, a span, and the
inbox of `once=True`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...tasks.envelope import Unreadable
from ...tasks.middleware import chain
from ...tasks.retry import TaskTimeout
from ...tasks.running import CurrentTask, TaskContext, current_run
from ...tracing import processing, tracer
from .database import (
    close_stale_connections,
    close_unusable_connections,
    close_unusable_connections_async,
    drop_connections,
    is_look_due,
)
from .forks import await_in_one_process, call_in_one_process
from .interrupt import call_interruptibly
from .workflow import atake_argument, take_argument

if TYPE_CHECKING:
    from .execution import Execution


@dataclass(slots=True)
class Returned:
    """The function returned."""

    value: Any


#: The result of most functions. It is never changed, so all of them share it.
RETURNED_NOTHING = Returned(None)


@dataclass(slots=True)
class Raised:
    """The function raised."""

    error: BaseException


Result = Returned | Raised | Unreadable


def result_of(execution: Execution) -> Result:
    """Call the function on this thread, with fresh database connections around it."""
    try:
        close_stale_connections()
        if execution.time_limit is None:
            value = _call_with_argument(execution)
        else:
            with execution.time_limit:
                value = _call_with_argument(execution)
        return RETURNED_NOTHING if value is None else Returned(value)
    except BaseException as error:  # a task may raise anything; the worker continues
        return Raised(error)
    finally:
        execution.ended_at = time.monotonic()
        execution.run_us = int((execution.ended_at - execution.began_at) * 1e6)
        if execution.was_interrupted:
            drop_connections()
        else:
            close_unusable_connections()


async def aresult_of(execution: Execution) -> Result:
    """See result_of()."""
    assert execution.work is not None
    try:
        timeout_s = execution.work.options.timeout_s
        if timeout_s is not None:
            return await _acall_limited(execution, timeout_s)
        if execution.takes_from is not None:
            await atake_argument(execution)
        return Returned(await _acall(execution))
    except BaseException as error:
        return Raised(error)
    finally:
        execution.ended_at = time.monotonic()
        execution.run_us = int((execution.ended_at - execution.began_at) * 1e6)
        if is_look_due(execution.ended_at):
            await close_unusable_connections_async()


async def _acall_limited(execution: Execution, timeout_s: float) -> Result:
    try:
        async with asyncio.timeout(timeout_s) as limit:
            if execution.takes_from is not None:
                await atake_argument(execution)
            return Returned(await _acall(execution))
    except TimeoutError as error:
        return Raised(TaskTimeout() if limit.expired() else error)


def _call_with_argument(execution: Execution) -> Any:
    if execution.takes_from is not None:
        take_argument(execution)
    return call_interruptibly(_call_surrounded, execution)


def _call_surrounded(execution: Execution) -> Any:
    current_run.set(execution)
    if tracer() is None and chain() is None:  # no middleware and no tracing
        return _call(execution)
    with _span(execution), _middleware(execution):
        return _call(execution)


def _acall(execution: Execution) -> Awaitable[Any]:
    current_run.set(execution)
    is_bare = tracer() is None and chain() is None
    return await_in_one_process(_call(execution)) if is_bare else _acall_surrounded(execution)


async def _acall_surrounded(execution: Execution) -> Any:
    with _span(execution), _middleware(execution):
        return await await_in_one_process(_call(execution))


def _call(execution: Execution) -> Any:
    work = execution.work
    assert work is not None
    args, kwargs = execution.args, execution.kwargs
    if work.task is not None and work.task.takes_context:
        context = TaskContext.of(execution, task_result=execution.notifier.task_result(execution))
        args = [context, *args]
    if not work.options.once:
        return call_in_one_process(work.func, args, kwargs)
    # Only here: its table belongs to an application that most projects do not install.
    from ...outbox.inbox import run_once

    return run_once(execution.task_id, execution.path, lambda: call_in_one_process(work.func, args, kwargs))


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
        worker_id=execution.notifier.worker_id,
    )
