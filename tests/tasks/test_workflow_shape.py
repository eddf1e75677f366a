"""The stored shape of a workflow, for display: equal members are counted, and long shapes are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rsmq_django.core.tasks.workflows import MAX_MEMBERS
from rsmq_django.tasks.workflow_shape import (
    MAX_IDS,
    MAX_PATH,
    MAX_RUNS,
    EqualSteps,
    MemberRun,
    Shape,
    read_shape,
    shape_text,
)


def shape_of(*members: tuple[str, ...], mapped: str = "", then: str = "", on_failure: str = "") -> Shape:
    """Return the shape of members that are made of these tasks, as it is read again; ids count all calls."""
    numbers = iter(range(1_000_000))
    with_ids = [(tasks, [f"id{next(numbers)}" for _ in tasks]) for tasks in members]
    return read_shape(shape_text(with_ids, mapped=mapped, then=then, on_failure=on_failure))


def run(count: int, *tasks: str) -> MemberRun:
    return MemberRun(count, tuple(EqualSteps(task, 1) for task in tasks))


def test_equal_members_that_follow_each_other_are_counted():
    shape = shape_of(("a",), ("a",), ("a", "b"), ("a",))

    assert shape.runs == (run(2, "a"), run(1, "a", "b"), run(1, "a"))
    assert shape.ids == (("id0",), ("id1",), ("id2", "id3"), ("id4",))


def test_equal_steps_that_follow_each_other_are_counted():
    assert shape_of(("a", "a", "b")).runs == (MemberRun(1, (EqualSteps("a", 2), EqualSteps("b", 1))),)
    assert shape_of(("a", "a", "b")).runs[0].calls == 3


def test_tasks_that_run_afterwards_are_part_of_it():
    shape = shape_of(("a",), then="b", on_failure="c")

    assert (shape.then, shape.on_failure) == ("b", "c")
    assert (shape_of(("a",)).then, shape_of(("a",)).on_failure) == ("", "")


def test_a_map_is_shown_as_one_task_for_any_number_of_items():
    shape = shape_of(("a",), ("a",), mapped="shop.resize")

    assert (shape.runs, shape.ids) == ((run(0, "shop.resize"),), ())


@pytest.mark.parametrize(("count", "has_ids"), [(MAX_IDS, True), (MAX_IDS + 1, False)])
def test_ids_are_kept_of_small_workflows(count: int, has_ids: bool):
    assert bool(shape_of(*[("a",)] * count).ids) is has_ids
    assert bool(shape_of(tuple("a" * count)).ids) is has_ids


@pytest.mark.parametrize("count", [MAX_RUNS, MAX_RUNS + 1, MAX_RUNS + 5])
def test_a_bounded_number_of_kinds_of_members_is_distinguished(count: int):
    runs = shape_of(*[(f"task{number}",) for number in range(count)]).runs

    assert len(runs) == MAX_RUNS
    assert sum(each.count for each in runs) == count
    assert runs[-1] == (
        run(1, f"task{count - 1}") if count == MAX_RUNS else MemberRun(count - MAX_RUNS + 1, (EqualSteps("", 1),))
    )


def test_a_bounded_number_of_kinds_of_steps_is_distinguished():
    (found,) = shape_of(tuple(f"task{number}" for number in range(MAX_RUNS + 3))).runs

    assert len(found.steps) == MAX_RUNS
    assert (found.calls, found.steps[-1]) == (MAX_RUNS + 3, EqualSteps("", 4))


def test_long_names_are_cut():
    long = "x" * (MAX_PATH + 1)
    shape = shape_of((long,), then=long, on_failure=long)

    assert {shape.runs[0].steps[0].task, shape.then, shape.on_failure} == {long[:MAX_PATH]}
    assert shape_of(("a",), mapped=long).runs[0].steps[0].task == long[:MAX_PATH]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "7",
        "null",
        "{}",
        '{"runs": 7}',
        '{"runs": [[1]]}',
        '{"runs": [["1", [["a", 1]]]]}',
        '{"runs": [[true, [["a", 1]]]]}',
        '{"runs": [[-1, [["a", 1]]]]}',
        '{"runs": [[1, [["a", 1.5]]]]}',
        json.dumps({"runs": [[MAX_MEMBERS + 1, [["a", 1]]]]}),
        "[" * 100_000,
    ],
)
def test_invalid_shape_is_empty(text: str):
    assert read_shape(text) == Shape()


@pytest.mark.parametrize("ids", [[["x"]], [["x"], []], [["x"], ["y", "z"]], [["x"], ["y"], ["z"]]])
def test_ids_that_do_not_fit_the_members_are_left_out(ids: list[Any]):
    shape = read_shape(json.dumps({"runs": [[2, [["a", 1]]]], "ids": ids}))

    assert (shape.runs, shape.ids) == ((run(2, "a"),), ())


def test_largest_count_can_be_read():
    assert read_shape(json.dumps({"runs": [[MAX_MEMBERS, [["a", 1]]]]})).runs == (run(MAX_MEMBERS, "a"),)
