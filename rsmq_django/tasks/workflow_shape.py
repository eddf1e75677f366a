"""The shape of a workflow, for display: the tasks of its members. Written once, with the workflow's state.

Equal members that follow each other are one run with a count, so that a group of ten thousand takes as little as one of
two. Of a small workflow the ids of all calls are kept, too: they are needed to show how long each took. Other programs
may have written invalid data, which is an empty shape.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ..core.numbers import is_whole
from ..core.tasks.workflows import MAX_MEMBERS

#: Maximum number of runs of equal members, and of equal steps in a member; the rest is counted together.
MAX_RUNS = 12
#: Maximum number of calls of a workflow whose ids are kept: 32 bytes each.
MAX_IDS = 24
#: Dotted paths are cut to this.
MAX_PATH = 200


@dataclass(frozen=True, slots=True)
class EqualSteps:
    """Equal steps of a member that follow each other; "" means several tasks."""

    task: str
    count: int


#: The entry for members after the last distinguished run.
OF_SEVERAL = (EqualSteps("", 1),)


@dataclass(frozen=True, slots=True)
class MemberRun:
    """Equal members that follow each other; a count of 0 means all members of a map."""

    count: int
    steps: tuple[EqualSteps, ...]

    @property
    def calls(self) -> int:
        """Return the number of calls of one member."""
        return sum(each.count for each in self.steps)


@dataclass(frozen=True, slots=True)
class Shape:
    """The structure of a workflow."""

    runs: tuple[MemberRun, ...] = ()
    then: str = ""
    on_failure: str = ""
    #: Ids of the calls, member by member; empty for a large workflow.
    ids: tuple[tuple[str, ...], ...] = ()


def shape_text(
    members: Sequence[tuple[Sequence[str], Sequence[str]]], *, mapped: str, then: str, on_failure: str
) -> str:
    """Return the shape as JSON. Each member is its tasks and their ids; `mapped` is the task of a map."""
    paths = (tuple(path[:MAX_PATH] for path in tasks) for tasks, _ in members)
    runs: list[Any] = [[sum(1 for _ in same), _in_runs(tasks)] for tasks, same in groupby(paths)]
    if mapped:
        runs = [[0, [[mapped[:MAX_PATH], 1]]]]
    shape: dict[str, Any] = {"runs": _cut(runs, [])}
    shape |= {name: path[:MAX_PATH] for name, path in (("then", then), ("on_failure", on_failure)) if path}
    if sum(len(ids) for _, ids in members) <= MAX_IDS and not mapped:
        shape["ids"] = [list(ids) for _, ids in members]
    return json.dumps(shape, separators=(",", ":"))


def read_shape(text: str) -> Shape:
    """Return the shape of a text."""
    try:
        words = json.loads(text)
        runs = tuple(_run(each) for each in words["runs"][:MAX_RUNS])
        ids = tuple(tuple(str(task_id) for task_id in each) for each in words.get("ids", ())[:MAX_IDS])
        fits = len(ids) == sum(run.count for run in runs) and sum(map(len, ids)) <= MAX_IDS and _fit(runs, ids)
        return Shape(runs, str(words.get("then", "")), str(words.get("on_failure", "")), ids if fits else ())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Shape()


def _fit(runs: Sequence[MemberRun], ids: Sequence[Sequence[str]]) -> bool:
    """Return whether each member has as many ids as calls; the last run may be of members of several kinds."""
    calls = [run.calls for run in runs for _number in range(run.count)]
    are_cut = len(runs) == MAX_RUNS and runs[-1].steps == OF_SEVERAL
    known = len(calls) - (runs[-1].count if are_cut else 0)
    return all(len(own) == number for own, number in zip(ids[:known], calls[:known], strict=True))


def _in_runs(tasks: Iterable[str]) -> list[Any]:
    return _cut([[task, sum(1 for _ in same)] for task, same in groupby(tasks)], "")


def _cut(runs: list[Any], nothing: Any) -> list[Any]:
    """Return at most MAX_RUNS runs: the last one counts the rest."""
    if len(runs) <= MAX_RUNS:
        return runs
    head, rest = runs[: MAX_RUNS - 1], runs[MAX_RUNS - 1 :]
    place = 1 if nothing == "" else 0
    count = sum(each[place] for each in rest)
    return [*head, [nothing, count] if place else [count, nothing]]


def _run(words: Any) -> MemberRun:
    count, steps = words
    found = tuple(EqualSteps(str(task), _whole(number)) for task, number in steps[:MAX_RUNS])
    return MemberRun(_whole(count), found or OF_SEVERAL)


def _whole(value: Any) -> int:
    if not is_whole(value) or not 0 <= value <= MAX_MEMBERS:
        raise ValueError("not a count")
    return value
