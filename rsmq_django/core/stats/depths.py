"""The depths of queues, reliable queues and topic groups by name, to show them side by side.

A topic group is called `topic:group`, the name under which its attempts are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import ConnectionFailed, InvalidName, OutcomeUnknown, RsmqError
from ..queue.browse import depth_call
from ..reliable import ReliableQueue, list_reliable_queues
from ..topic import ConsumerGroup, GroupOptions, Topic, list_topics
from ..transport.call import Call
from ..transport.client import Client
from .depth import Depth

#: Number of queues or groups that are read in one round trip.
A_TIME = 50


@dataclass(frozen=True, slots=True)
class NamedDepth:
    """The depth of a queue, a reliable queue or a group of a topic; its error if it cannot be read."""

    kind: Literal["queue", "reliable", "topic"]
    name: str
    #: Without `oldest_ready_s` for reliable queues; `dead` of a group counts all that moved to the dead-letter topic.
    depth: Depth | RsmqError
    #: Number of live consumers of a group.
    consumers: int | None = None


def read_depths(client: Client, names: Sequence[str]) -> list[NamedDepth]:
    """Return the depths of queues, in the order given."""
    replies = _run(client, [depth_call(client.namespace, name) for name in names])
    return [NamedDepth("queue", name, reply) for name, reply in zip(names, replies, strict=True)]


def read_other_depths(client: Client) -> list[NamedDepth]:
    """Return the depths of reliable queues and topic groups, in four round trips.

    All reliable queues of the client's namespace and all groups of its server, except those that the client has no
    permission to list.
    """
    return [*_reliable(client), *_groups(client)]


def _reliable(client: Client) -> list[NamedDepth]:
    queues = []
    for name in _listed(list_reliable_queues, client):
        with suppress(InvalidName):  # another program added the name
            queues.append(ReliableQueue(name, client))
    replies = _run(client, [queue.statistics_call() for queue in queues])
    found = zip(queues, replies, strict=True)
    return [
        NamedDepth("reliable", queue.name, reply if isinstance(reply, RsmqError) else reply.depth)
        for queue, reply in found
    ]


def _groups(client: Client) -> list[NamedDepth]:
    topics, groups = list[Topic](), list[ConsumerGroup]()
    for name in _listed(list_topics, client):
        with suppress(InvalidName):
            topics.append(Topic(name, client))
    for topic, reply in zip(topics, _run(client, [topic.groups_call() for topic in topics]), strict=True):
        for name, _ in () if isinstance(reply, RsmqError) else reply:
            with suppress(InvalidName):
                groups.append(ConsumerGroup(topic, name, GroupOptions()))
    replies = _run(client, [group.status_call() for group in groups])
    return [
        NamedDepth("topic", group.subject, reply)
        if isinstance(reply, RsmqError)
        else NamedDepth("topic", group.subject, reply.depth, reply.live_consumers)
        for group, reply in zip(groups, replies, strict=True)
    ]


def _listed(names_of: Any, client: Client) -> Iterable[str]:
    try:
        names: list[str] = names_of(client)
        return names
    except (ConnectionFailed, OutcomeUnknown):
        raise
    except RsmqError:
        return []


def _run(client: Client, calls: Sequence[Call[Any]]) -> list[Any]:
    replies: list[Any] = []
    for at in range(0, len(calls), A_TIME):
        replies += client.run_many(calls[at : at + A_TIME])
    return replies
