"""Cancelling a task by its id, before it runs and while it does.

A cancelled task ends as FAILED with the error `TaskCancelled`: Django's four states have no fifth one, and a caller
would wait forever for an unfinished result. Its message is deleted at once, arguments included, so it cannot run again.
A worker that runs it is informed: a coroutine is cancelled, in a function `TaskCancelled` is raised.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from asgiref.sync import sync_to_async

from ..conf.settings import get_settings
from ..core import Client, alist_queues, list_queues
from ..core.keys import cancellations_channel, cancelled_key, queue_keys, result_key
from ..core.queue.replies import read_message_id
from ..core.tasks.outbox import keep_back
from ..core.tasks.workflows import advancing
from ..core.transport.call import Call
from ..queues import get_client
from .compat import TaskResultDoesNotExist, TaskResultStatus
from .envelope import Envelope, Unreadable
from .interrupts import TaskCancelled
from .membership import failure_record, is_task_id, membership_of
from .results import encode_error, has_outbox, next_of, proven_end, read_body, read_record
from .sealing import CANCELLED as CANCELLED_CALL
from .sealing import is_authentic, peek, sealed
from .shards import clients_for, hint_of_shard
from .tags import check_tag, tagged_call, tags_of, untag
from .task import find_task
from .workflow_proofs import proven

#: How long a cancellation is stored. A worker that missed the publish checks at the next lease renewal, much earlier.
REMEMBERED_FOR_S = 86_400
#: Maximum number of queues through which a task is followed when it is redriven or moved meanwhile.
MOST_LOOKS = 5

#: The dotted path of the error of a cancelled task.
CANCELLED = f"{TaskCancelled.__module__}.{TaskCancelled.__qualname__}"

_FINISHED = (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED)


def cancel(task_id: str) -> bool:
    """Cancel a call that has not finished; return whether that was in time. Not even a retry will run it then.

    True for a running call: it is interrupted, and its result is discarded. False for a finished call. The id of a
    dropped call of a unique task means the existing call. Raises
    TaskResultDoesNotExist for an unknown id: it has finished and its result is gone, or its transaction has not been
    committed. Without a result record (`result_ttl_s=0`) all queues have to be searched.
    """
    done = _cancel_by_record(task_id)
    if done is None and has_outbox():
        # Again, because a relay may have sent it to Redis between the two reads.
        done = cancel_in_outbox(task_id)
        done = _cancel_by_record(task_id) if done is None else done
    return _cancel_without_record(clients_for(task_id), task_id) if done is None else done


def cancel_only_on(client: Client, task_id: str) -> bool:
    """See cancel(): of the call on this connection. Others may have a call of the same id.

    A dropped call of a unique task has ended: the existing call is somebody else's.
    """
    done = cancel_on(client, task_id, follows=False)
    return _cancel_without_record([client], task_id) if done is None else done


async def acancel_only_on(client: Client, task_id: str) -> bool:
    """See cancel_only_on()."""
    done = await _acancel_on(client, task_id, follows=False)
    return await _acancel_without_record([client], task_id) if done is None else done


def _cancel_by_record(task_id: str) -> bool | None:
    """Cancel a task that has a result record; None when there is none."""
    for client in clients_for(task_id):
        done = cancel_on(client, task_id)
        if done is not None:
            return done
    return None


def cancel_on(client: Client, task_id: str, *, follows: bool = True) -> bool | None:
    """Cancel a task whose result record is on this connection; None when there is none. See cancel().

    With `follows`, the id of a dropped call of a unique task means the existing call.
    """
    of, passed = task_id, set[str]()
    for _ in range(MOST_LOOKS):
        record = client.run(read_record(client.namespace, of))
        if "of" in record and not follows:
            return False
        while (following := next_of(record, of, passed)) is not None:
            of = following
            record = client.run(read_record(client.namespace, of))
        if not record:
            return None
        place = _place(record)
        if place is None:
            return False
        body = client.run(read_body(queue_keys(client.namespace, place.queue), place.message_id))
        if client.run(_cancel(client, place, of, body)):
            for call in _untag(client, place, of, body):
                client.run(call)
            return True
    return False


async def acancel(task_id: str) -> bool:
    """See cancel()."""
    done = await _acancel_by_record(task_id)
    if done is None and has_outbox():
        done = await sync_to_async(cancel_in_outbox)(task_id)
        done = await _acancel_by_record(task_id) if done is None else done
    return await _acancel_without_record(clients_for(task_id), task_id) if done is None else done


async def _acancel_by_record(task_id: str) -> bool | None:
    """See _cancel_by_record()."""
    for client in clients_for(task_id):
        done = await _acancel_on(client, task_id)
        if done is not None:
            return done
    return None


async def _acancel_on(client: Client, task_id: str, *, follows: bool = True) -> bool | None:
    """See cancel_on()."""
    of, passed = task_id, set[str]()
    for _ in range(MOST_LOOKS):
        record = await client.arun(read_record(client.namespace, of))
        if "of" in record and not follows:
            return False
        while (following := next_of(record, of, passed)) is not None:
            of = following
            record = await client.arun(read_record(client.namespace, of))
        if not record:
            return None
        place = _place(record)
        if place is None:
            return False
        body = await client.arun(read_body(queue_keys(client.namespace, place.queue), place.message_id))
        if await client.arun(_cancel(client, place, of, body)):
            for call in _untag(client, place, of, body):
                await client.arun(call)
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Place:
    queue: str
    message_id: str


def _place(record: Mapping[str, str]) -> _Place | None:
    """Return where the message of an unfinished task is; None for a finished one."""
    if record.get("status") in _FINISHED:
        return None
    return _Place(record.get("queue", ""), record.get("message", ""))


def _cancel(client: Client, place: _Place, task_id: str, body: bytes | None) -> Call[bool]:
    keys = queue_keys(client.namespace, place.queue)
    envelope = _envelope_in(body, place.queue)
    path = envelope.task
    error, rest = _end(path, task_id, body, place.queue)
    call = Call(
        "tasks/cancel",
        (
            keys.messages,
            keys.settings,
            keys.releases,
            result_key(client.namespace, task_id),
            cancelled_key(client.namespace),
            keys.failures,
        ),
        (
            place.message_id,
            cancellations_channel(client.namespace),
            error,
            rest,
            max(1, _keep_s(path)),
            REMEMBERED_FOR_S,
        ),
        bool,
        subject=place.queue,
    )
    membership = membership_of(envelope.meta)
    if membership is None or membership.member is None or not is_task_id(task_id):
        return call
    said = failure_record(task_id=task_id, task=path, reason="cancelled", error=CANCELLED, message=str(TaskCancelled()))
    standing = task_id
    if get_settings().is_sealed(place.queue):
        if not is_authentic(body or b"", queue_name=place.queue, task_id=task_id):
            return call  # forged: its workflow is not changed
        standing = f"{task_id}@{get_settings().base_name(place.queue)}"
        said = proven(said, membership, "failure", queue_name=place.queue)
    return advancing(call, membership.end(client.namespace, task_id=standing, said=said))


def _envelope_in(body: bytes | None, queue_name: str) -> Envelope:
    try:
        return peek(body or b"", queue_name=queue_name, message_id="-")
    except Unreadable:
        return Envelope("", "", [], {})


def _keep_s(path: str) -> int:
    """Return how long the result of a cancelled task is kept."""
    task = find_task(path)
    own_s = task.options.result_ttl_s if task is not None else None
    return get_settings().tasks.result_ttl_s if own_s is None else own_s


def _end(path: str, task_id: str, body: bytes | None, queue_name: str) -> tuple[str, bytes]:
    """Return the error (JSON) and the body of a cancelled call's result.

    The body has no arguments, but the names that the result needs.
    """
    error, rest = TaskCancelled(), json.dumps({"task": path, "id": task_id}).encode()
    if is_authentic(body or b"", queue_name=queue_name, task_id=task_id):
        rest = sealed(rest, queue_name=queue_name, kind=CANCELLED_CALL)
    return proven_end(encode_error(error, str(error)), task_id=task_id, queue_name=queue_name, field="error"), rest


# -- Tasks in the outbox ----------------------------------------------------------------------------------------------


def cancel_in_outbox(task_id: str) -> bool | None:
    """Cancel a task that waits in the outbox; None when it does not, or was sent meanwhile.

    The cancellation is stored in Redis first, because a relay may have read its row already.
    """
    from ..outbox.writing import find_waiting, queue_of_rows

    row = find_waiting(task_id)
    if row is None:
        return None
    if row.refusal:
        return False
    client, body = queue_of_rows(row.queue_name).client, bytes(row.body)
    path = _envelope_in(body, row.queue_name).task
    error, rest = _end(path, task_id, body, row.queue_name)
    call = keep_back(
        client.namespace,
        task_id,
        queue_name=row.queue_name,
        error=error,
        body=rest,
        keep_s=_keep_s(path) if row.keeps_result else 0,
    )
    if not client.run(call):
        return None
    row.delete()
    return True


def _untag(client: Client, place: _Place, task_id: str, body: bytes | None) -> list[Call[int]]:
    """Return the calls that remove a cancelled task from its tags."""
    try:
        meta = peek(body or b"", queue_name=place.queue, message_id="-").meta or {}
    except Unreadable:
        return []
    return [untag(client.namespace, tag, [task_id]) for tag in tags_of(meta)]


# -- Tasks with a tag -------------------------------------------------------------------------------------------------


def cancel_tagged(tag: str) -> int:
    """Cancel all unfinished tasks with this tag, and return how many there were. See cancel().

    A call of a unique task that replaced one with the tag, and does not have it, is not cancelled. A call that is being
    sent at this moment may escape: it runs, and is not found by the tag later.
    """
    check_tag(tag)
    count = 0
    for alias in get_settings().connections:
        client, before = get_client(alias), list[str]()
        # An id that another program has written, and that is no text, stays.
        while (ids := client.run(tagged_call(client.namespace, tag))) and ids != before:
            count += sum(_cancel_known(client, task_id) for task_id in ids)
            client.run(untag(client.namespace, tag, ids))
            before = ids
    return count


def _cancel_known(client: Client, task_id: str) -> bool:
    try:
        return cancel_only_on(client, task_id)
    except TaskResultDoesNotExist:
        return False  # never sent, purged, or ended a moment ago


# -- Tasks without a result record ------------------------------------------------------------------------------------


def _cancel_without_record(clients: Iterable[Client], task_id: str) -> bool:
    for client in clients:
        for queue_name in _alive(list_queues(client)):
            cursor = b"0"
            while True:
                cursor, found = client.run(_find(client, queue_name, task_id, cursor))
                for place in found:
                    body = client.run(read_body(queue_keys(client.namespace, queue_name), place.message_id))
                    if _is_its_body(body, task_id, queue_name) and client.run(_cancel(client, place, task_id, body)):
                        for call in _untag(client, place, task_id, body):
                            client.run(call)
                        return True
                if cursor == b"0":
                    break
    raise _unknown(task_id)


async def _acancel_without_record(clients: Iterable[Client], task_id: str) -> bool:
    for client in clients:
        for queue_name in _alive(await alist_queues(client)):
            cursor = b"0"
            while True:
                cursor, found = await client.arun(_find(client, queue_name, task_id, cursor))
                for place in found:
                    body = await client.arun(read_body(queue_keys(client.namespace, queue_name), place.message_id))
                    is_it = _is_its_body(body, task_id, queue_name)
                    if is_it and await client.arun(_cancel(client, place, task_id, body)):
                        for call in _untag(client, place, task_id, body):
                            await client.arun(call)
                        return True
                if cursor == b"0":
                    break
    raise _unknown(task_id)


def _alive(queue_names: Iterable[str]) -> list[str]:
    """Return these queues without dead-letter queues: calls in those have ended."""
    return [name for name in queue_names if name not in get_settings().dead_letters]


def _find(client: Client, queue_name: str, task_id: str, cursor: bytes) -> Call[tuple[bytes, list[_Place]]]:
    def read(reply: list[bytes]) -> tuple[bytes, list[_Place]]:
        following, *ids = reply
        return following, [_Place(queue_name, read_message_id(message_id)) for message_id in ids]

    keys = queue_keys(client.namespace, queue_name)
    return Call("tasks/find_message", (keys.messages,), (cursor, task_id), read, repeatable=True, subject=queue_name)


def _is_its_body(body: bytes | None, task_id: str, queue_name: str) -> bool:
    try:
        return peek(body or b"", queue_name=queue_name, message_id="-").id == task_id
    except Unreadable:
        return False


def _unknown(task_id: str) -> Exception:
    return TaskResultDoesNotExist(
        f"no task {task_id!r}: it has finished and its result is gone, or its transaction was not committed"
        + hint_of_shard(task_id)
    )
