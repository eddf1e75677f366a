"""Reliable queues beside our own ordinary ones, in batches; and how soon a blocked reader has what was pushed."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from rsmq_django.core import Client, Connection, Queue
from rsmq_django.core.reliable import ReliableQueue

from ..processes import one_core
from ..run import Run
from ..server import Server

BODY = b"x" * 100
BATCH = 100
#: The two kinds take turns, so that a busy moment of the machine meets both.
TURNS = 10
BLOCK_MS = 20_000
WITHIN_S = 30.0


def batches(run: Run) -> None:
    """Fill and empty both kinds of queues, a hundred messages per call."""
    calls = max(1, run.sizes.bulk_sends // BATCH // TURNS)
    with one_core(), Server() as server:
        client = Client(Connection(server.url))
        queue, reliable = Queue("ordinary", client), ReliableQueue("reliable", client)
        queue.create()
        steps: dict[str, Callable[[], object]] = {
            "send_many": lambda: queue.send_many([BODY] * BATCH),
            "push": lambda: reliable.push(*[BODY] * BATCH),
            "receive_many + delete_many": lambda: queue.delete_many(queue.receive_many(BATCH)),
            "pop + ack": lambda: reliable.ack(*[row[1] for row in reliable.pop(BATCH) or []]),
        }
        took_s = dict.fromkeys(steps, 0.0)
        server_us = dict.fromkeys(steps, 0.0)
        for _ in range(TURNS):
            for name, step in steps.items():
                used_us, began = _script_us(server), time.perf_counter()
                for _ in range(calls):
                    step()
                took_s[name] += time.perf_counter() - began
                server_us[name] += _script_us(server) - used_us
    messages = TURNS * calls * BATCH
    for name in steps:
        values = {"rate": messages / took_s[name], "server_us": server_us[name] / messages}
        run.add("reliable", name, values)


def _script_us(server: Server) -> float:
    """Return the microseconds that the server has spent in scripts so far."""
    return float(server.info("commandstats").get("cmdstat_evalsha", {"usec": 0})["usec"])


def waking(run: Run) -> None:
    """Push single messages to a queue on which one reader is blocked, and take the time until it has each."""
    waits_ms: list[float] = []
    with Server() as server:
        sender = ReliableQueue("wake", Client(Connection(server.url)))
        reader = ReliableQueue("wake", Client(Connection(server.url)))
        got_at: SimpleQueue[float] = SimpleQueue()

        def read() -> None:
            for _ in range(run.sizes.latencies):
                [[_, message_id, _]] = reader.pop(1, BLOCK_MS) or [["", "", b""]]
                got_at.put(time.perf_counter())
                reader.ack(message_id)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        for _ in range(run.sizes.latencies):
            _wait_for_a_blocked_client(server)
            pushed_at = time.perf_counter()
            sender.push(BODY)
            waits_ms.append((got_at.get(timeout=WITHIN_S) - pushed_at) * 1000)
        thread.join(WITHIN_S)
    cuts = statistics.quantiles(waits_ms, n=100, method="inclusive")
    run.add("reliable", "blocked reader", {"p50_ms": cuts[49], "p99_ms": cuts[98]})


def _wait_for_a_blocked_client(server: Server) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not server.info("clients")["blocked_clients"]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"after {WITHIN_S:.0f} s still waiting for the reader")
        time.sleep(0.005)


def reliable_queues(run: Run) -> None:
    """Take both."""
    batches(run)
    waking(run)
