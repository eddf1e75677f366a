"""What a task waits for: idle latency, and the makespan of tasks that take ten milliseconds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from ..candidates import OURS, Candidate, Case, our_case
from ..processes import wait_for
from ..run import Run
from ..server import Server
from ..ticks import TickFile, tick_file

ONE_PROCESS, DEFAULTS = OURS.case("8 threads"), OURS.case("default options")
WITHIN_S = 120.0
WARM_UP = 10
GAP_S = 0.02
#: An idle worker looks for messages of silent senders once a second.
NOTICED_WITHIN_S = 1.2
PAUSE_S = 0.010
THREADS, PROCESSES = 8, 2


@dataclass(frozen=True, kw_only=True)
class Sending:
    """How the messages arrive whose latency is measured."""

    name: str
    how: str
    gap_s: float
    count: int
    #: So many more are sent before those that count: until the worker has noticed the first one it is idle, and how
    #: long that takes is measured apart.
    before: int = 0


def latencies(run: Run, candidate: Candidate) -> None:
    """Send single tasks to an idle worker and take the time until each begins."""
    sizes = run.sizes
    sendings = [Sending(name="publishing sender", how="enqueue", gap_s=GAP_S, count=sizes.latencies)]
    if candidate.is_ours:
        sendings += [
            Sending(
                name="silent senders, in traffic",
                how="silent",
                gap_s=GAP_S,
                count=sizes.latencies,
                before=round(NOTICED_WITHIN_S / GAP_S),
            ),
            Sending(name="silent sender, idle", how="silent", gap_s=sizes.silent_gap_s, count=sizes.silent_latencies),
        ]
    case = DEFAULTS if candidate.is_ours else candidate.cases[0]
    for sending in sendings:
        _latency(run, candidate, case, sending)
    if candidate.is_ours:
        one = replace(sendings[0], name=f"{sendings[0].name}, one process")
        _latency(run, candidate, ONE_PROCESS, one)


def _latency(run: Run, candidate: Candidate, case: Case, sending: Sending) -> None:
    with Server() as server, tick_file() as ticks:
        environment = {**case.environment, **ticks.environment}
        with candidate.worker(server, environment) as worker:
            candidate.produce(server, environment, "one", str(WARM_UP))
            wait_for(lambda: len(ticks) >= WARM_UP, process=worker, within_s=WITHIN_S, what="the first tasks")
            environment["BENCH_HOW"] = sending.how
            count = sending.before + sending.count
            worker_s = worker.cpu_s()
            candidate.produce(server, environment, "latency", str(count), str(sending.gap_s))
            wanted = WARM_UP + count
            wait_for(lambda: len(ticks) >= wanted, process=worker, within_s=WITHIN_S, what="the last tasks")
            used_s = worker.cpu_s()
        timed = [tick for tick in ticks.read() if tick.sent_at]
        waits_ms = [tick.latency_s * 1000 for tick in timed][sending.before :]
    cuts = statistics.quantiles(waits_ms, n=100, method="inclusive")
    took_s = timed[-1].started_at - timed[0].sent_at
    worker_percent = None if worker_s is None or used_s is None else (used_s - worker_s) / took_s * 100
    values = {"p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": max(waits_ms), "worker_percent": worker_percent}
    run.add("latency", sending.name, values, who=candidate.name)


def makespan(run: Run) -> None:
    """Let two waiting processes of eight threads share tasks of ten milliseconds that arrive at once."""
    tasks = run.sizes.makespan_tasks
    case = our_case("2 processes of 8 threads", processes=PROCESSES, threads=THREADS, BENCH_TASK="pause")
    with Server() as server, tick_file() as ticks:
        environment = {**case.environment, **ticks.environment}
        with OURS.worker(server, environment) as worker:
            wait_for(
                lambda: server.listeners("bench") == PROCESSES, process=worker, within_s=WITHIN_S, what="both processes"
            )
            OURS.fill(server, environment, tasks)
            wait_for(lambda: len(ticks) >= tasks, process=worker, within_s=WITHIN_S, what="the last task")
        took_s = _makespan_s(ticks)
    ideal_s = tasks * PAUSE_S / (THREADS * PROCESSES)
    run.add("makespan", case.name, {"seconds": took_s, "ideal_seconds": ideal_s, "over_ideal": took_s / ideal_s - 1})


def _makespan_s(ticks: TickFile) -> float:
    starts = [tick.started_at for tick in ticks.read()]
    return starts[-1] - starts[0] + PAUSE_S
