"""What a task can ask about its own run, from wherever in its code it is.

from rsmq_django.tasks import lease_lost

for page in pages:
    if lease_lost():
        return  # somebody else works on it by now; whatever this returns is discarded
    ...
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol

from .compat import BaseTaskContext


class Run(Protocol):
    """One run of a task, as its worker sees it."""

    @property
    def lease_lost(self) -> bool: ...

    @property
    def cancelled(self) -> bool: ...


#: The run that this thread or coroutine belongs to. Threads that a task starts do not inherit it.
current_run: ContextVar[Run | None] = ContextVar("rsmq_run", default=None)


def lease_lost() -> bool:
    """Say whether the task that asks has lost its lease; False outside of a task.

    True once somebody else may have the message: the process was paused, or cut off from Redis, for longer than the
    visibility timeout; or the message was deleted. The result will be discarded, so the task may as well stop.
    """
    run = current_run.get()
    return run is not None and run.lease_lost


def is_cancelled() -> bool:
    """Say whether somebody has cancelled the task that asks; False outside of a task.

    For tasks that catch everything, or that wait where nothing can be raised.
    """
    run = current_run.get()
    return run is not None and run.cancelled


class TaskContext(BaseTaskContext):  # type: ignore[type-arg]  # generic only for type checkers
    """Django's context, and what a worker knows of the run."""

    __slots__ = ("_run",)
    _run: Run

    @classmethod
    def of(cls, run: Run, *, task_result: Any) -> TaskContext:
        """Return the context of a run."""
        context = cls(task_result=task_result)
        object.__setattr__(context, "_run", run)  # Django's is frozen
        return context

    @property
    def lease_lost(self) -> bool:
        """See the function of this name."""
        return bool(self._run.lease_lost)

    @property
    def is_cancelled(self) -> bool:
        """See the function of this name."""
        return bool(self._run.cancelled)
