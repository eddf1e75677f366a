"""`fair_by`: the calls of a tenant are in its lane, and workers take turns between lanes.

Calls with the same key always share a lane, so they stay in order; several keys may share one. Which lane a key has
depends on the key and the number of lanes only, so that all processes agree without communication.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..conf.settings import get_settings
from .call_key import call_key, key_text

if TYPE_CHECKING:
    from .task import Task

#: Positional and keyword arguments.
CallArguments = tuple[Sequence[Any], Mapping[str, Any]]
_UNKNOWN = object()


def lane_of_call(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
    """Return the lane of a call; None for a task without `fair_by`.

    Raises TypeError for arguments that the function does not take, for a key that JSON cannot represent, and
    the exceptions of a function given as `fair_by`.
    """
    by = task.options.fair_by
    if by is None:
        return None
    return _lane_of_key(task, call_key(by, task.func, args, kwargs, takes_context=task.takes_context))


def lane_of_later_call(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
    """Return the lane of a call whose first argument is not known yet: a result of its workflow.

    None also when the lane may depend on that argument: then the call is sent to the queue itself. Raises as
    lane_of_call().
    """
    by = task.options.fair_by
    if by is None or callable(by):
        return None
    key = call_key(by, task.func, [_UNKNOWN, *args], kwargs, takes_context=task.takes_context)
    if any(value is _UNKNOWN or (isinstance(value, tuple) and _UNKNOWN in value) for value in key):
        return None
    return _lane_of_key(task, key)


def _lane_of_key(task: Task[..., Any], key: Any) -> int:
    text = key_text(key, what=f"{task.module_path} is fair by")
    return zlib.crc32(text.encode("utf-8", "surrogatepass")) % get_settings().queue(task.queue_name).fair_lanes


def by_lane(task: Task[..., Any], calls: Sequence[CallArguments]) -> dict[int | None, list[int]]:
    """Return the positions of calls by their lane."""
    if task.options.fair_by is None:
        return {None: list(range(len(calls)))}
    positions: dict[int | None, list[int]] = {}
    for position, (args, kwargs) in enumerate(calls):
        positions.setdefault(lane_of_call(task, args, kwargs), []).append(position)
    return positions
