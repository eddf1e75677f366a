"""Result records in Redis: their fields, and how a `TaskResult` is created from them.

A record is a hash with plain fields, so that a person or a program in another language can read it:

    status, queue, message      written when the task is sent
    worker:<n>, started_ms, attempted_ms    attempt n began (the first, the latest)
    error:<n>                   JSON [exception path, traceback] of failed attempt n; 0, -1 ... are attempts of an
                                earlier life, before the message was redriven
    body, value, finished_ms    the end: the message's body, the return value as JSON

Of a signed or encrypted queue, value and last error are followed by a line break and a proof of them (proofs.py).

While the message lives its body is read from the queue, so that nothing is stored twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from django.conf import settings

from ..conf.settings import get_settings
from ..core.ids import sent_ms
from ..core.keys import QueueKeys, result_key
from ..core.numbers import read_epoch_ms, read_whole
from ..core.queue.bands import split_band
from ..core.transport.call import Call
from .base_result import BaseResult
from .compat import TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from .envelope import SCALARS, Envelope, Unreadable, make_encoder
from .options import MOST_ATTEMPTS
from .proofs import keyring_of, writes_proofs
from .sealing import CANCELLED, KIND, is_authentic, peek
from .task import Task, find_task
from .typed_arguments import as_returned

#: As json.dumps() has them, but without NaN and infinity, which JSON lacks.
_OPTIONS = (json.JSONEncoder().default, json.encoder.encode_basestring_ascii, None, ": ", ", ", False, False, False)
_encode = make_encoder(None, *_OPTIONS)

Fields = Mapping[str, str]
#: Prefix of the names of fields with a proof, in the result of read_record().
PROOF_OF = "proof of "
ProvenField = Literal["value", "error"]
#: The kind of the proofs.
_PROOF = "result"
#: Final statuses, and the signed field of each.
_ENDS: Mapping[str, ProvenField] = {TaskResultStatus.SUCCESSFUL: "value", TaskResultStatus.FAILED: "error"}

#: An unfinished record outlives any sensible backlog, and expires when another program purged its message.
UNFINISHED_TTL_S = 7 * 86_400


def has_outbox() -> bool:
    """Return whether any queue has an outbox."""
    return any(queue.outbox for queue in get_settings().queues.values())


def read_record(namespace: str, task_id: str) -> Call[dict[str, str]]:
    """Return the call that reads a record; the result is empty when there is none."""
    return Call("HGETALL", (result_key(namespace, task_id),), (), _read_fields, repeatable=True)


def next_of(record: Fields, result_id: str, passed: set[str]) -> str | None:
    """Return the id of the call that replaced a dropped call; None when the call was not dropped.

    A cycle of such calls, which only another program can make, ends the search: they are in `passed`.
    """
    passed.add(result_id)
    following = record.get("of", result_id)
    return following if following not in passed else None


def await_end(namespace: str, task_id: str, word: str) -> Call[bool]:
    """Return the call that notes a waiting process in a record; its result says whether the end will be published."""
    return Call("tasks/await_end", (result_key(namespace, task_id),), (word,), bool, repeatable=True)


def read_body(keys: QueueKeys, message_id: str) -> Call[bytes | None]:
    """Return the call that reads the body of a message without receiving it."""
    return Call("tasks/read_body", (keys.messages, keys.settings), (message_id,), lambda reply: reply, repeatable=True)


def task_result(task_id: str, record: Fields, body: bytes, *, backend: str) -> TaskResult[..., Any]:
    """Return the `TaskResult` of a record and its message's body.

    Raises TaskResultDoesNotExist when another program has damaged the record.
    """
    status, value = _state(task_id, record)
    envelope = _envelope(body, task_id, record.get("queue", ""))
    # Another program wrote such a number; a list of this length would fill the memory.
    noted = _by_attempt(record, "worker:")
    workers = {attempt: worker for attempt, worker in noted.items() if abs(attempt) <= MOST_ATTEMPTS}
    enqueued_ms = sent_ms(record.get("message", ""))
    result: TaskResult[..., Any] = BaseResult(
        task=restored_task(envelope.task, queue_name=record.get("queue", ""), backend=backend),
        id=task_id,
        status=status,
        enqueued_at=as_time(enqueued_ms),
        started_at=as_time(record.get("started_ms")),
        finished_at=as_time(record.get("finished_ms")),
        last_attempted_at=as_time(record.get("attempted_ms")),
        args=envelope.args,
        kwargs=envelope.kwargs,
        backend=backend,
        errors=[_error(text) for text in _by_attempt(record, "error:").values()],
        # An attempt whose worker died at once has no name; its place keeps the count right.
        worker_ids=[workers.get(attempt, "") for attempt in range(min(1, *workers, 1), max(workers, default=0) + 1)],
    )
    declared = find_task(envelope.task)
    value = value if declared is None or value is None else as_returned(declared, value)
    object.__setattr__(result, "_return_value", value)
    object.__setattr__(result, "_is_authentic", _is_authentic(task_id, record, body))
    return result


def _state(task_id: str, record: Fields) -> tuple[TaskResultStatus, Any]:
    """Return status and return value of a task."""
    try:
        return TaskResultStatus(record.get("status", "")), json.loads(record.get("value", "null"))
    except (ValueError, RecursionError) as error:  # an unknown status, or no JSON
        said = f"the record of result {task_id!r} is not readable, another program wrote to it: {error}"
        raise TaskResultDoesNotExist(said) from error


def proven_end(text: str, *, task_id: str, queue_name: str, field: ProvenField) -> str:
    """Return a value or an error (JSON) with its proof; as it is for a queue without keys."""
    keys = keyring_of(queue_name)
    if keys is None or not writes_proofs(queue_name):
        return text
    return f"{text}\n{keys.prove(_PROOF, task_id, field, content=text.encode())}"


def authenticity(task_id: str, record: Fields) -> bool | None:
    """Return whether a finished record of a sealed queue is authentic; None for unfinished ones and other queues."""
    if record.get("status", "") not in _ENDS or keyring_of(record.get("queue", "")) is None:
        return None
    return _is_authentic(task_id, record, record.get("body", "").encode("utf-8", "surrogateescape"))


def _is_authentic(task_id: str, record: Fields, body: bytes) -> bool:
    """Return whether a process with the keys of the record's queue wrote the outcome of a task."""
    queue_name, status = record.get("queue", ""), record.get("status", "")
    keys = keyring_of(queue_name) if status in _ENDS else None
    if keys is None:
        return False
    field, name = _ENDS[status], "value"
    if field == "error":
        name = f"error:{max(_by_attempt(record, 'error:'), default=0)}"
    text, proof = record.get(name, ""), record.get(f"{PROOF_OF}{name}", "")
    is_proven = keys.verifies(proof, _PROOF, task_id, field, content=text.encode("utf-8", "surrogatepass"))
    # A value belongs to a call that ran; an error may also belong to a cancelled call.
    kinds = (KIND, CANCELLED) if field == "error" else (KIND,)
    return is_proven and any(is_authentic(body, queue_name=queue_name, task_id=task_id, kind=kind) for kind in kinds)


def restored_task(path: str, *, queue_name: str, backend: str) -> Task[..., Any]:
    """Return the task of a dotted path, or a placeholder of that name when it is not declared any more."""
    known = find_task(path)
    base, priority = split_band(queue_name)
    if known is None:
        return _stand_in(path, queue_name=queue_name, backend=backend)
    if (known.queue_name, known.priority) in ((queue_name, 0), (base, priority)):
        return known
    if base != queue_name and base in get_settings().queues:
        return _copy(known, queue_name=base, priority=priority)
    return _copy(known, queue_name=queue_name, priority=0)


def as_time(epoch_ms: str | float | None) -> datetime | None:
    """Return epoch milliseconds as a datetime: aware, or naive local time with USE_TZ off; None without a time."""
    known_ms = read_epoch_ms(epoch_ms)
    return None if known_ms is None else datetime.fromtimestamp(known_ms / 1000, UTC if settings.USE_TZ else None)


def encode_value(value: Any) -> str:
    """Return a return value as JSON. Raises TypeError or ValueError, or what methods of the value's classes raise."""
    if type(value) in SCALARS:
        return "".join(_encode(value, 0))
    # With a dictionary of the containers that it is in, to detect a cycle.
    return "".join(make_encoder({}, *_OPTIONS)(value, 0))


def encode_error(error: BaseException, traceback_text: str) -> str:
    """Return the value of `error:<n>`."""
    kind = type(error)
    return json.dumps([f"{kind.__module__}.{kind.__qualname__}", traceback_text])


def _error(text: str) -> TaskError:
    try:
        path, traceback_text = map(str, json.loads(text))
    except (ValueError, TypeError, RecursionError):  # another program wrote it
        path, traceback_text = "", text
    return TaskError(exception_class_path=path, traceback=traceback_text)


def _by_attempt(record: Fields, prefix: str) -> dict[int, str]:
    numbered = ((read_whole(name[len(prefix) :]), name) for name in record if name.startswith(prefix))
    known = sorted((n, name) for n, name in numbered if n is not None and abs(n) <= MOST_ATTEMPTS)
    return {number: record[name] for number, name in known}


def _envelope(body: bytes, task_id: str, queue_name: str) -> Envelope:
    try:
        return peek(body, queue_name=queue_name, message_id=task_id)
    except Unreadable:  # the message is gone, or was never a task
        return Envelope("unknown.task", task_id, [], {})


def _read_fields(reply: list[bytes]) -> dict[str, str]:
    words = [word.decode("utf-8", "surrogateescape") for word in reply]
    fields = dict(zip(words[::2], words[1::2], strict=True))
    for name in [name for name in fields if name == "value" or name.startswith("error:")]:
        fields[name], _, proof = fields[name].partition("\n")
        if proof:
            fields[PROOF_OF + name] = proof
    return fields


def _copy(task: Task[..., Any], **changes: Any) -> Task[..., Any]:
    """Copy a task without validating it: the settings may have changed since it was sent."""
    copy = object.__new__(type(task))
    for name in type(task).__dataclass_fields__:
        object.__setattr__(copy, name, changes.get(name, getattr(task, name)))
    return copy


def _stand_in(path: str, *, queue_name: str, backend: str) -> Task[..., Any]:
    def gone(*args: Any, **kwargs: Any) -> None:
        raise LookupError(f"task {path} is not declared in this process")

    gone.__module__, _, gone.__qualname__ = path.rpartition(".")
    gone.__name__ = gone.__qualname__
    task = object.__new__(Task)
    for name, field in Task.__dataclass_fields__.items():
        object.__setattr__(task, name, field.default)
    for name, value in {"func": gone, "queue_name": queue_name, "backend": backend}.items():
        object.__setattr__(task, name, value)
    return task
