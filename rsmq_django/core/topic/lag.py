"""The lag of topic groups over time: recording. core/stats/history.py reads it.

Worker processes that consume a topic measure the lag of all its groups a few times a minute, including groups of other
workers: the lag of a group grows when its own workers are gone. The largest lag of each span of time is stored, in the
resolutions of core/stats/spans.py, one hash for all groups of a topic:

    rsmqt:{topic}:lag:{span_s}:{begins_s}    group -> its largest lag

Without workers that consume a topic nothing is recorded: the lag is None, not 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import RsmqError
from ..stats.spans import RESOLUTIONS, ttls
from ..transport.call import Argument, Call
from .keys import lag_key
from .records import GroupStatus
from .topic import Topic

#: Maximum number of groups per topic, most recently active first. Each takes a field per minute, ten minutes and hour.
MOST_GROUPS = 100


def group_statuses(topic: Topic) -> list[GroupStatus]:
    """Return the status of a topic's groups, without unreadable groups."""
    (found,) = group_statuses_of([topic])
    return found


def group_statuses_of(topics: Sequence[Topic], *, most: int = MOST_GROUPS) -> list[list[GroupStatus]]:
    """Return the status of the most recently active groups of a client's topics, in two round trips."""
    if not topics:
        return []
    client = topics[0].client
    named = client.run_many([topic.groups_call() for topic in topics])
    groups = [
        (at, topic.group(name))
        for at, (topic, names) in enumerate(zip(topics, named, strict=True))
        for name, _idle_s in ([] if isinstance(names, RsmqError) else names[-most:])
    ]
    found: list[list[GroupStatus]] = [[] for _ in topics]
    replies = client.run_many([group.status_call() for _at, group in groups]) if groups else []
    for (at, _group), status in zip(groups, replies, strict=True):
        if not isinstance(status, RsmqError):
            found[at].append(status)
    return found


def note_lag_call(topic: Topic, lags: Mapping[str, int], *, at_s: float) -> Call[int]:
    """Return the call that records the lags of groups, by name."""
    keys = tuple(lag_key(topic.name, each.span_s, each.begin_of(at_s)) for each in RESOLUTIONS)
    args: list[Argument] = [*ttls()]
    for name, lag in lags.items():
        args += (name, lag)
    return Call("topic/note_lag", keys, tuple(args), int, repeatable=True, subject=topic.name)
