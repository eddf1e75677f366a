"""Letting workers work off what waits, and taking the time: the core of most figures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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
    """Start a worker on a server where at least so many tasks wait, and end it when so many have begun."""
    every = 1 if case.forks else max(1, tasks // TICKS_PER_DRAIN)
    with tick_file(every=every) as ticks:
        variables = {**case.environment, **(environment or {}), **ticks.environment}
        with candidate.worker(server, variables) as worker:
            # What a process has counted since its last tick is only known of the one that comes to the end first.
            samples = _watch(ticks, worker, server, wanted=tasks // every - (case.processes - 1))
            worker.kill()  # what was to be measured is over, and an orderly end takes some peers seconds
        window = ticks.window(processes=case.processes)
    return Drained(window, *_cpu_per_task(samples, window))


def _watch(ticks: TickFile, worker: Process, server: Server | Nodes, *, wanted: int) -> list[CpuSample]:
    samples = []
    deadline = time.monotonic() + DRAIN_WITHIN_S
    while True:
        is_done = len(ticks) >= wanted
        by_worker, by_server = worker.cpu_s(), server.tree_cpu_s()
        if by_worker is not None and by_server is not None:
            samples.append(CpuSample(time.monotonic(), by_worker, by_server))
        if is_done:
            return samples
        worker.check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(ticks)} of {wanted} ticks after {DRAIN_WITHIN_S:.0f} s:\n{worker.output()}")
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
