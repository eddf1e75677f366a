"""One run of a scenario: start, break, mend, drain, read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rsmq_django.core.tasks.schedules import tick_id
from tests.faults.checker import Report, check
from tests.faults.history import Entry, History, note
from tests.faults.scenarios import Scenario, Step
from tests.faults.world import SENDERS, World
from tests.worker.processes import ROOT

#: What is not done this long after the last send stays undone.
DRAIN_S = 90
#: The same where calls may be lost: they would be waited for in vain.
DRAIN_IN_VAIN_S = 20
NAME = re.compile(r"call-\d+-\d+")


def run(scenario: Scenario, seed: str, directory: Path, steps: Sequence[Step] | None = None) -> Report:
    """Run a scenario with a seed, or with some of its steps; return what became of the calls."""
    directory.mkdir(parents=True)
    world = scenario.world(directory, seed, calls=scenario.calls)
    history, entries = History(directory / "history"), list[Entry]()
    try:
        began_s = world.now_s()
        world.start()
        _wait_for_work(history, entries)
        for step in scenario.steps(seed) if steps is None else steps:
            note("fault", step.fault)
            step.take(world)
            note("healed", step.fault)
        time.sleep(0.5)
        world.stop_senders()
        within_s = DRAIN_IN_VAIN_S if scenario.rules.may_lose else DRAIN_S
        dead = _drain(world, history, entries, within_s)
        kept = [entry for entry in entries if entry.what == "sent" and entry.kind == "kept" and entry.name not in dead]
        results = _results(world, kept, within_s)
        for worker in list(world.workers):
            world.stop_worker(worker)
        entries += history.read()
        slots = _slots(world.namespace, began_s, world.now_s())
        report = check(entries, scenario.rules, dead=dead, results=results, slots=slots)
        report.problems += [] if scenario.rules.may_lose else [*world.left_over(), *_findings(world)]
        return report
    finally:
        history.close()
        world.close()


def _wait_for_work(history: History, entries: list[Entry]) -> None:
    """Wait until each sender sends, and calls are done; ticks of the schedule count as none."""
    deadline_s = time.monotonic() + DRAIN_S
    while not _work_began(entries):
        assert time.monotonic() < deadline_s, "senders and workers do nothing"
        time.sleep(0.05)
        entries += history.read()


def _work_began(entries: Sequence[Entry]) -> bool:
    senders = {entry.pid for entry in entries if entry.what == "sent"}
    return len(senders) == SENDERS and sum(entry.what == "end" and entry.kind != "tick" for entry in entries) >= 20


def _drain(world: World, history: History, entries: list[Entry], within_s: float) -> set[str]:
    """Wait until each call has an end or is a dead letter; return the names of those."""
    deadline_s = time.monotonic() + within_s
    while True:
        entries += history.read()
        ended = {entry.name for entry in entries if entry.what == "end"}
        settled = {entry.name for entry in entries if entry.what in ("cancelled", "unclear")}
        open_calls = {entry.name for entry in entries if entry.what == "sent"} - ended - settled
        dead = set(NAME.findall(world.dead_letters())) if open_calls else set()
        if open_calls <= dead or time.monotonic() > deadline_s:
            return dead
        time.sleep(0.2)


def _results(world: World, kept: Sequence[Entry], within_s: float) -> dict[str, object]:
    """Return the results of calls when all are there: one whose process was killed after its end runs again."""
    ids, deadline_s = {entry.name: entry.more["id"] for entry in kept}, time.monotonic() + within_s
    while True:
        found: dict[str, object] = json.loads(_ask(world, "-m", "tests.faults.results", given=json.dumps(ids)))
        if all(found.get(name) == name for name in ids) or time.monotonic() > deadline_s:
            return found
        time.sleep(0.2)


def _slots(namespace: str, began_s: int, ended_s: int) -> dict[str, int]:
    """Return the planned times of the schedule, by the ids of its ticks, as the server's clock went."""
    return {tick_id(namespace, "tick", at_s * 1000): at_s for at_s in range(began_s - 10, ended_s + 10)}


def _findings(world: World) -> list[str]:
    """Return what the doctor finds when all is done and no worker runs."""
    done = _ran(world, "manage.py", "rsmq_doctor", "--json")
    return [] if done.returncode == 0 else [f"rsmq_doctor: {done.stdout.strip()[:2000]}{done.stderr[-2000:]}"]


def _ask(world: World, *words: str, given: str) -> str:
    done = _ran(world, *words, given=given)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _ran(world: World, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python in the project, as a sender."""
    command, environment = [sys.executable, *words], world.environment("sender")
    return subprocess.run(command, cwd=ROOT, env=environment, input=given, capture_output=True, text=True)
