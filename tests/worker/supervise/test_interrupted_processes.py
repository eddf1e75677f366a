"""A process in which a function was interrupted is replaced: no task meets what the interruption has broken there."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.core.stats.history import read_totals
from rsmq_django.queues import get_client
from rsmq_django.tasks import cancel
from tests.postgres_server import PostgresCluster
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, dead_letters

pytestmark = pytest.mark.slow

SMALL = ("--processes", "1", "--threads", "4")


def pids_of(journal: Journal, name: str) -> list[str]:
    """Return the processes in which the task of this name began."""
    return [line[1] for line in journal.lines("start") if line[0] == name]


def test_process_is_replaced_when_its_other_tasks_have_ended(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    tasks.toil.enqueue("beside", 3)
    tasks.endless_excepts.enqueue("endless")
    worker = start_worker("--processes", "1", "--threads", "2")
    wait_until(lambda: "a function was interrupted in process" in worker.output)

    tasks.toil.enqueue_many([["after", 0]] * 3)

    wait_until(lambda: journal.names("end").count("after") == 3)
    (old,), new = pids_of(journal, "beside"), set(pids_of(journal, "after"))
    assert journal.names("end")[0] == "beside"
    assert new and old not in new
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert worker.output.count("a function was interrupted in process") == 1
    assert "ended with exit status 80 (a function was interrupted in it)" in worker.output


def test_messages_that_only_waited_in_it_lose_no_attempt(
    project: Configure, server: PrivateServer, start_worker: StartWorker, journal: Journal
):
    tasks.toil.enqueue_many([["before", 0]] * 50)  # so that the process fetches ahead
    tasks.endless_excepts.enqueue("endless")
    tasks.toil.enqueue_many([["after", 0]] * 50)

    worker = start_worker("--burst", "--processes", "1", "--threads", "1")

    assert worker.wait() == 0
    assert journal.names("end").count("after") == 50
    assert journal.names("start").count("after") == 50
    assert [record["attempts"] for _, record in dead_letters()] == [1]


@pytest.mark.parametrize("lock", ["a lock", "the log"])
def test_process_ends_although_a_lock_was_lost_and_threads_hang(
    project: Configure, start_worker: StartWorker, journal: Journal, lock: str
):
    tasks.lose_lock.enqueue(lock)
    wait = tasks.want_lock.enqueue(lock)

    worker = start_worker("--burst", "--processes", "1", "--threads", "3", "--shutdown-timeout", "1")

    assert worker.wait() == 1  # it was given back unfinished
    wait.refresh()
    assert (wait.status, journal.names("got")) == ("SUCCESSFUL", ["lock"])
    ((_, record),) = dead_letters()
    assert (record["error"], record["attempts"]) == ("rsmq_django.tasks.retry.TaskTimeout", 1)


def test_function_that_does_not_end_fails_with_its_process(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    result = tasks.endless_call.enqueue()

    worker = start_worker("--burst", "--processes", "1", "--threads", "2", "--shutdown-timeout", "1")

    assert worker.wait() == 0
    result.refresh()
    assert (result.status, len(result.errors)) == ("FAILED", 1)
    assert "TaskTimeout" in worker.output


def test_coroutine_that_takes_too_long_costs_no_process(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    result = tasks.endless_coroutine.enqueue()

    worker = start_worker("--burst", "--processes", "1", "--threads", "1")

    assert worker.wait() == 0
    result.refresh()
    assert result.status == "FAILED"
    assert worker.output.count("started process") == 1
    assert "was interrupted" not in worker.output


def test_cancelled_function_costs_its_process_too(project: Configure, start_worker: StartWorker, journal: Journal):
    result = tasks.wait_at_gate.enqueue("cancelled")
    worker = start_worker("--processes", "1", "--threads", "1")
    wait_until(lambda: journal.names("start") == ["cancelled"])

    cancel(result.id)

    wait_until(lambda: "a function was interrupted in process" in worker.output)
    wait_until(lambda: worker.output.count("started process") == 2)


def test_burst_of_time_outs_does_not_start_processes_in_a_storm(
    project: Configure, start_worker: StartWorker, journal: Journal
):
    tasks.brief.enqueue_many([[]] * 7)

    worker = start_worker("--burst", "--processes", "1", "--threads", "1")

    assert worker.wait() == 0
    started = [line.split()[1] for line in worker.output.splitlines() if "started process" in line]
    first, last = (datetime.strptime(at, "%H:%M:%S,%f") for at in (started[0], started[6]))  # noqa: DTZ007
    # A lower bound, which a busy machine keeps as well: without the growing wait seven would take no time at all.
    assert (last - first).seconds >= 2


def test_interruptions_are_counted(project: Configure, start_worker: StartWorker, journal: Journal):
    tasks.brief.enqueue_many([[]] * 2)

    assert start_worker("--burst", *SMALL).wait() == 0

    counts = read_totals(get_client(), ["default"])["default"]
    assert {path: each.interrupted for path, each in counts.items()} == {tasks.brief.module_path: 2}


# -- The soak ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    cluster = PostgresCluster()
    yield cluster
    cluster.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Settings of an empty database."""
    if request.param == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db"), "CONN_MAX_AGE": None}
    cluster: PostgresCluster = request.getfixturevalue("cluster")
    return cluster.make_database("soak") | {"CONN_MAX_AGE": None}


@pytest.mark.deadline(600)
@pytest.mark.parametrize(
    ("ordinary", "endless"), [(150, 4), pytest.param(1500, 30, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_ordinary_tasks_among_time_outs_do_not_fail_and_begin_again_only_when_released(
    project: Configure,
    start_worker: StartWorker,
    journal: Journal,
    database: dict[str, Any],
    ordinary: int,
    endless: int,
):
    names = [str(number) for number in range(ordinary)]
    for part in range(endless):
        for each in tasks.ENDLESS:
            each.enqueue(each.name)
        tasks.ordinary.enqueue_many([[name] for name in names[part::endless]])

    worker = start_worker(
        *("--burst", "--processes", "2", "--threads", "4", "--shutdown-timeout", "5"),
        databases=json.dumps({"default": database}),
    )

    wait_until(lambda: worker.process.poll() is not None, timeout_s=560)
    buried = [record["task"].rpartition(".")[2] for _, record in dead_letters()]
    assert sorted(buried) == sorted(each.name for each in tasks.ENDLESS for _ in range(endless))
    assert sorted(journal.names("end")) == sorted(names)
    # An interruption may lose a lock of the log: a thread that waits for it hangs until its process is replaced.
    released = sum(map(int, re.findall(r"released (\d+) messages? unfinished", worker.output)))
    assert len(journal.names("begin")) - len(names) <= released, worker.output
