"""Letting workers work off what waits, and taking the time: the core of most figures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from .candidates import Candidate, Case
from .processes import Process, tree_cpu_s
from .server import Server
from .ticks import TickFile, Window, tick_file

SAMPLE_EVERY_S = 0.02
#: Enough to find both ends of the window within half a percent.
TICKS_PER_DRAIN = 200
DRAIN_WITHIN_S = 600.0


@dataclass(frozen=True, slots=True)
class CpuSample:
    """Processor time used so far."""

    at: float
    workers_s: float
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
    server: Server,
    candidate: Candidate,
    case: Case,
    *,
    tasks: int,
    processes: int = 1,
    environment: Mapping[str, str] | None = None,
) -> Drained:
    """Start workers on a server where at least so many tasks wait, and stop them when so many have begun."""
    every = 1 if case.forks else max(1, tasks // TICKS_PER_DRAIN)
    with tick_file(every=every) as ticks, ExitStack() as stack:
        variables = {**case.environment, **(environment or {}), **ticks.environment}
        workers = [stack.enter_context(candidate.worker(server, variables)) for _ in range(processes)]
        # What several processes have counted since their last ticks is lost.
        wanted = tasks // every - (processes - 1)
        samples = _watch(ticks, workers, server, wanted=wanted)
        for worker in workers:
            worker.kill()  # what has been measured is over, and an orderly end takes some peers seconds
        window = ticks.window(processes=processes)
    return Drained(window, *_cpu_per_task(samples, window))


def _watch(ticks: TickFile, workers: Sequence[Process], server: Server, *, wanted: int) -> list[CpuSample]:
    samples = []
    deadline = time.monotonic() + DRAIN_WITHIN_S
    while True:
        done = len(ticks) >= wanted
        used = [worker.cpu_s() for worker in workers]
        by_server = tree_cpu_s(server.pid)
        if by_server is not None and None not in used:
            samples.append(CpuSample(time.time(), sum(filter(None, used)), by_server))
        if done:
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
    return (last.workers_s - first.workers_s) * us_per_task, (last.server_s - first.server_s) * us_per_task


def _at(samples: Sequence[CpuSample], at: float) -> CpuSample:
    """Interpolate between the samples before and after."""
    after = next((n for n, sample in enumerate(samples) if sample.at >= at), len(samples) - 1)
    a, b = samples[max(0, after - 1)], samples[after]
    share = 0.0 if b.at == a.at else min(1.0, max(0.0, (at - a.at) / (b.at - a.at)))
    return CpuSample(
        at, a.workers_s + share * (b.workers_s - a.workers_s), a.server_s + share * (b.server_s - a.server_s)
    )
