"""The benchmarks run and print their results. Speed is not tested."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import features
from benchmarks.__main__ import OUR_FIGURES
from benchmarks.accounting import RECORD
from benchmarks.goals import MEASURED_APART, NEEDS_PEERS, goals
from benchmarks.peers import PEERS
from benchmarks.report import report
from benchmarks.results import Results, Sample
from benchmarks.ticks import TickFile
from tests.redis_server import PrivateServer

ROOT = Path(__file__).parent.parent


def drained(rate: float, *, l_cycle: float = 100_000.0) -> Sample:
    """Return what a round of the drain with one thread gave."""
    values, reference = {"rate": rate}, {"L_cycle": l_cycle}
    return Sample(figure="drain", who="rsmq_django", case="1 thread", round=1, values=values, reference=reference)


def test_cost_of_a_feature_is_the_difference_between_many_tasks_and_few():
    parts = {"unique/plain/send/50": 5_000_000, "unique/plain/send/250": 15_000_000}
    parts |= {"unique/using/run/50": 9_000_000, "unique/using/run/250": 49_000_000}

    lines = features.table(parts).splitlines()

    assert lines[-1] == "| unique | 50 | - | - | 200 |"


def test_features_are_measured_in_tasks_that_use_them_and_tasks_that_do_not(server: PrivateServer):
    script = f"""
import contextlib
from benchmarks import features

@contextlib.contextmanager
def part(name):
    print(name)
    yield

features.FEW, features.MANY, features.WARM_UP, features.SLOWER, features.part = 1, 2, 1, 1, part
features.measure({server.url!r}, [], ["limit", "all events", "encrypted queue", "schedules"])
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    measured = {line.rpartition("/")[0].rpartition("/")[0] for line in done.stdout.splitlines()}
    assert measured == {
        *("limit/plain", "limit/using", "all events/using"),
        *("encrypted queue/plain", "encrypted queue/using", "schedules/plain"),
    }


@pytest.mark.slow
@pytest.mark.long
def test_smallest_run_measures_every_figure_and_judges_every_goal(tmp_path):
    path = tmp_path / "samples.jsonl"

    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--size", "tiny", "--out", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    results = Results.load(path)
    assert list(dict.fromkeys(sample.figure for sample in results.samples)) == list(OUR_FIGURES)
    assert all(sample.values for sample in results.samples)
    without_value = [goal for goal in goals(results) if goal.read(results) is None]
    if shutil.which("cc") is None:  # no reference client: its ratios are left out
        without_value = [goal for goal in without_value if "L_" not in goal.text]
    assert {goal.missing for goal in without_value} == {NEEDS_PEERS, MEASURED_APART}
    assert results.median(("crash", "rsmq_django", "kill -9 of everything"), "lost") == 0


def test_verdict_is_about_the_median_of_the_ratios_of_each_round(tmp_path):
    path = tmp_path / "samples.jsonl"
    results = Results(path)
    for sample in (drained(50_000), drained(10_000), drained(90_000, l_cycle=200_000)):
        results.add(sample)

    lines = report(Results.load(path)).splitlines()

    (verdict,) = [line for line in lines if "drain, 1 thread / L_cycle" in line]
    assert [cell.strip() for cell in verdict.strip("|").split("|")][2:] == [">= 0.4", "0.45", "reached"]


def test_missed_goal_is_reported():
    results = Results()
    results.add(drained(39_000))

    lines = report(results).splitlines()

    (verdict,) = [line for line in lines if "drain, 1 thread / L_cycle" in line]
    assert "NOT REACHED" in verdict


def test_rate_of_several_processes_counts_only_while_all_are_at_work(tmp_path):
    path = tmp_path / "ticks"
    first = [RECORD.pack(1, 0.0, second) for second in (0.0, 1.0, 2.0, 3.0)]
    second = [RECORD.pack(2, 0.0, second) for second in (1.5, 2.5, 3.5, 4.5)]
    path.write_bytes(b"".join(first + second))

    window = TickFile(path, every=10).window(processes=2)

    assert (window.begin, window.end, window.tasks) == (1.5, 3.0, 30)


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.language == "python"], ids=lambda peer: peer.name)
def test_peer_has_the_actions_that_the_driver_uses(peer):
    source = (ROOT / peer.module.replace(".", "/")).with_suffix(".py").read_text("utf-8")

    functions = {
        node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert {"work", "send_one"} <= functions
    assert ("send_bulk" in functions) == peer.has_bulk
