"""What lists for people need: many queues at once, the n-th to m-th message, searches, why messages died.

Like `browse`, of which this is the second half: each function returns a `Call`, nothing here changes anything, names
are not checked, and none reads more than a thousand messages or looks at more than a few megabytes. Messages come with
their failure records up to the traceback; `browse.pick` reads one with everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from .browse import ALL, NO_BODY, START, Page, Position, StoredMessage, as_limit, read_page
from .call import Argument, Call
from .errors import InvalidValue
from .keys import queue_keys, worker_key, workers_key
from .limits import MAX_BATCH, TimeUnit, checked_count
from .numbers import bounded
from .records import QueueAttributes
from .replies import read_attributes, read_message_id

#: Each queue costs a script about six commands; so many keep it within a few milliseconds.
MAX_QUEUES = 300
#: The same where an empty queue costs one command, and any other three.
MAX_DEPTHS = 1_000
#: So many looks at hidden messages take a script some milliseconds.
_LOOKS_IN_ALL, _LEAST_LOOKS, _MOST_LOOKS = 5_000, 10, 100
NO_UNITS: Mapping[str, TimeUnit] = MappingProxyType({})
_WORDS_PER_QUEUE = 12


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """A queue as a list shows it."""

    name: str
    #: The server's time when it was read, in epoch milliseconds.
    now_ms: int
    #: None when another program left something else under the queue's keys.
    attributes: QueueAttributes | None
    #: How long the first ready message has been ready; None when nothing is.
    oldest_ready_s: float | None
    #: How many failure records lie beside it; a queue that has some holds dead letters.
    failures: int
    #: In how many seconds the next message becomes visible that is delayed or in flight; None when none is.
    next_due_s: float | None = None


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """How many messages a queue has."""

    #: Ready, delayed and in flight; -1 when another program left something else under the queue's key.
    messages: int
    ready: int
    #: How long the first ready message has been ready; None when none is.
    oldest_ready_s: float | None


@dataclass(frozen=True, slots=True)
class Hidden:
    """The messages of a queue that cannot be received now."""

    delayed: int
    #: Received before: being worked on, or waiting for the next attempt.
    in_flight: int
    #: Whether that is an estimate, because so many are hidden.
    is_estimated: bool


@dataclass(frozen=True, slots=True)
class Range:
    """Some messages of a queue by their place in it."""

    now_ms: int
    #: How many messages of that kind the queue has.
    total: int
    messages: list[StoredMessage]


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came across."""

    now_ms: int
    #: How many messages were looked at.
    looked_at: int
    #: Where to go on looking; None when nothing is left.
    end: Position | None
    messages: list[StoredMessage]


@dataclass(frozen=True, slots=True)
class WorkerBeat:
    """A worker, and when it was last heard of."""

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

    return Call("browse/overview", tuple(keys), (), read, repeatable=True)


def depths(namespace: str, names: Sequence[str]) -> Call[dict[str, QueueDepth]]:
    """Return the call that reads the depths of up to 1,000 queues by name. Those without messages are left out."""
    if len(names) > MAX_DEPTHS:
        raise InvalidValue(f"{len(names)} queues in one call; it takes up to {MAX_DEPTHS}")

    def read(reply: list[Any]) -> dict[str, QueueDepth]:
        now_ms, *words = reply
        rows = [words[at : at + 4] for at in range(0, len(words), 4)]
        return {names[at - 1]: _depth(int(now_ms), *row) for at, *row in rows}

    keys = tuple(queue_keys(namespace, name).messages for name in names)
    return Call("browse/depths", keys, (), read, repeatable=True)


def hidden(namespace: str, names: Sequence[str]) -> Call[list[Hidden | None]]:
    """Return the call that tells delayed messages of up to 300 queues from those in flight; None for a broken queue.

    Up to a hundred of each queue are looked at, fewer of many queues; beyond that the numbers are estimates.
    """
    if len(names) > MAX_QUEUES:
        raise InvalidValue(f"{len(names)} queues in one call; it takes up to {MAX_QUEUES}")
    keys = [key for name in names for key in _keys(namespace, name)[:2]]
    looks = max(_LEAST_LOOKS, min(_MOST_LOOKS, _LOOKS_IN_ALL // max(len(names), 1)))
    return Call("browse/hidden", tuple(keys), (looks,), _read_hidden, repeatable=True)


def message_range(
    namespace: str,
    name: str,
    *,
    which: Literal["all", "ready", "hidden"] = "all",
    offset: int = 0,
    count: int = 100,
    is_reversed: bool = False,
    body_bytes: int = NO_BODY,
) -> Call[Range]:
    """Return the call that reads up to `count` (0 to 1,000) messages behind the first `offset`, and counts them all.

    In the order in which they become visible, or the other way round. Behind a megabyte, bodies are left out.
    """
    args: tuple[Argument, ...] = (which, offset, count, int(is_reversed), body_bytes)
    return Call("browse/range", _keys(namespace, name), args, _read_range, repeatable=True, subject=name)


def search(
    namespace: str,
    name: str,
    *,
    words: Sequence[str] = (),
    which: Literal["all", "received", "new"] = "all",
    everywhere: bool = True,
    after: Position = START,
    until_ms: float | None = ALL,
    count: int = MAX_BATCH,
    body_bytes: int = NO_BODY,
    marks: Sequence[str] = (),
    ids: tuple[str, str] = ("", ""),
) -> Call[Found]:
    """Return the call that looks at up to `count` (1 to 1,000) messages behind a position and returns those that fit.

    A message fits when its id, its task's name, and with `everywhere` its body or failure record have each of the
    words, its body or record each of the marks, and its id begins between the two of `ids`. `which` leaves out what
    was never received, or what was. `until_ms` is that of `browse.page`. It stops early when it has read a few
    megabytes: only an `end` of None says that nothing is left.
    """
    flags = (which, body_bytes, int(everywhere), *ids, len(marks))
    args = (after.score, after.message_id, as_limit(until_ms), checked_count(count), *flags)
    lowered = tuple(word.lower().encode("utf-8", "surrogateescape") for word in (*marks, *words))
    return Call("browse/search", _keys(namespace, name), (*args, *lowered), _read_found, repeatable=True, subject=name)


def find(namespace: str, names: Sequence[str], message_id: str) -> Call[list[str]]:
    """Return the call that says which of up to 300 queues have a message of this id."""
    if len(names) > MAX_QUEUES:
        raise InvalidValue(f"{len(names)} queues in one call; it takes up to {MAX_QUEUES}")
    keys = tuple(_keys(namespace, name)[0] for name in names)
    word = message_id.encode("utf-8", "surrogateescape")
    return Call("browse/find", keys, (word,), lambda found: [names[at - 1] for at in found], repeatable=True)


def digest(
    namespace: str, name: str, *, after: Position = START, until_ms: float = ALL, count: int = MAX_BATCH
) -> Call[Page]:
    """Return the call that reads why up to `count` (1 to 1,000) messages behind a position died. See `browse.page`."""
    args = (after.score, after.message_id, as_limit(until_ms), checked_count(count))
    return Call("browse/digest", _keys(namespace, name), args, read_page, repeatable=True, subject=name)


def workers(namespace: str) -> Call[list[WorkerBeat]]:
    """Return the call that reads up to 1,000 workers, those heard of last first."""
    return Call("browse/workers", (workers_key(namespace),), (), _read_beats, repeatable=True)


def holder(namespace: str, name: str, message: StoredMessage, worker_ids: Sequence[str]) -> Call[str | None]:
    """Return the call that asks which of up to 1,000 workers notes that it holds a message; notes are advisory."""
    keys = tuple(worker_key(namespace, worker_id) for worker_id in worker_ids[:MAX_BATCH])
    args = (message.position.message_id, message.receive_count, name)
    return Call("browse/holder", keys, args, lambda at: worker_ids[at - 1] if at else None, repeatable=True)


def crashes(namespace: str, name: str, message_id: bytes) -> Call[int]:
    """Return the call that asks how many processes died while they ran a message."""
    return Call("browse/crashes", (queue_keys(namespace, name).releases,), (message_id,), int, repeatable=True)


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
        yield QueueSummary(
            name=name,
            now_ms=now_ms,
            attributes=None if is_broken else read_attributes(units.get(name, "s"))([*stored, size, size - ready]),
            oldest_ready_s=max(0.0, now_ms - bounded(first_score)) / 1000 if ready else None,
            failures=failures,
            next_due_s=max(0.0, bounded(next_due_ms) - now_ms) / 1000 if next_due_ms else None,
        )


def _depth(now_ms: int, messages: int, ready: int, first_score: bytes) -> QueueDepth:
    return QueueDepth(messages, ready, max(0.0, now_ms - bounded(first_score)) / 1000 if ready else None)


def _read_hidden(reply: list[int]) -> list[Hidden | None]:
    rows = [reply[at : at + 3] for at in range(0, len(reply), 3)]
    return [
        None if all_of_them < 0 else Hidden(all_of_them - received, received, bool(is_estimate))
        for all_of_them, received, is_estimate in rows
    ]


def _read_range(reply: list[Any]) -> Range:
    now_ms, total, *values = reply
    return Range(int(now_ms), total, read_page([now_ms, *values]).messages)


def _read_found(reply: list[Any]) -> Found:
    now_ms, looked_at, score, message_id, *values = reply
    end = Position(score, message_id) if looked_at else None
    return Found(int(now_ms), looked_at, end, read_page([now_ms, *values]).messages)


def _read_beats(reply: list[bytes]) -> list[WorkerBeat]:
    now_ms, *words = reply
    pairs = zip(words[::2], words[1::2], strict=True)
    return [WorkerBeat(read_message_id(worker_id), int(now_ms), bounded(beat_ms)) for worker_id, beat_ms in pairs]
