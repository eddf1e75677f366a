"""Who is measured, and how to start its programs. Knows commands and environments; measures nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from .nodes import Nodes
from .places import BENCHMARKS, NODE_MODULES, PEER_PYTHON, ROOT
from .processes import Process
from .server import Server

PRODUCE_WITHIN_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to run a candidate."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Tasks a second that it is expected to reach, within a factor of three: chooses the size of the first round.
    expected_rate: float
    #: How many processes run tasks side by side.
    processes: int = 1
    #: How many times its worker is started.
    workers: int = 1
    #: Each task has a process of its own: then every one counts itself; otherwise a tick now and then is enough.
    forks: bool = False


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A task queue: this one, or another project's."""

    name: str
    #: A Python module for act.py, or a JavaScript file with the same actions.
    module: str
    cases: tuple[Case, ...]
    language: str = "python"
    has_bulk: bool = True
    #: Whether the figure of a web request is measured.
    has_site: bool = False
    is_ours: bool = False

    def case(self, name: str) -> Case:
        """Return the case of that name."""
        return next(case for case in self.cases if case.name == name)

    def command(self, *arguments: str) -> list[str]:
        """Return the command for an action of act.py."""
        if self.language == "node":
            return ["node", str(BENCHMARKS / "peers" / "act.js"), self.module, *arguments]
        python = sys.executable if self.is_ours else str(PEER_PYTHON)
        return [python, "-m", "benchmarks.act", self.module, *arguments]

    def worker(self, server: Server | Nodes, environment: Mapping[str, str]) -> Process:
        """Start a worker."""
        return Process(self.command("work"), _environment(server, environment))

    def produce(self, server: Server | Nodes, environment: Mapping[str, str], *arguments: str) -> Produced:
        """Send tasks in a process of their own and return what that took."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=ROOT,
            env=_environment(server, environment),
            capture_output=True,
            text=True,
            timeout=PRODUCE_WITHIN_S,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self.name}: {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
        return Produced(**json.loads(done.stdout.strip().splitlines()[-1]))

    def fill(self, server: Server | Nodes, environment: Mapping[str, str], count: int) -> Produced:
        """Send many tasks the quickest way that the candidate offers."""
        return self.produce(server, environment, "bulk" if self.has_bulk else "one", str(count))


@dataclass(frozen=True, kw_only=True)
class Produced:
    """What sending took."""

    count: int
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        """Return tasks a second."""
        return self.count / self.seconds


def _environment(server: Server | Nodes, environment: Mapping[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        "BENCH_URL": server.url,
        "BENCH_PORT": str(server.port),
        "BENCH_DIR": str(server.dir),
        "NODE_PATH": str(NODE_MODULES),
        **environment,
    }


#: `rsmq_worker` without options has a process for each core.
DEFAULT_PROCESSES = os.cpu_count() or 1
#: The end of the name of a peer's case with as many.
SEVERAL = f", {DEFAULT_PROCESSES} processes"


def our_case(
    name: str, *, processes: int = 1, threads: int = 8, keep_results: bool = False, **environment: str
) -> Case:
    """Return a way to run our worker."""
    return _our_case(name, f"--processes {processes} --threads {threads}", processes, keep_results, environment)


def default_case(name: str, *, keep_results: bool = False, **environment: str) -> Case:
    """Return our worker without options."""
    return _our_case(name, "", DEFAULT_PROCESSES, keep_results, environment)


def _our_case(name: str, options: str, processes: int, keep_results: bool, environment: Mapping[str, str]) -> Case:
    results = "86400" if keep_results else "0"
    return Case(
        name=name,
        environment={"BENCH_WORKER": options, "BENCH_RESULT_TTL_S": results, **environment},
        expected_rate=20_000,
        processes=processes,
    )


def _our_cases() -> tuple[Case, ...]:
    without_results = (
        our_case("1 thread", threads=1),
        our_case("8 threads"),
        our_case("asyncio", BENCH_TASK="anoop"),
        our_case("2 processes of 1 thread", processes=2, threads=1),
        default_case("default options"),
    )
    with_results = (
        our_case("1 thread, results kept", threads=1, keep_results=True),
        our_case("8 threads, results kept", keep_results=True),
        our_case("asyncio, results kept", keep_results=True, BENCH_TASK="anoop"),
        default_case("default options, results kept", keep_results=True),
    )
    return without_results + with_results


OURS = Candidate(name="rsmq_django", module="benchmarks.ours.actions", cases=_our_cases(), has_site=True, is_ours=True)
