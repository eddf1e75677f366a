"""A bridge from a topic to an RSMQ queue: clients of RSMQ in any language follow a topic as the queue of their own.

A group of the topic stands for the queue. Moving its next messages is one script, so each of them arrives exactly once,
whatever dies; topic and queue have to be on one server.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..call import Call
from ..errors import InvalidValue, QueueNotFound
from ..ids import random_suffixes
from ..limits import checked_count
from ..queue import Queue
from .group import Group
from .keys import dead_letter_topic, topic_keys
from .listing import register_call
from .records import Batch
from .waiting import Patience


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What one step of a bridge did."""

    #: Messages that are on the queue now.
    moved: int
    #: Messages that are longer than the queue allows, and went to the dead-letter topic.
    dead_lettered: int
    #: Indexes that lie ahead.
    left: int
    skipped: int
    holes: int
    #: The last index of the log.
    last: int


class Bridge:
    """Moves the messages of a group into a queue. Give the group nothing else to do."""

    def __init__(self, group: Group, queue: Queue) -> None:
        if group.client.connection.url != queue.client.connection.url:
            raise InvalidValue(
                f"topic {group.topic.name!r} and queue {queue.name!r} are on different servers; a message moves "
                "between them in one step, so they have to be on one"
            )
        self.group = group
        self.queue = queue

    def forward(self, count: int = 100, *, block_ms: int = 0) -> Forwarded:
        """Move up to `count` messages; wait for the first one up to `block_ms`.

        Raises QueueNotFound, and what `Group.read()` raises. Nothing is lost or doubled when the reply is lost.
        """
        patience, topic = Patience(block_ms), self.group.topic
        done = topic.run(self.forward_call(count))
        while slice_ms := patience.slice_ms(_as_batch(done)):
            if not done.left:
                topic.waiter.wait(topic.name, topic.keys.wake, done.last, slice_ms)
            done = topic.run(self.forward_call(count))
        if done.dead_lettered:
            topic.client.run(register_call(dead_letter_topic(topic.name)))
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
            await topic.client.arun(register_call(dead_letter_topic(topic.name)))
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


def _as_batch(done: Forwarded) -> Batch:
    """Return what the waiting asks about: was there anything?"""
    moved: list[Any] = [None] * (done.moved + done.dead_lettered)
    return Batch(moved, done.skipped, done.holes, done.dead_lettered, done.left, done.last)
