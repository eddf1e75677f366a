"""A slice of the scenarios: two faults of each of a few. `make test-faults` runs all of them, for hours on request."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.run import run
from tests.faults.scenarios import SCENARIOS

pytestmark = pytest.mark.slow

SLICE = [each for each in SCENARIOS if each.name in ("kills", "server dies", "resets", "sharded cluster")]


@pytest.mark.parametrize("scenario", SLICE, ids=[each.name for each in SLICE])
def test_no_call_is_lost_and_no_promise_broken(scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RSMQ_FAULTS_HISTORY", "")  # run() sets it; it is put back afterwards

    report = run(scenario, "1", tmp_path / "run", scenario.steps("1")[:2])

    assert report.problems == []
    assert report.acknowledged > 50
