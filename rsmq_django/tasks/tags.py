"""Tags: find tasks together; cancellation.py cancels them.

A tag is stored before its tasks are sent, so that no task runs without its tag; a sender that dies in between leaves an
unused id, which does no harm. Ids are removed when their tasks end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..conf.settings import get_settings
from ..core.keys import QueueKeys, tag_key
from ..core.limits import MAX_BATCH
from ..core.transport.call import Call
from ..queues import get_client
from .options import MAX_TAG_LENGTH, is_tag

#: Expiry of entries that are not removed otherwise: those of purged messages. Counts from the task's due time.
KEPT_MS = 90 * 86_400_000


def tags_of(meta: Mapping[str, Any]) -> list[str]:
    """Return the tags of a message, without invalid values of other programs."""
    tags = meta.get("tags")
    return [tag for tag in tags if is_tag(tag)] if isinstance(tags, list) else []


def tagged(tag: str) -> list[str]:
    """Return the ids of the unfinished tasks with this tag, up to a thousand from each connection."""
    check_tag(tag)
    found: list[str] = []
    for alias in get_settings().connections:
        client = get_client(alias)
        found += client.run(tagged_call(client.namespace, tag))
    return found


def check_tag(tag: object) -> None:
    """Raise ValueError for a value that is not a tag."""
    if not is_tag(tag):
        raise ValueError(f"{tag!r} is no tag; a tag is one text of 1 to {MAX_TAG_LENGTH} printable characters")


def note_tags(namespace: str, tags: Sequence[str], task_ids: Sequence[str], *, due_in_s: float) -> Call[int]:
    """Return the call that stores the tags of tasks before they are sent."""
    keys = tuple(tag_key(namespace, tag) for tag in tags)
    return Call("tasks/tag", keys, (KEPT_MS + round(due_in_s * 1000), *task_ids), int, repeatable=True)


def untag(namespace: str, tag: str, task_ids: Sequence[str]) -> Call[int]:
    """Return the call that removes tasks from a tag."""
    return Call("ZREM", (tag_key(namespace, tag),), tuple(task_ids), int, repeatable=True)


def untag_ended(namespace: str, keys: QueueKeys, tag: str, ended: Sequence[tuple[str, str]]) -> Call[int]:
    """Return the call that removes tasks from a tag if their messages (message id, task id) are not in their queue."""
    words = tuple(word for pair in ended for word in pair)
    return Call("tasks/untag_ended", (tag_key(namespace, tag), keys.messages), words, int, repeatable=True)


def tagged_call(namespace: str, tag: str) -> Call[list[str]]:
    """Return the call that reads the ids of up to a thousand unfinished tasks with this tag."""
    return Call("ZRANGE", (tag_key(namespace, tag),), (0, MAX_BATCH - 1), _read_ids, repeatable=True)


def _read_ids(reply: list[bytes]) -> list[str]:
    return [task_id.decode("utf-8", "backslashreplace") for task_id in reply]
