"""The decorator `@consumer`, the declared consumers, and what queues need of declared tasks and consumers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured

from ..conf.settings import get_settings
from .compat import InvalidTask
from .options import TaskOptions
from .retry import exponential, refuse_result_backoff
from .task import find_task, registered_tasks
from .topic_task import TopicTask, registered_topic_tasks

F = TypeVar("F", bound=Callable[..., Any])
Function = Callable[..., Any]


class QueueConflict(InvalidTask):
    """A task and a consumer on one queue."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """A function that receives every message of one raw queue as a `Message`."""

    func: Function
    queue_name: str
    options: TaskOptions
    #: Whether it also receives messages that are calls of declared tasks.
    takes_calls: bool = False

    @property
    def module_path(self) -> str:
        """Return the function's dotted path, as for tasks."""
        return f"{self.func.__module__}.{self.func.__qualname__}"


_consumers: dict[str, Consumer] = {}
#: By queue and dotted path.
_followers: dict[str, dict[str, Consumer]] = {}


def digest_of_tasks() -> str:
    """Return the number of registered tasks and a digest of their paths: equal in processes with equal tasks."""
    paths = {path for task in registered_tasks().values() for path in (task.module_path, *task.options.aliases)}
    digest = hashlib.sha256("\n".join(sorted(paths)).encode()).hexdigest()
    return f"{len(paths)} {digest[:12]}"


def check_stays_sealed(path: str, queue_name: str) -> None:
    """Raise InvalidTask for a call on a queue without keys of a task whose own queue is signed or encrypted.

    Workers refuse such a call, because any program may have written it.
    """
    declared = find_task(path)
    if declared is None or declared.queue_name == queue_name:
        return  # also where the task is declared, which works even with wrong settings
    settings = get_settings()
    if not settings.is_sealed(queue_name) and settings.is_sealed(declared.queue_name):
        raise InvalidTask(
            f"Task {path}: its queue {declared.queue_name!r} is signed or encrypted, {queue_name!r} is not, and "
            "workers run it only from queues with keys; give that queue keys, or declare another task for it"
        )


def check_queues(path: str, queue_name: str, dead_letter_queue: str | None) -> None:
    """Raise InvalidTask when a queue is not in the settings, or when its dead letters would be on another server."""
    try:
        settings = get_settings()
    except ImproperlyConfigured:
        return  # `manage.py check` reports it, if the project can be imported; so does enqueue()
    if not isinstance(queue_name, str):
        raise InvalidTask(f"Task {path}: queue_name is {queue_name!r}; it must be the name of a queue, a text")
    if queue_name in settings.reliable:
        raise InvalidTask(
            f"Task {path}: {queue_name!r} is a reliable queue; its calls are pushed: "
            f"get_reliable_queue({queue_name!r}).push(task_body(task, ...)), both of rsmq_django.reliable_queues"
        )
    try:
        home = settings.queue(queue_name)
        for name in (queue_name, dead_letter_queue or queue_name):
            if (base := settings.base_name(name)) != name:
                raise InvalidTask(
                    f"Task {path}: {name!r} is a priority band of {base!r}; name that queue and the priority instead"
                )
        if dead_letter_queue and queue_name in (chain := settings.dead_letter_chain(dead_letter_queue)):
            way = " -> ".join([queue_name, *chain[: chain.index(queue_name) + 1]])
            raise InvalidTask(
                f"Task {path}: its dead letters would come back to its own queue: {way}; name another dead-letter queue"
            )
        if dead_letter_queue and settings.queue(dead_letter_queue).connection != home.connection:
            raise InvalidTask(
                f"Task {path}: its dead-letter queue {dead_letter_queue!r} is on another connection than "
                f"queue {queue_name!r}; a message moves between queues of one server only"
            )
        if dead_letter_queue and settings.queue(dead_letter_queue).shards < home.shards:
            raise InvalidTask(
                f"Task {path}: its dead-letter queue {dead_letter_queue!r} has fewer SHARDS than queue {queue_name!r}; "
                "a message stays in its shard"
            )
    except ImproperlyConfigured as error:
        raise InvalidTask(f"Task {path}: {error}") from error


def check_no_consumer(path: str, queue_name: str) -> None:
    """Raise QueueConflict when the queue of a task has a consumer, which would receive the calls of the task."""
    followers = _followers.get(queue_name)
    known = _consumers.get(queue_name) or (next(iter(followers.values())) if followers else None)
    if known is not None and not known.takes_calls:
        raise QueueConflict(
            f"Task {path}: queue {queue_name!r} has the consumer {known.module_path}, which gets every message of the "
            "queue; give the task a queue of its own"
        )


def _check_no_task(consumer: Consumer) -> None:
    for task in () if consumer.takes_calls else registered_tasks().values():
        if task.queue_name == consumer.queue_name:
            raise QueueConflict(
                f"Consumer {consumer.module_path}: it would get every message of queue {consumer.queue_name!r}, to "
                f"which calls of {task.module_path} are sent; give the consumer a queue of its own"
            )


def register_consumer(consumer: Consumer) -> None:
    """Register the consumer of a raw queue.

    Raises InvalidTask when the settings do not have its queues, or when the queue has tasks or another consumer.
    """
    if not _is_of_reliable_queue(consumer):
        check_queues(consumer.module_path, consumer.queue_name, consumer.options.named_dead_letters)
    _check_no_task(consumer)
    known = _consumers.get(consumer.queue_name)
    if known is not None and known.module_path != consumer.module_path:
        raise InvalidTask(
            f"queue {consumer.queue_name!r} has a consumer already: {known.module_path}; "
            f"{consumer.module_path} needs a queue of its own"
        )
    _consumers[consumer.queue_name] = consumer
    _check_kinds(consumer.queue_name)


def register_follower(consumer: Consumer) -> None:
    """Register a function that runs after the consumer of a raw queue. Raises InvalidTask."""
    if not _is_of_reliable_queue(consumer):
        check_queues(consumer.module_path, consumer.queue_name, None)
    _check_no_task(consumer)
    _followers.setdefault(consumer.queue_name, {})[consumer.module_path] = consumer
    _check_kinds(consumer.queue_name)


def _check_kinds(queue_name: str) -> None:
    """Raise InvalidTask when functions of a queue would have to run in different places."""
    primary, followers = _consumers.get(queue_name), _followers.get(queue_name, {})
    for follower in followers.values():
        if primary is not None and iscoroutinefunction(primary.func) != iscoroutinefunction(follower.func):
            raise InvalidTask(
                f"{follower.module_path} follows {primary.module_path} on queue {queue_name!r}; make both of them "
                "async functions, or none"
            )


def check_primary(queue_name: str) -> None:
    """Raise ImproperlyConfigured when a queue has consumers, but no primary consumer."""
    followers = find_followers(queue_name)
    if followers and queue_name not in _consumers:
        raise ImproperlyConfigured(
            f"Queue {queue_name!r} has {followers[0].module_path} with primary=False and no primary consumer, which "
            f"would decide the outcome of its messages: declare one with @consumer({queue_name!r})."
        )


def find_followers(queue_name: str) -> list[Consumer]:
    """Return the functions that run after the consumer of a queue, in the order in which they were declared."""
    return list(_followers[queue_name].values()) if queue_name in _followers else []


def _is_of_reliable_queue(consumer: Consumer) -> bool:
    try:
        is_reliable = consumer.queue_name in get_settings().reliable
    except ImproperlyConfigured:
        return False
    if is_reliable and consumer.options.named_dead_letters is not None:
        raise InvalidTask(
            f"{consumer.module_path}: queue {consumer.queue_name!r} is reliable and keeps its dead messages itself; "
            "leave dead_letter_queue out; DISCARD deletes them"
        )
    return is_reliable


def batch_size(queue_name: str) -> int | None:
    """Return the batch size of a queue of consumers; None unless all its functions take batches."""
    consumer = find_consumer(queue_name)
    if consumer is not None:
        return consumer.options.batch
    tasks = registered_tasks().values()
    sizes: list[int | None] = [task.options.batch for task in tasks if task.queue_name == queue_name]
    known = [size for size in sizes if size is not None]
    return min(known) if known and len(known) == len(sizes) else None


def largest_batch() -> int:
    """Return the largest batch size of all declared functions."""
    of_topics = [each.call_options for each in registered_topic_tasks() if isinstance(each, TopicTask)]
    return max((option.batch or 1 for option in [*_all_options(), *of_topics]), default=1)


def _all_options() -> list[TaskOptions]:
    of_tasks = [task.options for task in registered_tasks().values()]
    return of_tasks + [consumer.options for consumer in _consumers.values()]


def registered_consumers() -> list[Consumer]:
    """Return the functions of raw queues."""
    return list(_consumers.values())


def holds_dead_letters(queue_name: str) -> bool:
    """Return whether the settings or a declared task send dead letters to a queue."""
    declared = {options.named_dead_letters for options in _all_options()}
    names = {name for _, name in get_settings().dead_letter_places} | declared
    return queue_name in names


def find_consumer(queue_name: str) -> Consumer | None:
    """Return the consumer of a queue, or None when its messages are tasks."""
    return _consumers.get(queue_name)


def consumer(queue_name: str, *, primary: bool = True, takes_calls: bool = False, **options: Any) -> Callable[[F], F]:
    """Declare the function that receives every message of a raw queue, written by a program in any language.

    It receives the `Message` with its body as bytes, or with `batch` a list of them. Returning deletes the message;
    raising follows the same options as in `task()`. With `primary=False` it runs at each attempt after the primary
    consumer, with the same messages, and decides nothing: its exceptions are logged. A call of a task that is declared
    in the worker goes to the dead-letter queue instead of the consumer, unless `takes_calls=True` asks for calls, too.
    The decorated function stays an ordinary function. Raises InvalidTask or ValueError when it is declared for a queue
    that RSMQ["QUEUES"] lacks, that has tasks or a primary consumer, or with an option that cannot work.
    """
    if not isinstance(queue_name, str):
        raise TypeError(f'queue_name is {queue_name!r}; name the queue: @consumer("readings")')
    given = [*(["takes_calls"] if takes_calls else []), *options]
    if not primary and given:
        raise ValueError(f"{given[0]} is for the primary consumer of {queue_name!r}; this one decides nothing")

    def declare(function: F) -> F:
        if primary:
            refuse_result_backoff(options.get("backoff", exponential()), f"consumer {function.__qualname__}")
            register_consumer(Consumer(function, queue_name, TaskOptions(**options), takes_calls))
        else:
            register_follower(Consumer(function, queue_name, TaskOptions()))
        return function

    return declare
