"""`python -m benchmarks.runs`: pages of what ran, out of a full event log, by each filter.

Writes 1,000,000 events of 50 tasks into a private server and reads the first page for each filter: processor time of
this process, processor time of the server, and how far the page looked.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from rsmq_django.core import Client, Connection
from rsmq_django.core.stats.fingerprint import fingerprint
from rsmq_django.core.stats.runs import RunFilter, find_runs

from .server import Server

EVENTS, TASKS, AT_ONCE = 1_000_000, 50, 2_000
#: The first event; there is one each 50 ms.
BEGIN_MS, EVERY_MS = 1_795_000_000_000, 50
RARE = 17


@dataclass(frozen=True, slots=True)
class Measured:
    """What one page cost."""

    name: str
    runs: int
    looked_at: int
    client_ms: float
    server_ms: float
    is_cut: bool


def write(client: Client, events: int) -> None:
    """Write the log: one event in twenty is a failure, and one task ran once in a thousand."""
    rng = random.Random(7)
    for first in range(0, events, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, events))
        client.connection.exchange([_entry(number, rng) for number in numbers])


def _entry(number: int, rng: random.Random) -> tuple[str, ...]:
    task = "shop.tasks.rare" if number % 1000 == RARE else f"shop.tasks.task_{rng.randrange(TASKS)}"
    failed = number % 20 == 0
    kind, error = ("dead", f"builtins.OSError\norder {number} timed out") if failed else ("succeeded", "\n")
    sent_ms = BEGIN_MS + number * EVERY_MS
    task_id, message_id, worker = f"{number:022d}", f"dlix{number:028d}", f"web{number % 16}-411-a3f9c1d7"
    values = [kind, f"queue{number % 8}", task, task_id, message_id, 1, sent_ms, 1500, 250, 147, worker, error]
    tags = ("g", "tour 7") if number % 100 == 0 else ()
    return ("XADD", "rsmq::events", f"{sent_ms}-1", "v", "\n".join(map(str, values)), *tags)


def filters(events: int) -> Iterator[tuple[str, RunFilter]]:
    """Return each filter that the page has."""
    end_ms = BEGIN_MS + events * EVERY_MS
    yield "none", RunFilter()
    yield "task", RunFilter(task="shop.tasks.task_3")
    yield "rare task", RunFilter(task="shop.tasks.rare")
    yield "queue", RunFilter(queue="queue3")
    yield "outcome", RunFilter(kinds=frozenset({"dead"}))
    yield "task that never failed", RunFilter(kinds=frozenset({"lost"}))
    yield "worker", RunFilter(worker="web3-411-a3f9c1d7")
    group = fingerprint("shop.tasks.task_3", "builtins.OSError", "order 7 timed out")
    yield "error group", RunFilter(group=group)
    yield "tag", RunFilter(tag="tour 7")
    yield "time in the middle", RunFilter(until_ms=end_ms - events * EVERY_MS // 2)
    yield "rare task, a day", RunFilter(task="shop.tasks.rare", since_ms=end_ms - 86_400_000)
    yield "id of the newest", RunFilter(words=(f"{events - 1:022d}",), in_arguments=False)
    yield "id of the oldest", RunFilter(words=(f"{0:022d}",), in_arguments=False)
    yield "words in errors", RunFilter(words=("order", "timed"), kinds=frozenset({"dead"}))
    yield "words nowhere, arguments too", RunFilter(words=("nowhere",))


def measure(client: Client, name: str, wanted: RunFilter, *, rounds: int) -> Measured:
    """Read the first page several times; return the median round."""
    found = []
    for _ in range(rounds):
        server_s, own_s = _server_s(client), time.process_time()
        page = find_runs(client, wanted, count=50)
        own_s = time.process_time() - own_s
        server_s = _server_s(client) - server_s
        found.append(Measured(name, len(page.runs), page.looked_at, own_s * 1000, server_s * 1000, page.is_cut))
    return sorted(found, key=lambda each: each.client_ms + each.server_ms)[rounds // 2]


def _server_s(client: Client) -> float:
    (text,) = client.connection.exchange([("INFO", "cpu")])
    lines = dict(line.split(":") for line in text.decode().splitlines() if ":" in line)
    return float(lines["used_cpu_sys_main_thread"]) + float(lines["used_cpu_user_main_thread"])


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runs", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help="how many (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="pages per filter (default: %(default)s)")
    options = parser.parse_args()
    with Server() as server:
        client = Client(Connection(server.url, timeout_s=60))
        print(f"writing {options.events} events", file=sys.stderr, flush=True)
        write(client, options.events)
        print("| filter | runs | events looked at | process, ms | server, ms | more to search |")
        print("|---|---|---|---|---|---|")
        for name, wanted in filters(options.events):
            found = measure(client, name, wanted, rounds=options.rounds)
            more = "yes" if found.is_cut else "no"
            cost = f"{found.client_ms:.1f} | {found.server_ms:.1f}"
            print(f"| {name} | {found.runs} | {found.looked_at:,} | {cost} | {more} |", flush=True)


if __name__ == "__main__":
    main()
