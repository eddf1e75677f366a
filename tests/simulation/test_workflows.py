"""What the simulation says about chains, groups and maps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faults.history import Entry
from tests.simulation.calls import Calls
from tests.simulation.scheduler import Process
from tests.simulation.workflows import judge

SENDER, WORKER = Process(1, "sender"), Process(2, "worker")


class Course:
    """A course of events of the workflow w."""

    def __init__(self, kind: str) -> None:
        self.now_s = 0.0
        self._kind, self._bodies = kind, dict[str, bytes]()
        self.calls = Calls(lambda message_id: self._bodies[message_id], lambda: self.now_s)
        self.history = [Entry(0, "workflow", "w", kind, more={"always": False}), Entry(0, "sent", "w", kind)]

    def change(self, new: str = "", gone: str = "") -> None:
        """Let messages come and go, a second after the last ones: `member:w.0`, kind and name."""
        self.now_s += 1
        for each in new.split():
            kind, _, name = each.partition(":")
            self._bodies[each] = json.dumps({"task": f"tasks.{kind}", "id": each, "args": [name]}).encode()
            if kind not in ("member", "mapped"):
                self._bodies[each] = json.dumps(
                    {"task": kind, "id": each, "args": [], "kwargs": {"name": name}}
                ).encode()
        self.calls.compare(WORKER if gone else SENDER, dict.fromkeys(new.split(), 0.0), gone.split(), self.now_s)

    def note(self, what: str, kind: str, **more: Any) -> None:
        self.history.append(Entry(self.now_s, what, "w", kind, more=more))

    def problems(self, state: str = "succeeded", dead: str = "") -> list[str]:
        return judge(self.calls, self.history, {"w": state}, set(dead.split()))


MEMBERS = "member:w.0 member:w.1 member:w.2"


@pytest.fixture
def group() -> Course:
    """Return a group of which two members have ended."""
    course = Course("group")
    course.change(new=MEMBERS)
    course.change(gone="member:w.0 member:w.1")
    return course


def test_group_calls_back_when_the_last_member_has_ended(group: Course):
    group.change(gone="member:w.2", new="together:w")
    group.note("start", "together", got=["w.0", "w.1", "w.2"])

    assert group.problems() == []


def test_callback_before_the_last_end_or_twice_is_a_problem(group: Course):
    group.change(new="together:w", gone="")
    group.change(gone="member:w.2")

    assert group.problems() == ["group w sent together before all members had ended"]


def test_callback_that_does_not_fit_the_outcome_is_a_problem(group: Course):
    group.change(gone="member:w.2", new="together:w")

    assert group.problems("failed", dead="w.2") == [
        "group w sent together, and 1 members have failed",
        "group w never sent ['complain']",
    ]


def test_callback_that_gets_other_values_is_a_problem(group: Course):
    group.change(gone="member:w.2", new="together:w")
    group.note("start", "together", got=["w.1", "w.0", "w.2"])

    assert group.problems() == ["group w gave together ['w.1', 'w.0', 'w.2'], not ['w.0', 'w.1', 'w.2']"]


def test_group_that_sends_something_after_its_cancellation_is_a_problem(group: Course):
    group.note("cancel all", "group", answer=True)
    group.change(gone="member:w.2", new="together:w")

    assert group.problems("cancelled") == ["group w was cancelled, and sent together"]


def test_part_of_a_group_is_a_problem():
    course = Course("group")
    course.change(new="member:w.0 member:w.1")

    assert "group w was not sent whole, but 2 members" in course.problems()


def test_step_of_a_chain_before_the_end_of_the_one_before_it_is_a_problem():
    course = Course("chain")
    course.change(new="member:w.0")
    course.change(new="last_step:w.0+")
    assert course.problems() == ["chain w sent step w.0+ before the end of the call before it"]

    course = Course("chain")
    course.change(new="member:w.0")
    course.change(gone="member:w.0", new="last_step:w.0+")
    assert course.problems() == []


def test_workflow_with_another_state_than_its_members_have_is_a_problem(group: Course):
    group.change(gone="member:w.2", new="together:w")

    assert group.problems("running") == ["group w is running, and not succeeded"]
