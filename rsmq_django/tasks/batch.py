"""Arguments and return values of functions that take batches. Pure: the worker's side is worker/execute/batch.py.

The return value has the outcome of each item: a list as long as the batch, or a dictionary by id, where missing items
succeeded. An exception in it (such as `Retry(...)` or `Postpone(...)`) is the failure of that item alone, as if it had
been raised for it; any other value is the item's return value. Any other result, usually None, is the return value of
each item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .running import CurrentTask


class BadAnswer(Exception):
    """The return value of the function does not fit the batch, so the outcomes of its items are unknown."""


@dataclass(frozen=True, slots=True)
class BatchCall:
    """One call of a task that takes batches."""

    #: The task's id, the same for all attempts.
    id: str
    args: list[Any]
    kwargs: dict[str, Any]
    #: The context of its attempt: attempt, lease_lost, progress, a logger ...
    current: CurrentTask


def answers(answer: object, ids: Sequence[str]) -> list[Any]:
    """Return the function's return value or exception for each id. Raises BadAnswer."""
    if isinstance(answer, Mapping):
        known = set(ids)
        unknown = [key for key in answer if key not in known]
        if unknown:
            raise BadAnswer(f"the answer is about {unknown[0]!r}, which is no id of the batch")
        return [_instance(answer.get(each)) for each in ids]
    if isinstance(answer, (list, tuple)):
        if len(answer) != len(ids):
            raise BadAnswer(
                f"the answer has {len(answer)} items, the batch had {len(ids)}; return one for each, or None"
            )
        return [_instance(each) for each in answer]
    return [_instance(answer)] * len(ids)


def _instance(answer: Any) -> Any:
    if isinstance(answer, type) and issubclass(answer, BaseException):
        return TypeError(f"the answer is the class {answer.__name__}; answer with an exception, {answer.__name__}(...)")
    return answer
