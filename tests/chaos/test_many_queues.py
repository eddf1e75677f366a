"""A worker with ten thousand queues on a distant server: it starts, fires schedules and recovers messages soon."""

from __future__ import annotations

import json
import os
import signal

import pytest

from rsmq_django.queues import ensure_queue
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure

pytestmark = [pytest.mark.slow, pytest.mark.long]

MANY = 10_000
#: One way, so that a round trip takes a fifth of a second.
DELAY_S = 0.1


@pytest.mark.deadline(600)
def test_worker_with_ten_thousand_queues_on_a_distant_server_starts_fires_schedules_and_recovers(
    project: Configure, start_worker: StartWorker, journal: Journal, server: PrivateServer
):
    ensure_queue("default")
    tasks.write.enqueue("first")
    tasks.wait_at_gate.enqueue("slow")
    beat = {"beat": {"TASK": f"{tasks.__name__}.write", "EVERY_S": 1, "ARGS": ["beat"]}}

    def runs_of_slow() -> list[list[str]]:
        return [words for name, *words in journal.lines("start") if name == "slow"]

    with FaultProxy(server.url) as proxy:
        proxy.delay_s = DELAY_S
        options = ("--processes", "2", "--threads", "2")
        worker = start_worker(*options, url=proxy.url, more_queues=str(MANY), schedules=json.dumps(beat))

        wait_until(lambda: "first" in journal.names("end"))
        assert server.redis.scard("rsmq:QUEUES") >= 2 * MANY, "with their dead-letter queues"
        ((_, pid),) = wait_until(runs_of_slow)
        wait_until(lambda: "beat" in journal.names("end"))
        os.kill(int(pid), signal.SIGKILL)

        wait_until(lambda: len(runs_of_slow()) == 2)
        beats = journal.names("end").count("beat")
        wait_until(lambda: journal.names("end").count("beat") > beats)
        journal.open_gate()
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
