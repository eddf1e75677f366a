"""Errors of topic scripts as exceptions, with the affected key and the remedy."""

from __future__ import annotations

from ..errors import GroupLive, GroupMoved, GroupNotFound, RsmqError, TooManyGroups, TopicBroken, TopicReset


def topic_error(subject: str, name: str, words: list[str]) -> RsmqError | None:
    """Return the error for a reply "RSMQ <name> <words>"; None if the name is not that of a topic error.

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
            f"topic {topic!r} has no group {group!r}; seek it to its start position, or start it at 'earliest' or "
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
            f"group {group!r} of topic {topic!r} would read index {now} next and no longer {seen}: it was read "
            "or moved meanwhile; nothing was changed, check again"
        )
    if name == "TooManyGroups":
        return TooManyGroups(f"topic {topic!r} has {words[0]} groups, the maximum; prune idle groups")
    return None


def _broken(topic: str, group: str, words: list[str]) -> TopicBroken:
    field, value = words[0], " ".join(words[1:])
    if field == "deadLetters":
        return TopicBroken(
            f"the dead-letter topic of topic {topic!r} cannot store the dead letters of group {group!r}: another "
            f"program wrote its key {value!r}; delete or rename it, nothing is lost until then"
        )
    if field == "key":
        return TopicBroken(f"topic {topic!r} is damaged: another program wrote its key {value!r}; delete or rename it")
    if field == "cursor":
        return TopicBroken(
            f"the cursor of group {group!r}, '{topic}:{group}:nextIndex', is {value!r}, which is not an index; "
            "replay or seek the group to reset it"
        )
    return TopicBroken(
        f"the index of topic {topic!r}, '{topic}:nextIndex', is {value!r}, which is not an index; delete that key, and "
        "the next publish continues after the existing messages"
    )
