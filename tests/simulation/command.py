"""The command `python -m tests.simulation`: simulates seeds, prints a table, and looks for fewer faults of a violation.

Each seed has a process of its own, so it does not matter which seeds came before.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence

from tests.simulation import world
from tests.simulation.defects import DEFECTS
from tests.simulation.faults import KINDS, Step, plan
from tests.simulation.lanes import Lanes
from tests.simulation.processes import install
from tests.simulation.run import Outcome
from tests.simulation.table import Table

#: How many further runs look for fewer faults.
MOST_TRIES = 12
HOURS = 40.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate what the arguments say; return 1 if a seed has broken a rule."""
    given = _parser().parse_args(arguments)
    logging.getLogger("rsmq_django").propagate = False
    logging.getLogger("django_tasks").addHandler(logging.NullHandler())  # it would print the planned failures
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # with what it has started
    install()
    if given.defect:
        DEFECTS[given.defect]()
    began, table = world.real_monotonic(), Table()
    with Lanes(given.jobs) as lanes:
        if given.steps is not None:
            every = plan(str(given.seed), given.only)
            jobs = iter([(given.seed, [every[int(number)] for number in given.steps.split(",") if number])])
        else:
            last = given.seed + given.seeds if given.seeds else sys.maxsize
            jobs = ((seed, plan(str(seed), given.only)) for seed in range(given.seed, last))
        hours = float("inf") if given.seeds or given.steps is not None else given.hours
        for outcome in lanes.run(jobs, until=lambda: table.worker_h >= hours or (given.first and table.violations)):
            table.add(outcome)
            if outcome.problems:
                _explain(outcome, outcome.steps if given.as_it_is else _fewest(outcome, lanes), given.only)
            elif given.verbose:
                print(f"seed {outcome.seed} {outcome.digest} {outcome.worker_s / 3600:.2f} h", flush=True)
        print(table.text(world.real_monotonic() - began))
    return 1 if table.violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="Simulate workers, faults and time, each seed the same again."
    )
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--hours", type=float, default=HOURS, help="hours of worker processes (default: %(default)s)")
    parser.add_argument("--seeds", type=int, metavar="COUNT", help="this many seeds instead")
    parser.add_argument("--steps", metavar="0,2", help="one seed, with only these of its faults, by number")
    parser.add_argument("--only", action="append", choices=KINDS, help="only this kind of fault; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="seeds at a time (default: one per core)")
    parser.add_argument("--first", action="store_true", help="stop at the first broken rule")
    parser.add_argument(
        "--defect", choices=sorted(DEFECTS), help="break the package in this way, to test the simulation"
    )
    parser.add_argument("--as-it-is", action="store_true", help="do not look for fewer faults that break a rule, too")
    parser.add_argument("--verbose", action="store_true", help="print a line for each seed")
    return parser


def _explain(outcome: Outcome, fewest: Sequence[Step], only: Sequence[str] | None) -> None:
    """Print what was found, and the fewest faults that cause something."""
    print(f"seed {outcome.seed} has broken rules:")
    for problem in outcome.problems[:10]:
        print(f"    {problem}")
    print(f"    faults: {'; '.join(map(str, fewest)) or 'none'}")
    numbers = ",".join(str(step.number) for step in fewest)
    kinds = "".join(f" --only '{kind}'" for kind in only or ())
    print(f"    again: python -m tests.simulation --seed {outcome.seed} --steps '{numbers}'{kinds}", flush=True)


def _fewest(outcome: Outcome, lanes: Lanes) -> list[Step]:
    fewest = outcome.steps
    for step in outcome.steps[:MOST_TRIES]:
        fewer = [each for each in fewest if each.number != step.number]
        if lanes.run_one(outcome.seed, fewer).problems:
            fewest = fewer
    return fewest
