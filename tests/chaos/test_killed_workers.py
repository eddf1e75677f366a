"""Worker processes are killed and stopped during their work: every message is finished by some worker."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from rsmq_django.queues import get_queue
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, dead_letters

pytestmark = pytest.mark.slow

COUNT = 200
QUEUES = {"default": {"VISIBILITY_TIMEOUT_S": 1}}


def acknowledged(server: PrivateServer, numbers: dict[str, str]) -> set[str]:
    """Return the numbers whose messages are gone from the queue."""
    left = {message_id.decode()[-22:] for message_id in server.redis.zrange("rsmq:default", 0, -1)}
    return {number for task_id, number in numbers.items() if task_id not in left}


@pytest.mark.parametrize("victim", ["child", "all"])
def test_no_message_is_lost_or_acknowledged_before_it_was_done(
    project: Configure, server: PrivateServer, start_worker: StartWorker, journal: Journal, victim: str
):
    project(**QUEUES)
    names = [str(number) for number in range(COUNT)]
    numbers = dict(zip(tasks.toil.enqueue_many([[name, 0.05] for name in names]), names, strict=True))
    command = ("--processes", "2", "--threads", "4", "--burst")
    worker = start_worker(*command, queues=QUEUES)

    for kill in range(2):
        target = (kill + 1) * COUNT // 4
        wait_until(lambda: len(journal.names("end")) >= target)  # noqa: B023
        if victim == "child":
            with contextlib.suppress(ProcessLookupError):  # on a busy machine it may have done everything by now
                os.kill(int(journal.lines("start")[-1][1]), signal.SIGKILL)
        else:
            worker.destroy()
            assert acknowledged(server, numbers) <= set(journal.names("end"))
            worker = start_worker(*command, queues=QUEUES)

    worker.wait()
    assert set(journal.names("end")) == set(names)
    assert get_queue("default").attributes().messages == 0
    assert dead_letters() == []


def test_process_that_dies_repeats_no_more_than_it_ran_when_each_run_is_acknowledged(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    threads, names = 3, [*map(str, range(200)), "deadly", *map(str, range(200, 400))]
    tasks.toil_acked.enqueue_many([[name] for name in names])

    start_worker("--processes", "1", "--threads", str(threads), "--burst").wait()

    started = journal.names("start")
    assert set(started) == set(names)
    assert 1 <= len(started) - len(names) <= threads


def test_worker_that_lost_its_lease_cannot_change_the_message_of_the_next_worker(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    tasks.wait_at_gate.enqueue("slow")
    worker = start_worker("--processes", "1", "--threads", "1")
    wait_until(lambda: journal.names("start"))
    worker.send_to_all(signal.SIGSTOP)

    queue = get_queue("default")
    pass_time(queue, seconds=1000)
    message = queue.receive()
    journal.open_gate()
    worker.send_to_all(signal.SIGCONT)

    wait_until(lambda: journal.names("end"))
    wait_until(lambda: "the lease of message" in worker.output or "was received by another worker" in worker.output)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert message is not None and message.receive_count == 2
    assert queue.delete(message)


def test_message_of_a_priority_is_free_at_once_when_its_process_dies(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    project(default={"VISIBILITY_TIMEOUT_S": 3600})
    tasks.wait_at_gate.using(priority=50).enqueue("urgent")
    start_worker("--processes", "1", queues={"default": {"VISIBILITY_TIMEOUT_S": 3600}})
    wait_until(lambda: journal.names("start"))

    os.kill(int(journal.lines("start")[0][2]), signal.SIGKILL)
    journal.open_gate()

    wait_until(lambda: journal.names("end") == ["urgent"])
