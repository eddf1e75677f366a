"""Is anything lost, and what runs twice, when workers are killed in the middle of their work?"""

from __future__ import annotations

import time

from ..candidates import OURS, our_case
from ..processes import wait_for
from ..run import Run
from ..server import Server
from ..ticks import TickFile, tick_file

WITHIN_S = 120.0
QUEUE_KEY = "rsmq:bench"
#: Short, so that what a killed worker held comes back soon.
VISIBILITY_TIMEOUT_S = 2
CASE = our_case(
    "kill -9, 8 threads",
    worker="--threads 8",
    expected_rate=0,
    keep_results=False,
    BENCH_VISIBILITY_TIMEOUT_S=str(VISIBILITY_TIMEOUT_S),
)


def crashes(run: Run) -> None:
    """Kill the worker again and again while it drains numbered tasks; count which of them ran."""
    tasks, kills = run.sizes.crash_tasks, 0
    with Server() as server, tick_file() as ticks:
        environment = {**CASE.environment, **ticks.environment}
        OURS.fill(server, environment, tasks)
        while server.redis.zcard(QUEUE_KEY):
            kills += _work_until_killed(run, server, environment, ticks)
        numbers = [tick.sent_at for tick in ticks.read()]
    lost, repeated = tasks - len(set(numbers)), len(numbers) - len(set(numbers))
    values = {"lost": lost, "repeated": repeated, "kills": kills, "repeated_per_kill": repeated / max(1, kills)}
    run.add("crash", CASE.name, values)


def _work_until_killed(run: Run, server: Server, environment: dict[str, str], ticks: TickFile) -> int:
    """Kill a worker some time after its first task; let it be when it finishes first. Returns the number of kills."""
    before = len(ticks)

    def is_over() -> bool:
        return not server.redis.zcard(QUEUE_KEY)

    with OURS.worker(server, environment) as worker:
        wait_for(lambda: len(ticks) > before or is_over(), processes=[worker], within_s=WITHIN_S, what="a task")
        kill_at = time.monotonic() + run.sizes.crash_every_s
        wait_for(
            lambda: time.monotonic() >= kill_at or is_over(),
            processes=[worker],
            within_s=WITHIN_S,
            what="the time of the kill",
        )
        if is_over():
            return 0
        worker.kill()
        return 1
