"""Reading from all connections of the project at once: a connection that fails must not hide the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from django.utils.translation import gettext as _

from ..conf.settings import get_settings
from ..core import Client
from ..core.errors import PermissionDenied, RedisFailure, RsmqError, SentinelDenied
from ..core.queue.listing import MAX_QUEUES, QueueSummary, overview
from ..core.queue.queue import list_queues
from ..core.transport.call import Call
from ..queues import get_client
from .places import QueueRef, by_client, in_order

T = TypeVar("T")


def from_each(read: Callable[[str, Client], T], notes: list[str], *, with_shards: bool = True) -> list[T]:
    """Return the result of each connection. Failed connections are noted; when all fail the first error is raised.

    The namespaces of shards have queues only: other structures are read `with_shards=False`.
    """
    answers, errors = [], []
    for alias in get_settings().connections if with_shards else get_settings().own_connections:
        try:
            answers.append(read(alias, get_client(alias)))
        except RedisFailure as error:
            errors.append((alias, error))
    if errors and not answers:
        raise errors[0][1]
    notes += [_note_of(error) % {"alias": alias} for alias, error in errors]
    return answers


def _note_of(error: RedisFailure) -> str:
    if isinstance(error, SentinelDenied):
        return _("The sentinels of the connection “%(alias)s” deny access.")
    if isinstance(error, PermissionDenied):
        return _("The Redis user of the connection “%(alias)s” has no permission.")
    return _("The connection “%(alias)s” cannot be reached.")


def all_places(notes: list[str]) -> list[QueueRef]:
    """Return every queue of every connection, sorted by name."""
    found = from_each(lambda alias, client: [QueueRef(alias, name) for name in list_queues(client)], notes)
    return in_order(place for places in found for place in places)


def summaries_of(places: Sequence[QueueRef]) -> dict[QueueRef, QueueSummary]:
    """Read the data of queues for lists, in one round trip per connection."""
    found: dict[QueueRef, QueueSummary] = {}
    for group in by_client(places).values():
        parts = [group[at : at + MAX_QUEUES] for at in range(0, len(group), MAX_QUEUES)]
        calls = [overview_call(part) for part in parts]
        for part, summaries in zip(parts, answers_of(group[0].client, calls), strict=True):
            found.update(zip(part, summaries, strict=True))
    return found


def overview_call(places: Sequence[QueueRef]) -> Call[list[QueueSummary]]:
    """Return the call that reads the data of up to 300 queues of one connection."""
    units = {place.name: place.unit for place in places}
    return overview(places[0].client.namespace, [place.name for place in places], units=units)


def answers_of(client: Client, calls: Sequence[Call[T]]) -> Iterator[T]:
    """Run calls in one round trip; an error of one call is an error of all."""
    for answer in client.run_many(calls) if calls else ():
        if isinstance(answer, RsmqError):
            raise answer
        yield answer


def answers_that_came(client: Client, calls: Iterable[Call[T]]) -> list[T | None]:
    """Run calls in one round trip; the result is None for a queue that is deleted or broken."""
    sent = list(calls)
    answers: list[T | None] = []
    for answer in client.run_many(sent) if sent else ():
        if isinstance(answer, RedisFailure):
            raise answer
        answers.append(None if isinstance(answer, RsmqError) else answer)
    return answers
