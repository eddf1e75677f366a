"""The benchmarks run and print their results. Speed is not tested."""

import ast
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import redis

from benchmarks import act, compiling, features, guard, lockstep, shards
from benchmarks.__main__ import OUR_FIGURES, PEER_FIGURES, measure
from benchmarks.accounting import RECORD
from benchmarks.candidates import OURS, SEVERAL, Candidate
from benchmarks.draining import drain
from benchmarks.entrance import Entrance, Pace
from benchmarks.goals import MEASURED_APART, NEEDS_PEERS, NEEDS_VALGRIND, goals
from benchmarks.instructions import CannotCount
from benchmarks.peers import PEERS
from benchmarks.processes import Process
from benchmarks.report import report
from benchmarks.results import Results, Sample
from benchmarks.run import Run
from benchmarks.server import Server
from benchmarks.sizes import TINY
from benchmarks.ticks import TickFile
from benchmarks.users_table import users_table
from tests.redis_server import PrivateServer

ROOT = Path(__file__).parent.parent


def drained(rate: float, *, l_cycle: float = 100_000.0) -> Sample:
    """Return what a round of the drain with one thread gave."""
    values, reference = {"rate": rate}, {"L_cycle": l_cycle}
    return Sample(figure="drain", who="rsmq_django", case="1 thread", round=1, values=values, reference=reference)


def test_cost_of_a_feature_is_the_difference_between_many_tasks_and_few():
    parts = {"unique/plain/send/50/0": 5_000_000, "unique/plain/send/250/0": 15_000_000}
    parts |= {"unique/using/run/50/0": 9_000_000, "unique/using/run/250/0": 49_000_000}

    lines = features.table(parts).splitlines()

    assert lines[-1] == "| unique | 50 | - | - | 200 |"


def test_cost_of_a_feature_is_the_least_of_all_rounds():
    parts = {"unique/plain/send/50/0": 5_000_000, "unique/plain/send/250/0": 15_000_000}
    parts |= {"unique/plain/send/50/1": 6_000_000, "unique/plain/send/250/1": 15_400_000}

    assert features.each(parts, "unique/plain/send") == 50


def test_each_feature_has_the_whole_limit_of_time(monkeypatch: pytest.MonkeyPatch):
    begun: list[str] = []
    for name in ("_set_up", "_warm_up"):
        monkeypatch.setattr(features, name, lambda *_: None)
    monkeypatch.setattr(lockstep, "limit_time", lambda: begun.append("half an hour"))
    monkeypatch.setattr(features, "_measure", lambda url, feature, *_, **__: begun.append(feature.name))

    features.measure("", [], ["limit", "topic"])

    assert begun == ["half an hour", "limit", "half an hour", "topic"]


def test_features_are_measured_in_tasks_that_use_them_and_tasks_that_do_not(server: PrivateServer):
    script = f"""
import contextlib
from benchmarks import features

@contextlib.contextmanager
def part(name):
    print(name)
    yield

features.ROUNDS, features.part = 1, part
features.WARM_UP, features.FIRST_WARM_UP = 1, 2
features.measure({server.url!r}, [], ["limit", "all events", "encrypted queue", "topic", "schedules"], numbers=(1, 2))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    measured = {line.rsplit("/", 3)[0] for line in done.stdout.splitlines()}
    assert measured == {
        *("limit/plain", "limit/using", "all events/using"),
        *("encrypted queue/plain", "encrypted queue/using", "schedules/plain"),
        *("topic/plain", "topic/using"),
    }


def in_lockstep(program: str) -> str:
    """Return what a program prints whose threads take turns."""
    program = f"from benchmarks import lockstep\nlockstep.install()\n{program}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_thread_in_lockstep_runs_only_while_all_others_wait():
    printed = in_lockstep("""
import os, queue, select, threading
items, (reader, writer) = queue.SimpleQueue(), os.pipe()

def work():
    for item in iter(items.get, None):
        print("worked", item)
    os.write(writer, b".")

thread = threading.Thread(target=work)
thread.start()
for number in (1, 2, None):
    items.put(number)
    print("put", number)
poll = select.poll()
poll.register(reader, select.POLLIN)
print(poll.poll(60_000) == [(reader, select.POLLIN)])
thread.join()
""")

    assert printed.split() == ["put", "1", "put", "2", "put", "None", "worked", "1", "worked", "2", "True"]


def test_time_in_lockstep_passes_while_all_threads_wait():
    printed = in_lockstep("""
import threading, time
began, event = time.monotonic(), threading.Event()
threading.Thread(target=lambda: (time.sleep(3600), event.set())).start()
print(event.wait(1800), event.wait(), 3600 <= time.monotonic() - began < 3601)
""")

    assert printed == "False True True\n"


def test_growth_above_three_percent_names_figure_limit_and_command():
    recorded = {"plain task: send": 100.0, "plain task: work": 100.0, "tags: send": 100.0}

    lines = guard.grown({"plain task: send": 102.9, "plain task: work": 60.0, "tags: send": 103.2}, recorded)

    assert lines == ["tags: send: 103.2 thousand instructions, +3.2%; recorded are 100.0, the limit is 103.0"]


def test_figure_without_a_recorded_count_is_reported():
    assert guard.grown({"tags: send": 103.2}, {}) == ["tags: send: 103.2 thousand instructions, not recorded yet"]


@pytest.fixture
def own_baseline(tmp_path, monkeypatch) -> Path:
    """Return the baseline of this test, where counts are as made up in it and nothing is missing."""
    monkeypatch.setattr(guard, "BASELINES", tmp_path)
    monkeypatch.setattr(guard, "cannot_count", lambda: None)
    monkeypatch.setattr(guard, "measure", lambda: {"tags: send": 104.0})
    monkeypatch.setattr(sys, "argv", ["guard"])
    return tmp_path / f"{guard.baseline_name()}.json"


def test_growth_fails_with_the_command_that_records(own_baseline, capsys):
    guard.write(own_baseline, {"tags: send": 100.0})

    with pytest.raises(SystemExit) as end:
        guard.main()

    assert end.value.code == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "tags: send: 104.0 thousand instructions, +4.0%; recorded are 100.0, the limit is 103.0",
        "If that is intended, record it: make record-instructions",
    ]


def test_recorded_counts_are_those_of_the_next_comparison(own_baseline, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["guard", "--record"])
    guard.main()
    monkeypatch.setattr(sys, "argv", ["guard"])
    guard.main()

    assert capsys.readouterr().out.splitlines()[-1].split() == ["tags:", "send", "104.0", "+0.0%"]


def test_counts_of_another_build_of_python_are_left_out_and_not_compared(own_baseline, monkeypatch, capsys):
    guard.write(own_baseline, {"tags: send": 100.0})
    made_with = {**guard.made_with(), "compiler": "GCC 99"}
    monkeypatch.setattr(guard, "made_with", lambda: made_with)

    guard.main()

    assert "LEFT OUT: comparing instructions: other compiler than in" in capsys.readouterr().out


def test_growth_since_another_commit_fails_where_nothing_is_recorded(own_baseline, monkeypatch, capsys):
    before = {"tags: send": 100.0, "a feature that went: send": 1.0}
    monkeypatch.setattr(guard, "counted_at", {"main": before}.__getitem__)
    monkeypatch.setattr(guard, "measure", lambda: {"tags: send": 104.0, "a new feature: send": 1.0})
    monkeypatch.setattr(sys, "argv", ["guard", "--against", "main"])

    with pytest.raises(SystemExit) as end:
        guard.main()

    assert end.value.code == 1
    said = capsys.readouterr().out
    (failure,) = [line for line in said.splitlines() if "recorded are" in line]
    assert failure.startswith("tags: send: 104.0 thousand instructions, +4.0%")
    assert guard.RECORD not in said, "what is recorded is not compared with"


def test_unknown_commit_is_an_error_that_names_it(monkeypatch):
    with pytest.raises(CannotCount, match="there is no commit 'no-such-commit'"):
        guard.counted_at("no-such-commit")


def test_counting_is_left_out_where_there_is_no_valgrind():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.guard"], cwd=ROOT, env={"PATH": "/nowhere"}, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "LEFT OUT: counting instructions: no valgrind and no cc here (Debian: apt-get install"
    )


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
    without_instructions = guard.cannot_count() is not None
    expected = [figure for figure in OUR_FIGURES if not (figure == "instructions" and without_instructions)]
    assert list(dict.fromkeys(sample.figure for sample in results.samples)) == expected
    assert all(sample.values for sample in results.samples)
    without_value = [goal for goal in goals(results) if goal.read(results) is None]
    if shutil.which("cc") is None:  # no reference client: its ratios are left out
        without_value = [goal for goal in without_value if "L_" not in goal.text]
    assert {goal.missing for goal in without_value} == {
        *(NEEDS_PEERS, MEASURED_APART),
        *([NEEDS_VALGRIND] if without_instructions else []),
    }
    assert results.median(("crash", "rsmq_django", "kill -9 of everything"), "lost") == 0


def test_verdict_is_about_the_median_of_the_ratios_of_each_round(tmp_path):
    path = tmp_path / "samples.jsonl"
    results = Results(path)
    for sample in (drained(50_000), drained(10_000), drained(90_000, l_cycle=200_000)):
        results.add(sample)

    lines = report(Results.load(path)).splitlines()

    (verdict,) = [line for line in lines if "P1" in line and "drain, 1 thread / L_cycle" in line]
    assert [cell.strip() for cell in verdict.strip("|").split("|")][2:] == [">= 0.4", "0.45", "reached"]


def test_rate_has_its_least_and_most_beside_the_median():
    results = Results()
    for sample in (drained(50_000), drained(10_000), drained(90_000)):
        results.add(sample)

    lines = report(results).splitlines()

    (row,) = [line for line in lines if line.startswith("| drain")]
    assert [cell.strip() for cell in row.strip("|").split("|")][2:] == [
        "rate 50,000 (10,000 to 90,000)",
        "0.500 L_cycle (0.100 to 0.900)",
    ]


def test_least_round_is_judged_beside_the_median():
    results = Results()
    for sample in (drained(70_000), drained(65_000), drained(30_000)):
        results.add(sample)

    lines = report(results).splitlines()

    verdicts = [line for line in lines if "Q1" in line and "drain, 1 thread / L_cycle" in line]
    assert ["NOT REACHED" in line for line in verdicts] == [False, True]


def counted(feature: str, **counts: float) -> Sample:
    """Return what was counted of a feature."""
    return Sample(figure="instructions", who="rsmq_django", case=feature, round=1, values=counts, reference={})


def test_instructions_beside_features_and_of_other_sources_are_judged():
    results = Results()
    results.add(counted("none of them", plain_send=80.0, plain_work=100.0))
    results.add(counted("tags", plain_send=80.0, plain_work=102.0, work=160.0))
    results.add(counted("limit", plain_send=79.0, plain_work=100.0, work=290.0))
    results.add(counted("topic", work=105.0))
    results.add(counted("reliable queue", work=130.0))

    lines = report(results).splitlines()

    verdicts = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| Q")]
    assert [cells[3:] for cells in verdicts if cells[0] in ("Q8", "Q9")] == [
        ["1", "reached"], ["1.02", "NOT REACHED"], ["1.3", "NOT REACHED"], ["1.05", "reached"],
    ]  # fmt: skip


def of_peer(who: str, case: str, *, figure: str = "drain", **values: float) -> Sample:
    """Return what a round gave for a candidate."""
    return Sample(figure=figure, who=who, case=case, round=1, values=values, reference={})


def test_default_options_are_compared_with_peers_in_as_many_processes():
    results = Results()
    results.add(of_peer("rsmq_django", "default options", rate=40_000))
    results.add(of_peer("Dramatiq", "8 threads", rate=3000))
    results.add(of_peer("Dramatiq", f"8 threads{SEVERAL}", rate=1000))

    lines = report(results).splitlines()

    (verdict,) = [line for line in lines if "Q2" in line and "best Python peer" in line]
    assert [cell.strip() for cell in verdict.strip("|").split("|")][3:] == ["40", "reached"]


def test_table_for_users_has_the_best_known_peers_and_web_requests():
    results = Results()
    results.add(of_peer("rsmq_django", "default options, results kept", rate=40_000, worker_us=20, server_us=10))
    results.add(of_peer("Huey", "1 thread", rate=3000, worker_us=300, server_us=90))
    results.add(of_peer("Huey", "publishing sender", figure="latency", p50_ms=1.5, p99_ms=5.5))
    results.add(of_peer("Huey", "in a web request", figure="enqueue", sender_us=75))
    results.add(of_peer("SAQ", "100 coroutines", rate=2000))

    text = users_table(results)

    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    assert rows[2:] == [
        ["the same, results kept for a day: all settings by default", "40,000", "20 / 10", "-", "-", "-"],
        ["Huey 3.5, one thread", "3,000", "300 / 90", "-", "-", "1.5 / 5.5"],
    ]
    assert text.endswith("One call adds to a Django request, in microseconds of its processor time: Huey 75.")


def test_call_in_a_web_request_costs_what_the_request_takes_longer(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(time, "process_time", lambda: clock[0] / 2)

    def takes(seconds: float) -> Callable[[float], None]:
        def send(_: float) -> None:
            clock[0] += seconds

        return send

    cost = act.measure_added(takes(5.0), takes(2.0), [0.0] * 4)

    assert cost == {"seconds": pytest.approx(3.0 * 40), "cpu_s": pytest.approx(1.5 * 40)}


@pytest.mark.slow
def test_call_in_a_web_request_is_measured_through_the_handler_of_django():
    with Server() as server:
        added = OURS.produce(server, OURS.cases[0].environment, "request", "10")
        waiting = server.redis.zcard("rsmq:bench")

    assert (added.count, waiting) == (10, 20)  # as many before, to warm up


@pytest.mark.slow
def test_worker_of_a_case_is_started_as_many_times_as_it_says(monkeypatch):
    started: list[Process] = []
    start = Candidate.worker

    def noting(*args: Any) -> Process:
        started.append(start(*args))
        return started[-1]

    monkeypatch.setattr(Candidate, "worker", noting)
    case = replace(OURS.case("1 thread"), processes=2, workers=2)
    with Server() as server:
        OURS.fill(server, case.environment, 4000)
        drain(server, OURS, case, tasks=2000)

    assert len(started) == 2
    assert all(worker.cpu_s() is None for worker in started)  # both have ended


def test_run_with_peers_measures_ours_for_all_goals_of_the_next_versions(monkeypatch):
    measured: list[str] = []
    for name in OUR_FIGURES:
        monkeypatch.setitem(OUR_FIGURES, name, lambda run, name=name: measured.append(name))
    for name in PEER_FIGURES:
        monkeypatch.setitem(PEER_FIGURES, name, lambda run, peer: None)

    measure(Run(TINY, Results()), [], [PEERS[0]])

    assert measured == ["drain", "enqueue", "latency", "server", "instructions"]


def measured_shards(drained: float, sent: float) -> list[shards.Measured]:
    """Return what a round with slow nodes gave."""
    return [shards.Measured(drained=drained, sent=sent, worker_us=50.0, server_us=None)]


def test_rate_of_several_slow_nodes_is_compared_with_that_of_one():
    found = {(True, 1): measured_shards(1000, 2000), (True, 4): measured_shards(3800, 6000)}

    cells = list(shards.lines(found))

    assert cells[0] == ["at a given pace", "1", "1,000", "1.00", "2,000", "1.00", "50", "-"]
    assert cells[1] == ["at a given pace", "4", "3,800", "0.95", "6,000", "0.75, NOT REACHED", "50", "-"]


def test_entrance_passes_on_what_client_and_server_say():
    with Server() as own:
        entrance = Entrance(own.port)
        entrance.pace = Pace(command_s=1e-6, byte_s=1e-9)
        client = redis.Redis(port=entrance.port)
        client.set("long", "x" * 200_000)

        assert len(own.redis.get("long")) == len(client.get("long")) == 200_000
        client.close()
        entrance.close()


@pytest.mark.slow
def test_queue_with_shards_is_measured_on_nodes_of_both_kinds():
    command = [sys.executable, "-m", "benchmarks.shards", "--rounds", "1", "--tasks", "100", "--nodes", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:3] for line in done.stdout.splitlines() if line.startswith("| a")]
    assert [[cell.strip() for cell in row] for row in rows] == [["as fast as they can", "2"], ["at a given pace", "2"]]


def test_missed_goal_is_reported():
    results = Results()
    results.add(drained(39_000))

    lines = report(results).splitlines()

    (verdict,) = [line for line in lines if "P1" in line and "drain, 1 thread / L_cycle" in line]
    assert "NOT REACHED" in verdict


def test_rate_of_several_processes_counts_only_while_all_are_at_work(tmp_path):
    path = tmp_path / "ticks"
    first = [RECORD.pack(1, 0.0, second) for second in (0.0, 1.0, 2.0, 3.0)]
    second = [RECORD.pack(2, 0.0, second) for second in (1.5, 2.5, 3.5, 4.5)]
    path.write_bytes(b"".join(first + second))

    window = TickFile(path, every=10).window(processes=2)

    assert (window.begin, window.end, window.tasks) == (1.5, 3.0, 30)


def sends_of(command: list[str], *, directory: Path) -> tuple[int, int]:
    """Return how many sends were measured, and how many were made."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["count"], (directory / "sent").stat().st_size


@pytest.fixture
def counting_peer(tmp_path) -> Path:
    """Return a module, for Python and for Node, that writes a byte for each send."""
    sent = str(tmp_path / "sent")
    (tmp_path / "counting.py").write_text(f"def send_one(at):\n    open({sent!r}, 'a').write('.')\n")
    (tmp_path / "counting.js").write_text(
        f"const sendOne = async () => require('fs').appendFileSync({sent!r}, '.');\n"
        "module.exports = { open: async () => {}, sendOne };\n"
    )
    return tmp_path


def test_sends_are_measured_in_ten_equal_parts_after_a_warm_up(counting_peer):
    program = f"import sys; sys.path.insert(0, {str(counting_peer)!r}); from benchmarks.act import main; main()"

    sends = sends_of([sys.executable, "-c", program, "counting", "one", "57"], directory=counting_peer)

    assert sends == (40, 57)


def test_node_measures_sends_in_parts_as_python_does(counting_peer):
    if shutil.which("node") is None:
        pytest.skip("needs Node")
    peers = ROOT / "benchmarks" / "peers"

    sends = sends_of(
        ["node", str(peers / "act.js"), os.path.relpath(counting_peer / "counting", peers), "one", "57"],
        directory=counting_peer,
    )

    assert sends == (40, 57)


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.language == "python"], ids=lambda peer: peer.name)
def test_peer_has_the_actions_that_the_driver_uses(peer):
    source = (ROOT / peer.module.replace(".", "/")).with_suffix(".py").read_text("utf-8")

    functions = {
        node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert {"work", "send_one"} <= functions
    assert ("send_bulk" in functions) == peer.has_bulk
    assert ("open_site" in functions) == peer.has_site


def test_two_threads_may_compile_the_same_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source, both = tmp_path / "source.c", Barrier(2, timeout=60)
    source.write_text("int one = 1;")

    def compiler(command: list[str], *, check: bool) -> None:
        Path(command[command.index("-o") + 1]).write_text("made")
        both.wait()

    monkeypatch.setattr(compiling, "BUILD_DIR", tmp_path / "built")
    monkeypatch.setattr(shutil, "which", lambda _name: "cc")
    monkeypatch.setattr(subprocess, "run", compiler)
    with ThreadPoolExecutor() as pool:
        made = list(pool.map(lambda _: compiling.compiled.__wrapped__(source, name="{}.so"), range(2)))

    assert made[0] == made[1]
    assert [each.read_text() for each in (tmp_path / "built").iterdir()] == ["made"]
