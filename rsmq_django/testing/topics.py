"""Runs the functions of topics in the thread of the test, with the source and the executions of a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from ..conf.options import nearest
from ..core.limits import MAX_BATCH
from ..core.topic import TopicMessage
from ..core.topic.keys import group_keys
from ..core.transport.call import Call
from ..queues import get_client
from ..tasks.topic_task import TopicBridge, TopicTask, registered_topic_tasks
from ..worker.execute.execution import Execution
from ..worker.execute.invoke import connections_kept
from ..worker.report.notifications import Notifier
from ..worker.sources.source import SourceContext
from ..worker.sources.topic import TopicGroupSource, sources_of
from .running import run_here

#: Limit for functions that endlessly publish to their own topic.
MOST_RUNS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRun:
    """A call of a topic's consumer function."""

    #: Dotted path of the function.
    task: str
    topic: str
    group: str
    messages: list[TopicMessage]
    #: The exception that the function raised.
    error: BaseException | None

    @property
    def succeeded(self) -> bool:
        """Return whether the function succeeded."""
        return self.error is None


def run_topics(names: Sequence[str]) -> list[TopicRun]:
    """Deliver all messages of topics, or of these, to their consumers, until none is left."""
    runs: list[TopicRun] = []
    declared = registered_topic_tasks()
    topics = {each.topic for each in declared}
    for name in names:
        if name not in topics:
            raise AssertionError(f"topic {name!r} has no consumer. {nearest(name, topics)}")
    context = SourceContext(notifier=Notifier("test"), poll_interval_s=1, wake=lambda: None, ends_by_itself=True)
    recorded = [_recorded(each, runs) for each in declared if not names or each.topic in names]
    sources = sources_of(recorded, context)
    with connections_kept():
        while False in [_advance(source) for source in sources]:
            if len(runs) > MOST_RUNS:
                raise AssertionError(f"still not done after {MOST_RUNS} runs; the last one was of {runs[-1].task}")
    for source in sources:
        source.flush()
    return runs


def _advance(source: TopicGroupSource) -> bool:
    """Settle, read and run messages once; return whether nothing is left."""
    deliveries = source.exchange(MAX_BATCH, at_most=MAX_BATCH)
    if source.failure is not None:
        raise source.failure
    executions = [Execution(each, sink=source, notifier=source.notifier) for each in deliveries]
    source.note_arrived(executions)
    for runnable in source.in_calls(source.admit(executions)):
        run_here(runnable)
    return source.is_idle and bool(source.is_drained)


def _recorded(declared: TopicTask | TopicBridge, runs: list[TopicRun]) -> TopicTask | TopicBridge:
    """Return the declaration with a function that records its calls."""
    if isinstance(declared, TopicBridge):
        return declared
    function = declared.func

    def record(given: Any, error: BaseException | None) -> None:
        messages = [given] if isinstance(given, TopicMessage) else list(given)
        runs.append(
            TopicRun(
                task=declared.module_path, topic=declared.topic, group=declared.group, messages=messages, error=error
            )
        )

    @wraps(function)
    def call(given: Any) -> None:
        error = None
        try:
            function(given)
        except BaseException as raised:
            error = raised
            raise
        finally:
            record(given, error)

    @wraps(function)
    async def acall(given: Any) -> None:
        error = None
        try:
            await function(given)
        except BaseException as raised:
            error = raised
            raise
        finally:
            record(given, error)

    recorded: Callable[..., Any] = acall if iscoroutinefunction(function) else call
    return replace(declared, func=recorded)


def pass_time_of_topics(milliseconds: int) -> None:
    """Advance the time of failed or unacknowledged messages of topics."""
    for declared in registered_topic_tasks():
        if isinstance(declared, TopicTask):
            keys = (group_keys(declared.topic, declared.group).due,)
            get_client(declared.connection).run(Call("queue/testing/pass_time", keys, (milliseconds,), int))
