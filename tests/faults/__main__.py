"""The command: runs scenarios, prints a line each, and looks for fewer faults that break the same. See --help."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import django
import pytest
from django.conf import settings

from tests import leftovers
from tests.faults.checker import Report
from tests.faults.run import run
from tests.faults.scenarios import SCENARIOS, Scenario, Step
from tests.faults.world import OlderWorld, SoakWorld

COLUMNS = "{:<17}{:<9}{:>6}{:>13}{:>8}{:>9}{:>9}{:>6}{:>6}{:>10}{:>11}"
HEAD = COLUMNS.format(
    "scenario", "faults", "seed", "acknowledged", "done", "unknown", "refused", "dead", "lost", "repeated", "resume (s)"
)
#: How many further runs look for fewer steps.
MOST_TRIES = 8


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments say; return 1 if a run found a problem."""
    given = _parser().parse_args(arguments)
    if given.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:<17}{scenario.covers:<10}{', '.join(dict.fromkeys(scenario.faults))}")
        return 0
    settings.configure(USE_TZ=True)
    django.setup()
    OlderWorld.revision = given.older
    if given.only == ["soak"]:
        SoakWorld.lasts_s = max(SoakWorld.lasts_s, given.minutes * 60)
    place, failed = Path(tempfile.mkdtemp(prefix="rsmq-faults-")), []
    print(HEAD, flush=True)
    for scenario, seed in _runs(given):
        try:
            scenario.world.check_machine()
        except pytest.skip.Exception as why:
            print(f"{scenario.name:<17}SKIPPED: {why}", flush=True)
            continue
        steps = scenario.steps(str(seed))
        if given.steps:
            steps = [steps[int(number)] for number in given.steps.split(",")]
        report = _tried(scenario, str(seed), place, steps)
        print(_line(scenario, seed, report), flush=True)
        if report.problems:
            failed.append((scenario, seed))
            _explain(scenario, seed, report, steps, place)
    if failed:
        print(f"{len(failed)} runs found problems; what their processes printed is in {place}")
        return 1
    shutil.rmtree(place)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description="Break servers, networks and processes under load, and count."
    )
    parser.add_argument("--minutes", type=float, default=0, help="repeat with further seeds for this long")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--only", action="append", metavar="SCENARIO", help="this scenario only; may be repeated")
    parser.add_argument("--steps", metavar="0,2", help="only these faults of a run, by number")
    parser.add_argument("--older", default="", metavar="REVISION", help="of git: what runs beside this release")
    parser.add_argument("--list", action="store_true", help="list the scenarios with their faults")
    return parser


def _runs(given: argparse.Namespace) -> Iterator[tuple[Scenario, int]]:
    known = {scenario.name: scenario for scenario in SCENARIOS}
    if unknown := set(given.only or ()) - set(known):
        sys.exit(f"no scenario {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    chosen = [known[name] for name in given.only or known]
    ends_at_s, seed = time.monotonic() + given.minutes * 60, given.seed
    while True:
        for scenario in chosen:
            if seed > given.seed and time.monotonic() > ends_at_s:
                return
            yield scenario, seed
        seed += 1
        if time.monotonic() > ends_at_s:
            return


def _tried(scenario: Scenario, seed: str, place: Path, steps: Sequence[Step]) -> Report:
    """Return the report of a run. One that could not come to its end has that as its problem."""
    directory = Path(tempfile.mkdtemp(prefix=scenario.name.replace(" ", "-") + f"-{seed}-", dir=place)) / "run"
    try:
        report = run(scenario, seed, directory, steps)
    except Exception as error:
        report = Report(problems=[f"the run did not end: {type(error).__name__}: {error}"])
    if not report.problems:
        shutil.rmtree(directory.parent)
    return report


def _line(scenario: Scenario, seed: int, report: Report) -> str:
    resumed = "-" if report.resumed_s is None else f"{report.resumed_s:.2f}"
    sends = (report.acknowledged, report.done, report.unknown, report.refused)
    return COLUMNS.format(
        scenario.name, scenario.covers[:8], seed, *sends, report.dead, len(report.lost), report.repeated, resumed
    )


def _explain(scenario: Scenario, seed: int, report: Report, steps: Sequence[Step], place: Path) -> None:
    """Print the problems, and the fewest steps found that cause one."""
    for problem in report.problems:
        print(f"    {problem}")
    print(f"    faults: {', '.join(step.fault for step in steps)}", flush=True)
    every = list(scenario.steps(str(seed)))
    fewest, tries = list(steps), 0
    for step in steps:
        fewer = [each for each in fewest if each != step]
        if not fewer or tries == MOST_TRIES:
            break
        tries += 1
        if _tried(scenario, str(seed), place, fewer).problems:
            fewest = fewer
    numbers = ",".join(str(every.index(step)) for step in fewest)
    print(f"    again: python -m tests.faults --only '{scenario.name}' --seed {seed} --steps {numbers}", flush=True)


def _end(*_: object) -> None:
    """End at once, with all that was started: an exception would be lost where it meets a `__del__` or an `except`."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for pid in leftovers.children():
        leftovers.end_tree(pid)
    os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    try:
        sys.exit(main())
    finally:
        for pid in leftovers.children():  # of a run that was still starting
            leftovers.end_tree(pid)
