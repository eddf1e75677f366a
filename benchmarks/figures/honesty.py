"""Count lost messages and second attempts when workers are killed in the middle of their work."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable

from rsmq_django.core import Client, Connection, Queue

from ..candidates import OURS, Case, our_case
from ..processes import Process, wait_for
from ..run import Run
from ..server import Server
from ..ticks import TickFile, tick_file

WITHIN_S = 120.0
QUEUE_KEY = "rsmq:bench"
#: Short, so that what a killed worker held comes back soon.
VISIBILITY_TIMEOUT_S = "2"
CASE = our_case("kill -9", BENCH_VISIBILITY_TIMEOUT_S=VISIBILITY_TIMEOUT_S)
ACK_EACH = our_case("kill -9, ack='each'", BENCH_VISIBILITY_TIMEOUT_S=VISIBILITY_TIMEOUT_S, BENCH_ACK="each")

Kill = Callable[[Process, TickFile], None]


def crashes(run: Run) -> None:
    """Kill the process that works, or it and its supervisor, again and again while numbered tasks are drained."""
    _crash(run, "kill -9 of a process", CASE, _kill_child, replaced=True)
    _crash(run, "kill -9 of everything", CASE, lambda worker, ticks: worker.kill(), replaced=False)
    _crash(run, "kill -9 of a process, ack='each'", ACK_EACH, _kill_child, replaced=True)


def _crash(run: Run, name: str, case: Case, kill: Kill, *, replaced: bool) -> None:
    tasks, kills = run.sizes.crash_tasks, 0
    with Server() as server, tick_file() as ticks:
        environment = {**case.environment, **ticks.environment}
        OURS.fill(server, environment, tasks)
        while server.redis.zcard(QUEUE_KEY):
            with OURS.worker(server, environment) as worker:
                while _works_until_kill(run, server, worker, ticks):
                    kill(worker, ticks)
                    kills += 1
                    if not replaced:
                        break
        ran = [round(tick.sent_at) for tick in ticks.read()]
        dead = _dead_letters(server)
    lost, repeated = tasks - len({*ran, *dead}), len(ran) - len(set(ran))
    values = {"lost": lost, "dead": len(dead), "repeated": repeated, "kills": kills}
    run.add("crash", name, {**values, "repeated_per_kill": repeated / max(1, kills)})


def _works_until_kill(run: Run, server: Server, worker: Process, ticks: TickFile) -> bool:
    """Wait for a new task and then a little longer. Returns False when all work is done before."""
    before = len(ticks)

    def is_over() -> bool:
        return not server.redis.zcard(QUEUE_KEY)

    wait_for(lambda: len(ticks) > before or is_over(), process=worker, within_s=WITHIN_S, what="a task")
    kill_at = time.monotonic() + run.sizes.crash_every_s
    wait_for(lambda: time.monotonic() >= kill_at or is_over(), process=worker, within_s=WITHIN_S, what="the kill")
    return not is_over()


def _kill_child(worker: Process, ticks: TickFile) -> None:
    """Kill the process that ran the last task; its supervisor starts another one."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(ticks.read()[-1].pid, signal.SIGKILL)


def _dead_letters(server: Server) -> list[int]:
    """Return the numbers of the tasks that were given up: more of their attempts died than a task is allowed."""
    queue = Queue("bench-dead", Client(Connection(server.url)))
    numbers: list[int] = []
    while messages := queue.receive_many(1000):
        numbers += [round(json.loads(message.body)["kwargs"]["sent_at"]) for message in messages]
    return numbers
