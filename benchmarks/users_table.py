"""The table of docs/explanation/benchmarks.md: ours beside the best known peers, in Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from .candidates import DEFAULT_PROCESSES, OURS, SEVERAL
from .places import BENCHMARKS
from .results import Results, Row
from .texts import number, table

HEAD = (
    "worker",
    "tasks/s",
    "processor us a task, worker / server",
    "sends/s, one by one",
    "sends/s, bulk",
    "idle latency p50 / p99, ms",
)
LATENCY = "publishing sender"
#: By name and case. `{}` is the version.
TITLES = {
    ("BullMQ", "concurrency 100"): "BullMQ {}, 100 jobs at a time",
    ("taskiq", "stream"): "taskiq {}, stream",
    ("Huey", "1 thread"): "Huey {}, one thread",
    ("Dramatiq", "8 threads"): "Dramatiq {}, eight threads",
    ("Celery", "solo"): "Celery {}, solo pool",
    ("RQ", "simple"): "RQ {}, without a process for each job",
}
OUR_TITLES = {
    "default options": f"rsmq_django, default options ({DEFAULT_PROCESSES} processes of eight threads)",
    "default options, results kept": "the same, results kept for a day: all settings by default",
    "8 threads": "rsmq_django, one process of eight threads",
}


def users_table(results: Results) -> str:
    """Return the table, and what one call adds to a web request."""
    measured = {row for row in results.rows() if row[0] == "drain"}
    peers = [
        (name, each, title.format(_version(name)) + ("" if each == case else SEVERAL))
        for (name, case), title in TITLES.items()
        for each in (case, case + SEVERAL)
    ]
    ours = [(OURS.name, case, title) for case, title in OUR_TITLES.items()]
    lines = [
        [title, *_figures(results, name, case)]
        for name, case, title in [*ours, *peers]
        if ("drain", name, case) in measured
    ]
    return "\n\n".join([table(HEAD, lines), *_requests(results)])


def _figures(results: Results, name: str, case: str) -> Iterator[str]:
    kept = ", results kept" if case.endswith("results kept") else ""
    latency = f"{LATENCY}, one process" if (name, case) == (OURS.name, "8 threads") else LATENCY

    def shown(row: Row, *values: str) -> str:
        found = [results.median(row, value) for value in values]
        return " / ".join(map(number, found)) if None not in found else "-"

    yield shown(("drain", name, case), "rate")
    yield shown(("drain", name, case), "worker_us", "server_us")
    yield shown(("enqueue", name, f"one{kept}"), "rate")
    yield shown(("enqueue", name, f"bulk{kept}"), "rate")
    yield "-" if case.endswith(SEVERAL) or kept else shown(("latency", name, latency), "p50_ms", "p99_ms")


def _requests(results: Results) -> Sequence[str]:
    """Return a sentence about web requests, if they were measured."""
    rows = [row for row in results.rows() if row[0] == "enqueue" and row[2] == "in a web request"]
    found = [f"{row[1]} {number(results.median(row, 'sender_us'))}" for row in rows]
    return (
        [f"One call adds to a Django request, in microseconds of its processor time: {', '.join(found)}."]
        if found
        else []
    )


def _version(name: str) -> str:
    """Return the version of a peer that is installed, without its last part."""
    on_node = json.loads((BENCHMARKS / "package.json").read_text())["dependencies"]
    on_python = (BENCHMARKS / "requirements-peers.txt").read_text().lower()
    found = re.search(rf"^{name.lower()}(?:\[.*\])?==(.+)$", on_python, re.M)
    version = found[1] if found else on_node[name.lower()]
    return ".".join(version.split(".")[:2])
