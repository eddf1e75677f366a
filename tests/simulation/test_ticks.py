"""What the simulation says about schedules."""

from __future__ import annotations

import json

import pytest

from tests.simulation.calls import Calls
from tests.simulation.scheduler import Process
from tests.simulation.ticks import EVERY_S, FIRED_WITHIN_S, judge

BEGAN_MS = 1_000_000
SLOTS = {f"t{number}": BEGAN_MS + number * EVERY_S * 1000 for number in range(1, 10)}
PAUSED_MS = SLOTS["t3"] + FIRED_WITHIN_S * 1000 + 1


def problems(*fired: str, late_ms: int = 0, knows_causes: bool = True) -> list[str]:
    """Return what is wrong when these ticks come in turn, in messages of their own."""
    calls = Calls(lambda message: json.dumps({"task": "tick", "id": message.partition(" ")[0]}).encode(), lambda: 0.0)
    for number, tick in enumerate(fired):
        calls.compare(Process(1, "supervisor"), {f"{tick} {number}": 0.0}, [], SLOTS.get(tick, 0) + late_ms)
    return judge(calls, SLOTS, BEGAN_MS, PAUSED_MS, clock_jumps=False, knows_causes=knows_causes)


def test_each_tick_once_and_late_is_no_problem():
    assert problems("t1", "t2", "t3", late_ms=5000) == []


@pytest.mark.parametrize(
    ("fired", "found"),
    [
        (("t1", "t3"), f"tick {SLOTS['t2']} was missed"),
        (("t1", "t2", "t2", "t3"), f"tick {SLOTS['t2']} was fired 2 times"),
        (("t1", "t2", "t3", "other"), "tick other has no planned time"),
    ],
)
def test_tick_that_is_missed_or_doubled_or_unknown_is_a_problem(fired: tuple[str, ...], found: str):
    assert problems(*fired) == [found]


def test_tick_before_its_time_is_a_problem():
    assert problems("t1", "t2", "t3", late_ms=-1) == [f"tick t{number} came early" for number in (1, 2, 3)]


def test_tick_may_be_missed_where_workers_are_killed():
    assert problems("t1", knows_causes=False) == []
