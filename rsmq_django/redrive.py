"""Redrive of dead letters from code: in a shell, a data migration, a scheduled task.

    from rsmq_django.redrive import redrive
    redrive("mail-dead", error="ConnectionError", since=timedelta(hours=2), rate=50)

`manage.py rsmq_redrive` and the admin do the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from .conf.settings import aliases_of, get_settings
from .core import Client
from .core.errors import QueueNotFound
from .core.queue.dead_letters import Filter
from .core.queue.transfers import Transfer, redrive_slice
from .queues import get_client

__all__ = ["Redriven", "dead_letter_queues", "redrive"]

#: A time, or an age.
Moment = datetime | timedelta


@dataclass(frozen=True, slots=True)
class Redriven:
    """The result of a redrive of one queue."""

    #: Target queue -> number of messages sent there, or that would be sent.
    moved: Counter[str] = field(default_factory=Counter)
    #: Reason -> number of messages not sent: gone, taken (received meanwhile), too_long (for the target), no_origin.
    stayed: Counter[str] = field(default_factory=Counter)


def redrive(  # noqa: PLR0913 - public: a filter or a limit each, all optional
    dead_letter_queue: str,
    *,
    to: str | None = None,
    task: str | None = None,
    error: str | None = None,
    reason: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    limit: int | None = None,
    rate: float | None = None,
    on_progress: Callable[[int], object] = lambda _moved: None,
) -> Redriven:
    """Send dead letters back to their original queues, or `to` another queue, and return the counts.

    `task` and `error` are dotted paths or their last parts, with the wildcards `*` and `?`; `since` and `until` limit
    the time of failure; `rate` is messages per second. Each dead letter becomes a new message whose attempts start
    anew; its task keeps its id, and earlier attempts and errors stay on record. `on_progress` is called with the total
    so far. An interruption neither loses nor duplicates messages. Raises ImproperlyConfigured for a queue that is not
    in the settings, InvalidValue for a limit below 0 and a rate that is not above 0, QueueNotFound for a queue that
    does not exist, and the errors of the connection.
    """
    chosen = Filter(task=task, error=error, reason=reason, since_ms=_as_ms(since), until_ms=_as_ms(until))
    done = Redriven()
    for client in _clients_of(dead_letter_queue, to):
        left = None if limit is None else limit - done.moved.total()
        if left == 0:
            break
        transfer = Transfer(client, dead_letter_queue, chosen=chosen, limit=left, rate=rate, with_failures=True)
        before = done.moved.total()
        with _missing_shard_skipped(dead_letter_queue):
            for part in transfer.slices():
                redrive_slice(transfer, part, to)
                on_progress(before + transfer.moved.total())
        done.moved.update(transfer.moved)
        done.stayed.update(transfer.stayed)
    return done


def _clients_of(dead_letter_queue: str, to: str | None) -> list[Client]:
    """Return the clients of a queue, or of its shards. Raises ImproperlyConfigured for queues on two connections."""
    source = aliases_of(get_settings().queue(dead_letter_queue))
    if to is not None and not set(source) <= set(aliases_of(get_settings().queue(to))):
        raise ImproperlyConfigured(
            f"queues {dead_letter_queue!r} and {to!r} are on different connections; they must be on one server, and "
            "have the same SHARDS"
        )
    return [get_client(alias) for alias in source]


@contextmanager
def _missing_shard_skipped(name: str) -> Iterator[None]:
    """Ignore that a shard does not exist yet; a queue without shards must exist, and so must each target."""
    try:
        yield
    except QueueNotFound as error:
        if error.queue_name != name or get_settings().queue(name).shards == 1:
            raise


def dead_letter_queues() -> list[str]:
    """Return the names of all dead-letter queues of the settings, in the order of their queues."""
    return list(dict.fromkeys(filter(None, (queue.dead_letter for queue in get_settings().queues.values()))))


def _as_ms(moment: Moment | None) -> float | None:
    if moment is None:
        return None
    when = timezone.now() - moment if isinstance(moment, timedelta) else moment
    return when.timestamp() * 1000
