"""The lag of topic groups over time: recording, and reading for charts.

Worker processes that consume a topic measure the lag of all its groups a few times a minute, including groups of other
workers: the lag of a group grows when its own workers are gone. The largest lag of each span of time is stored, in the
resolutions of core/stats/counters.py, one hash for all groups of a topic:

    rsmqt:{topic}:lag:{span_s}:{begins_s}    group -> its largest lag

Without workers that consume a topic nothing is recorded: the lag is None, not 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import RedisFailure, RsmqError
from ..numbers import read_whole
from ..stats.counters import RESOLUTIONS, Window, ttls
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
    keys = tuple(_key_at(topic, resolution.span_s, at_s) for resolution in RESOLUTIONS)
    args: list[Argument] = [*ttls()]
    for name, lag in lags.items():
        args += (name, lag)
    return Call("topic/note_lag", keys, tuple(args), int, repeatable=True, subject=topic.name)


def lag_calls(topic: Topic, window: Window) -> list[Call[dict[str, int]]]:
    """Return the calls that read the spans of a window, the first one first. See lags_of()."""
    step_s = window.resolution.span_s
    keys = [lag_key(topic.name, step_s, begins_s) for begins_s in range(window.begins_s, window.ends_s, step_s)]
    return [Call("stats/counters/read", (key,), (), _read_lags, repeatable=True, subject=topic.name) for key in keys]


def lags_of(group: str, spans: Sequence[dict[str, int] | RsmqError]) -> list[int | None]:
    """Return the lag of a group in each span; None if not recorded. Raises RedisFailure."""
    for span in spans:
        if isinstance(span, RedisFailure):
            raise span
    # If another program has written another type, the lag is unknown.
    return [None if isinstance(span, RsmqError) else span.get(group) for span in spans]


def _key_at(topic: Topic, span_s: int, at_s: float) -> str:
    return lag_key(topic.name, span_s, int(at_s // span_s) * span_s)


def _read_lags(reply: list[bytes]) -> dict[str, int]:
    lags = {}
    for name, value in zip(reply[::2], reply[1::2], strict=True):
        # Only this package writes here; an invalid number is of another program.
        if (lag := read_whole(value)) is not None and lag >= 0:
            lags[name.decode("utf-8", "replace")] = lag
    return lags
