"""A group of a topic in a worker: a consumed one with its function, or a group that is bridged to a queue."""

from __future__ import annotations

import inspect
import itertools
import math
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from ...conf.settings import QueueSettings
from ...core import Client, Message, Queue
from ...core.limits import MAX_BATCH
from ...core.topic import Bridge, ConsumerGroup, Topic, TopicBatch, TopicMessage
from ...core.topic.group import BEAT_EVERY_S
from ...core.topic.keys import dead_letter_topic
from ...core.transport.backoff import ReconnectBackoff
from ...core.transport.call import Call
from ...queues import get_client, get_queue
from ...tasks.topic_task import TopicBridge, TopicTask
from ..delivery import Delivery, Handler, WorkQueue
from ..execute.pool import Prefetch
from ..outcomes import Settlement

#: A group without messages is read this often: plain clients publish without a wake-up.
READ_EVERY_S = 1.0
#: Messages that run one after another are read together up to about this size, by that of the latest ones.
MOST_AHEAD_BYTES = 1_048_576
#: What a read leaves of the size of the longest message before it.
FORGETS_LONG = 0.8
#: The limit for messages that may be delivered any number of times.
NO_LIMIT = 1_000_000


@dataclass(slots=True, eq=False)
class GroupState:
    """What a consumed group and a bridge have in common: when to read, and whether something is left."""

    group: ConsumerGroup
    #: Notes that the group cannot be read or settled; the others of the connection continue.
    damage: ReconnectBackoff
    #: When to read next, on the monotonic clock.
    read_at: float = 0.0
    #: Whether the last read left nothing ready; None when that is not known.
    is_drained: bool | None = None
    #: Whether it left nothing at all, neither ready nor in flight.
    is_empty: bool | None = None

    @property
    def topic_name(self) -> str:
        """Return the name of the topic."""
        return self.group.topic.name

    @property
    def wake_key(self) -> str:
        """Return the key that a publish writes."""
        return self.group.topic.keys.wake

    @property
    def next_read_at(self) -> float:
        """Return when to read, on the monotonic clock."""
        return max(self.read_at, self.damage.next_try_at)

    def read_soon(self) -> None:
        """Read with the next exchange: the number of messages left is not known any more."""
        self.read_at, self.is_drained, self.is_empty = 0.0, None, None

    def note_read(self, *, found: int, left: int, due_ms: int | None) -> None:
        """Note the result of a read; `due_ms` is the time until a message in flight is delivered again."""
        self.damage.over()
        self.is_drained = found == left == 0
        self.is_empty = self.is_drained and due_ms is None
        wait_s = READ_EVERY_S if due_ms is None else min(READ_EVERY_S, due_ms / 1000 + 0.001)
        self.read_at = time.monotonic() + wait_s if self.is_drained else 0.0


@dataclass(slots=True, eq=False)
class BridgeState(GroupState):
    """A group whose messages are moved to a queue."""

    bridge: Bridge = field(kw_only=True)


class ReadPlan(NamedTuple):
    """A read: the number of calls of the function, and of messages for all of them."""

    calls: int
    messages: int


@dataclass(slots=True, eq=False)
class ConsumerState(GroupState):
    """A group whose messages a function receives."""

    task: TopicTask = field(kw_only=True)
    #: The group for executions: its name, its function and the number of attempts.
    work_queue: WorkQueue = field(kw_only=True)
    #: Names of the calls whose messages are held: one batch, or messages that run one after another.
    out: set[str] = field(default_factory=set)
    #: How many messages are read together, by the time that they take.
    pace: Prefetch = field(default_factory=Prefetch)
    #: The size of the longest message of late.
    longest: float = 0.0
    #: Outcomes that it refused while it was damaged.
    refused: list[Settlement] = field(default_factory=list)
    beat_at: float = math.inf
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def has_room(self) -> bool:
        """Return whether messages of another call may be held."""
        return len(self.out) < self.task.consumers

    def reads(self, room: int, ended: Set[str]) -> list[ReadPlan]:
        """Return the reads to send; the calls named `ended` are settled before them."""
        free = min(room, self.task.consumers - len(self.out - ended))
        if free <= 0:
            return []
        if self.task.batch is None:
            return [ReadPlan(free, min(free * self._in_sequence, MAX_BATCH))]
        return [ReadPlan(1, self.task.batch)] * (free if self.read_at == 0.0 else 1)

    @property
    def _in_sequence(self) -> int:
        """Return how many messages of a call run one after another, so that the function does not wait for Redis.

        Without another delivery, none is read before it can run: its process may die while it runs another one.
        """
        if self.task.options.max_deliveries == 1 or self.is_async:
            return 1
        return max(1, min(self.pace.ahead(1), int(MOST_AHEAD_BYTES / max(1.0, self.longest))))

    @property
    def is_async(self) -> bool:
        """Return whether the function is a coroutine function."""
        return self.work_queue.handler is not None and self.work_queue.handler.is_async

    def read_call(self, plan: ReadPlan) -> Call[TopicBatch]:
        """Return the call of a read. Of messages that were tried before, each has a call of the function."""
        return self.group.read_call(plan.messages, most_tried=plan.calls if self.task.batch is None else None)

    def held(self, messages: Sequence[TopicMessage], began_at: float, calls: int) -> list[Delivery]:
        """Return the deliveries of one read, in parts for this number of calls."""
        if messages:
            self.longest = max(self.longest * FORGETS_LONG, *(len(each.body) for each in messages))
        name, deliveries, size = "", [], math.ceil(len(messages) / calls)
        for at, message in enumerate(messages):
            if at % size == 0:
                name = f"{self.work_queue.name} {next(self._numbers)}"
                self.out.add(name)
            as_queues_know_it = Message(str(message.index), message.body, message.deliveries, None)
            attempt = message.deliveries - message.released
            deliveries.append(
                Delivery(self.work_queue, as_queues_know_it, attempt, began_at, batch=name, given=message)
            )
        if deliveries and self.beat_at == math.inf:
            self.beat_at = began_at + BEAT_EVERY_S
        return deliveries

    def over(self, names: Sequence[str]) -> None:
        """Note that all messages of these calls are settled."""
        self.out.difference_update(names)
        if not self.out:
            self.beat_at = math.inf


def consumer_state(task: TopicTask) -> ConsumerState:
    """Return the state of the group that a function receives."""
    client = get_client(task.connection)
    group = ConsumerGroup(Topic(task.topic, client), task.group, task.options)
    return ConsumerState(group, _damage(group), task=task, work_queue=_work_queue(task, group, client))


def bridge_state(declared: TopicBridge) -> BridgeState:
    """Return the state of a group that is moved to a queue."""
    queue = get_queue(declared.queue)
    group = ConsumerGroup(Topic(declared.topic, queue.client), declared.group, declared.options)
    return BridgeState(group, _damage(group), bridge=Bridge(group, queue))


def _damage(group: ConsumerGroup) -> ReconnectBackoff:
    return ReconnectBackoff(f"topic {group.topic.name!r}, group {group.name!r}", server=group.client.connection)


def _work_queue(task: TopicTask, group: ConsumerGroup, client: Client) -> WorkQueue:
    lease_s = float(task.options.visibility_timeout_s)
    settings = QueueSettings(
        name=group.subject,
        connection=task.connection,
        visibility_timeout_s=math.ceil(lease_s),
        max_attempts=task.options.max_deliveries or NO_LIMIT,
        dead_letter=dead_letter_topic(task.topic),
    )
    # The Queue only provides its client; nothing is ever sent to it.
    work_queue = WorkQueue(settings, Queue("topics", client), lease_s, "")
    work_queue.group = group
    options = task.call_options
    work_queue.handler = Handler(
        task.module_path,
        task.func,
        options,
        inspect.iscoroutinefunction(task.func),
        is_plain=options.batch is None,
    )
    return work_queue
