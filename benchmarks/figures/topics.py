"""Topics beside our own queues, in batches; and how soon the slowest of three blocked groups has what was published."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.topic import Topic

from ..processes import one_core
from ..run import Run
from ..server import Server

BODY = b"x" * 100
BATCH = 100
#: All steps take turns, so that a busy moment of the machine meets each of them.
TURNS = 10
GROUPS = ("a", "b", "c")
BLOCK_MS = 20_000
WITHIN_S = 30.0


def topics(run: Run) -> None:
    """Measure both."""
    batches(run)
    waking(run)


def batches(run: Run) -> None:
    """Publish to a topic and read it in both ways, and send to a queue, a hundred messages per call."""
    calls = max(1, run.sizes.bulk_sends // BATCH // TURNS)
    with one_core(), Server() as server:
        client = Client(Connection(server.url))
        queue, topic = Queue("ordinary", client), Topic("orders", client)
        queue.create()
        once, careful = topic.group("once"), topic.group("careful", at_least_once=True)
        steps: dict[str, Callable[[], object]] = {
            "send_many": lambda: queue.send_many([BODY] * BATCH),
            "publish": lambda: topic.publish(*[BODY] * BATCH),
            "read at most once": lambda: once.read(BATCH),
            "read at least once + ack": lambda: careful.ack(careful.read(BATCH)),
            "receive_many + delete_many": lambda: queue.delete_many(queue.receive_many(BATCH)),
        }
        took_s = dict.fromkeys(steps, 0.0)
        for _ in range(TURNS):
            for name, step in steps.items():
                began = time.perf_counter()
                for _ in range(calls):
                    step()
                took_s[name] += time.perf_counter() - began
    for name in steps:
        run.add("topics", name, {"rate": TURNS * calls * BATCH / took_s[name]})


def waking(run: Run) -> None:
    """Publish single messages while three groups wait, and take the time until the last of them has each."""
    waits_ms: list[float] = []
    with Server() as server:
        publisher = Topic("wake", Client(Connection(server.url)))
        got_at: SimpleQueue[float] = SimpleQueue()

        def follow(name: str) -> None:
            group = Topic("wake", Client(Connection(server.url))).group(name)
            for _ in range(run.sizes.latencies):
                group.read(block_ms=BLOCK_MS)
                got_at.put(time.perf_counter())

        readers = [threading.Thread(target=follow, args=(name,), daemon=True) for name in GROUPS]
        for reader in readers:
            reader.start()
        for _ in range(run.sizes.latencies):
            _wait_for_blocked_clients(server, len(GROUPS))
            published_at = time.perf_counter()
            publisher.publish(BODY)
            slowest = max(got_at.get(timeout=WITHIN_S) for _ in GROUPS)
            waits_ms.append((slowest - published_at) * 1000)
        for reader in readers:
            reader.join(WITHIN_S)
    cuts = statistics.quantiles(waits_ms, n=100, method="inclusive")
    run.add("topics", "slowest of 3 blocked groups", {"p50_ms": cuts[49], "p99_ms": cuts[98]})


def _wait_for_blocked_clients(server: Server, count: int) -> None:
    deadline = time.monotonic() + WITHIN_S
    while server.info("clients")["blocked_clients"] < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"after {WITHIN_S:.0f} s still waiting for the readers")
        time.sleep(0.005)
