"""The event log: one event for each ended attempt, in the stream `{ns}::events`.

Owns the table of fields that the worker's scripts write and all readers use. An event is written by the very
script that settles the message, so there is one if and only if the settlement happened; the id of its entry is the
server's time of that. No event holds arguments, return values or bodies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..keys import events_key
from ..limits import MAX_BATCH
from ..numbers import read_whole
from ..transport.call import Argument, Call
from ..transport.client import Client

__all__ = ["Event", "EventKind", "LogState", "find_events", "following", "newest", "state"]

#: The values of every entry, all of them and in this order, in one field with newlines between. Only the last, the text
#: of an error, may hold newlines itself.
VALUES = b"v"
#: Names of the values. Entries of earlier versions have a field for each.
FIELDS = ("e", "q", "t", "i", "m", "a", "s", "w", "r", "b", "k", "x", "y")
#: Separator of the tags of a call. Only entries of calls with tags have this last value.
TAGS, BETWEEN_TAGS = b"g", "\x1f"
#: Longer error texts are cut.
MAX_ERROR_CHARACTERS = 500
#: Maximum number of entries that a search of the log reads.
MOST_LOOKED_AT = 20_000


class EventKind(Enum):
    """The outcome of an attempt."""

    SUCCEEDED = "succeeded"
    #: It failed, and another attempt follows.
    RETRIED = "retried"
    #: It failed for good: the message went to the dead-letter queue.
    DEAD = "dead"
    #: It failed for good, and there is no dead-letter queue: the message was deleted.
    DISCARDED = "discarded"
    #: Given back before it ran, or unfinished because its worker stopped.
    RELEASED = "released"
    #: Its process died, or its lease expired while it ran and the result was discarded; `error_type` shows which.
    LOST = "lost"
    #: It was revoked.
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Event:
    """One attempt. Unknown texts are empty, unknown numbers None."""

    #: Id of the stream entry, "milliseconds-number": when the attempt was settled, on the server's clock.
    entry_id: str
    #: A value of `EventKind`; a later release may write others.
    kind: str
    queue: str
    #: Dotted path of the task; empty for a message that no task understood.
    task: str
    #: Id of the call, as `TaskResult.id`; empty for messages that are no calls.
    task_id: str
    #: RSMQ's id of the message.
    message_id: str
    #: 1 for the first one.
    attempt: int | None
    #: When the message was sent, in epoch milliseconds.
    enqueued_ms: int | None
    #: Latency: from the time when the message could be received to its receive; None when it was not run.
    wait_us: int | None
    #: Run time of the function; None when it was not run.
    run_us: int | None
    body_bytes: int | None
    worker: str
    #: Dotted path of the exception.
    error_type: str
    error: str
    tags: tuple[str, ...] = ()

    @property
    def at_ms(self) -> int:
        """Return when the attempt was settled, in epoch milliseconds of the server."""
        return int(self.entry_id.partition("-")[0])


@dataclass(frozen=True, slots=True)
class LogState:
    """The size of the log."""

    #: Events in it now.
    events: int
    #: Events ever written; None when the server does not count them (before Redis 7).
    written: int | None
    #: Events that could not be written since the log was created.
    dropped: int
    oldest_ms: int | None
    newest_ms: int | None


# -- Calls ------------------------------------------------------------------------------------------------------------


def newest(namespace: str, *, before: str = "+", count: int = 100) -> Call[list[Event]]:
    """Return the call that reads the newest events first; `before` is the entry id at which an earlier page ended."""
    last = before if before == "+" else f"({before}"
    return Call("XREVRANGE", (events_key(namespace),), (last, "-", "COUNT", min(count, MAX_BATCH)), read_events, True)


def following(namespace: str, *, after: str = "-", count: int = MAX_BATCH) -> Call[list[Event]]:
    """Return the call that reads events in order, after the entry id `after`."""
    first = after if after == "-" else f"({after}"
    return Call("XRANGE", (events_key(namespace),), (first, "+", "COUNT", min(count, MAX_BATCH)), read_events, True)


def state(namespace: str) -> Call[LogState]:
    """Return the call that reads the size of the log."""
    return Call("stats/events/state", (events_key(namespace), dropped_key(namespace)), (), _read_state, True)


def append(namespace: str, kind: str, words: tuple[Argument, ...], *, log: str = "") -> Call[int]:
    """Return the call that writes events of messages that were settled before; `words` as in parts/events.lua.

    `log` is the key of another stream than the log.
    """
    return Call("stats/events/append", (log or events_key(namespace), dropped_key(namespace)), (kind, *words), int)


def dropped_key(namespace: str) -> str:
    """Return the key of the number of events that could not be written."""
    return f"{events_key(namespace)}:dropped"


# -- Searching the log ------------------------------------------------------------------------------------------------


def find_events(
    client: Client,
    *,
    queue: str | None = None,
    task: str | None = None,
    task_id: str | None = None,
    kinds: frozenset[str] | None = None,
    before: str = "+",
    most_looked_at: int = MOST_LOOKED_AT,
) -> Iterator[Event]:
    """Yield matching events, newest first; ends after `most_looked_at` entries."""
    left = most_looked_at
    while left > 0:
        part = client.run(newest(client.namespace, before=before, count=min(left, MAX_BATCH)))
        for event in part:
            fits = (queue in (None, event.queue), task in (None, event.task), task_id in (None, event.task_id))
            if all(fits) and (kinds is None or event.kind in kinds):
                yield event
        if not part:
            return
        before, left = part[-1].entry_id, left - len(part)


# -- Replies ----------------------------------------------------------------------------------------------------------


def read_events(reply: list[Any]) -> list[Event]:
    """Read stream entries as Redis returns them: pairs of an id and a flat list of fields and values."""
    return [read_event(entry_id.decode("ascii"), words) for entry_id, words in reply]


def values_of(words: Sequence[bytes]) -> list[bytes]:
    """Return the values of an entry, in the order of FIELDS. Missing values are empty."""
    if words[0] == VALUES:
        values = words[1].split(b"\n", len(FIELDS) - 1)
        return values if len(values) == len(FIELDS) else values + [b""] * (len(FIELDS) - len(values))
    fields = dict(zip(words[::2], words[1::2], strict=True))
    return [fields.get(name.encode(), b"") for name in FIELDS]


def read_event(entry_id: str, words: Sequence[bytes]) -> Event:
    """Return the event of one entry. Values that should be numbers and are not count as missing."""
    texts = [value.decode("utf-8", "replace") for value in values_of(words)]
    kind, queue, task, task_id, message_id, attempt, sent, wait, run, size, worker, error_type, error = texts
    return Event(
        entry_id=entry_id,
        kind=kind,
        queue=queue,
        task=task,
        task_id=task_id,
        message_id=message_id,
        attempt=_whole(attempt),
        enqueued_ms=_whole(sent),
        wait_us=_whole(wait),
        run_us=_whole(run),
        body_bytes=_whole(size),
        worker=worker,
        error_type=error_type,
        error=error,
        tags=_tags_of(words),
    )


def _tags_of(words: Sequence[bytes]) -> tuple[str, ...]:
    if words[-2] != TAGS:  # the last field, if there is one
        return ()
    return tuple(words[-1].decode("utf-8", "replace").split(BETWEEN_TAGS))


def _read_state(reply: list[Any]) -> LogState:
    length, added, dropped, oldest, latest = reply
    return LogState(length, None if added < 0 else added, _whole(dropped) or 0, _ms_of(oldest), _ms_of(latest))


def _ms_of(entry_id: bytes) -> int | None:
    return _whole(entry_id.partition(b"-")[0])


def _whole(text: str | bytes) -> int | None:
    number = read_whole(text)
    return number if number is not None and number >= 0 else None
