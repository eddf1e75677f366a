"""`python -m benchmarks.shards`: how much faster a queue with shards gets with the nodes of a cluster.

Drains the shards with the worker's default options, and sends to them in bulk from one process, on one node and on
more. Twice: with nodes that are pinned apart and as fast as they can be, for which a small machine has too few cores;
and with nodes that answer at a given pace, so slowly that they are what limits the rate.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from rsmq_django.core.keys import shard_namespace

from .__main__ import machine
from .candidates import OURS, default_case
from .draining import drain
from .entrance import Pace
from .nodes import Nodes
from .texts import table

NAMESPACE = "{bench}"
SHARDS = 8
NODES = (1, 2, 4)
#: About eighty times what a server on a fast machine takes for a command and for a byte of a message.
SLOW = Pace(command_s=2e-3, byte_s=4e-6)
#: How many times as much is measured of nodes that are as fast as they can be.
FASTER = 5
#: Of the rate of one node, times the nodes.
GOAL = 0.9
CASE = default_case("default options")
#: There is more to do than is measured: a node that is done early would be missing at the end.
MORE = 1.3


@dataclass(frozen=True, slots=True)
class Measured:
    """Rates of one way, with one number of nodes."""

    drained: float
    sent: float
    worker_us: float | None
    server_us: float | None


def measure(nodes: int, pace: Pace | None, *, tasks: int) -> Measured:
    """Send in bulk and drain, each on fresh nodes."""
    environment = {**CASE.environment, "BENCH_NAMESPACE": NAMESPACE, "BENCH_SHARDS_OF_EACH": str(SHARDS)}
    with _cluster(nodes, pace) as cluster, cluster.slowed_to(pace):
        sent = OURS.fill(cluster, environment, tasks)
    with _cluster(nodes, pace) as cluster:
        OURS.fill(cluster, environment, round(tasks * MORE))
        with cluster.slowed_to(pace):
            drained = drain(cluster, OURS, CASE, tasks=tasks, environment=environment)
    return Measured(drained.window.rate, sent.rate, drained.worker_us, drained.server_us)


def _cluster(nodes: int, pace: Pace | None) -> Nodes:
    namespaces = [shard_namespace(NAMESPACE, shard) for shard in range(SHARDS)]
    return Nodes(nodes, namespaces, have_entrances=pace is not None)


def lines(found: Mapping[tuple[bool, int], Sequence[Measured]]) -> Iterator[Sequence[str]]:
    """Return a line of the table for each way and number of nodes: medians, and their parts of linear growth."""
    for (is_slow, nodes), rounds in found.items():
        least = min(number for way, number in found if way == is_slow)
        cells = ["at a given pace" if is_slow else "as fast as they can", f"{nodes}"]
        for name in ("drained", "sent"):
            rate, base = _median(rounds, name), _median(found[is_slow, least], name)
            assert rate is not None and base is not None
            part = rate / base * least / nodes
            cells += [f"{rate:,.0f}", f"{part:.2f}" + (", NOT REACHED" if is_slow and part < GOAL else "")]
        cells += [_shown(_median(rounds, "worker_us")), _shown(_median(rounds, "server_us"))]
        yield cells


def _median(rounds: Sequence[Measured], name: str) -> float | None:
    values = [value for value in (getattr(each, name) for each in rounds) if value is not None]
    return statistics.median(values) if values else None


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shards", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default: %(default)s)")
    parser.add_argument("--tasks", type=int, default=4_000, help="for each slow node (default: %(default)s)")
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES, help="how many (default: 1, 2 and 4)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    described = machine()
    found: dict[tuple[bool, int], list[Measured]] = {}
    for turn, is_slow, nodes in product(range(1, options.rounds + 1), (False, True), options.nodes):
        tasks = options.tasks * (nodes if is_slow else FASTER)
        measured = measure(nodes, SLOW if is_slow else None, tasks=tasks)
        found.setdefault((is_slow, nodes), []).append(measured)
        print(f"  round {turn}, {nodes} nodes: {measured}", file=sys.stderr, flush=True)
    print("\n".join(f"- {name}: {value}" for name, value in described.items()))
    rates = ("drain, tasks/s", "of linear", "bulk, sends/s", "of linear")
    head = ("nodes answer", "nodes", *rates, "worker us", "server us")
    print("\n" + table(head, lines(found)))


if __name__ == "__main__":
    main()
