"""Finds the function that a message asks for: decode, look up, check the arguments. Runs nothing.

The function of a raw queue is its primary consumer, surrounded by a call of the secondary ones. A call of a task that
is not declared here is postponed, because another worker may know it.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import re
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from django.core.signals import setting_changed
from django.dispatch import receiver

from ...conf.settings import get_settings
from ...core import Message
from ...core.limits import MAX_BODY_BYTES
from ...core.log_lines import get_logger
from ...tasks.arguments import misfit, surely_fit
from ...tasks.envelope import Unreadable, decode
from ...tasks.interrupts import TaskCancelled
from ...tasks.membership import membership_of
from ...tasks.registry import Consumer, find_consumer, find_followers, holds_dead_letters
from ...tasks.retry import TaskTimeout
from ...tasks.route import result_ttl_s
from ...tasks.sealing import unseal
from ...tasks.task import Task, find_task
from ...tasks.typed_arguments import types_of_task
from ...tasks.unknown_task import why_unknown
from ..delivery import AttemptState, Delivery, Handler, TooLong
from .invoke import await_in_one_process, call_in_one_process

#: A body without it is not a call; this search takes much less time than to parse the body.
NAMES_A_TASK = b'"task"'
_TASK_NAMES = re.compile(rb'"task"\s*:\s*"([^"\\]+)"')


def handler_of_group(attempt: AttemptState, handler: Handler) -> Handler:
    """Return the function of all messages of a topic's group, and store its argument in the attempt."""
    attempt.args, attempt.kwargs = [attempt.delivery.given], {}
    return handler


def find_handler(attempt: AttemptState) -> Handler:
    """Return the function that a message asks for, and store arguments and task call in the attempt.

    Raises Unreadable with the reason when no attempt could ever run it.
    """
    delivery = attempt.delivery
    message, work_queue = delivery.message, delivery.work_queue
    if delivery.too_long is not None:
        raise Unreadable("too_long", _too_long(delivery.too_long, work_queue.name))
    if work_queue.is_sealed:
        namespace = work_queue.signed_namespace
        body = unseal(message.body, work_queue.settings, name=work_queue.base_name, namespace=namespace)
        message = Message(message.id, body, message.receive_count, message.first_received_ms)
    consumer = find_consumer(work_queue.base_name)
    if consumer is not None:
        if NAMES_A_TASK in message.body and not consumer.takes_calls:
            _refuse_call(message, consumer)
        attempt.args, attempt.kwargs = [message], {}
        return _handler_of_consumer(consumer)
    envelope = attempt.envelope = decode(message.body, message_id=message.id)
    task = find_task(envelope.task)
    if task is None:
        raise Unreadable(
            UNKNOWN_TASK,
            f"no task {envelope.task!r} is declared in this worker: {why_unknown(envelope.task)}",
            envelope,
        )
    attempt.args, attempt.kwargs, attempt.meta = envelope.args, envelope.kwargs, envelope.meta
    given = int(task.takes_context)
    if envelope.meta is not None:
        membership = membership_of(envelope.meta)
        if membership is not None and membership.takes:
            attempt.takes_from, given = membership, given + 1
            attempt.args = [None, *envelope.args]  # None is replaced by the argument when it runs
    if task.options.batch is None and not surely_fit(task.func, len(envelope.args) + given, envelope.kwargs):
        text = misfit(task.func, envelope.args, envelope.kwargs, given=given)
        if text:
            raise Unreadable("wrong_arguments", f"{envelope.task}{text}", envelope)
    handler = handler_of(task)
    if handler.is_sealed and not work_queue.is_sealed:
        raise Unreadable(
            "unsigned",
            f"task {handler.path} is declared for queue {task.queue_name!r}, which is signed or encrypted, and this "
            f"message came through {work_queue.name!r}, which is not",
            envelope,
        )
    return handler


def handler_of(task: Task[..., Any]) -> Handler:
    """Return the handler of a task: made once, until it is declared anew or the settings change."""
    handler = _handlers.get(task.module_path)
    if handler is None or handler.task is not task:
        options, is_sealed = task.options, get_settings().is_sealed(task.queue_name)
        is_grouped, types = options.batch is not None or options.ack == "each", types_of_task(task)
        has_surroundings = is_grouped or is_sealed or options.once or task.takes_context
        handler = _handlers[task.module_path] = Handler(
            task.module_path,
            task.func,
            options,
            inspect.iscoroutinefunction(task.func),
            task,
            result_ttl_s(task),
            is_sealed,
            is_plain=not has_surroundings and types.arguments is None,
            arguments=types.arguments,
            returned=types.returned,
        )
    return handler


def _too_long(found: TooLong, queue_name: str) -> str:
    if found.limit_bytes < MAX_BODY_BYTES:
        return f"the body is {found.size_bytes} bytes, queue {queue_name!r} allows {found.limit_bytes}"
    return f"the body is {found.size_bytes} bytes; a worker reads at most {found.limit_bytes}"


def _refuse_call(message: Message, consumer: Consumer) -> None:
    """Raise Unreadable for a call of a known task on the queue of a consumer: the consumer would delete it.

    It is not run as a task either: consumers read queues that other programs write to, and these may not be allowed to
    start tasks. The consumer of a dead-letter queue does get calls, because dead letters are calls.
    """
    if not any(find_task(path.decode("utf-8", "replace")) for path in _TASK_NAMES.findall(message.body)):
        return
    try:
        envelope = decode(message.body, message_id=message.id)
    except Unreadable:
        return
    if find_task(envelope.task) is None or holds_dead_letters(consumer.queue_name):
        return
    raise Unreadable(
        "wrong_queue",
        f"a call of task {envelope.task}, but queue {consumer.queue_name!r} has the consumer {consumer.module_path}; "
        "enqueue the task on a queue of its own, or declare the consumer with takes_calls=True",
        envelope,
    )


#: Handlers of tasks, by path.
_handlers: dict[str, Handler] = {}


@receiver(setting_changed)
def _forget_handlers(**_: object) -> None:
    _handlers.clear()


def _handler_of_consumer(consumer: Consumer) -> Handler:
    followers = find_followers(consumer.queue_name)
    func = followed_by(consumer, followers) if followers else consumer.func
    return Handler(consumer.module_path, func, consumer.options, inspect.iscoroutinefunction(consumer.func))


logger = get_logger(__name__)

# -- Secondary consumers ----------------------------------------------------------------------------------------------

INTERRUPTIONS = (TaskTimeout, TaskCancelled, asyncio.CancelledError)


def followed_by(primary: Consumer, followers: Sequence[Consumer]) -> Callable[..., Any]:
    """Return a function that calls the primary consumer and then the others, whether it returns or raises.

    The others run at each attempt, within the same time limit and under the same lease, with the same argument, and
    decide nothing: their exceptions are logged and do not change the outcome. An interruption (time limit,
    cancellation, stop of the worker) ends all of them: consumers that have not started are skipped.
    """
    if iscoroutinefunction(primary.func):
        return _afollowed_by(primary, followers)

    @wraps(primary.func)
    def call_all(received: Any) -> Any:
        error = None
        try:
            answer = call_in_one_process(primary.func, [received], {})
        except INTERRUPTIONS:
            raise
        except BaseException as raised:
            error = raised
        for follower in followers:
            try:
                call_in_one_process(follower.func, [received], {})
            except BaseException as failure:
                if _ends_all(failure, follower, primary):
                    break
        if error is not None:
            raise error
        return answer

    return call_all


def _afollowed_by(primary: Consumer, followers: Sequence[Consumer]) -> Callable[..., Any]:
    """See followed_by()."""

    @wraps(primary.func)
    async def call_all(received: Any) -> Any:
        error = None
        try:
            answer = await await_in_one_process(primary.func(received))
        except INTERRUPTIONS:
            raise
        except BaseException as raised:
            error = raised
        for follower in followers:
            try:
                await await_in_one_process(follower.func(received))
            except BaseException as failure:
                if _ends_all(failure, follower, primary):
                    break
        if error is not None:
            raise error
        return answer

    return call_all


def _ends_all(failure: BaseException, follower: Consumer, primary: Consumer) -> bool:
    """Log the exception of a secondary consumer; return whether it ends all of them."""
    text = "%s failed after %s, which alone decides the outcome: this is not retried"
    logger.error(text, follower.module_path, primary.module_path, exc_info=failure)
    return isinstance(failure, INTERRUPTIONS)


# -- Unknown tasks ----------------------------------------------------------------------------------------------------

UNKNOWN_TASK = "unknown_task"
#: The waits of one message double from the first to the longest.
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
#: A wait is random; this share of its maximum is the mean.
MEAN_SHARE = 0.75
#: More than fit into the longest grace period; a receive count may be any number.
MOST_TIMES = 20_000
#: Maximum number of names remembered as logged; a message may contain any name.
MOST_NAMES = 1000

_logged: set[str] = set()


def unknown_task_wait_s(delivery: Delivery, *, now_ms: float) -> float | None:
    """Return how long to postpone a call of an unknown task; None when its grace period is over, or its start unknown.

    During a rolling deployment old workers receive calls of new tasks, and two projects may share a queue. Such a call
    is postponed without counting an attempt, later each time, until UNKNOWN_TASK_GRACE_S after it was first received;
    a retry, and a call in a reliable queue, at least as often as fits into that time.
    """
    message, grace_s = delivery.message, get_settings().tasks.unknown_task_grace_s
    is_reliable = delivery.work_queue.reliable is not None  # no time of a first receive is stored there
    since_ms = message.sent_ms if is_reliable else message.first_received_ms
    if grace_s == 0 or since_ms is None:
        return None
    # A redriven message has kept the time of an earlier receive.
    left_s = grace_s - (now_ms - max(since_ms, message.sent_ms or 0)) / 1000
    times_before = message.receive_count - delivery.attempt
    if delivery.attempt > 1 or is_reliable:
        # This time may be long ago although nothing was unknown then.
        waits_s = map(_longest_wait_s, range(min(times_before, MOST_TIMES)))
        left_s = max(left_s, grace_s - sum(waits_s) * MEAN_SHARE)
    if left_s <= 0:
        return None
    longest_s = _longest_wait_s(times_before)
    return min(longest_s * random.uniform(2 * MEAN_SHARE - 1, 1.0), left_s)  # noqa: S311 - spreads load


def _longest_wait_s(times_before: int) -> float:
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(times_before, 10))


def log_unknown_task(error: Unreadable) -> None:
    """Log that calls of a task are postponed; once for each task in this process."""
    name = error.envelope.task if error.envelope is not None else ""
    if name in _logged or len(_logged) >= MOST_NAMES:
        return
    _logged.add(name)
    grace_s = get_settings().tasks.unknown_task_grace_s
    text = "%s; its calls are given back to their queue for up to %.0f s each, and then become dead letters"
    logger.warning(text, error, grace_s)
