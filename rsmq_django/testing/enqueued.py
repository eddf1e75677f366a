"""The messages in the queues of a test: enqueued calls, bodies of other programs, dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..conf.settings import aliases_of, get_settings
from ..core import Client, Queue, list_queues
from ..core.errors import QueueNotFound
from ..core.queue.bands import bands_of, split_band
from ..core.queue.browse import WHOLE_BODY, FailureRecord, Page, Position, StoredMessage, page
from ..queues import get_client, get_queue
from ..tasks.envelope import Envelope, Unreadable
from ..tasks.sealing import peek

_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """An enqueued call."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    id: str
    queue_name: str
    priority: int
    #: Seconds until it is ready; 0 if it is ready.
    due_in_s: float
    message_id: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter with its failure; None if another program sent it there."""

    message_id: str
    body: bytes
    failure: FailureRecord | None


def get_client_of(queue_name: str) -> Client:
    """Return the client of a queue's connection. Raises ImproperlyConfigured for a queue with SHARDS."""
    return get_queue(queue_name).client


def clients_of(queue_name: str) -> list[Client]:
    """Return the clients of a queue's connections: of all its shards."""
    return [get_client(alias) for alias in aliases_of(get_settings().queue(queue_name))]


def all_clients() -> list[Client]:
    """Return the clients of all connections of the settings."""
    return [get_client(alias) for alias in get_settings().connections]


def all_queues() -> Iterator[Queue]:
    """Yield all existing queues."""
    for client in all_clients():
        for name in list_queues(client):
            yield Queue(name, client)


def stored_in(client: Client, queue_name: str) -> Iterator[tuple[int, StoredMessage]]:
    """Yield the server's time and each message of a queue with its whole body and failure record."""
    after = Position()
    while True:
        call = page(client.namespace, queue_name, after=after, count=_PAGE, body_bytes=WHOLE_BODY, with_failures=True)
        try:
            found: Page = client.run(call)
        except QueueNotFound:  # not created yet
            return
        for stored in found.messages:
            yield found.now_ms, stored
        if len(found.messages) < _PAGE:
            return
        after = found.messages[-1].position


def calls_in(queue_name: str) -> list[Enqueued]:
    """Return the enqueued calls of a queue, in all its shards and priorities."""
    return [call for client in clients_of(queue_name) for call in _calls_in(client, queue_name)]


def _calls_in(client: Client, queue_name: str) -> list[Enqueued]:
    base_name = get_settings().base_name
    calls = []
    for name in bands_of(queue_name, [name for name in list_queues(client) if base_name(name) == queue_name]):
        for now_ms, stored in stored_in(client, name):
            envelope = _envelope_of(stored, queue_name)
            if envelope is not None:
                priority = 0 if name == queue_name else split_band(name)[1]
                calls.append(_enqueued(envelope, stored, queue_name, priority, now_ms))
    return calls


def _envelope_of(stored: StoredMessage, queue_name: str) -> Envelope | None:
    try:
        return peek(stored.body, queue_name=queue_name, message_id=stored.id)
    except Unreadable:
        return None


def _enqueued(envelope: Envelope, stored: StoredMessage, queue_name: str, priority: int, now_ms: int) -> Enqueued:
    return Enqueued(
        task=envelope.task,
        args=envelope.args,
        kwargs=envelope.kwargs,
        id=envelope.id,
        queue_name=queue_name,
        priority=priority,
        due_in_s=max(0.0, (stored.visible_at_ms - now_ms) / 1000),
        message_id=stored.id,
    )
