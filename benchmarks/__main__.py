"""`python -m benchmarks`: measure and print the table. See docs/explanation/benchmarks.md."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from .candidates import OURS, Candidate
from .figures import costs, counts, delays, honesty, reliable, throughput, topics
from .peers import installed_peers
from .places import RESULTS_DIR
from .report import report
from .results import Results
from .run import Run
from .server import describe
from .sizes import ALL_SIZES

OUR_FIGURES: dict[str, Callable[[Run], None]] = {
    "drain": lambda run: throughput.drains(run, OURS),
    "enqueue": lambda run: throughput.enqueues(run, OURS),
    "latency": lambda run: delays.latencies(run, OURS),
    "idle": costs.idle,
    "backlog": throughput.backlogs,
    "queues": throughput.many_queues,
    "memory": costs.memory,
    "server": costs.one_at_a_time,
    "appendonly": throughput.append_only_file,
    "books": throughput.reporting,
    "crash": honesty.crashes,
    "makespan": delays.makespan,
    "reliable": reliable.reliable_queues,
    "topics": topics.topics,
    "instructions": counts.instructions,
}
PEER_FIGURES = {"drain": throughput.drains, "enqueue": throughput.enqueues, "latency": delays.latencies}
#: What a run with peers measures: with the figures of ours alone that the goals Q1 to Q9 need.
FIGURES_WITH_PEERS = (*PEER_FIGURES, "server", "instructions")


def main() -> None:
    """Parse, measure, print."""
    options = _parse(sys.argv[1:])
    # Ended from outside, end in an orderly way: nothing that was started stays.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    if options.table:
        print(report(Results.load(options.table)))
        return
    sizes = ALL_SIZES[options.size]
    path = options.out or RESULTS_DIR / time.strftime(f"%Y-%m-%d-%H%M%S-{sizes.name}.jsonl")
    results = Results(path, machine={**machine(), "size": sizes.name})
    run = Run(sizes, results)
    peers = [] if options.peers is None else chosen(installed_peers(), options.peers)
    for run.round in range(1, (options.rounds or sizes.rounds) + 1):
        measure(run, options.only, peers)
    print(report(results))
    print(f"samples: {path}", file=sys.stderr)


def measure(run: Run, only: list[str], peers: list[Candidate]) -> None:
    """Take one round."""
    for name in only or (FIGURES_WITH_PEERS if peers else OUR_FIGURES):
        OUR_FIGURES[name](run)
        for peer in peers if name in PEER_FIGURES else ():
            PEER_FIGURES[name](run, peer)


def chosen(peers: list[Candidate], names: list[str]) -> list[Candidate]:
    """Return the peers of these names, all when there are none. Exits when one is not there."""
    unknown = set(names) - {peer.name for peer in peers}
    if unknown or not peers:
        there = ", ".join(peer.name for peer in peers) or "none"
        sys.exit(
            f"not installed: {', '.join(sorted(unknown)) or 'any peer'}; `make bench-peers` does that. Here: {there}"
        )
    return [peer for peer in peers if not names or peer.name in names]


def machine() -> dict[str, object]:
    """Return what a reader has to know about this machine."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "server": describe(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": ", ".join(f"{name} {version(name)}" for name in ("django", "redis", "hiredis")),
        "measured": time.strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--size", choices=ALL_SIZES, default="full")
    parser.add_argument("--rounds", type=int, help="default: as many as the size asks for")
    parser.add_argument("--only", type=_names, default=[], metavar="A,B", help="figures; default: all")
    parser.add_argument(
        "--peers", type=_names, nargs="?", const=[], metavar="A,B", help="other task queues beside ours; default: all"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the samples go, as JSON lines")
    parser.add_argument("--table", type=Path, metavar="FILE", help="measure nothing, print the table of a finished run")
    options = parser.parse_args(arguments)
    unknown = set(options.only) - set(OUR_FIGURES)
    if unknown:
        parser.error(f"unknown figure {', '.join(sorted(unknown))}; there are {', '.join(OUR_FIGURES)}")
    return options


def _names(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
