"""State and reported progress of a task, which any process can read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..core import Client
from ..core.keys import result_key
from ..core.numbers import is_number
from ..core.transport.call import Call
from .compat import TaskResultStatus
from .results import as_time
from .shards import clients_for

STATUSES = frozenset(map(str, TaskResultStatus))
FIELDS = ("status", "of", "progress", "progress_ms")


@dataclass(frozen=True, slots=True)
class Progress:
    """The last reported progress of a task."""

    done: float
    total: float | None
    note: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class TaskState:
    """How far a task is."""

    #: READY, RUNNING, SUCCESSFUL or FAILED.
    status: str
    #: None before the first report.
    progress: Progress | None


def progress_of(task_id: str) -> Progress | None:
    """Return the last reported progress of a task; None without one, or when its result has expired."""
    state = state_of(task_id)
    return None if state is None else state.progress


def state_of(task_id: str) -> TaskState | None:
    """Return the state of a task without its arguments and return value; None when Redis has no result of it."""
    for client in clients_for(task_id):
        fields, passed = client.run(_read(client, task_id)), {task_id}
        while fields.get("of", task_id) not in passed:  # a dropped call of a unique task
            passed.add(fields["of"])
            fields = client.run(_read(client, fields["of"]))
        if fields.get("status") in STATUSES:
            return _state(fields)
    return None


async def astate_of(task_id: str) -> TaskState | None:
    """See state_of()."""
    for client in clients_for(task_id):
        fields, passed = await client.arun(_read(client, task_id)), {task_id}
        while fields.get("of", task_id) not in passed:
            passed.add(fields["of"])
            fields = await client.arun(_read(client, fields["of"]))
        if fields.get("status") in STATUSES:
            return _state(fields)
    return None


def _read(client: Client, task_id: str) -> Call[dict[str, str]]:
    return Call("HMGET", (result_key(client.namespace, task_id),), FIELDS, _fields, repeatable=True)


def _fields(reply: Sequence[bytes | None]) -> dict[str, str]:
    return {name: text.decode("utf-8", "replace") for name, text in zip(FIELDS, reply, strict=True) if text is not None}


def _state(fields: Mapping[str, str]) -> TaskState:
    return TaskState(fields["status"], _progress(fields.get("progress", ""), fields.get("progress_ms")))


def _progress(text: str, at_ms: str | None) -> Progress | None:
    try:
        said = json.loads(text)
        done, total = _number(said["done"]), said["total"]
        return Progress(done, None if total is None else _number(total), _note(said["note"]), as_time(at_ms))
    except (
        ArithmeticError,
        ValueError,
        TypeError,
        KeyError,
        RecursionError,
    ):  # nothing yet, or another program wrote it
        return None


def _number(said: Any) -> float:
    if not is_number(said) or not math.isfinite(said):
        raise ValueError(f"{said!r} is not a number")
    return said


def _note(said: Any) -> str:
    return str(said).encode("utf-8", "replace").decode()  # JSON may have halves of pairs, which no page can contain
