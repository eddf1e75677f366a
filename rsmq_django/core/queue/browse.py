"""Reads queues without a change: pages, single messages, counts, statistics, failure records.

Each function returns a `Call`, to be given to `client.run()` or awaited with `client.arun()`. No call here changes a
receive count, a visibility or anything else, and none reads more than a thousand messages or about a megabyte. Names
are not checked: a queue that another client created under an invalid name can still be read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from ..ids import sent_ms
from ..keys import queue_keys
from ..limits import checked_count
from ..numbers import bounded, read_count
from ..stats.depth import Depth
from ..transport.call import Argument, Call
from .replies import first_received_ms

T = TypeVar("T")

#: JSON allows numbers of any length, some of them too large for a float.
_TOO_LARGE = 2**63

#: Bodies are left out.
NO_BODY = 0
#: Bodies are read whole: the server stores nothing longer.
WHOLE_BODY = 512 * 1024 * 1024
#: Up to the last message, however far in the future it becomes visible.
ALL = math.inf


class State(Enum):
    """The state of a message. A message that is delayed until its retry is reported as in flight."""

    READY = "ready"
    #: Invisible, and never received.
    DELAYED = "delayed"
    #: Invisible, and received before.
    IN_FLIGHT = "in flight"


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """Why a message is in a dead-letter queue. Fields that the record does not have are empty."""

    reason: str
    #: Its original queue.
    queue: str
    task: str
    task_id: str
    attempts: int
    #: Dotted path of the exception.
    error: str
    message: str
    traceback: str
    died_ms: float | None
    worker: str


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as it is stored in its queue."""

    id: str
    #: When it can be received, in epoch milliseconds; in the past when it is ready.
    visible_at_ms: float
    receive_count: int
    first_received_ms: int | None
    #: None when there is no body: an orphaned id of another client.
    size_bytes: int | None
    #: The requested part of the body.
    body: bytes
    #: The failure record as it is stored, or b"".
    failure_json: bytes
    position: Position

    @property
    def sent_ms(self) -> float | None:
        """Return the server time of the send in epoch milliseconds, or None when the id does not carry it."""
        return sent_ms(self.id)

    def state(self, now_ms: float) -> State:
        """Return the state of the message at that server time."""
        if self.visible_at_ms <= now_ms:
            return State.READY
        return State.IN_FLIGHT if self.receive_count else State.DELAYED

    def failure(self) -> FailureRecord | None:
        """Return the failure record; None when there is none, or when it is not one of ours."""
        return read_failure(self.failure_json)


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a queue's order: after the message of this score and id, even if that message no longer exists."""

    score: bytes = b""
    message_id: bytes = b""

    @classmethod
    def behind_all_of(cls, visible_at_ms: int) -> Position:
        """Return the position after all messages that become visible at that time or earlier."""
        return cls(str(visible_at_ms).encode(), b"\x7f")


START = Position()


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages of a queue, in the order in which they become visible."""

    #: The server's time of the read, in epoch milliseconds.
    now_ms: int
    messages: list[StoredMessage]

    @property
    def end(self) -> Position | None:
        """Return the start of the next page; None when this page is empty, which means that it is the last."""
        return self.messages[-1].position if self.messages else None


# -- Calls ------------------------------------------------------------------------------------------------------------


def page(
    namespace: str,
    name: str,
    *,
    after: Position = START,
    until_ms: float | None = ALL,
    count: int = 100,
    body_bytes: int = NO_BODY,
    with_failures: bool = False,
) -> Call[Page]:
    """Return the call that reads up to `count` (1 to 1,000) messages after a position.

    Messages that become visible after `until_ms` are left out; None means the server's time now, so only ready messages
    are read. A page may have fewer messages than `count` when they are large: only an empty page is the last.
    """
    keys = queue_keys(namespace, name)
    args = (after.score, after.message_id, as_limit(until_ms), checked_count(count), body_bytes)
    failures = (keys.failures,) if with_failures else ()
    return _call("page", name, (keys.messages, keys.settings, *failures), args, read_page)


def pick(namespace: str, name: str, ids: Sequence[str | bytes], *, body_bytes: int = WHOLE_BODY) -> Call[Page]:
    """Return the call that reads the messages of these ids (at most 1,000), with their failure records.

    Ids that the queue does not have are left out.
    """
    keys = queue_keys(namespace, name)
    return _call("pick", name, (keys.messages, keys.settings, keys.failures), (body_bytes, *ids), read_page)


def count(namespace: str, name: str) -> Call[Depth]:
    """Return the call that counts a queue's messages: how many there are, and how many of them are ready."""
    keys = queue_keys(namespace, name)
    return _call(
        "count",
        name,
        (keys.messages, keys.settings),
        (),
        lambda reply: Depth(now_ms=int(reply[0]), ready=reply[2], hidden=reply[1] - reply[2]),
    )


def depth_call(namespace: str, name: str) -> Call[Depth]:
    """Return the call that reads the depth of a queue with everything that a Depth has."""
    keys = queue_keys(namespace, name)
    return _call("depth", name, (keys.messages, keys.settings), (), read_depth)


def _call(
    script: str, name: str, keys: tuple[str, ...], args: tuple[Argument, ...], read: Callable[[Any], T]
) -> Call[T]:
    return Call(f"queue/browse/{script}", keys, args, read, repeatable=True, subject=name)


def as_limit(until_ms: float | None) -> str:
    """Return the time up to which messages are read, in the form for the scripts."""
    if until_ms is None:
        return "now"
    return "+inf" if until_ms == ALL else repr(until_ms)


# -- Replies ----------------------------------------------------------------------------------------------------------


def read_page(reply: list[Any]) -> Page:
    """Return the page of a reply: the server's time, and seven values for each message."""
    return Page(int(reply[0]), [_read_stored(reply[at : at + 7]) for at in range(1, len(reply), 7)])


def _read_stored(values: list[Any]) -> StoredMessage:
    message_id, score, receive_count, first_received, size, body, failure = values
    return StoredMessage(
        id=message_id.decode("utf-8", "backslashreplace"),
        visible_at_ms=bounded(score),
        receive_count=read_count(receive_count),
        first_received_ms=first_received_ms(first_received),
        size_bytes=None if size < 0 else size,
        body=body,
        failure_json=failure or b"",
        position=Position(score, message_id),
    )


def read_depth(reply: list[Any]) -> Depth:
    """Return the depth from the nine values of queue/browse/depth."""
    messages, ready, waited_ms, in_flight, is_estimated, sent, received_in_all, created_s, size_bytes = reply
    return Depth(
        ready=ready,
        hidden=messages - ready,
        in_flight=in_flight,
        is_estimated=bool(is_estimated),
        oldest_ready_s=max(0.0, bounded(waited_ms)) / 1000 if ready else None,
        total_sent=read_count(sent),
        total_received=read_count(received_in_all),
        created_s=read_count(created_s) or None,
        size_bytes=None if size_bytes < 0 else size_bytes,
    )


def read_failure(record: bytes) -> FailureRecord | None:
    """Return a failure record; None if it is not a JSON object. Tolerant: any program may have written it."""
    try:
        fields = json.loads(record)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    died_ms, attempts = fields.get("died_ms"), fields.get("attempts")
    texts = ("reason", "queue", "task", "task_id", "error", "message", "traceback", "worker")
    return FailureRecord(
        **{name: _encodable(str(fields[name])) if fields.get(name) is not None else "" for name in texts},
        attempts=attempts if isinstance(attempts, int) and abs(attempts) < _TOO_LARGE else 0,
        died_ms=died_ms if isinstance(died_ms, (int, float)) and abs(died_ms) < _TOO_LARGE else None,
    )


def _encodable(text: str) -> str:
    """Return text that can be a key of Redis: half a surrogate pair is legal in JSON, but not in UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
