"""Simulated workers keep their promises, a seed shows the same again, and planted defects are found.

A slice: `make test-simulation` simulates as many hours as it is told.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation.defects import DEFECTS
from tests.worker.processes import ROOT

pytestmark = pytest.mark.slow

#: The kind of fault with which each defect shows soon.
SHOWN_BY = {
    "receipts-are-not-checked": "server clock",
    "undelivered-messages-are-kept": "lose replies",
    "renewals-take-messages-back": "server clock",
    "releases-count-as-attempts": "cut replies",
    "outcomes-are-sent-once": "lose requests",
    "workers-are-dead-too-soon": "pause",
    "sends-are-repeated": "lose replies",
    "limits-are-not-held": "reset",
    "equal-calls-are-stored": "reset",
    "locks-outlive-their-calls": "reset",
    "cancelled-calls-run-on": "reset",
    "cancellations-leave-no-result": "reset",
    "callbacks-are-sent-early": "reset",
    "workflows-are-not-stopped": "reset",
    "expired-calls-begin": "hole",
    "priorities-are-turned-around": "restart server",
    "ticks-are-fired-by-each": "split requests",
    "late-ticks-are-dropped": "hole",
    "tags-are-not-stored": "reset",
}
#: Found here; the others take longer, because nothing happens until the end of the run or few seeds show them.
QUICK = ("receipts-are-not-checked", "sends-are-repeated")


def simulate(*words: str | int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", "--jobs", "1", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_simulated_workers_break_no_rule():
    done = simulate("--seeds", 2)

    assert done.returncode == 0, done.stdout + done.stderr


def test_seed_has_the_same_course_of_events_again():
    first, second = (simulate("--seed", 7, "--steps", "0,1", "--verbose") for _ in range(2))

    line = first.stdout.splitlines()[0]
    assert line.startswith("seed 7 ")
    assert second.stdout.splitlines()[0] == line


def test_each_defect_is_tried():
    assert set(SHOWN_BY) == set(DEFECTS)


@pytest.mark.parametrize("defect", QUICK)
def test_planted_defect_is_found(defect: str):
    assert_found(defect)


@pytest.mark.long
@pytest.mark.parametrize("defect", sorted(set(SHOWN_BY) - set(QUICK)))
def test_any_planted_defect_is_found(defect: str):
    assert_found(defect)


def assert_found(defect: str) -> None:
    done = simulate("--defect", defect, "--only", SHOWN_BY[defect], "--seeds", 20, "--first", "--as-it-is")

    assert done.returncode == 1, done.stdout + done.stderr
    assert "has broken rules" in done.stdout
