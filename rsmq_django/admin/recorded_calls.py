"""The call of a task as a message, a dead letter or a result record has it, to be sent again.

A call of a queue with keys counts only if it was sealed with one of them: otherwise a writer to Redis could have an
operator sign a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..conf.settings import get_settings
from ..core.errors import QueueNotFound
from ..core.keys import queue_keys
from ..core.queue.bands import split_band
from ..core.queue.browse import WHOLE_BODY, StoredMessage, pick
from ..core.queue.transfers import origin_of
from ..live.places import QueueRef
from ..tasks.catalogue import known_tasks
from ..tasks.envelope import Envelope, Unreadable, decode
from ..tasks.results import read_body, read_record
from ..tasks.sealing import opened
from ..tasks.tags import tags_of
from ..tasks.task import Task, find_task


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call, and the queue to which it was sent."""

    envelope: Envelope
    queue_name: str

    @property
    def task(self) -> Task[..., Any] | None:
        """Return the task; None when this project does not declare it."""
        known_tasks()
        return find_task(self.envelope.task)

    def is_proven(self) -> bool:
        """Return whether it goes to the queue for which it was opened, or to a queue that takes unsealed calls."""
        settings, base = get_settings(), get_settings().base_name(self.queue_name)
        if base in settings.queues or self.task is None:
            return True
        return not settings.queue(self.task.queue_name).is_sealed

    def options(self) -> dict[str, Any]:
        """Return what using() needs for a call like this one: queue, priority, tags, maximum of attempts."""
        meta = self.envelope.meta or {}
        kept: dict[str, Any] = {"tags": tags} if (tags := tags_of(meta)) else {}
        if isinstance(meta.get("max_attempts"), int):
            kept["max_attempts"] = meta["max_attempts"]
        is_known = get_settings().base_name(self.queue_name) in get_settings().queues
        return kept | (where(self.queue_name) if is_known else {})


def where(queue_name: str) -> dict[str, Any]:
    """Return the options of using() that send a call to a queue, or to the queue and priority whose band it is."""
    base = get_settings().base_name(queue_name)
    return {"queue_name": base} if base == queue_name else {"queue_name": base, "priority": split_band(queue_name)[1]}


def call_of_message(place: QueueRef, message_id: bytes) -> RecordedCall | None:
    """Return the call in a message or dead letter; None when it is gone, or holds no call."""
    found = place.client.run(pick(place.client.namespace, place.name, [message_id], body_bytes=WHOLE_BODY)).messages
    return call_in(found[0], place.name) if found else None


def call_in(message: StoredMessage, queue_name: str) -> RecordedCall | None:
    """Return the call in a message whose body was read; a dead letter's is of the queue where it died."""
    return _call(message.body, origin_of(message) or queue_name, message.id)


def call_of_result(alias: str, task_id: str, record: Mapping[str, str] | None = None) -> RecordedCall | None:
    """Return the call of a task whose result record is kept; None when it is gone, with its message."""
    client = QueueRef(alias, "").client
    record = client.run(read_record(client.namespace, task_id)) if record is None else record
    queue_name, message_id = record.get("queue", ""), record.get("message", "")
    if "body" in record:
        return _call(record["body"].encode("utf-8", "surrogateescape"), queue_name, task_id)
    if not queue_name or not message_id:
        return None
    body = client.run(read_body(queue_keys(client.namespace, queue_name), message_id))
    return _call(body, queue_name, message_id) if body is not None else None


def call_of_run(place: QueueRef, message_id: str, task_id: str) -> RecordedCall | None:
    """Return the call of an attempt that the event log tells of, wherever it is still kept."""
    for each in [place, *_dead_letters_of(place)]:
        with suppress(QueueNotFound):  # nothing has died in it yet, or it is a topic
            if message_id and (found := call_of_message(each, message_id.encode("utf-8", "surrogateescape"))):
                return found
    return call_of_result(place.alias, task_id) if task_id.isprintable() and task_id else None


def _dead_letters_of(place: QueueRef) -> Sequence[QueueRef]:
    dead = QueueRef(place.alias, get_settings().base_name(place.name)).dead_letters
    return [dead] if dead is not None else []


def _call(body: bytes, queue_name: str, message_id: str) -> RecordedCall | None:
    try:
        envelope = decode(opened(body, queue_name=queue_name), message_id=message_id[:63] or "-")
    except Unreadable:
        return None
    call = RecordedCall(envelope, queue_name)
    return call if call.is_proven() else None
