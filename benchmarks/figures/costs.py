"""What it costs while nothing happens, in memory, and in the server's time."""

from __future__ import annotations

import statistics
import time

from rsmq_django.core import Client, Connection, Queue

from ..candidates import OURS
from ..processes import one_core, wait_for
from ..run import Run
from ..server import Server

EIGHT_THREADS = OURS.case("8 threads")
START_WITHIN_S = 60.0
#: The length of message that the format's size is always quoted for.
BODY = b"x" * 47
BATCH = 1000
#: Shards of a queue whose worker waits.
SHARDS = 100


def idle(run: Run) -> None:
    """Let a worker wait on empty queues, and see what the worker and the server use meanwhile."""
    for queues in (1, run.sizes.many_queues):
        run.add("idle", f"{queues:,} queues", _idle(queues, for_s=run.sizes.idle_s))
    title = f"{queues:,} queues, and one with {SHARDS} shards"
    run.add("idle", title, _idle(queues, shards=SHARDS, for_s=run.sizes.idle_s))


def _idle(queues: int, *, shards: int = 0, for_s: float) -> dict[str, float | None]:
    environment = {**EIGHT_THREADS.environment, "BENCH_QUEUES": str(queues), "BENCH_SHARDS": str(shards)}
    first = "bench" if queues == 1 else "q0"
    with Server() as server, OURS.worker(server, environment) as worker:
        wait_for(lambda: server.listeners(first) == 1, process=worker, within_s=START_WITHIN_S, what="the worker")
        if shards:
            last = f"rsmq-{shards - 1}:rt:sharded"
            wait_for(lambda: server.hears(last), process=worker, within_s=START_WITHIN_S, what="the last shard")
        time.sleep(for_s / 5)  # what it does once, at its start, is over
        server.log_commands()
        worker_s, server_s = worker.cpu_s(), server.cpu_s()
        time.sleep(for_s)
        worker.check()
        server_percent = (server.cpu_s() - server_s) / for_s * 100
        worker_percent = None if worker_s is None else ((worker.cpu_s() or 0.0) - worker_s) / for_s * 100
        looks_ms = [call.ms for call in server.logged_scripts() if call.keys > queues]
    return {
        "cpu_percent": None if worker_percent is None else worker_percent + server_percent,
        "server_percent": server_percent,
        "scan_ms": statistics.median(looks_ms) if looks_ms else None,
    }


def memory(run: Run) -> None:
    """Fill queues and see how much memory a message takes in the server."""
    count = run.sizes.memory_messages
    with Server() as server:
        queue = Queue("bench", Client(Connection(server.url)))
        queue.create()
        empty = server.memory_bytes()
        for _ in range(count // BATCH):
            queue.send_many([BODY] * BATCH)
        waiting = server.memory_bytes() - empty
        for _ in range(count // BATCH):
            queue.receive_many(BATCH)
        received = server.memory_bytes() - empty
    run.add("memory", "47-byte message", {"waiting_bytes": waiting / count, "received_bytes": received / count})
    for case in (EIGHT_THREADS, OURS.case("8 threads, results kept")):
        with Server() as server:
            OURS.fill(server, case.environment, BATCH)
            empty = server.memory_bytes()
            OURS.fill(server, case.environment, count)
            waiting = server.memory_bytes() - empty
        run.add("memory", case.name.replace("8 threads", "task"), {"waiting_bytes": waiting / count})


def one_at_a_time(run: Run) -> None:
    """Send, receive and delete one message after the other: what the server needs for each."""
    count = run.sizes.sends
    with one_core(), Server() as server:
        queue = Queue("bench", Client(Connection(server.url)))
        queue.create()
        used, began = server.cpu_s(), time.perf_counter()
        for _ in range(count):
            queue.send(BODY)
        for _ in range(count):
            message = queue.receive()
            assert message is not None and queue.delete(message)
        seconds = time.perf_counter() - began
        server_us = (server.cpu_s() - used) / count * 1e6
    run.add("server", "one at a time", {"life_server_us": server_us, "rate": count / seconds})
