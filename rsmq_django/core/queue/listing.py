"""Reads for lists: many queues at once, the n-th to m-th message, searches, failures of dead messages.

The second half of `browse`: each function returns a `Call`, nothing here changes anything, names are not checked, and
none reads more than a thousand messages or more than a few megabytes. Messages have their failure records without the
traceback; `browse.pick` reads complete records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from ..errors import InvalidValue
from ..keys import queue_keys, worker_key, workers_key
from ..limits import MAX_BATCH, TimeUnit, checked_count
from ..numbers import bounded, read_count
from ..stats.depth import Depth
from ..transport.call import Argument, Call
from .browse import ALL, NO_BODY, START, Page, Position, StoredMessage, as_limit, read_page
from .records import QueueAttributes
from .replies import read_attributes, read_message_id

#: Each queue costs a script about six commands; this number keeps it within a few milliseconds.
MAX_QUEUES = 300
#: The same for scripts that need one command for an empty queue and three for any other.
MAX_DEPTHS = 1_000
#: This number of reads of invisible messages takes a script some milliseconds.
_LOOKS_IN_ALL, _LEAST_LOOKS, _MOST_LOOKS = 5_000, 10, 100
NO_UNITS: Mapping[str, TimeUnit] = MappingProxyType({})
_WORDS_PER_QUEUE = 12


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """A queue as shown in a list."""

    name: str
    #: None when another program uses the queue's keys for something else.
    attributes: QueueAttributes | None
    #: Without the number of messages in flight.
    depth: Depth
    #: Number of failure records; a queue that has any contains dead letters.
    failures: int
    #: Seconds until the next delayed or in-flight message becomes visible; None without such messages.
    next_due_s: float | None = None


@dataclass(frozen=True, slots=True)
class MessageRange:
    """Some messages of a queue by their position in it."""

    now_ms: int
    #: How many messages of that kind the queue has.
    total: int
    messages: list[StoredMessage]


@dataclass(frozen=True, slots=True)
class SearchTerms:
    """The conditions that a message must meet to be found."""

    #: Each is in its id, its task's name or, with `everywhere`, its body or failure record.
    words: Sequence[str] = ()
    everywhere: bool = True
    #: Each is in its body or failure record.
    marks: Sequence[str] = ()
    #: Its id begins between these two.
    ids: tuple[str, str] = ("", "")
    #: Whether it was received before; "new" was never received.
    which: Literal["all", "received", "new"] = "all"


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search."""

    now_ms: int
    #: How many messages were examined.
    looked_at: int
    #: Where to continue the search; None at the end of the queue.
    end: Position | None
    messages: list[StoredMessage]


@dataclass(frozen=True, slots=True)
class WorkerBeat:
    """A worker and the time of its last heartbeat."""

    worker_id: str
    now_ms: int
    beat_ms: float


# -- Calls ------------------------------------------------------------------------------------------------------------


def overview(
    namespace: str, names: Sequence[str], *, units: Mapping[str, TimeUnit] = NO_UNITS
) -> Call[list[QueueSummary]]:
    """Return the call that reads up to 300 queues at once, in the order given.

    `units` says which queues store their times in another unit than seconds.
    """
    if len(names) > MAX_QUEUES:
        raise InvalidValue(f"{len(names)} queues in one call; it takes up to {MAX_QUEUES}")
    keys = [key for name in names for key in _keys(namespace, name)]

    def read(reply: list[Any]) -> list[QueueSummary]:
        return list(_read_summaries(names, units, reply))

    return Call("queue/browse/overview", tuple(keys), (), read, repeatable=True)


def depths(namespace: str, names: Sequence[str], *, with_in_flight: bool = False) -> Call[dict[str, Depth]]:
    """Return the call that reads the depths of up to 1,000 queues by name, without empty and broken queues.

    `with_in_flight` is for up to 300 queues: up to a hundred hidden messages of each queue are read, fewer for many
    queues; beyond that the numbers are estimates. Totals are not read.
    """
    most = MAX_QUEUES if with_in_flight else MAX_DEPTHS
    if len(names) > most:
        raise InvalidValue(f"{len(names)} queues in one call; it takes up to {most}")
    looks = max(_LEAST_LOOKS, min(_MOST_LOOKS, _LOOKS_IN_ALL // max(len(names), 1))) if with_in_flight else 0

    def read(reply: list[Any]) -> dict[str, Depth]:
        now_ms, *words = reply
        rows = [words[at : at + 6] for at in range(0, len(words), 6)]
        return {names[at - 1]: _read_depth(int(now_ms), *row) for at, *row in rows}

    keys = tuple(key for name in names for key in _keys(namespace, name)[:2])
    return Call("queue/browse/depths", keys, (looks,), read, repeatable=True)


def message_range(
    namespace: str,
    name: str,
    *,
    which: Literal["all", "ready", "hidden"] = "all",
    offset: int = 0,
    count: int = 100,
    is_reversed: bool = False,
    body_bytes: int = NO_BODY,
) -> Call[MessageRange]:
    """Return the call that reads up to `count` (0 to 1,000) messages after the first `offset`, and counts them all.

    In the order in which they become visible, or in reverse. Bodies beyond a megabyte in total are left out.
    """
    args: tuple[Argument, ...] = (which, offset, count, int(is_reversed), body_bytes)
    return Call("queue/browse/range", _keys(namespace, name), args, _read_range, repeatable=True, subject=name)


def search(
    namespace: str,
    name: str,
    terms: SearchTerms,
    *,
    after: Position = START,
    until_ms: float | None = ALL,
    count: int = MAX_BATCH,
    body_bytes: int = NO_BODY,
) -> Call[Found]:
    """Return the call that searches up to `count` (1 to 1,000) messages after a position and returns the matches.

    `until_ms` is that of `browse.page`. The search stops early when it has read a few megabytes: only an `end` of None
    means that nothing is left.
    """
    flags = (terms.which, body_bytes, int(terms.everywhere), *terms.ids, len(terms.marks))
    args = (after.score, after.message_id, as_limit(until_ms), checked_count(count), *flags)
    lowered = tuple(word.lower().encode("utf-8", "surrogateescape") for word in (*terms.marks, *terms.words))
    return Call(
        "queue/browse/search", _keys(namespace, name), (*args, *lowered), _read_found, repeatable=True, subject=name
    )


def find(namespace: str, names: Sequence[str], message_id: str) -> Call[list[str]]:
    """Return the call that finds which of up to 300 queues have a message of this id."""
    if len(names) > MAX_QUEUES:
        raise InvalidValue(f"{len(names)} queues in one call; it takes up to {MAX_QUEUES}")
    keys = tuple(_keys(namespace, name)[0] for name in names)
    word = message_id.encode("utf-8", "surrogateescape")
    return Call("queue/browse/find", keys, (word,), lambda found: [names[at - 1] for at in found], repeatable=True)


def digest(
    namespace: str, name: str, *, after: Position = START, until_ms: float = ALL, count: int = MAX_BATCH
) -> Call[Page]:
    """Return the call that reads the failures of up to `count` (1 to 1,000) messages after a position. See `page()`."""
    args = (after.score, after.message_id, as_limit(until_ms), checked_count(count))
    return Call("queue/browse/digest", _keys(namespace, name), args, read_page, repeatable=True, subject=name)


def workers(namespace: str) -> Call[list[WorkerBeat]]:
    """Return the call that reads up to 1,000 workers, the latest heartbeat first."""
    return Call("tasks/worker/workers", (workers_key(namespace),), (), _read_beats, repeatable=True)


def holder(namespace: str, name: str, message: StoredMessage, worker_ids: Sequence[str]) -> Call[str | None]:
    """Return the call that finds which of up to 1,000 workers recorded a lease of a message; records are advisory."""
    keys = tuple(worker_key(namespace, worker_id) for worker_id in worker_ids[:MAX_BATCH])
    args = (message.position.message_id, message.receive_count, name)
    return Call("queue/browse/holder", keys, args, lambda at: worker_ids[at - 1] if at else None, repeatable=True)


def crashes(namespace: str, name: str, message_id: bytes) -> Call[int]:
    """Return the call that reads how many processes crashed while they ran a message."""
    keys, field = (queue_keys(namespace, name).releases,), message_id + b":crashes"
    return Call("HGET", keys, (field,), read_count, repeatable=True)


def _keys(namespace: str, name: str) -> tuple[str, str, str]:
    keys = queue_keys(namespace, name)
    return keys.messages, keys.settings, keys.failures


# -- Replies ----------------------------------------------------------------------------------------------------------


def _read_summaries(names: Sequence[str], units: Mapping[str, TimeUnit], reply: list[Any]) -> Iterator[QueueSummary]:
    now_ms = int(reply[0])
    for n, name in enumerate(names):
        values = reply[1 + n * _WORDS_PER_QUEUE : 1 + (n + 1) * _WORDS_PER_QUEUE]
        *stored, size, ready, first_score, failures, next_due_ms = values
        is_broken = size < 0 or stored[0] == b""
        attributes = None if is_broken else read_attributes(units.get(name, "s"))([*stored, size, size - ready])
        yield QueueSummary(
            name=name,
            attributes=attributes,
            depth=Depth(
                now_ms=now_ms,
                ready=ready,
                hidden=max(size, ready) - ready,
                oldest_ready_s=_ready_for_s(now_ms, first_score) if ready else None,
                total_sent=attributes.total_sent if attributes else 0,
                total_received=attributes.total_received if attributes else 0,
            ),
            failures=failures,
            next_due_s=max(0.0, bounded(next_due_ms) - now_ms) / 1000 if next_due_ms else None,
        )


def _read_depth(now_ms: int, messages: int, ready: int, first_score: bytes, received: int, is_estimated: int) -> Depth:
    return Depth(
        ready=ready,
        hidden=messages - ready,
        in_flight=None if received < 0 else received,
        is_estimated=bool(is_estimated),
        oldest_ready_s=_ready_for_s(now_ms, first_score) if ready else None,
    )


def _ready_for_s(now_ms: int, first_score: bytes) -> float:
    return max(0.0, now_ms - bounded(first_score)) / 1000


def _read_range(reply: list[Any]) -> MessageRange:
    now_ms, total, *values = reply
    return MessageRange(int(now_ms), total, read_page([now_ms, *values]).messages)


def _read_found(reply: list[Any]) -> Found:
    now_ms, looked_at, score, message_id, *values = reply
    end = Position(score, message_id) if looked_at else None
    return Found(int(now_ms), looked_at, end, read_page([now_ms, *values]).messages)


def _read_beats(reply: list[bytes]) -> list[WorkerBeat]:
    now_ms, *words = reply
    pairs = zip(words[::2], words[1::2], strict=True)
    return [WorkerBeat(read_message_id(worker_id), int(now_ms), bounded(beat_ms)) for worker_id, beat_ms in pairs]
