"""Errors that scripts of topics answer with, in words: which key it is about, and what to do."""

from __future__ import annotations

from .errors import GroupLive, GroupMoved, GroupNotFound, RsmqError, TooManyGroups, TopicBroken, TopicReset


def topic_error(subject: str, name: str, words: list[str]) -> RsmqError | None:
    """Return the error for an answer "RSMQ <name> <words>"; None for a name that is not a topic's.

    The subject is "topic" or "topic:group": neither name has a colon.
    """
    topic, _, group = subject.partition(":")
    if name == "TopicBroken":
        return _broken(topic, group, words)
    if name == "TopicReset":
        position, last = words[:2]
        return TopicReset(
            f"group {group!r} of topic {topic!r} has read up to {position}, but the topic ends at {last}: it was "
            f"deleted, or its key '{topic}:nextIndex' was; replay or seek the group, or set its on_reset"
        )
    if name == "GroupNotFound":
        return GroupNotFound(
            f"topic {topic!r} has no group {group!r}; seek it to where it should begin, or start it at 'earliest' or "
            "'latest'"
        )
    if name == "GroupLive":
        return GroupLive(
            f"{words[0]} live consumers of group {group!r} read from topic {topic!r}, nothing was changed; stop them "
            "(they count as live for 15 s), or force it"
        )
    if name == "GroupMoved":
        seen, now = map(int, words[:2])
        return GroupMoved(
            f"group {group!r} of topic {topic!r} would read index {now} next and no longer {seen}: somebody has read "
            "or set it since you looked; nothing was changed, look again"
        )
    if name == "TooManyGroups":
        return TooManyGroups(f"topic {topic!r} has {words[0]} groups, which is the most; prune idle ones")
    return None


def _broken(topic: str, group: str, words: list[str]) -> TopicBroken:
    field, value = words[0], " ".join(words[1:])
    if field == "deadLetters":
        return TopicBroken(
            f"the dead-letter topic of topic {topic!r} cannot take what group {group!r} gives up on: its key {value!r} "
            "holds what another program wrote; delete or rename it, nothing is lost until then"
        )
    if field == "cursor":
        return TopicBroken(
            f"the cursor of group {group!r}, '{topic}:{group}:nextIndex', is {value!r}, which is no index; "
            "replay or seek the group to set it anew"
        )
    return TopicBroken(
        f"the index of topic {topic!r}, '{topic}:nextIndex', is {value!r}, which is no index; delete that key, and the "
        "next publish goes on behind the messages that are there"
    )
