"""Letting workers work off what waits, and taking the time: the core of most figures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from .candidates import Candidate, Case
from .nodes import Nodes
from .processes import Process
from .server import Server
from .ticks import TickFile, Window, tick_file

SAMPLE_EVERY_S = 0.02
#: Enough to find both ends of the window within half a percent.
TICKS_PER_DRAIN = 200
DRAIN_WITHIN_S = 180.0


@dataclass(frozen=True, slots=True)
class CpuSample:
    """Processor time used so far."""

    at: float
    worker_s: float
    server_s: float


@dataclass(frozen=True, slots=True)
class Drained:
    """What working off a number of tasks took."""

    window: Window
    #: None where the system does not tell.
    worker_us: float | None
    server_us: float | None

    @property
    def values(self) -> dict[str, float | None]:
        """Return what a sample keeps."""
        return {"rate": self.window.rate, "worker_us": self.worker_us, "server_us": self.server_us}


def drain(
    server: Server | Nodes,
    candidate: Candidate,
    case: Case,
    *,
    tasks: int,
    environment: Mapping[str, str] | None = None,
) -> Drained:
    """Start the worker of a case on a server where at least so many tasks wait; end it when so many have begun."""
    every = 1 if case.forks else max(1, tasks // TICKS_PER_DRAIN)
    with tick_file(every=every) as ticks:
        variables = {**case.environment, **(environment or {}), **ticks.environment}
        with ExitStack() as running:
            workers = [running.enter_context(candidate.worker(server, variables)) for _ in range(case.workers)]
            # What a process has counted since its last tick is only known of the one that comes to the end first.
            samples = _watch(ticks, workers, server, wanted=tasks // every - (case.processes - 1))
            for worker in workers:  # what was to be measured is over, and an orderly end takes some peers seconds
                worker.kill()
        window = ticks.window(processes=case.processes)
    return Drained(window, *_cpu_per_task(samples, window))


def _watch(ticks: TickFile, workers: Sequence[Process], server: Server | Nodes, *, wanted: int) -> list[CpuSample]:
    samples = []
    deadline = time.monotonic() + DRAIN_WITHIN_S
    while True:
        is_done = len(ticks) >= wanted
        by_workers, by_server = [worker.cpu_s() for worker in workers], server.tree_cpu_s()
        known = [used_s for used_s in by_workers if used_s is not None]
        if len(known) == len(workers) and by_server is not None:
            samples.append(CpuSample(time.monotonic(), sum(known), by_server))
        if is_done:
            return samples
        for worker in workers:
            worker.check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(ticks)} of {wanted} ticks after {DRAIN_WITHIN_S:.0f} s:\n{workers[0].output()}")
        time.sleep(SAMPLE_EVERY_S)


def _cpu_per_task(samples: Sequence[CpuSample], window: Window) -> tuple[float | None, float | None]:
    if len(samples) < 2 or not window.tasks:
        return None, None
    first, last = _at(samples, window.begin), _at(samples, window.end)
    us_per_task = 1e6 / window.tasks
    return (last.worker_s - first.worker_s) * us_per_task, (last.server_s - first.server_s) * us_per_task


def _at(samples: Sequence[CpuSample], at: float) -> CpuSample:
    """Interpolate between the samples before and after."""
    after = next((n for n, sample in enumerate(samples) if sample.at >= at), len(samples) - 1)
    a, b = samples[max(0, after - 1)], samples[after]
    share = 0.0 if b.at == a.at else min(1.0, max(0.0, (at - a.at) / (b.at - a.at)))
    return CpuSample(at, a.worker_s + share * (b.worker_s - a.worker_s), a.server_s + share * (b.server_s - a.server_s))
