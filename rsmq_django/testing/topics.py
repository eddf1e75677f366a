"""Runs the consumers of topics in the thread of the test, with the steps of a worker's threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..conf.options import nearest
from ..core.topic import Bridge, ConsumerGroup, Topic, TopicMessage
from ..core.topic.keys import group_keys
from ..core.transport.call import Call
from ..queues import get_client, get_queue
from ..tasks.topic_task import TopicBridge, TopicTask, registered_topic_tasks
from ..worker.execute.invoke import connections_kept
from ..worker.sources.topic import BridgeThread, ConsumerThread, TopicPlan, TopicReport, TopicThread

#: Limit for functions that endlessly publish to their own topic.
MOST_RUNS = 10_000
PLAN = TopicPlan(wake=lambda: None, until_drained=True)


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


class _Consumer(ConsumerThread):
    """A consumer that runs in the test's thread and records the calls of its function."""

    def __init__(self, task: TopicTask, group: ConsumerGroup, runs: list[TopicRun]) -> None:
        super().__init__(task, group, PLAN, TopicReport(group.client, "test"))
        self._runs = runs

    def attempt(self, messages: Sequence[TopicMessage]) -> BaseException | None:
        """Call the function and record the call."""
        error = super().attempt(messages)
        path, topic = self._task.module_path, self.group.topic.name
        self._runs.append(TopicRun(task=path, topic=topic, group=self.group.name, messages=list(messages), error=error))
        return error


def run_topics(names: Sequence[str]) -> list[TopicRun]:
    """Deliver all messages of topics, or of these, to their consumers, until none is left."""
    runs: list[TopicRun] = []
    declared = registered_topic_tasks()
    topics = {each.topic for each in declared}
    for name in names:
        if name not in topics:
            raise AssertionError(f"topic {name!r} has no consumer. {nearest(name, topics)}")
    followers = [_follower(each, runs) for each in declared if not names or each.topic in names]
    with connections_kept():
        while False in [follower.step() for follower in followers]:
            if len(runs) > MOST_RUNS:
                raise AssertionError(f"still not done after {MOST_RUNS} runs; the last one was of {runs[-1].task}")
    for follower in followers:
        follower.group.leave()
    return runs


def _follower(declared: TopicTask | TopicBridge, runs: list[TopicRun]) -> TopicThread:
    if isinstance(declared, TopicBridge):
        queue = get_queue(declared.queue)
        return BridgeThread(
            Bridge(ConsumerGroup(Topic(declared.topic, queue.client), declared.group, declared.options), queue), PLAN
        )
    topic = Topic(declared.topic, get_client(declared.connection))
    return _Consumer(declared, ConsumerGroup(topic, declared.group, declared.options), runs)


def pass_time_of_topics(milliseconds: int) -> None:
    """Advance the time of failed or unacknowledged messages of topics."""
    for declared in registered_topic_tasks():
        if isinstance(declared, TopicTask):
            keys = (group_keys(declared.topic, declared.group).due,)
            get_client(declared.connection).run(Call("queue/testing/pass_time", keys, (milliseconds,), int))
