"""Declarations of topic tasks, which receive the messages of a topic, and of bridges from a topic to a queue.

Both are run by `rsmq_worker`, in every one of its processes. Declaring does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Never, TypeVar

from django.core.exceptions import ImproperlyConfigured

from ..conf.options import nearest
from ..conf.settings import get_settings
from ..core.errors import RsmqError
from ..core.numbers import is_whole
from ..core.topic import GroupOptions
from ..core.topic.group import Start
from ..core.topic.keys import checked_group, checked_topic
from .compat import InvalidTask
from .options import TaskOptions
from .retry import Backoff, exponential, refuse_result_backoff, wrong_backoff

F = TypeVar("F", bound=Callable[..., Any])

#: Messages or batches of one topic task that run at a time in one process.
MAX_CONSUMERS = 100
MIN_VISIBILITY_TIMEOUT_S = 5
#: Options of a topic task, and options of tasks and consumers of queues.
OPTIONS = (
    *("group", "batch", "max_deliveries", "visibility_timeout_s", "backoff"),
    *("start", "on_reset", "consumers", "connection", "timeout_s", "hard_timeout_s"),
)
_NO_CALL = "a message of a topic is no call of a task"
#: Options of tasks and consumers of queues that topic tasks do not have, with the reason.
NOT_OF_TOPICS = {
    "unique": f"{_NO_CALL}, and a topic keeps every message",
    "expires_in_s": "a topic keeps its messages as long as its retention says, for all groups",
    "tags": f"{_NO_CALL}, so nothing could find or cancel it by a tag",
    "fair_by": "a group reads its topic in order",
    "shard_by": f"{_NO_CALL}, and a topic has no shards",
    "priority": "a group reads its topic in order",
    "result_ttl_s": f"{_NO_CALL} with a result to read",
    "max_attempts": "its group counts deliveries: max_deliveries",
    "retry_on": "its group delivers a message again until max_deliveries, whatever was raised",
    "give_up_on": "its group delivers a message again until max_deliveries, whatever was raised",
    "dead_letter_queue": "its dead letters go to the dead-letter topic, with their keys and headers",
    "missing_objects": f"{_NO_CALL}, so no argument names a row",
    "once": f"{_NO_CALL} with an id that could be stored; the index of the message can be",
    "limits": "a message without a place would come after later ones of its group; consumers says how many run at once",
    "ack": "outcomes are sent at most 0.1 s after a call; with max_deliveries=1, before the next message is read",
    "aliases": f"{_NO_CALL} that names its function",
    "durability": "publishers wait as the DURABILITY of the connection says",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTask:
    """A function that receives the messages of a topic for a group, at least once."""

    func: Callable[..., Any]
    topic: str
    group: str
    #: None: the function gets one message. A number: it gets a list of up to this many.
    batch: int | None
    options: GroupOptions
    #: What its executions need to know: backoff, batch, time limits, limits.
    call_options: TaskOptions
    consumers: int
    connection: str

    def __post_init__(self) -> None:
        _check_number(self.module_path, "consumers", self.consumers, most=MAX_CONSUMERS)

    @property
    def module_path(self) -> str:
        """Return the function's dotted path."""
        return f"{self.func.__module__}.{self.func.__qualname__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBridge:
    """A queue of the settings to which a group moves the messages of a topic."""

    topic: str
    group: str
    queue: str
    options: GroupOptions

    @property
    def connection(self) -> str:
        """Return the alias of the queue's connection. Raises ImproperlyConfigured for an unknown queue."""
        return get_settings().queue(self.queue).connection


_tasks: dict[tuple[str, str], TopicTask | TopicBridge] = {}


def topic_task(  # noqa: PLR0913 - public: an option of the declaration each
    topic: str,
    *,
    group: str,
    batch: int | None = None,
    max_deliveries: int = 5,
    visibility_timeout_s: float = 30,
    backoff: Backoff | None = None,
    start: Start = "earliest",
    on_reset: Start = "error",
    consumers: int = 1,
    connection: str = "default",
    timeout_s: float | None = None,
    hard_timeout_s: float | None = None,
    **others: Never,
) -> Callable[[F], F]:
    """Declare the function that receives the messages of a topic for a group.

    It receives one `TopicMessage`, or with `batch` a list of up to this many, and runs in `rsmq_worker`. Returning
    acknowledges them. When a batch raises, its messages are tried one by one; a message that raises is delivered again
    after `backoff` (seconds as a function of the failed delivery) and goes to the dead-letter topic, "<topic>.dlt",
    after `max_deliveries`; 0 retries forever. Messages are leased for `visibility_timeout_s` and for as long as the
    function runs. `consumers` is how many messages, or batches, each process runs at a time. `timeout_s` and
    `hard_timeout_s` limit the time of a call, as those of a task. The decorated function stays an ordinary
    function. Raises InvalidTask for a declaration that cannot work.
    """
    _refuse(others)

    def declare(function: F) -> F:
        path = f"{function.__module__}.{function.__qualname__}"
        _check_timeout(path, visibility_timeout_s)
        if backoff is not None and not callable(backoff):
            raise InvalidTask(f"{path}: {wrong_backoff(backoff)}")
        tries = {"max_deliveries": max_deliveries, "visibility_timeout_s": visibility_timeout_s}
        declared = TopicTask(
            func=function,
            topic=topic,
            group=group,
            batch=batch,
            options=_checked_options(path, topic, group, at_least_once=True, start=start, on_reset=on_reset, **tries),
            call_options=_checked_call_options(
                path, backoff=backoff or exponential(), batch=batch, timeout_s=timeout_s, hard_timeout_s=hard_timeout_s
            ),
            consumers=consumers,
            connection=connection,
        )
        _register(path, declared)
        return function

    return declare


def _refuse(options: Iterable[str]) -> None:
    for name in options:
        if name in NOT_OF_TOPICS:
            raise InvalidTask(
                f"a topic task has no {name}: {NOT_OF_TOPICS[name]}; feed a queue from the topic, "
                f"bridge_topic(..., queue=...), and give {name} to the function of that queue"
            )
        raise TypeError(f"a topic task has no option {name!r}. {nearest(name, OPTIONS)}")


def bridge_topic(topic: str, *, group: str, queue: str, start: Start = "earliest", on_reset: Start = "error") -> None:
    """Let `rsmq_worker` move the messages of a topic to a queue of RSMQ["QUEUES"]: each arrives exactly once.

    For clients of RSMQ in other languages, and for tasks and consumers of that queue. Raises InvalidTask.
    """
    options = _checked_options(f"bridge to {queue!r}", topic, group, start=start, on_reset=on_reset)
    _register(f"bridge to {queue!r}", TopicBridge(topic=topic, group=group, queue=queue, options=options))


def registered_topic_tasks() -> list[TopicTask | TopicBridge]:
    """Return all declared topic tasks and bridges."""
    return list(_tasks.values())


def _register(what: str, declared: TopicTask | TopicBridge) -> None:
    known = _tasks.get((declared.topic, declared.group))
    if known is not None and _named(known) != _named(declared):
        raise InvalidTask(
            f"{what}: group {declared.group!r} of topic {declared.topic!r} is {_named(known)} already; each group gets "
            "all messages, so give this one a group of its own"
        )
    _tasks[declared.topic, declared.group] = declared


def _named(declared: TopicTask | TopicBridge) -> str:
    return declared.module_path if isinstance(declared, TopicTask) else f"bridge to {declared.queue!r}"


def _checked_options(what: str, topic: str, group: str, **options: Any) -> GroupOptions:
    try:
        checked_topic(topic, namespace="")
        checked_group(group)
        return GroupOptions(**options)
    except RsmqError as error:
        raise InvalidTask(f"{what}: {error}") from error


def _checked_call_options(path: str, **options: Any) -> TaskOptions:
    try:
        refuse_result_backoff(options["backoff"], path)
        return TaskOptions(**options)
    except ValueError as error:
        raise InvalidTask(f"{path}: {error}") from error


def _check_timeout(path: str, visibility_timeout_s: float) -> None:
    if not isinstance(visibility_timeout_s, (int, float)) or visibility_timeout_s < MIN_VISIBILITY_TIMEOUT_S:
        raise InvalidTask(
            f"{path}: visibility_timeout_s is {visibility_timeout_s!r}; it must be at least "
            f"{MIN_VISIBILITY_TIMEOUT_S} seconds, because it is renewed every second or so while the function runs"
        )


def _check_number(path: str, what: str, number: int, *, most: int) -> None:
    if not is_whole(number) or not 1 <= number <= most:
        raise InvalidTask(f"{path}: {what} is {number!r}; it must be a whole number between 1 and {most}")


def check_topic_tasks() -> None:
    """Raise ImproperlyConfigured for a connection or queue that is not in the settings, or for a reserved name.

    When a function is declared, the settings may not be complete yet.
    """
    settings = get_settings()
    for declared in registered_topic_tasks():
        if isinstance(declared, TopicBridge) and settings.queue(declared.queue).shards > 1:
            raise ImproperlyConfigured(
                f"{_named(declared)}: queue {declared.queue!r} has SHARDS, and a bridge moves messages to one "
                "namespace; name a queue without SHARDS"
            )
        settings.check_topic(declared.topic)
        try:
            checked_topic(declared.topic, namespace=settings.connection(declared.connection).namespace)
        except RsmqError as error:
            raise ImproperlyConfigured(f"{_named(declared)}: {error}") from error
