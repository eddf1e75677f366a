"""What our task results have in common beside Django's: they are equal by their fields, and name the words of ours."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from .compat import TaskResult
from .foreign_words import RESULT_WORDS, missing_attribute

_FIELDS = [each.name for each in fields(TaskResult)]


class BaseResult(TaskResult):  # type: ignore[type-arg]  # generic only for type checkers
    """A `TaskResult` that is equal to any other one with the same fields."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        # Python comes here only for what is not there.
        raise missing_attribute(self, name, RESULT_WORDS, "a TaskResult")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaskResult):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    __hash__ = TaskResult.__hash__
