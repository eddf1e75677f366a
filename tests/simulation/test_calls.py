"""What the simulation says about unique calls and cancelled ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faults.history import Entry
from tests.simulation.calls import STOPS_WITHIN_S, WINDOW_S, Calls
from tests.simulation.scheduler import Process

SENDER, WORKER, OTHER = Process(1, "sender"), Process(2, "worker"), Process(3, "worker")


class Course:
    """A course of events."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._bodies: dict[str, bytes] = {}
        self.calls = Calls(lambda message_id: self._bodies[message_id], lambda: self.now_s)
        self._history: list[Entry] = []

    def change(self, actor: Process, new: str = "", gone: str = "", kind: str = "single", tag: str = "") -> set[str]:
        """Let messages come and go; the first letter of a message is the key, the whole is the id of the call."""
        for each in new.split():
            call = {"task": f"tasks.{kind}", "id": each, "args": [each[0]], "meta": {"tags": [tag]}}
            self._bodies[each] = json.dumps(call).encode()
        return self.calls.compare(actor, dict.fromkeys(new.split(), 0.0), gone.split(), self.now_s * 1000)

    def note(self, what: str, name: str, pid: int = 2, **more: Any) -> None:
        self._history.append(Entry(self.now_s, what, name, "single", pid, more))

    def problems(self, dead: set[str] | None = None, **results: str) -> list[str]:
        return self.calls.judge(self._history, results, dead or set(), knows_causes=True)


@pytest.fixture
def course() -> Course:
    return Course()


def test_equal_call_may_be_stored_when_the_first_is_gone(course: Course):
    course.change(SENDER, new="a1")
    course.note("end", "a1")
    course.change(WORKER, gone="a1")
    course.change(SENDER, new="a2 b1")
    course.note("end", "a2")
    course.note("end", "b1")

    assert course.problems() == []


@pytest.mark.parametrize("kind", ["single", "waiting", "windowed", "latest", "burst"])
def test_equal_call_that_is_stored_beside_another_one_is_a_problem(course: Course, kind: str):
    course.change(SENDER, new="a1", kind=kind)
    course.change(SENDER, new="a2", kind=kind)

    assert f"{kind} call a2 was stored beside an equal one" in course.problems()


def test_scope_decides_how_long_a_call_is_unique(course: Course):
    course.change(SENDER, new="a1", kind="waiting")
    course.change(SENDER, new="a2", kind="windowed")
    course.calls.taken(WORKER, "a1")
    course.now_s += WINDOW_S
    course.change(SENDER, new="a3", kind="waiting")
    course.change(SENDER, new="a4", kind="windowed")

    assert not [each for each in course.problems() if "equal" in each]


def test_sender_may_replace_a_call_that_nobody_took(course: Course):
    course.change(SENDER, new="a1", kind="latest")
    assert course.change(SENDER, new="a2", gone="a1", kind="latest") == {"a1"}

    course.calls.taken(WORKER, "a2")
    assert course.change(SENDER, new="a3", gone="a2", kind="latest") == set()


def test_call_that_is_dropped_for_one_that_has_gone_is_a_problem(course: Course):
    course.change(SENDER, new="a1")
    course.note("end", "a1")
    course.now_s = 1
    course.change(WORKER, gone="a1")
    course.now_s = 2
    course.note("sent", "a1", id="a1", began_s=0.5, between_ms=(500, 2000))
    assert course.problems() == []

    course.note("sent", "a1", id="a1", began_s=1.5, between_ms=(1500, 2000))
    assert course.problems() == ["single call a1 was dropped without an equal one"]


def test_call_that_is_stored_and_never_ends_is_a_problem(course: Course):
    course.change(SENDER, new="a1")

    assert course.problems() == ["single call a1 was stored, and has neither run nor died"]


def test_sender_removes_only_what_it_cancels(course: Course):
    course.change(SENDER, new="a1 b1")
    course.calls.to_cancel.add("a1")

    assert course.change(SENDER, gone="a1 b1") == {"a1"}


def test_cancelled_call_that_runs_on_or_begins_elsewhere_is_a_problem(course: Course):
    course.change(SENDER, new="a1 b1")
    course.calls.to_cancel |= {"a1", "b1"}
    course.calls.taken(WORKER, "a1")
    course.change(SENDER, gone="a1 b1")
    course.now_s = 1
    course.note("start", "a1")
    assert course.problems(a1="TaskCancelled", b1="TaskCancelled") == []

    course.note("start", "b1", pid=3)
    course.now_s = STOPS_WITHIN_S + 1
    course.note("end", "a1")
    assert course.problems(a1="TaskCancelled", b1="value") == [
        "single call a1 was cancelled and ran on",
        "single call b1 was cancelled and began",
        "single call b1 was cancelled and ended as value",
    ]


def test_answers_of_cancel_are_checked(course: Course):
    course.change(SENDER, new="a1 b1")
    course.note("end", "a1")
    course.note("end", "b1")
    course.change(WORKER, gone="b1")
    course.note("cancel", "b1", id="b1", answer=False)
    assert course.problems() == []

    course.note("cancel", "a1", id="a1", answer=False)
    course.note("cancel", "b1", id="b1", answer=True)
    assert course.problems() == [
        "single call a1 was cancelled with False",
        "single call b1 was cancelled with True",
    ]


def test_call_that_is_missed_when_its_tag_is_cancelled_is_a_problem(course: Course):
    for name, came_s in (("a", 0), ("b", 3)):
        course.now_s = came_s
        course.change(SENDER, new=name, kind="plain", tag="north")
        course.note("end", name)
    course.now_s = 4
    course.change(WORKER, gone="b")
    course.note("cancel tagged", "north", began_s=2, count=0)

    assert course.problems() == ["plain call a was missed when calls with its tag were cancelled"]


@pytest.mark.parametrize(
    ("begins_s", "dies_s", "found"),
    [
        (2, None, []),
        (None, 3.5, []),
        (5, None, ["a began after it had expired"]),
        (None, 1, ["a has expired too early"]),
    ],
)
def test_call_expires_when_it_is_due_for_as_long_as_it_says(
    course: Course, begins_s: float | None, dies_s: float | None, found: list[str]
):
    course.change(SENDER, new="a", kind="expiring")
    course.now_s = begins_s or dies_s or 0
    course.calls.taken(WORKER, "a")
    for what in ("start", "end") if begins_s else ():
        course.note(what, "a")
    course.change(WORKER, gone="a")

    assert course.problems(dead={"a"} if dies_s else set()) == found
