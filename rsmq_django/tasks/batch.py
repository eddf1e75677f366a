"""What a function that takes batches gets and answers. Pure: the worker's side is worker/batches.py.

The answer tells what became of each item: a list as long as the batch, or a dictionary by id in which what is missing
succeeded. An exception in it (`Retry(...)` and `Postpone(...)` are some) failed that item alone, as if it had been
raised for it; everything else is the item's return value. Any other answer, None mostly, is the return value of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .running import CurrentTask


class BadAnswer(Exception):
    """The function returned what does not fit the batch, so that nobody knows what became of its items."""


@dataclass(frozen=True, slots=True)
class BatchCall:
    """One call of a task that takes batches."""

    #: The task's id, the same for all attempts.
    id: str
    args: list[Any]
    kwargs: dict[str, Any]
    #: What it can ask and say about its own run: attempt, lease_lost, progress, a logger ...
    current: CurrentTask


def answers(answer: object, ids: Sequence[str]) -> list[Any]:
    """Return what the function answered for each id. Raises BadAnswer."""
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
