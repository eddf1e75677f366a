"""A bridge from a topic to an RSMQ queue, so that RSMQ clients in any language can consume a topic.

A group of the topic represents the queue. One script moves its next messages, so each message arrives exactly once
despite crashes; topic and queue must be on one server.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidValue, QueueNotFound
from ..ids import random_suffixes
from ..limits import checked_count
from ..queue.queue import Queue
from ..transport.call import Call
from .group import ConsumerGroup
from .keys import dead_letter_topic, topic_keys
from .listing import aregister_dead_letters, register_dead_letters
from .records import TopicBatch
from .waiting import Patience


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The result of one step of a bridge."""

    #: Messages moved to the queue.
    moved: int
    #: Messages longer than the queue allows, moved to the dead-letter topic.
    dead_lettered: int
    #: Lag: number of unread indexes.
    left: int
    skipped: int
    holes: int
    #: The last index of the log.
    last: int


class Bridge:
    """Moves the messages of a group into a queue. The group must have no other consumers."""

    def __init__(self, group: ConsumerGroup, queue: Queue) -> None:
        if group.client.connection.url != queue.client.connection.url:
            raise InvalidValue(
                f"topic {group.topic.name!r} and queue {queue.name!r} are on different servers; messages are moved "
                "atomically, so both must be on one server"
            )
        self.group = group
        self.queue = queue

    def forward(self, count: int = 100, *, block_ms: int = 0) -> Forwarded:
        """Move up to `count` messages; wait for the first one up to `block_ms`.

        Raises QueueNotFound, and what `ConsumerGroup.read()` raises. A lost reply neither loses nor duplicates
        messages.
        """
        patience, topic = Patience(block_ms), self.group.topic
        done = topic.run(self.forward_call(count))
        while slice_ms := patience.slice_ms(_as_batch(done)):
            if not done.left:
                topic.waiter.wait(topic.name, topic.keys.wake, done.last, slice_ms)
            done = topic.run(self.forward_call(count))
        if done.dead_lettered:
            register_dead_letters(topic.client, topic.name)
        return done

    async def aforward(self, count: int = 100, *, block_ms: int = 0) -> Forwarded:
        """See forward()."""
        patience, topic = Patience(block_ms), self.group.topic
        done = await topic.arun(self.forward_call(count))
        while slice_ms := patience.slice_ms(_as_batch(done)):
            if not done.left:
                await topic.waiter.await_(topic.name, topic.keys.wake, done.last, slice_ms)
            done = await topic.arun(self.forward_call(count))
        if done.dead_lettered:
            await aregister_dead_letters(topic.client, topic.name)
        return done

    def forward_call(self, count: int) -> Call[Forwarded]:
        """Return one step of forward() as a call."""
        group, queue = self.group, self.queue
        dead_letters = topic_keys(dead_letter_topic(group.topic.name))
        facts = {"topic": group.topic.name, "group": group.name, "queue": queue.name, "reason": "longer than maxsize"}
        args = (
            *group.read_words(checked_count(count)),
            dead_letters.prefix,
            json.dumps(facts)[:-1],
            queue.vt_unit,
            queue.keys.channel if queue.realtime else "",
            *random_suffixes(count),
        )
        keys = (*group.read_keys, *dead_letters.log, queue.keys.messages, queue.keys.settings)
        return Call("topic/forward", keys, args, _read_forwarded(queue.name), subject=group.subject)


def _read_forwarded(queue_name: str) -> Callable[[Any], Forwarded]:
    def read(reply: Any) -> Forwarded:
        if not isinstance(reply, list):
            raise QueueNotFound(f"queue not found: {queue_name!r}; create it, nothing was moved", queue_name=queue_name)
        return Forwarded(*reply)

    return read


def _as_batch(done: Forwarded) -> TopicBatch:
    """Return whether a step moved any messages, for the wait."""
    moved: list[Any] = [None] * (done.moved + done.dead_lettered)
    return TopicBatch(moved, done.skipped, done.holes, done.dead_lettered, done.left, done.last)
