"""Findings about messages that failed for good in reliable queues, and in dead-letter topics that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import TopicBroken
from ..keys import RELIABLE_PARTS, reliable_keys, reliable_queues_key
from ..queue.replies import read_message_id
from ..texts import counted
from ..topic import Topic
from ..topic.keys import DEAD_LETTER_SUFFIX, TOPICS_KEY
from .catalogue import found
from .finding import Finding
from .probe import Probe


def examine_dead_messages(probe: Probe) -> Iterator[Finding]:
    """Yield the findings about dead messages that are not in an RSMQ queue."""
    namespace = probe.client.namespace
    for name in _names(probe, reliable_queues_key(namespace)):
        key = reliable_keys(namespace, name)[RELIABLE_PARTS.index("dead")]
        if count := probe.ask("ZCARD", key, about="dead messages of reliable queues"):
            yield found("dead-messages", f"reliable queue {name}", counted(count, "dead message"))
    for name in _names(probe, TOPICS_KEY):
        if not name.endswith(DEAD_LETTER_SUFFIX):
            continue
        try:
            status = probe.run(Topic(name, probe.client).status_call(), about="dead-letter topics")
        except TopicBroken:
            continue
        if status is not None and status.length and not status.groups:
            dead = counted(status.length, "dead message")
            yield found("dead-messages", f"topic {name}", f"{dead}, and no consumer group")


def _names(probe: Probe, key: str) -> list[str]:
    """Return the names in a list; none if it may not be read, or if another program uses the key."""
    return sorted(map(read_message_id, probe.ask("SMEMBERS", key, about=None) or ()))
