"""Everything about one message, gathered for its page: body, envelope, attempts, failure, who holds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..core.numbers import read_whole
from ..core.queue.browse import NO_BODY, FailureRecord, State, StoredMessage, pick
from ..core.queue.listing import crashes, holder, workers
from ..live.envelopes import task_id_at_start
from ..live.messages import DEAD
from ..live.places import QueueRef
from ..models import Message
from ..tasks.envelope import Envelope, Unreadable, decode
from ..tasks.results import read_record
from .bodies import ShownBody, shown
from .formats import visible
from .redaction import redact, seal_of

#: A longer body is not read for a page; it can be downloaded.
MAX_READ_BYTES = 1024 * 1024
#: Attempts that a page shows, the latest ones.
MAX_ATTEMPTS = 50


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a task, as far as the record tells."""

    number: int
    worker: str
    #: Dotted path of the exception; "" when it did not fail, or has not ended.
    error: str
    traceback: str


class MessagePage:
    """See the module. What only those may see who may see bodies is read when it is asked for."""

    def __init__(self, message: Message, *, with_body: bool) -> None:
        self.message = message
        self.place: QueueRef = message.place
        call = pick(
            self.place.client.namespace,
            self.place.name,
            [message.stored.position.message_id],
            body_bytes=MAX_READ_BYTES if with_body else NO_BODY,
        )
        page = self.place.client.run(call)
        #: None when it was deleted between two reads.
        self.stored: StoredMessage = page.messages[0] if page.messages else message.stored
        self.now_ms = page.now_ms

    @property
    def visible_in_s(self) -> float:
        """Return in how many seconds the message can be received; negative since when."""
        return (self.stored.visible_at_ms - self.now_ms) / 1000

    @property
    def is_in_flight(self) -> bool:
        """Return whether it is in flight or waits for its next attempt."""
        return self.stored.state(self.now_ms) is State.IN_FLIGHT

    @cached_property
    def holder(self) -> str | None:
        """Return the worker that notes that it holds the message. Programs in other languages leave no note."""
        if not self.is_in_flight:
            return None
        client = self.place.client
        ids = [beat.worker_id for beat in client.run(workers(client.namespace))]
        return client.run(holder(client.namespace, self.place.name, self.stored, ids)) if ids else None

    @cached_property
    def crashes(self) -> int:
        """Return how many processes died while they ran it."""
        client = self.place.client
        return client.run(crashes(client.namespace, self.place.name, self.stored.position.message_id))

    @cached_property
    def body(self) -> ShownBody | None:
        """Return the body as it may be seen; None when there is none, or when it is too long for a page."""
        size = self.stored.size_bytes
        if size is None or len(self.stored.body) < min(size, MAX_READ_BYTES) or size > MAX_READ_BYTES:
            return None
        return shown(self.stored.body, task=self.envelope.task if self.envelope else "")

    @cached_property
    def envelope(self) -> Envelope | None:
        """Return the task call, also inside a signature; None for a message that is none, or encrypted."""
        try:
            return decode(seal_of(self.stored.body or self.message.stored.body).body, message_id=self.stored.id)
        except Unreadable:
            return None

    @cached_property
    def failure(self) -> FailureRecord | None:
        """Return why it lies among the dead letters."""
        return self.stored.failure()

    @property
    def odd_record(self) -> str:
        """Return a failure record that is not one of ours."""
        raw = self.stored.failure_json
        return as_safe_text(raw.decode("utf-8", "replace")[:4096]) if raw and self.failure is None else ""

    @property
    def task_id(self) -> str:
        """Return the id under which the result of the task is kept, or ""."""
        failure_id = self.failure.task_id if self.failure else ""
        # Without the body there is its beginning, as in the list, in which our senders write the id.
        return failure_id or (self.envelope.id if self.envelope else task_id_at_start(self.message.stored.body))

    @cached_property
    def record(self) -> Mapping[str, str]:
        """Return the result record; empty when there is none."""
        if not self.task_id or not self.task_id.isprintable():
            return {}
        return self.place.client.run(read_record(self.place.client.namespace, self.task_id))

    @property
    def can_be_cancelled(self) -> bool:
        """Return whether it is a task that has not ended, and whose record is of this very message.

        Any program may have sent a message with the task id of another one. And without a record, all queues would have
        to be searched.
        """
        record, is_dead = self.record, self.message.state == DEAD
        is_own = (record.get("message"), record.get("queue")) == (self.stored.id, self.place.name)
        return bool(self.task_id) and is_own and not is_dead

    @property
    def attempts(self) -> list[Attempt]:
        """Return the latest attempts, the last one first."""
        return attempts_of(self.record)

    @property
    def failure_text(self) -> str:
        """Return the exception's own text, as it may be seen."""
        return as_safe_text(self.failure.message) if self.failure else ""

    @property
    def traceback(self) -> str:
        """Return the traceback of a dead letter, as it may be seen."""
        return as_safe_text(self.failure.traceback) if self.failure else ""


def attempts_of(record: Mapping[str, str]) -> list[Attempt]:
    """Return the latest attempts of a result record, the last one first."""
    numbers = {number for name in record if (number := _number_in(name)) is not None and number >= 0}
    return [_attempt(record, number) for number in sorted(numbers, reverse=True)[:MAX_ATTEMPTS]]


def _number_in(name: str) -> int | None:
    kind, _colon, number = name.partition(":")
    return read_whole(number) if kind in ("worker", "error") else None


def _attempt(record: Mapping[str, str], number: int) -> Attempt:
    error, traceback = "", ""
    if f"error:{number}" in record:
        try:
            values: Any = json.loads(record[f"error:{number}"])
            error, traceback = (str(value) for value in values)
        except (ValueError, TypeError, RecursionError):
            traceback = record[f"error:{number}"]
    worker = record.get(f"worker:{number}", "")
    return Attempt(number, visible(worker), visible(error), as_safe_text(traceback))


def as_safe_text(text: str) -> str:
    """Return a text without secrets, in which every sign can be seen."""
    return visible(redact(text))
