"""Faults at the length at which they tell something: many thousand tasks, many restarts, half a minute of darkness.

The short forms of most of these run with every change; these run on one of the supported Pythons only.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path

import pytest

from rsmq_django.queues import get_queue
from tests.chaos.fleet import (
    ONE,
    assert_done_once,
    children_of,
    names_of,
    pids_by_name,
    records_of_workers,
    usage,
)
from tests.chaos.project import tasks
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, dead_letters

pytestmark = [pytest.mark.slow, pytest.mark.long]

HANG_S = 500


def left(server: PrivateServer) -> int:
    return int(server.redis.zcard("rsmq:default"))


def test_children_killed_at_random_during_twenty_thousand_tasks(
    project: Configure,
    server: PrivateServer,
    start: StartWorker,
    journal: Journal,
):
    names, killed = names_of(20_000), set[int]()
    tasks.nap.enqueue_many([[name, 0.001] for name in names])
    worker = start("--processes", "3", "--threads", "8", "--burst")

    for kill in range(1, 16):
        wait_until(lambda: left(server) <= 20_000 - 1_200 * kill, timeout_s=HANG_S)  # noqa: B023
        alive = wait_until(lambda: sorted(set(children_of(worker)) - killed))
        victim = random.choice(alive)
        os.kill(victim, signal.SIGKILL)
        killed.add(victim)

    assert worker.process.wait(HANG_S) == 0
    assert set(journal.names("end")) == set(names)
    starts = pids_by_name(journal, "start")
    repeated = {name: pids for name, pids in starts.items() if len(pids) > 1}
    assert all(set(pids[:-1]) <= killed for pids in repeated.values()), repeated
    assert len(repeated) <= 15 * 8 + 15 * 500  # what ran, and what had run but was not told yet
    assert dead_letters() == []
    assert left(server) == 0
    assert records_of_workers(server) == []


def test_twenty_deployments_under_load_lose_and_repeat_nothing(
    project: Configure,
    server: PrivateServer,
    start: StartWorker,
    journal: Journal,
):
    command, per_deployment = ("--processes", "1", "--threads", "8"), 400
    names = names_of(20 * per_deployment)
    worker = start(*command)
    wait_until(lambda: "started process" in worker.output)  # before that, a signal would end it as any program

    for deployment in range(20):
        following = start(*command)  # beside the old one, as orchestrators do
        wait_until(lambda: "started process" in following.output)  # noqa: B023
        ended, first = len(journal.names("end")), deployment * per_deployment
        tasks.nap.enqueue_many([[name, 0.01] for name in names[first : first + per_deployment]])
        wait_until(lambda: len(journal.names("end")) > ended + 20)  # noqa: B023
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        worker = following

    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    queue = get_queue("default").attributes()
    assert queue.hidden_messages == 0, "everything that was given back can be received at once"
    assert queue.messages == len(names) - len(journal.names("end"))
    assert start("--burst", *command).process.wait(HANG_S) == 0
    assert_done_once(journal, names)
    assert dead_letters() == []
    assert records_of_workers(server) == []


def test_task_of_ten_visibility_timeouts_runs_once(
    project: Configure,
    server: PrivateServer,
    start: StartWorker,
    journal: Journal,
):
    queues = {"default": {"VISIBILITY_TIMEOUT_S": 4}}  # a busy machine may renew it seconds late
    project(**queues)
    tasks.nap.enqueue("slow", 40)
    tasks.hold_interpreter.enqueue("greedy", 40)

    for worker in (start(*ONE, queues=queues), start(*ONE, queues=queues), start(*ONE, queues=queues)):
        wait_until(lambda: "started process" in worker.output)  # noqa: B023

    wait_until(lambda: len(journal.names("end")) == 2)
    wait_until(lambda: left(server) == 0)
    assert sorted(journal.names("start")) == ["greedy", "slow"]


def test_misdeeds_and_deaths_among_five_thousand_good_tasks(
    project: Configure,
    server: PrivateServer,
    start: StartWorker,
    journal: Journal,
):
    names = names_of(5_000)
    tasks.good.enqueue_many([[name] for name in names[:2_500]])
    tasks.die.enqueue_many([[how, how] for how in tasks.DEATHS])
    deaths = start("--processes", "2", "--threads", "4", "--burst")
    assert deaths.process.wait(HANG_S) == 0

    # Apart from the deaths: an attempt during which the process died counts, and these have one or two.
    tasks.spin.enqueue("spin")
    tasks.hang.enqueue("hang")
    tasks.hang_once.enqueue("hang-once")
    tasks.misbehave.enqueue_many([[how, how] for how in tasks.MISDEEDS])
    tasks.good.enqueue_many([[name] for name in names[2_500:]])
    worker = start("--processes", "2", "--threads", "4", "--burst")
    assert worker.process.wait(HANG_S) == 0

    assert set(journal.names("end")) == {*names, "hang-once"}
    buried = {record["task"].rpartition(".")[2]: record for _, record in dead_letters()}
    reasons = {name: record["reason"] for name, record in buried.items()}
    assert reasons == {
        "die": "crashed",
        "misbehave": "attempts_used_up",
        "spin": "attempts_used_up",
        "hang": "attempts_used_up",
    }
    for name in ("spin", "hang"):
        assert buried[name]["error"] == "rsmq_django.tasks.interrupts.HardTimeout"
    assert get_queue("default-dead").attributes().messages == len(tasks.DEATHS) + len(tasks.MISDEEDS) + 2
    assert records_of_workers(server) == []


def test_half_a_minute_of_darkness_and_a_restart_stop_nothing_for_good(
    project: Configure,
    server: PrivateServer,
    start: StartWorker,
    journal: Journal,
):
    names = names_of(3_000)
    tasks.nap.enqueue_many([[name, 0.005] for name in names])
    with FaultProxy(server.url) as proxy:
        worker = start("--processes", "2", "--threads", "4", url=proxy.url)
        wait_until(lambda: len(journal.names("end")) > 200)

        proxy.black_hole()
        threading.Event().wait(30)
        proxy.release()
        ended = len(journal.names("end"))
        wait_until(lambda: len(journal.names("end")) > ended)

        server.restart()
        ended = len(journal.names("end"))
        wait_until(lambda: len(journal.names("end")) > ended)
        wait_until(lambda: left(server) == 0, timeout_s=HANG_S)
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0

    assert set(journal.names("end")) == set(names)
    assert dead_letters() == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux shows what another process has open")
def test_two_hundred_thousand_tasks_leave_nothing_behind(
    project: Configure,
    server: PrivateServer,
    start: StartWorker,
    journal: Journal,
):
    worker = start("--processes", "1", "--threads", "4")
    run(20_000, server)
    pids = (worker.process.pid, *children_of(worker))
    before = {pid: usage(pid) for pid in pids}
    connections = server.redis.info("clients")["connected_clients"]

    for _ in range(10):
        run(20_000, server)

    assert len(before) == 2 and set(pids) == {worker.process.pid, *children_of(worker)}
    for pid in pids:
        # A process opens a file for a moment now and then.
        wait_until(lambda: all(now <= then for now, then in zip(usage(pid)[1:], before[pid][1:], strict=True)))  # noqa: B023
        assert usage(pid)[0] - before[pid][0] < 4 << 20
    assert server.redis.info("clients")["connected_clients"] <= connections + 1  # our own may come and go
    assert server.redis.info("keyspace")["db0"]["keys"] < 100  # queues, workers, statistics, and nothing per message


def run(count: int, server: PrivateServer) -> None:
    """Have so many tasks done, and wait until nothing is left of them."""
    tasks.silent.enqueue_many([[]] * count)
    wait_until(lambda: left(server) == 0, timeout_s=HANG_S)
