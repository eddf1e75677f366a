"""Calls the function of a message with everything that surrounds it, and returns the result. Decides nothing.

A function is surrounded by its database connections, its time limit, interruption, the middleware, a span, and the
inbox of `once=True`. It runs in a copy of its thread's context, so that changes do not outlive it.
"""

from __future__ import annotations

import math
import os
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from asgiref.sync import sync_to_async
from django.core.cache import caches
from django.db import close_old_connections, connections
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from ...tasks.compat import task_backends
from ...tasks.envelope import Unreadable
from ...tasks.middleware import chain
from ...tasks.running import CurrentTask, TaskContext, current_run
from ...tasks.tracing import RunSpan, processing, tracer
from ..delivery import AttemptState
from .coroutine_limits import within
from .interrupt import call_interruptibly
from .typed_arguments import aread_arguments, as_json_of_return, read_arguments
from .workflow import WorkflowGone, atake_argument, take_argument


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


def result_of(attempt: AttemptState) -> Result:
    """Call the function on this thread, with fresh database connections around it."""
    limit = attempt.time_limit
    try:
        close_stale_connections()
        if limit is not None:
            limit.begin()
        call = _call_surrounded if attempt.takes_from is None else _call_with_argument(attempt)
        value = call_interruptibly(call, attempt)
        return RETURNED_NOTHING if value is None else Returned(value)
    except BaseException as error:  # a task may raise anything; the worker continues
        return Raised(error)
    finally:
        if limit is not None:
            limit.deadline = math.inf
        attempt.ended_at = time.monotonic()
        attempt.run_us = int((attempt.ended_at - attempt.began_at) * 1e6)
        if attempt.was_interrupted:
            drop_connections()
        else:
            close_unusable_connections()


def result_of_plain(attempt: AttemptState) -> Result:
    """See result_of(); only database connections and a time limit surround the function, and it may be interrupted."""
    limit = attempt.time_limit
    try:
        if _here.has_connected:
            close_stale_connections()
        if limit is not None:
            limit.begin()
        value = call_interruptibly(_call_plain, attempt)
        return RETURNED_NOTHING if value is None else Returned(value)
    except BaseException as error:
        return Raised(error)
    finally:
        if limit is not None:
            limit.deadline = math.inf
        attempt.ended_at = ended_at = time.monotonic()
        attempt.run_us = int((ended_at - attempt.began_at) * 1e6)
        if attempt.was_interrupted:
            drop_connections()
        elif _here.has_connected:
            close_unusable_connections()


async def aresult_of(attempt: AttemptState) -> Result:
    """See result_of()."""
    assert attempt.handler is not None
    try:
        timeout_s = attempt.handler.options.timeout_s
        call = _acall_with_argument(attempt)
        return Returned(await (call if timeout_s is None else within(timeout_s, call)))
    except BaseException as error:
        return Raised(error)
    finally:
        attempt.ended_at = time.monotonic()
        attempt.run_us = int((attempt.ended_at - attempt.began_at) * 1e6)
        if is_check_due(attempt.ended_at):
            await close_unusable_connections_async()


async def aresult_of_plain(attempt: AttemptState) -> Result:
    """See result_of_plain()."""
    handler, forks = attempt.handler, _Forks.count
    assert handler is not None
    current_run.set(attempt)
    timeout_s = handler.options.timeout_s
    try:
        call = handler.func(*attempt.args, **attempt.kwargs)
        value = await (call if timeout_s is None else within(timeout_s, call))
    except BaseException as error:
        if _Forks.count != forks:
            _end_copy(error)
        return Raised(error)
    else:
        if _Forks.count != forks:
            _end_copy(None)
        return RETURNED_NOTHING if value is None else Returned(value)
    finally:
        attempt.ended_at = ended_at = time.monotonic()
        attempt.run_us = int((ended_at - attempt.began_at) * 1e6)
        if is_check_due(ended_at):
            await close_unusable_connections_async()


def _call_surrounded(attempt: AttemptState) -> Any:
    current_run.set(attempt)
    if tracer() is None and chain() is None:  # no middleware and no tracing
        return _call(attempt)
    with _span(attempt), _middleware(attempt):
        return _call(attempt)


def _call_plain(attempt: AttemptState) -> Any:
    """See _call_surrounded() and call_in_one_process()."""
    current_run.set(attempt)
    handler, forks = attempt.handler, _Forks.count
    assert handler is not None
    try:
        value = handler.func(*attempt.args, **attempt.kwargs)
    except BaseException as error:
        if _Forks.count != forks:
            _end_copy(error)
        raise
    if _Forks.count != forks:
        _end_copy(None)
    return value


def _call_with_argument(attempt: AttemptState) -> Callable[[AttemptState], Any]:
    """Read the argument from the workflow, and return what to call then. Raises as take_argument()."""
    assert attempt.handler is not None
    try:
        take_argument(attempt)
    except WorkflowGone as error:
        if not attempt.handler.options.once:
            raise
        return partial(_value_of_earlier_run, error)
    return _call_surrounded


def _value_of_earlier_run(gone: WorkflowGone, attempt: AttemptState) -> Any:
    """Return what an earlier run of a call with `once=True` returned. Raises WorkflowGone if there was none."""
    from ...outbox.inbox import run_once

    def without_argument() -> NoReturn:
        raise gone

    return run_once(attempt.task_id, attempt.path, without_argument)


async def _acall_with_argument(attempt: AttemptState) -> Any:
    if attempt.takes_from is not None:
        await atake_argument(attempt)
    current_run.set(attempt)
    is_bare = tracer() is None and chain() is None
    return await (await_in_one_process(_call(attempt)) if is_bare else _acall_surrounded(attempt))


async def _acall_surrounded(attempt: AttemptState) -> Any:
    with _span(attempt), _middleware(attempt):
        return await await_in_one_process(_call(attempt))


def _call(attempt: AttemptState) -> Any:
    handler = attempt.handler
    assert handler is not None
    if handler.arguments is not None and handler.is_async:
        return _acall_typed(attempt)
    if not handler.options.once:
        return _call_function(attempt)
    # Only here: its table belongs to an application that most projects do not install.
    from ...outbox.inbox import run_once

    # Its arguments are read inside: a repeat does nothing, also when the first run has deleted the row that one names.
    return run_once(attempt.task_id, attempt.path, lambda: as_json_of_return(handler, _call_function(attempt)))


def _call_function(attempt: AttemptState) -> Any:
    handler = attempt.handler
    assert handler is not None
    args, kwargs = attempt.args, attempt.kwargs
    if handler.arguments is not None:
        args, kwargs = read_arguments(attempt)
    if handler.task is not None and handler.task.takes_context:
        context = TaskContext.of(attempt, task_result=attempt.notifier.task_result(attempt))
        args = [context, *args]
    return call_in_one_process(handler.func, args, kwargs)


async def _acall_typed(attempt: AttemptState) -> Any:
    """See _call(); for a coroutine function with typed arguments."""
    handler = attempt.handler
    assert handler is not None and handler.task is not None
    args, kwargs = await aread_arguments(attempt)
    if handler.task.takes_context:
        args = [TaskContext.of(attempt, task_result=attempt.notifier.task_result(attempt)), *args]
    return await handler.func(*args, **kwargs)


def _middleware(attempt: AttemptState) -> AbstractContextManager[None]:
    middleware = chain()
    return nullcontext() if middleware is None else middleware.around(CurrentTask(attempt))


def _span(attempt: AttemptState) -> AbstractContextManager[object]:
    delivery, envelope = attempt.delivery, attempt.envelope
    if tracer() is None:
        return nullcontext()
    return processing(
        RunSpan(
            queue=delivery.work_queue.queue,
            queue_name=delivery.work_queue.name,
            task_path=attempt.path,
            message_id=delivery.message.id,
            task_id=envelope.id if envelope else "",
            attempt=delivery.attempt,
            body_bytes=len(delivery.message.body),
            worker_id=attempt.notifier.worker_id,
            metas=[each.envelope.meta if each.envelope else None for each in attempt.shares_call_with],
        )
    )


# -- The context of a thread ------------------------------------------------------------------------------------------


def share_handlers() -> None:
    """Create the objects of CACHES and TASKS in the context of this thread. Opens no connection.

    Django stores them in the context, and a cache opens a connection for each object. They are created once per
    thread, before any copy, so that all functions of the thread, and all coroutines of the event loop, share them.
    """
    for handler in (caches, task_backends):
        with suppress(Exception):  # a mistake in the project's settings: the code that uses them gets the error
            for alias in handler:
                with suppress(Exception):
                    handler[alias]


# -- Database connections: never used when stale, never kept open without need ----------------------------------------

#: A connection that was checked within this time cannot have been idle for long.
_FRESH_S = 1.0


class _Checks(threading.local):
    #: Whether this thread ever connected to a database. Asking Django costs more than a short task.
    has_connected = False
    #: When its connections were last checked, on the monotonic clock.
    checked_at = 0.0
    #: The connections belong to the code that runs tasks in this thread (a test), so they are not closed.
    are_kept = False


_here = _Checks()

#: Async tasks share one database thread; checking it after each of them would cost more than the task.
_ASYNC_INTERVAL_S = 1.0
_last_async_check = 0.0


def close_stale_connections() -> None:
    """Close this thread's connections that may have broken while it was idle. Called before a task."""
    if _here.has_connected and time.monotonic() - _here.checked_at > _FRESH_S:
        close_unusable_connections()


def close_unusable_connections() -> None:
    """Close this thread's connections that are broken or older than CONN_MAX_AGE, as Django does around a request."""
    if _here.has_connected and not _here.are_kept:
        _here.checked_at = time.monotonic()
        close_old_connections()


def drop_connections() -> None:
    """Discard this thread's connections after an interruption, in any state.

    The interruption may have come at any step of Django's: an atomic block may be left open, or its connection be
    closed permanently.
    """
    if not _here.has_connected or _here.are_kept:
        return
    for connection in connections.all(initialized_only=True):
        with suppress(Exception):
            connection.close()
        with suppress(Exception):  # Django leaves that of an SQLite database in memory open
            connection.connection.close()
        with suppress(Exception):
            del connections[connection.alias]


@contextmanager
def connections_kept() -> Iterator[None]:
    """Keep this thread's connections open: they belong to the code that runs tasks in it, for example a test."""
    _here.are_kept = True
    try:
        yield
    finally:
        _here.are_kept = False


def is_check_due(now: float) -> bool:
    """Return whether close_unusable_connections_async() is due; `now` is on the monotonic clock."""
    return now - _last_async_check >= _ASYNC_INTERVAL_S


async def close_unusable_connections_async() -> None:
    """See close_unusable_connections(); runs on the thread that async code uses for the database."""
    global _last_async_check
    _last_async_check = time.monotonic()
    await sync_to_async(close_unusable_connections)()


@receiver(connection_created)
def _note_connection(**_: object) -> None:
    _here.has_connected = True


# -- Forks of a function ----------------------------------------------------------------------------------------------


class _Forks:
    """Finds child processes that a function forked and that leave the function: they would be copies of the worker.

    Such a copy shares all sockets and database connections with the worker, has one thread and no main loop, and never
    ends. So a child that leaves the function, whether it returns or raises, ends right there: before any code around
    the function runs, and without settling anything. Programs that are started (`subprocess`, `multiprocessing`) never
    leave the function and are not affected.
    """

    #: Number of forks between the first process and this one: a child of this process has one more.
    count = 0


def _count() -> None:
    _Forks.count += 1


os.register_at_fork(after_in_child=_count)


def call_in_one_process(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of the project; a child process that it forked and that leaves it ends here."""
    count = _Forks.count
    try:
        value = function(*args, **kwargs)
    except BaseException as error:
        if _Forks.count != count:
            _end_copy(error)
        raise
    if _Forks.count != count:
        _end_copy(None)
    return value


async def await_in_one_process(awaitable: Awaitable[Any]) -> Any:
    """See call_in_one_process(); for the coroutine of a coroutine function."""
    count = _Forks.count
    try:
        value = await awaitable
    except BaseException as error:
        if _Forks.count != count:
            _end_copy(error)
        raise
    if _Forks.count != count:
        _end_copy(None)
    return value


def _end_copy(error: BaseException | None) -> NoReturn:
    """End this process at once, with the exit status that a Python program would have."""
    status = 0
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        status = 1
    lines = traceback.format_exception(error) if status and not isinstance(error, SystemExit) else []
    pid = os.getpid()
    lines.append(
        f"a task forked a process that did not end in it: process {pid}, a copy of the worker, ends with status "
        f"{status}; end a forked child with os._exit(), or use subprocess\n"
    )
    # Not by the log: its handlers may have locks and connections of threads that do not exist here.
    with suppress(OSError):
        os.write(2, "".join(lines).encode(errors="replace"))
    os._exit(status & 0xFF)
