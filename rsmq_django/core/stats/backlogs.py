"""Backlogs of reliable queues and of topic groups, in the terms of ordinary queues, to show them side by side.

The backlog of a topic group is called `topic:group`, the name under which its attempts are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import ConnectionFailed, InvalidName, OutcomeUnknown, RsmqError
from ..reliable import ReliableQueue, ReliableStatistics, list_reliable_queues
from ..topic import Group, GroupOptions, GroupStatus, Topic, list_topics
from ..transport.call import Call
from ..transport.client import Client
from .depth import Depth

#: Number of queues or groups that are read in one round trip.
A_TIME = 50


@dataclass(frozen=True, slots=True)
class Backlog:
    """One reliable queue, or one group of a topic."""

    kind: Literal["reliable", "topic"]
    name: str
    #: Without `oldest_ready_s` for reliable queues; `dead` of a group counts all that moved to the dead-letter topic.
    now: Depth | RsmqError
    #: Number of live consumers of a group.
    consumers: int | None = None


def read_backlogs(client: Client) -> list[Backlog]:
    """Return the backlogs of reliable queues and topic groups, in four round trips.

    All reliable queues of the client's namespace and all groups of its server, except those that the client has no
    permission to list.
    """
    return [*_reliable(client), *_groups(client)]


def _reliable(client: Client) -> list[Backlog]:
    queues = []
    for name in _listed(list_reliable_queues, client):
        with suppress(InvalidName):  # another program added the name
            queues.append(ReliableQueue(name, client))
    replies = _run(client, [queue.statistics_call() for queue in queues])
    return [_backlog("reliable", queue.name, reply) for queue, reply in zip(queues, replies, strict=True)]


def _groups(client: Client) -> list[Backlog]:
    topics, groups = list[Topic](), list[Group]()
    for name in _listed(list_topics, client):
        with suppress(InvalidName):
            topics.append(Topic(name, client))
    for topic, reply in zip(topics, _run(client, [topic.groups_call() for topic in topics]), strict=True):
        for name, _ in () if isinstance(reply, RsmqError) else reply:
            with suppress(InvalidName):
                groups.append(Group(topic, name, GroupOptions()))
    replies = _run(client, [group.status_call() for group in groups])
    return [_backlog("topic", group.subject, reply) for group, reply in zip(groups, replies, strict=True)]


def _backlog(
    kind: Literal["reliable", "topic"], name: str, reply: ReliableStatistics | GroupStatus | RsmqError
) -> Backlog:
    if isinstance(reply, ReliableStatistics):
        return Backlog(kind, name, reply.depth)
    if isinstance(reply, GroupStatus):
        return Backlog(kind, name, reply.depth, reply.live_consumers)
    return Backlog(kind, name, reply)


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
