"""Moving and removing messages for an operator: purge, discard, move, redrive.

Each function but a purge returns a `Call`, to be given to `client.run()` or awaited with `client.arun()`. A call takes
at most `MAX_SLICE` messages, so that none blocks the server; the caller repeats it for a whole queue. `move`,
`redrive`, `remove` and `reschedule` take messages as they were seen by `browse`, and leave alone those that were
received since: after a crash at any point, no message is lost and none exists twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any

from ..errors import InvalidValue, QueueNotFound
from ..ids import SUFFIX_LENGTH, is_suffix, random_suffixes
from ..keys import QueueKeys, checked_name, queue_keys, result_key
from ..limits import milliseconds
from ..transport.call import Argument, Call
from ..transport.client import Client
from .browse import StoredMessage
from .dead_letters import lives_of
from .records import SettleResult
from .replies import read_settlements

#: Each message costs a script about ten commands; this number keeps it within a few milliseconds.
MAX_SLICE = 250
#: The same for their size together.
MAX_SLICE_BYTES = 1024 * 1024
#: Fields of a queue's hash that one call reads.
LOOKED_AT_A_TIME = 1000
#: Maximum number of fields of other programs in a queue's hash; with more of them, a purge is refused.
MAX_FOREIGN_FIELDS = 1000
#: The same as for a task that was sent and has not run: longer than any sensible backlog.
REDRIVEN_RESULT_TTL_S = 7 * 86_400


class Verdict(IntEnum):
    """The result for one message."""

    DONE = 1
    #: It was deleted meanwhile.
    MISSING = 0
    #: It was received meanwhile, so it was left in place.
    TAKEN = -1
    #: It exceeds the maximum size of the target, so it was left in place.
    TOO_LONG = -2
    #: The target has a message of that id, so it was left in place.
    DUPLICATE = -3


def purge(client: Client, name: str) -> int:
    """Remove all messages of a queue and return their number. The queue and fields of other programs stay.

    The removal is one step and takes no longer for a million messages than for one; looking for the fields of other
    programs before it takes longer. A field that another program adds between the two is lost.
    """
    return client.run(_purge(client, name, ""))


def purge_as_seen(client: Client, name: str, total_sent: int) -> int | None:
    """Purge a queue unless messages were sent since `total_sent` was read; then return None and remove nothing."""
    removed = client.run(_purge(client, name, total_sent))
    return None if removed < 0 else removed


def _purge(client: Client, name: str, total_sent: Argument) -> Call[int]:
    keys = queue_keys(client.namespace, checked_name(name))
    args = (total_sent, *_foreign_fields(client, keys, name))
    return Call("queue/moves/purge", _own(keys), args, int, subject=name)


def _foreign_fields(client: Client, keys: QueueKeys, name: str) -> list[bytes]:
    found: dict[bytes, None] = {}
    cursor = b"0"
    while True:
        args = (cursor, LOOKED_AT_A_TIME)
        call: Call[list[bytes]] = Call(
            "queue/moves/foreign_fields", (keys.messages, keys.settings), args, list, True, name
        )
        cursor, *fields = client.run(call)
        found |= dict.fromkeys(fields)
        if len(found) > MAX_FOREIGN_FIELDS:
            raise InvalidValue(
                f"the hash of queue {name!r} has more than {MAX_FOREIGN_FIELDS} fields of other programs; "
                "nothing was removed"
            )
        if cursor == b"0":
            return list(found)


def discard(namespace: str, name: str, ids: Sequence[str]) -> Call[list[bool]]:
    """Return the call that deletes messages by id, leased or not, and returns for each whether it existed.

    Unlike `Queue.delete()` it takes ids of any form, and their failure records go too.
    """
    keys = queue_keys(namespace, checked_name(name))
    return Call("queue/moves/discard", _own(keys), _sliced(ids), _read_flags, subject=name)


def remove(namespace: str, name: str, messages: Sequence[StoredMessage]) -> Call[list[Verdict]]:
    """Return the call that deletes messages unless they were received since they were seen."""
    keys = queue_keys(namespace, checked_name(name))
    return Call(
        "queue/moves/remove", _own(keys), tuple(_receipts(messages)), _read_verdicts, repeatable=True, subject=name
    )


def reschedule(
    namespace: str, name: str, messages: Sequence[StoredMessage], visible_in_s: float
) -> Call[list[Verdict]]:
    """Return the call that makes messages visible `visible_in_s` seconds from now, leased or not.

    Messages that were received since they were seen are left alone.
    """
    keys = queue_keys(namespace, checked_name(name))
    args = (milliseconds("visible_in_s", visible_in_s), keys.channel, *_receipts(messages))
    script = "queue/moves/reschedule"
    return Call(script, (keys.messages, keys.settings), args, _read_verdicts, repeatable=True, subject=name)


def change_visibility(
    namespace: str, name: str, message_id: str, visibility_timeout_s: float
) -> Call[list[SettleResult]]:
    """Return the call that changes the visibility of a message, leased or not. Unlike the queue's, it takes any id."""
    keys = queue_keys(namespace, checked_name(name))
    args = (milliseconds("visibility_timeout_s", visibility_timeout_s), message_id, "")
    script = "queue/change_visibility"
    return Call(script, (keys.messages, keys.settings), args, read_settlements, repeatable=True, subject=name)


def move(namespace: str, source: str, target: str, messages: Sequence[StoredMessage]) -> Call[list[Verdict]]:
    """Return the call that moves messages as they are, with id, receive count and the time they become visible.

    Raises QueueNotFound for either queue.
    """
    keys, target_keys = _both(namespace, source, target)
    records = [result_key(namespace, _task_id(message)) for message in messages]
    args = (target_keys.channel, target, *_receipts(messages))
    return Call(
        "queue/moves/move", (*_own(keys), *_own(target_keys), *records), args, _verdicts(target), subject=source
    )


def redrive(namespace: str, source: str, target: str, messages: Sequence[StoredMessage]) -> Call[list[Verdict | str]]:
    """Return the call that sends dead letters again and removes them, with their failure records, in the same step.

    Each gets a new id, which is its result, and keeps its body, which contains the task's id. Its attempts start again
    from 1, and the earlier failures stay on record. Raises QueueNotFound for either queue.
    """
    keys, target_keys = _both(namespace, source, target)
    all_keys = [*_own(keys), target_keys.messages, target_keys.settings, target_keys.releases]
    records, words = redriven(namespace, _sliced(messages))
    args = (target_keys.channel, target, REDRIVEN_RESULT_TTL_S, *words)
    return Call("queue/moves/redrive", (*all_keys, *records), args, _verdicts(target), subject=source)


def redriven(namespace: str, messages: Sequence[StoredMessage]) -> tuple[list[str], list[Argument]]:
    """Return the keys and arguments of each message for queue/moves/parts/redriving.

    The new id ends with the task's id, as in a send, so that its result is found when it is moved.
    """
    records: list[str] = []
    words: list[Argument] = []
    for message, suffix in zip(messages, random_suffixes(len(messages)), strict=True):
        failure = message.failure()
        task_id = failure.task_id if failure is not None else ""
        if task_id:
            records.append(result_key(namespace, task_id))
        words += (message.position.message_id, message.receive_count, task_id if is_suffix(task_id) else suffix)
        words += (int(bool(task_id)), lives_of(message.failure_json))
    return records, words


def _task_id(message: StoredMessage) -> str:
    """Return the id of a message's task: messages sent by this package end with it."""
    failure = message.failure()
    return failure.task_id if failure is not None and failure.task_id else message.id[-SUFFIX_LENGTH:]


def _own(keys: QueueKeys) -> tuple[str, ...]:
    return keys.messages, keys.settings, keys.failures, keys.releases


def _both(namespace: str, source: str, target: str) -> tuple[QueueKeys, QueueKeys]:
    if source == target:
        raise InvalidValue(f"source and target are the same queue: {source!r}; name another target")
    return queue_keys(namespace, checked_name(source)), queue_keys(namespace, checked_name(target))


def _sliced(items: Sequence[Any]) -> tuple[Any, ...]:
    if not 1 <= len(items) <= MAX_SLICE:
        raise InvalidValue(f"{len(items)} messages in one call; it takes 1 to {MAX_SLICE}")
    return tuple(items)


def _receipts(messages: Sequence[StoredMessage]) -> Iterator[Argument]:
    for message in _sliced(messages):
        yield message.position.message_id
        yield message.receive_count


def _read_verdicts(reply: list[int]) -> list[Verdict]:
    return [Verdict(number) for number in reply]


def _verdicts(target: str) -> Callable[[Any], list[Any]]:
    """Return a reader of verdicts and new ids. It raises QueueNotFound when the script found no target."""

    def read(reply: Any) -> list[Any]:
        if not isinstance(reply, list):
            raise QueueNotFound(f"queue not found: {target!r}; create it, or name another target", queue_name=target)
        return [item.decode("ascii") if isinstance(item, bytes) else Verdict(item) for item in reply]

    return read


def _read_flags(reply: list[int]) -> list[bool]:
    return [number == 1 for number in reply]
