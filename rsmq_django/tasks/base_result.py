"""The common base of our task results: they are equal by their fields, and suggest names of this package."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Self

from .compat import TASK_REFRESH_ATTRS, TaskResult
from .foreign_words import RESULT_WORDS, missing_attribute

_FIELDS = [each.name for each in fields(TaskResult)]


class BaseResult(TaskResult):  # type: ignore[type-arg]  # generic only for type checkers
    """A `TaskResult` that is equal to any other one with the same fields."""

    __slots__ = ("_is_authentic",)

    @property
    def is_authentic(self) -> bool:
        """Return whether a process with the keys of the task's queue wrote this result.

        True only for a finished task of a signed or encrypted queue: its status, return value or last error, and its
        arguments are what a worker of that queue has written. Anything else in Redis may come from any program.
        """
        try:
            return bool(object.__getattribute__(self, "_is_authentic"))
        except AttributeError:  # it was just sent, or copied
            return False

    def refresh(self) -> None:
        """See Django's."""
        self._take_over(self.task.get_backend().get_result(self.id))

    async def arefresh(self) -> None:
        """See refresh()."""
        self._take_over(await self.task.get_backend().aget_result(self.id))

    def wait(self, timeout_s: float) -> Self:
        """Wait until the task has ended, and return this result, refreshed: successful or failed.

        Its end wakes the process; all waits of a process share one connection to the server. Raises TimeoutError after
        `timeout_s` seconds (a number from 0), which cancels nothing; TaskResultDoesNotExist when no result is kept; and
        TransactionManagementError for a call that is sent when the caller's transaction commits. In a coroutine it
        raises SynchronousOnlyOperation: use await_end().
        """
        backend: Any = self.task.get_backend()
        backend.wait_for_end(self, timeout_s)
        return self

    async def await_end(self, timeout_s: float) -> Self:
        """See wait(); uses no thread of the caller."""
        backend: Any = self.task.get_backend()
        await backend.await_end(self, timeout_s)
        return self

    def _take_over(self, refreshed: Any) -> None:
        for name in TASK_REFRESH_ATTRS:
            object.__setattr__(self, name, getattr(refreshed, name))
        object.__setattr__(self, "_is_authentic", getattr(refreshed, "is_authentic", False))

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for missing attributes.
        raise missing_attribute(self, name, RESULT_WORDS, "a TaskResult")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaskResult):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    __hash__ = TaskResult.__hash__
