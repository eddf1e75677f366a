"""Several worker processes fire the same schedule while one of them hangs, and while Redis restarts."""

from __future__ import annotations

import json
import signal

import pytest

from rsmq_django import schedules
from rsmq_django.core.tasks.schedules import tick_id
from rsmq_django.queues import get_queue
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure

pytestmark = pytest.mark.slow

BEAT = {"beat": {"TASK": "tests.worker.site.tasks.write_id", "EVERY_S": 1}}
SMALL = ("--processes", "1", "--threads", "2")


def expected_ids() -> list[str]:
    """Return the task ids of all ticks up to the last one that fired, oldest first."""
    entry = schedules.get("beat")
    last_ms = round(entry.last_planned_at.timestamp() * 1000)
    return [tick_id("rsmq", "beat", last_ms - n * 1000) for n in reversed(range(entry.fired))]


def test_each_tick_fires_once_while_one_of_three_workers_hangs(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    workers = [start_worker(*SMALL, schedules=json.dumps(BEAT)) for _ in range(3)]
    wait_until(lambda: len(journal.names("id")) >= 3)

    for stopped in workers:
        stopped.send_to_all(signal.SIGSTOP)
        ticks = schedules.get("beat").fired
        wait_until(lambda: schedules.get("beat").fired >= ticks + 2)  # noqa: B023
        stopped.send_to_all(signal.SIGCONT)
    for worker in workers:
        worker.send(signal.SIGTERM)
    for worker in workers:
        assert worker.wait() == 0, worker.output

    ids = expected_ids()
    assert len(ids) >= 9
    assert get_queue("default").attributes().total_sent == len(ids), "no tick was sent twice, and none left out"
    wait_until(lambda: set(journal.names("id")) <= set(ids))


def test_ticks_continue_after_a_restart_of_redis(
    project: Configure, server: PrivateServer, start_worker: StartWorker, journal: Journal
):
    worker = start_worker(*SMALL, schedules=json.dumps(BEAT))
    wait_until(lambda: len(journal.names("id")) >= 2)

    server.restart()

    before = len(journal.names("id"))
    wait_until(lambda: len(journal.names("id")) >= before + 2)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0, worker.output
    assert get_queue("default").attributes().total_sent == len(expected_ids())


def test_worker_that_empties_queues_fires_nothing(project: Configure, start_worker: StartWorker, journal: Journal):
    beat = {"beat": {"TASK": "tests.worker.site.tasks.write_id", "CRON": "* * * * * *"}}
    worker = start_worker("--burst", *SMALL, schedules=json.dumps(beat))

    assert worker.wait() == 0, worker.output
    assert journal.lines() == []
    assert schedules.entries() == []
