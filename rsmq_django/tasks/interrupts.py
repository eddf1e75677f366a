"""The exceptions that interrupt a running task."""

from __future__ import annotations

from .retry import TaskTimeout


class HardTimeout(TaskTimeout):
    """A task ran longer than its `hard_timeout_s`, and its process was killed; counts as a failed attempt.

    The task itself never sees it: it is in the result and in the failure record.
    """

    def __init__(self, limit_s: float | None = None) -> None:
        limit = "its hard_timeout_s" if limit_s is None else f"its hard_timeout_s of {limit_s:g} s"
        super().__init__(f"it ran longer than {limit}; its process was killed")


class TaskCancelled(BaseException):
    """Raised inside a task that is cancelled while it runs; it is not run again.

    Not an `Exception`, so that a task which catches those does not continue by mistake.
    """

    def __init__(self, text: str = "the task was cancelled") -> None:
        super().__init__(text)
