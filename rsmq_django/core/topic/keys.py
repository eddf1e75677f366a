"""The keys of a topic and of its groups, and their valid names.

A topic has no namespace: its three kinds of keys are those of plain clients, which have none. Our keys begin with
`rsmqt:` and the unchanged name, so that all keys of a topic named `{orders}` are in one slot of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidName
from ..keys import MAX_NAME_LENGTH, TOPIC_PREFIX

#: The set of used topics; no topic has an empty name, so no topic uses this key.
TOPICS_KEY = f"{TOPIC_PREFIX}:topics"
DEAD_LETTER_SUFFIX = ".dlt"

#: Reserved prefixes. A topic with the name of the queues' namespace is rejected, too.
_RESERVED_TOPICS = frozenset({"rsmqt", "rq", "rsmq"})
#: Its cursor would look like a message.
_RESERVED_GROUPS = frozenset({"messages"})


@dataclass(frozen=True, slots=True)
class TopicKeys:
    """The keys of one topic."""

    #: string: index of the last message.
    index: str
    #: Prefix of the key of a message, followed by its index.
    prefix: str
    #: hash: first, last, slot (known state of the log) and the settings.
    meta: str
    #: zset: first index of a time slot, scored with its start in epoch milliseconds.
    time: str
    #: stream of one entry, whose id is the last index.
    wake: str
    #: hash: index -> headers (JSON).
    headers: str
    #: hash: index -> key of the message.
    keys: str
    #: hash: key -> index of its newest message.
    latest: str
    #: zset: indexes whose key has a newer message.
    stale: str
    #: zset: index of an empty message with a key, scored with its time in epoch milliseconds.
    tombstones: str
    #: zset: group, scored with when it was last seen in epoch milliseconds.
    groups: str

    @property
    def log(self) -> tuple[str, ...]:
        """Return the keys of a script that appends, in its order."""
        return (
            self.index,
            self.meta,
            self.time,
            self.wake,
            self.headers,
            self.keys,
            self.latest,
            self.stale,
            self.tombstones,
        )


@dataclass(frozen=True, slots=True)
class GroupKeys:
    """The keys of one group of a topic."""

    #: string: every message up to this index is settled. Plain clients use it, too.
    cursor: str
    groups: str
    #: hash: read (the last delivered index, while messages are in flight), skipped, dead.
    own: str
    #: zset: indexes in flight, scored with the index.
    pending: str
    #: zset: the same, scored with their redelivery time in epoch milliseconds.
    due: str
    #: hash: index -> deliveries, from the second one on.
    counts: str
    #: zset: consumer, scored with when it was last seen in epoch milliseconds.
    consumers: str

    @property
    def all(self) -> tuple[str, ...]:
        """Return all keys in the order of the scripts."""
        return self.cursor, self.groups, self.own, self.pending, self.due, self.counts, self.consumers


def topic_keys(name: str) -> TopicKeys:
    """Return the keys of the topic `name`."""
    side = _prefix(name)
    return TopicKeys(
        index=f"{name}:nextIndex",
        prefix=f"{name}:messages:",
        meta=f"{side}meta",
        time=f"{side}time",
        wake=f"{side}wake",
        headers=f"{side}headers",
        keys=f"{side}keys",
        latest=f"{side}latest",
        stale=f"{side}stale",
        tombstones=f"{side}tombstones",
        groups=f"{side}groups",
    )


def group_keys(topic: str, group: str) -> GroupKeys:
    """Return the keys of a group."""
    side = _prefix(topic)
    return GroupKeys(
        cursor=f"{topic}:{group}:nextIndex",
        groups=f"{side}groups",
        own=f"{side}group:{group}",
        pending=f"{side}pending:{group}",
        due=f"{side}due:{group}",
        counts=f"{side}counts:{group}",
        consumers=f"{side}consumers:{group}",
    )


def _prefix(topic: str) -> str:
    return f"{TOPIC_PREFIX}{topic}:"


def lag_key(topic: str, span_s: int, begins_s: int) -> str:
    """Return the key of the lags of a topic's groups in a span of time; see lag.py."""
    return f"{_prefix(topic)}lag:{span_s}:{begins_s}"


def dead_letter_topic(name: str) -> str:
    """Return the name of the dead-letter topic."""
    return name + DEAD_LETTER_SUFFIX


def checked_topic(name: str, *, namespace: str) -> str:
    """Return `name`, or raise InvalidName if its keys would be ambiguous or reserved."""
    longest = MAX_NAME_LENGTH + (len(DEAD_LETTER_SUFFIX) if str(name).endswith(DEAD_LETTER_SUFFIX) else 0)
    _check("topic", name, longest)
    if name in _RESERVED_TOPICS or name == namespace:
        raise InvalidName(f"reserved topic name: {name!r}; keys with this prefix belong to queues, choose another one")
    return name


def checked_group(name: str) -> str:
    """Return `name`, or raise InvalidName if its keys would be ambiguous or reserved."""
    _check("group", name, MAX_NAME_LENGTH)
    if name in _RESERVED_GROUPS:
        raise InvalidName(f"reserved group name: {name!r}; messages of the topic have such keys, choose another one")
    return name


def _check(what: str, name: str, longest: int) -> None:
    is_text = isinstance(name, str) and name.isprintable()
    if not is_text or not name or len(name) > longest or ":" in name or name != name.strip():
        raise InvalidName(
            f"invalid {what} name: {name!r}; use 1 to {MAX_NAME_LENGTH} printable characters without a colon, "
            "which separates the parts of a key, and without blanks around them"
        )
