"""How far the groups of a topic were behind, over time: noting it, and reading it for charts.

Worker processes that follow a topic look at all of its groups a few times a minute, at those of others, too: a group
falls behind when its own workers are gone. The largest lag of each span of time is kept, in the resolutions of
core/counters.py, one hash for all groups of a topic:

    rsmqt:{topic}:lag:{span_s}:{begins_s}    group -> the most it was behind

Where nobody follows a topic nothing is noted, and then nothing is known: None, which is not the same as 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..call import Argument, Call
from ..counters import RESOLUTIONS, Window, ttls
from ..errors import RedisFailure, RsmqError
from ..numbers import read_whole
from .keys import lag_key
from .records import GroupStatus
from .topic import Topic

#: Of a topic with more groups, those seen last. Each takes a field in one hash a minute, ten minutes and hour.
MOST_GROUPS = 100


def look_at_groups(topic: Topic) -> list[GroupStatus]:
    """Return what the groups of a topic are like now. Those that cannot be read are left out."""
    (found,) = look_at_groups_of([topic])
    return found


def look_at_groups_of(topics: Sequence[Topic], *, most: int = MOST_GROUPS) -> list[list[GroupStatus]]:
    """Return what the groups of topics of one client are like, of each those seen last, in two round trips."""
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
    """Return the call that notes how far groups are behind, by name."""
    keys = tuple(_key_at(topic, resolution.span_s, at_s) for resolution in RESOLUTIONS)
    args: list[Argument] = [*ttls()]
    for name, lag in lags.items():
        args += (name, lag)
    return Call("topic/note_lag", keys, tuple(args), int, repeatable=True, subject=topic.name)


def lag_calls(topic: Topic, window: Window) -> list[Call[dict[str, int]]]:
    """Return the calls that read the spans of a window, the first one first. See lags_of()."""
    step_s = window.resolution.span_s
    keys = [lag_key(topic.name, step_s, begins_s) for begins_s in range(window.begins_s, window.ends_s, step_s)]
    return [Call("counters/read", (key,), (), _read_lags, repeatable=True, subject=topic.name) for key in keys]


def lags_of(group: str, spans: Sequence[dict[str, int] | RsmqError]) -> list[int | None]:
    """Return how far a group was behind in each span; None where nobody looked. Raises RedisFailure."""
    for span in spans:
        if isinstance(span, RedisFailure):
            raise span
    # Where another program has left something else, nothing is known.
    return [None if isinstance(span, RsmqError) else span.get(group) for span in spans]


def _key_at(topic: Topic, span_s: int, at_s: float) -> str:
    return lag_key(topic.name, span_s, int(at_s // span_s) * span_s)


def _read_lags(reply: list[bytes]) -> dict[str, int]:
    lags = {}
    for name, value in zip(reply[::2], reply[1::2], strict=True):
        # Nobody but us writes here; what is no number is not ours.
        if (lag := read_whole(value)) is not None and lag >= 0:
            lags[name.decode("utf-8", "replace")] = lag
    return lags
