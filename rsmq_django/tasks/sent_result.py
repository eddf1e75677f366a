"""The return value of `enqueue()`: a `TaskResult` whose fields are computed on first access.

Most senders use its id only or ignore it, and computing the other fields, with the arguments parsed from JSON, would
take longer than the send. It is equal to Django's own `TaskResult` with the same fields, and is copied, pickled and
refreshed like it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..core.ids import sent_ms
from .base_result import BaseResult
from .compat import TaskResultStatus
from .envelope import decode
from .foreign_words import RESULT_WORDS, missing_attribute
from .results import as_time

if TYPE_CHECKING:
    from .round_trips import Sent
    from .task import Task

_set = object.__setattr__  # it is frozen
#: Held while fields are set. One lock for all results: each is filled only once.
_first_look = threading.Lock()


class SentResult(BaseResult):
    """The result of a call that has just been sent. Its fields are set at the first access."""

    __slots__ = ("_body", "_message_id")

    @classmethod
    def of(cls, task: Task[..., Any], task_id: str, body: bytes) -> SentResult:
        """Return the result of one call, whose body is not sealed."""
        result = object.__new__(cls)
        _set(result, "task", task)
        _set(result, "id", task_id)
        _set(result, "_body", body)
        return result

    def note_sent(self, sent: Sent) -> bool:
        """Store the reply of Redis; return whether the call was dropped as a duplicate."""
        (task_id,) = sent.ids
        if sent.message_ids:
            _set(self, "_message_id", sent.message_ids[0])
        if task_id == self.id:
            return False
        _set(self, "id", task_id)
        return True

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for an empty slot.
        make = _LATER.get(name)
        if make is None:
            raise missing_attribute(self, name, RESULT_WORDS, "a TaskResult")
        value = make(self)
        if value is None and name == "enqueued_at":
            return None  # until Redis has the message, whose id contains the time
        with _first_look:
            if not _has(self, name):  # otherwise another thread has set them
                _set(self, name, value)
        return object.__getattribute__(self, name)

    def refresh(self) -> None:
        """See Django's."""
        self._fill()
        super().refresh()

    async def arefresh(self) -> None:
        """See refresh()."""
        self._fill()
        await super().arefresh()

    def _fill(self) -> None:
        """Set every field, so that a first access in another thread cannot follow the current one."""
        for name in _LATER:
            getattr(self, name)


def _has(result: SentResult, name: str) -> bool:
    try:
        object.__getattribute__(result, name)
    except AttributeError:
        return False
    return True


def _enqueued_at(result: SentResult) -> datetime | None:
    return as_time(sent_ms(result._message_id))


#: The arguments as the worker will get them: after JSON a tuple is a list, and the key 1 is "1".
_LATER: dict[str, Callable[[SentResult], Any]] = {
    "backend": lambda result: result.task.backend,
    "_message_id": lambda result: "",
    "status": lambda result: TaskResultStatus.READY,
    "enqueued_at": _enqueued_at,
    "started_at": lambda result: None,
    "finished_at": lambda result: None,
    "last_attempted_at": lambda result: None,
    "args": lambda result: decode(result._body, message_id=result.id).args,
    "kwargs": lambda result: decode(result._body, message_id=result.id).kwargs,
    "errors": lambda result: [],
    "worker_ids": lambda result: [],
    "_return_value": lambda result: None,
}
