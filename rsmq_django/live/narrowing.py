"""Conditions on the contents of messages in a list: task, error, tag and time of sending.

Redis preselects messages by words that they must contain, and by the beginning of the id, which is the time of sending;
the returned messages are checked here, field by field.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..core.queue.browse import StoredMessage
from .envelopes import seal_of, task_name

#: Tags follow the arguments, so bodies up to this size are read whole to find them; calls in longer ones are not found.
TAGGED_BODY_BYTES = 64 * 1024
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The conditions on a message; "" and None match everything."""

    #: Parts of the dotted paths of the task and of the exception, in any case.
    task: str = ""
    error: str = ""
    #: A whole tag.
    tag: str = ""
    #: Epoch milliseconds.
    sent_from_ms: float | None = None
    sent_until_ms: float | None = None

    def __bool__(self) -> bool:
        return self != NO_NARROWING

    @property
    def marks(self) -> tuple[str, ...]:
        """Return texts that the body or the failure record of a matching message contains."""
        # Escaped as in JSON, because both are JSON. A signed body contains JSON within JSON.
        words = (json.dumps(word, ensure_ascii=word.isascii())[1:-1] for word in (self.task, self.error) if word)
        tag = [self.tag] if self.tag.isascii() and self.tag.isprintable() and not set(self.tag) & {'"', "\\"} else []
        return tuple(word for word in (*words, *tag) if "\\" not in word)

    @property
    def ids(self) -> tuple[str, str]:
        """Return the lowest and the highest beginning of the ids that were created in that time."""
        return _id_time(self.sent_from_ms), _id_time(self.sent_until_ms)

    def fits(self, message: StoredMessage) -> bool:
        """Return whether a message matches."""
        return self._fits_time(message) and self._fits_names(message) and (not self.tag or self.tag in tags_in(message))

    def _fits_time(self, message: StoredMessage) -> bool:
        if self.sent_from_ms is None and self.sent_until_ms is None:
            return True
        sent_ms = message.sent_ms
        if sent_ms is None:
            return False
        return (self.sent_from_ms or 0) <= sent_ms and (self.sent_until_ms is None or sent_ms <= self.sent_until_ms)

    def _fits_names(self, message: StoredMessage) -> bool:
        if not (self.task or self.error):
            return True
        failure = message.failure()
        task = failure.task if failure and failure.task else task_name(message.body)
        error = failure.error if failure else ""
        return self.task.lower() in task.lower() and self.error.lower() in error.lower()


NO_NARROWING = Narrowing()


def tags_in(message: StoredMessage) -> list[Any]:
    """Return the tags of a call; none of a body that was not read completely, because tags are at its end."""
    try:
        call = json.loads(seal_of(message.body).body)
        tags = call["meta"]["tags"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return []
    return tags if isinstance(tags, list) else []


def _id_time(epoch_ms: float | None) -> str:
    """Return a time as the first ten characters of an id: base-36 digits of microseconds."""
    if epoch_ms is None:
        return ""
    number, digits = max(0, int(epoch_ms * 1000)), ""
    for _ in range(10):
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
    return digits
