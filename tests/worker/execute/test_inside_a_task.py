"""What a task can ask and do while it runs: its id and attempt, progress, a longer lease, a log, running later."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from rsmq_django.core.transport.call import load_script
from rsmq_django.queues import get_queue
from rsmq_django.tasks import Postpone, Task, TaskContext, current_task, progress_of
from rsmq_django.tasks.compat import TaskResultStatus
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until
from tests.worker.workshop import (
    Configure,
    dead_letters,
    declare,
    let_leases_be_renewed,
    the_dead_letter,
    until,
    work,
    working,
)


def hidden_for_s(server: PrivateServer, queue_name: str = "default") -> float:
    ((_, visible_ms),) = server.redis.zrange(f"rsmq:{queue_name}", 0, -1, withscores=True)
    seconds, microseconds = server.redis.time()
    return float(visible_ms / 1000 - seconds - microseconds / 1e6)


def test_a_task_has_the_same_id_in_all_its_attempts(project: Configure):
    seen: list[tuple[str, int]] = []

    def unlucky() -> None:
        seen.append((current_task().id, current_task().attempt))
        raise ValueError

    result = declare(max_attempts=2, backoff=lambda attempt: 0)(unlucky).enqueue()

    work()

    assert seen == [(result.id, 1), (result.id, 2)]


def test_outside_of_a_task_there_is_no_current_task():
    with pytest.raises(RuntimeError, match="no task runs here"):
        current_task()


# -- Progress --------------------------------------------------------------------------------------------------------


def test_progress_can_be_read_while_the_task_runs_and_afterwards(project: Configure):
    said, go_on = threading.Event(), threading.Event()

    def count(context: TaskContext) -> None:
        assert context.progress(3, 10, "three of ten")
        said.set()
        assert go_on.wait(60)

    result = declare(takes_context=True)(count).enqueue()
    assert progress_of(result.id) is None
    with working():
        assert said.wait(60)
        progress = progress_of(result.id)
        go_on.set()
    assert progress is not None
    assert (progress.done, progress.total, progress.note) == (3, 10, "three of ten")
    assert progress.at is not None


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_progress_never_costs_the_run_when_redis_does_not_answer(
    configure: Configure, server: PrivateServer, is_async: bool
):
    seen: list[bool] = []
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)

        def run() -> str:
            proxy.black_hole()
            seen.extend(current_task().progress(number, 100) for number in range(100))
            proxy.release()
            return "done"

        async def arun() -> str:
            proxy.black_hole()
            seen.extend([await current_task().aprogress(number, 100) for number in range(100)])
            proxy.release()
            return "done"

        result = declare(max_attempts=1)(arun if is_async else run).enqueue()
        configure(url=proxy.url, timeout_s=2)  # that long it waits once for a reply that does not come
        with working():
            wait_until(lambda: seen and server.redis.zcard("rsmq:default") == 0)

        result.refresh()

    assert seen == [True] * 100, "the lease is not lost"
    assert (result.status, result.return_value) == ("SUCCESSFUL", "done")
    assert proxy.times_seen(load_script("tasks/worker/check_in").sha1.encode()) <= 2, "it is not tried a hundred times"


def test_progress_of_a_task_without_a_result_goes_nowhere(project: Configure, server: PrivateServer):
    said: list[bool] = []
    result = declare(result_ttl_s=0)(lambda: said.append(current_task().progress(1))).enqueue()

    work()

    assert said == [True]
    assert progress_of(result.id) is None


def test_a_task_that_lost_its_lease_learns_it_when_it_checks_in(project: Configure):
    answers: list[bool] = []

    def slow() -> None:
        if current_task().attempt == 1:
            queue = get_queue("default")
            pass_time(queue, seconds=1000)
            message = queue.receive()  # by somebody else
            answers.append(current_task().progress(1))
            assert message is not None
            queue.delete(message)

    declare(slow).enqueue()

    work()

    assert answers == [False]


async def test_a_coroutine_checks_in_too(project: Configure):
    async def count() -> None:
        assert await current_task().aprogress(1, 2)
        assert await current_task().aextend(10)

    result = declare(count).enqueue()

    work_done = threading.Event()
    with working():
        wait_until(lambda: count_ended(result))
        work_done.set()

    progress = progress_of(result.id)
    assert progress is not None and progress.done == 1


def count_ended(result: Any) -> bool:
    result.refresh()
    return bool(result.status is TaskResultStatus.SUCCESSFUL)


# -- A longer lease --------------------------------------------------------------------------------------------------


def test_a_lease_can_be_made_longer_and_renewals_do_not_shorten_it(project: Configure, server: PrivateServer):
    extended, go_on = threading.Event(), threading.Event()

    def long_outside() -> None:
        assert current_task().extend(600)
        extended.set()
        assert go_on.wait(60)

    declare(long_outside).enqueue()
    with working() as worker:
        assert extended.wait(60)
        for _ in range(3):
            let_leases_be_renewed(worker)
            assert hidden_for_s(server) > 500
        go_on.set()


# -- Running later ---------------------------------------------------------------------------------------------------


def test_a_postponed_task_runs_later_and_its_attempts_do_not_count(project: Configure, server: PrivateServer):
    attempts: list[int] = []

    def not_yet() -> str:
        attempts.append(current_task().attempt)
        if len(attempts) < 4:
            raise Postpone(after_s=60, why="the partner is closed")
        return "done"

    task: Task[..., Any] = declare(max_attempts=1)(not_yet)
    result = task.enqueue()
    for run in range(3):
        with working():
            wait_until(lambda: len(attempts) == run + 1)  # noqa: B023
            wait_until(lambda: hidden_for_s(server) > 31)
        assert task.get_result(result.id).status is TaskResultStatus.READY
        pass_time(get_queue("default"), seconds=61)

    work()

    assert attempts == [1, 1, 1, 1]
    assert task.get_result(result.id).return_value == "done"
    assert dead_letters() == []


@pytest.mark.parametrize("after_s", ["x", None, True])
def test_postponement_by_a_value_that_is_not_a_number_reports_the_allowed_values(after_s: Any):
    with pytest.raises(TypeError, match="after_s of Postpone is .* such as Postpone"):
        Postpone(after_s)


def test_failures_count_after_a_postponement(project: Configure):
    attempts: list[int] = []

    def mixed() -> None:
        attempts.append(current_task().attempt)
        if len(attempts) == 1:
            raise Postpone(after_s=0)
        raise ValueError

    declare(max_attempts=2, backoff=lambda attempt: 0)(mixed).enqueue()

    work()

    assert attempts == [1, 1, 2]
    assert the_dead_letter()[1]["attempts"] == 2


# -- Its log ---------------------------------------------------------------------------------------------------------


def test_records_of_a_task_logger_have_the_task(project: Configure, caplog: pytest.LogCaptureFixture):
    def talkative() -> None:
        current_task().logger.warning("half way", extra={"order": 7})

    result = declare(talkative).enqueue()

    with caplog.at_level(logging.INFO):
        work()

    (record,) = [record for record in caplog.records if record.getMessage() == "half way"]
    assert (record.rsmq_task_id, record.rsmq_attempt, record.order) == (result.id, 1, 7)  # type: ignore[attr-defined]
    assert record.name == "tests.worker.execute.test_inside_a_task"


async def test_a_waiting_coroutine_is_left_alone(project: Configure):
    """Two coroutines at once have each their own run."""
    ids: list[tuple[str, str]] = []
    both = threading.Barrier(2, timeout=60)
    begun = threading.Event()

    async def who() -> None:
        before = current_task().id
        begun.set()
        await until(begun)
        ids.append((before, current_task().id))

    results = [declare(who).enqueue() for _ in range(2)]
    assert both.parties == 2
    with working():
        wait_until(lambda: len(ids) == 2)

    assert sorted(ids) == sorted((result.id, result.id) for result in results)
