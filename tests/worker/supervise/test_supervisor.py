"""The supervisor keeps its processes running, and frees what a dead one held long before any lease is over."""

from __future__ import annotations

import os
import signal

import pytest

from rsmq_django.queues import get_queue
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure

pytestmark = pytest.mark.slow

#: A lease that no test here waits for.
QUEUES = {"default": {"VISIBILITY_TIMEOUT_S": 3600}}


def test_processes_work_side_by_side(project: Configure, start_worker: StartWorker, journal: Journal):
    tasks.wait_at_gate.enqueue_many([["first"], ["second"]])

    worker = start_worker("--processes", "2", "--threads", "1")

    wait_until(lambda: len(journal.names("start")) == 2)
    pids = {line[2] for line in journal.lines("start")}
    assert len(pids) == 2 and str(worker.process.pid) not in pids


def test_message_of_a_killed_process_runs_again_at_once_in_a_new_process(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    project(**QUEUES)
    tasks.wait_at_gate.enqueue("slow")
    worker = start_worker("--processes", "1", "--threads", "1", queues=QUEUES)
    wait_until(lambda: journal.names("start"))
    (first,) = journal.lines("start")

    os.kill(int(first[2]), signal.SIGKILL)

    wait_until(lambda: len(journal.names("start")) == 2)
    second = journal.lines("start")[1]
    assert (second[1], second[2] == first[2]) == ("2", False)
    wait_until(lambda: "was running when its process ended with signal 9 (SIGKILL), 1 of 3 times" in worker.output)


def test_messages_that_only_waited_in_a_killed_process_lose_no_attempt(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    project(**QUEUES)
    tasks.write.enqueue_many([[str(number)] for number in range(300)])  # so many quick ones that it fetches ahead
    tasks.wait_at_gate.enqueue_many([["slow"], ["next"], ["last"]])
    start_worker("--processes", "1", "--threads", "1", queues=QUEUES)
    wait_until(lambda: "slow" in journal.names("start"))
    running = next(line for line in journal.lines("start") if line[0] == "slow")

    os.kill(int(running[2]), signal.SIGKILL)
    journal.open_gate()

    wait_until(lambda: get_queue("default").attributes().messages == 0)
    attempts = {line[0]: line[1] for line in journal.lines("end") if len(line) > 1}
    assert attempts == {"slow": "2", "next": "1", "last": "1"}
