"""Waiting for the end of tasks: woken by it, or by a look now and then."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.db.transaction import TransactionManagementError

from rsmq_django.core.queue.retry_plans import begin, each_part, go_on, read_plan, return_part
from rsmq_django.queues import ensure_queue, get_client
from rsmq_django.tasks import Retry, Unique, cancel, fixed, waiting
from rsmq_django.tasks.compat import TaskResultDoesNotExist, TaskResultStatus, task_backends
from rsmq_django.tasks.results import await_end, read_body
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.tasks.test_backend_options import configure_backend
from tests.worker.workshop import Configure, declare, work, working

#: Longer than any wait of these tests, and shorter than their deadline.
LONG_S = 60


@pytest.fixture(autouse=True)
def no_subscription_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(waiting, "LINGER_S", 0.0)
    monkeypatch.setattr(waiting, "LOOK_S", 0.02)
    yield
    wait_until(lambda: not threads())
    waiting._own.by_client.clear()


@pytest.fixture
def only_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look at the record ends a wait in time once the process is noted."""
    monkeypatch.setattr(waiting, "NOTED_WAIT_S", 3600.0)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps of all waits: "noted" and "pause"."""
    steps: list[str] = []
    pause_s = waiting._Waiting.pause_s

    def noting(*given: Any) -> Any:
        steps.append("noted")
        return await_end(*given)

    def pausing(wait: waiting._Waiting) -> float:
        steps.append("pause")
        return pause_s(wait)

    monkeypatch.setattr(waiting, "await_end", noting)
    monkeypatch.setattr(waiting._Waiting, "pause_s", pausing)
    return steps


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "rsmq-ends-of-tasks"]


def noted(server: PrivateServer, task_id: str) -> bool:
    return bool(server.redis.hexists(f"rsmq::result:{task_id}", "awaited_by"))


def in_thread(function: Any) -> Any:
    executor = ThreadPoolExecutor(1, thread_name_prefix="waits-in-a-test")
    future = executor.submit(function)
    executor.shutdown(wait=False)
    return future


@pytest.mark.usefixtures("only_news")
def test_the_end_of_a_task_wakes_who_waits(project: Configure, server: PrivateServer):
    @declare
    def add(a: int, b: int) -> int:
        return a + b

    results = [add.enqueue(number, 1) for number in range(3)]
    waits = [in_thread(lambda result=result: result.wait(LONG_S)) for result in [*results, *results]]
    wait_until(lambda: all(noted(server, result.id) for result in results))
    assert len(threads()) == 1, "one subscription for all"
    work()

    assert [each.result(LONG_S).return_value for each in waits] == [1, 2, 3] * 2


def test_a_process_is_noted_once_however_often_it_looks(
    project: Configure, steps: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(waiting, "NOTED_WAIT_S", 0.01)
    result = declare(lambda: 7).enqueue()
    wait = in_thread(lambda: result.wait(LONG_S))
    wait_until(lambda: "noted" in steps and steps[steps.index("noted") :].count("pause") >= 5)
    work()

    assert wait.result(LONG_S).return_value == 7
    assert steps.count("noted") == 1


@pytest.mark.usefixtures("only_news")
async def test_the_end_of_a_task_wakes_coroutines(project: Configure, server: PrivateServer):
    @declare
    async def add(a: int, b: int) -> int:
        return a + b

    results = [await add.aenqueue(number, 1) for number in range(3)]
    waits = [asyncio.ensure_future(result.await_end(LONG_S)) for result in results]
    await asyncio.to_thread(wait_until, lambda: all(noted(server, result.id) for result in results))
    await asyncio.to_thread(work)

    assert [(await each).return_value for each in waits] == [1, 2, 3]


@pytest.mark.usefixtures("only_news")
def test_a_failure_a_cancellation_and_a_last_attempt_are_ends(project: Configure, server: PrivateServer):
    attempts: list[int] = []

    @declare(max_attempts=1)
    def fail() -> None:
        raise ValueError("no")

    @declare
    def again() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise Retry(after_s=0)
        return "done"

    results = [fail.enqueue(), again.enqueue(), fail.enqueue()]
    waits = [in_thread(lambda result=result: result.wait(LONG_S)) for result in results]
    wait_until(lambda: all(noted(server, result.id) for result in results))
    cancel(results[2].id)
    assert waits[2].result(LONG_S).status == TaskResultStatus.FAILED
    work()

    assert waits[0].result(LONG_S).errors[0].exception_class is ValueError
    assert (waits[1].result(LONG_S).return_value, len(attempts)) == ("done", 3)


def test_a_task_that_has_ended_is_not_waited_for(project: Configure):
    @declare
    def add() -> int:
        return 7

    result = add.enqueue()
    work()
    assert result.wait(0).return_value == 7
    assert not threads()


def test_nobody_is_told_of_a_task_that_nobody_waits_for(project: Configure, server: PrivateServer):
    result = declare(lambda: None).enqueue()
    with server.redis.monitor() as monitor:
        work()
        server.redis.echo("over")
        commands = []
        for command in monitor.listen():
            commands.append(command["command"])
            if command["command"] == "ECHO over":
                break
    assert not [each for each in commands if each.startswith("PUBLISH") and "ended" in each]
    assert any(result.id in each for each in commands)


def test_the_time_is_over(project: Configure):
    result = declare(lambda: None).enqueue()
    with pytest.raises(
        TimeoutError,
        match=rf"has not ended within 0\.1 s, its status is READY; manage.py rsmq_doctor says whether a worker "
        rf"consumes queue 'default'; waiting has stopped nothing \[{result.id}\]",
    ):
        result.wait(0.1)
    with pytest.raises(TimeoutError, match="within 0 s"):
        asyncio.run(result.await_end(0))


def test_the_time_is_over_before_the_next_attempt(project: Configure):
    result = declare(backoff=fixed(600))(lambda: 1 // 0).enqueue()
    work(until_empty=False, until_drained=True)
    with pytest.raises(TimeoutError, match="READY; attempt 1 failed with ZeroDivisionError, and another one follows;"):
        result.wait(0)


@pytest.mark.parametrize("wrong", [None, -1, True, "5"])
def test_a_wrong_time_is_refused(project: Configure, wrong: Any):
    with pytest.raises(ValueError, match="timeout_s is .*; it must be a number of seconds from 0"):
        declare(lambda: None).enqueue().wait(wrong)


async def test_a_coroutine_is_told_to_await_the_end(project: Configure):
    result = await declare(lambda: None).aenqueue()
    with pytest.raises(SynchronousOnlyOperation, match=r"use await result\.await_end\(timeout_s\)"):
        result.wait(LONG_S)


def test_a_result_that_is_not_kept_cannot_be_waited_for(project: Configure, settings: Any):
    with pytest.raises(TaskResultDoesNotExist, match=r"keeps no results, so nobody can wait .*: result_ttl_s is 0\."):
        declare(result_ttl_s=0)(lambda: None).enqueue().wait(LONG_S)
    settings.RSMQ = settings.RSMQ | {"TASKS": {"ENQUEUE_ON_COMMIT": False, "RESULT_TTL_S": 0}}
    with pytest.raises(TaskResultDoesNotExist, match=r'RSMQ\["TASKS"\]\["RESULT_TTL_S"\] is 0\.'):
        asyncio.run(declare(lambda: None).enqueue().await_end(LONG_S))


def test_a_result_that_expires_meanwhile_ends_the_wait(
    project: Configure, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(waiting, "NOTED_WAIT_S", 0.1)
    result = declare(lambda: None).enqueue()
    wait = in_thread(lambda: result.wait(LONG_S))
    wait_until(lambda: noted(server, result.id))
    server.redis.delete(f"rsmq::result:{result.id}")
    with pytest.raises(TaskResultDoesNotExist, match="its time to live is over"):
        wait.result(LONG_S)


@pytest.mark.usefixtures("only_news")
def test_a_dropped_call_of_a_unique_task_waits_for_the_one_that_runs(project: Configure, server: PrivateServer):
    def seven() -> int:
        return 7

    task = declare(unique=Unique())(seven)
    first, dropped = task.enqueue(), task.enqueue()
    server.redis.hset("rsmq::result:burst", mapping={"status": "DUPLICATE", "of": first.id})
    server.redis.hset("rsmq::result:bursts", mapping={"status": "DUPLICATE", "of": "burst"})
    object.__setattr__(dropped, "id", "bursts")  # as after a commit in another process
    wait = in_thread(lambda: dropped.wait(LONG_S))
    wait_until(lambda: noted(server, first.id))
    assert not noted(server, "burst") and not noted(server, "bursts")
    work()
    assert wait.result(LONG_S).return_value == 7


@pytest.mark.usefixtures("only_news")
def test_who_waits_for_a_replaced_call_is_woken_by_the_end_of_the_new_one(project: Configure, server: PrivateServer):
    task = declare(unique=Unique(mode="replace", by=[]))(lambda number: number)
    result = task.enqueue(1)
    wait = in_thread(lambda: result.wait(LONG_S))
    wait_until(lambda: noted(server, result.id))

    last = [task.enqueue(number) for number in (2, 3)][-1]
    wait_until(lambda: noted(server, last.id))
    work()

    assert wait.result(LONG_S).return_value == 3


def test_result_of_a_call_that_is_replaced_while_it_is_read_is_that_of_the_new_call(
    project: Configure, monkeypatch: pytest.MonkeyPatch
):
    task = declare(unique=Unique(mode="replace", by=[]))(lambda number: number)
    first = task.enqueue(1)

    def replace_first(*args: Any) -> Any:
        monkeypatch.setattr("rsmq_django.tasks.backend.read_body", read_body)
        task.enqueue(2)
        return read_body(*args)

    monkeypatch.setattr("rsmq_django.tasks.backend.read_body", replace_first)

    assert task.get_result(first.id).args == [2]


def test_a_dead_letter_that_is_put_back_is_an_end(project: Configure, server: PrivateServer):
    @declare(max_attempts=1)
    def fail() -> None:
        raise ValueError("no")

    results = [fail.enqueue(), fail.enqueue()]  # the first is due at once
    work()
    dead = ensure_queue("default-dead")
    plan_id = begin(dead.client, "default-dead", rate=0.001, to_look_at=10)
    assert list(go_on(dead.client, plan_id, lambda message: True))
    subscriber = server.redis.pubsub(ignore_subscribe_messages=True)
    subscriber.subscribe("rsmq::ended:w1")
    assert all(dead.client.run(await_end("rsmq", result.id, "w1")) for result in results)
    plan = read_plan(dead.client, plan_id)
    assert plan is not None and sum(each_part(return_part, dead.client, plan)) == 1
    ended = wait_until(lambda: subscriber.get_message(timeout=0.1))
    subscriber.close()
    assert ended["data"].decode() == results[1].id


def test_a_process_that_may_start_no_thread_looks_at_the_record(project: Configure, monkeypatch: pytest.MonkeyPatch):
    def refuse(self: threading.Thread) -> None:
        if self.name == "rsmq-ends-of-tasks":
            raise RuntimeError("can't start new thread")
        start(self)

    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", refuse)
    result = declare(lambda: None).enqueue()
    with working():
        assert result.wait(LONG_S).status == TaskResultStatus.SUCCESSFUL


@pytest.mark.django_db(transaction=True)
def test_a_call_that_waits_for_the_commit_cannot_end_before(configure: Configure):
    configure(on_commit=True)

    def nothing() -> None: ...

    with transaction.atomic():
        result = declare(nothing).enqueue()
        with pytest.raises(TransactionManagementError, match="wait after the block"):
            result.wait(LONG_S)
    work()
    assert result.wait(LONG_S).status == TaskResultStatus.SUCCESSFUL
    with transaction.atomic():
        assert result.wait(LONG_S).status == TaskResultStatus.SUCCESSFUL


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("of_backend", [True, False])
def test_the_backend_decides_whether_a_call_waits_for_the_commit(
    configure: Configure, server: PrivateServer, settings: Any, of_backend: bool
):
    configure(on_commit=not of_backend)
    configure_backend(settings, default={"enqueue_on_commit": of_backend})
    error = TransactionManagementError if of_backend else TaskResultDoesNotExist

    with transaction.atomic():
        result = declare(lambda: None).enqueue()
        server.redis.delete(f"rsmq::result:{result.id}")
        with pytest.raises(error):
            result.wait(LONG_S)


@pytest.mark.usefixtures("only_news")
def test_without_a_subscription_the_record_is_looked_at(
    project: Configure, steps: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def refuse(*_: object) -> None:
        raise OSError("no permission for the channel")

    monkeypatch.setattr(type(get_client().connection), "subscriber", refuse)
    monkeypatch.setattr(waiting, "AGAIN_S", 0.05)

    def seven() -> int:
        return 7

    result = declare(seven).enqueue()
    wait = in_thread(lambda: result.wait(LONG_S))
    wait_until(lambda: steps)
    work()

    assert wait.result(LONG_S).return_value == 7
    assert "noted" not in steps
    wait_until(lambda: not threads())
    said = [record.levelname for record in caplog.records if "no permission for the channel" in record.getMessage()]
    assert said.count("WARNING") == 1


@pytest.mark.usefixtures("only_news")
def test_a_broken_subscription_is_made_anew(project: Configure, server: PrivateServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(waiting, "AGAIN_S", 0.05)
    result = declare(lambda: None).enqueue()
    wait = in_thread(lambda: result.wait(LONG_S))
    wait_until(lambda: noted(server, result.id))

    def subscriptions() -> set[str]:
        return {each["id"] for each in server.redis.client_list(_type="pubsub")}

    broken = subscriptions()
    server.redis.client_kill_filter(_type="pubsub")
    wait_until(lambda: subscriptions() - broken)
    work()
    assert wait.result(LONG_S).status == TaskResultStatus.SUCCESSFUL


@pytest.mark.usefixtures("only_news")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_child_process_has_a_subscription_of_its_own(project: Configure, server: PrivateServer):
    def seven() -> int:
        return 7

    task = declare(seven)
    first, second = task.enqueue(), task.enqueue()
    wait = in_thread(lambda: first.wait(LONG_S))
    wait_until(lambda: noted(server, first.id))
    child = os.fork()
    if child == 0:
        os._exit(second.wait(LONG_S).return_value)
    wait_until(lambda: noted(server, second.id))
    work()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert wait.result(LONG_S).return_value == 7


@pytest.mark.usefixtures("only_news")
def test_a_result_of_another_process_is_found_by_its_id(project: Configure, server: PrivateServer):
    def seven() -> int:
        return 7

    result_id = declare(seven).enqueue().id
    found: Any = task_backends["default"].get_result(result_id)
    wait = in_thread(lambda: found.wait(LONG_S))
    wait_until(lambda: noted(server, result_id))
    work()
    assert wait.result(LONG_S).return_value == 7


@pytest.mark.usefixtures("only_news")
def test_calls_in_shards_are_waited_for(configure: Configure, server: PrivateServer):
    configure(spread={"SHARDS": 4})

    def number(value: int) -> int:
        return value

    results = [declare(queue_name="spread")(number).enqueue(value) for value in range(6)]
    waits = [in_thread(lambda result=result: result.wait(LONG_S)) for result in results]
    wait_until(lambda: sum(len(server.redis.keys("*::result:*")) for _ in (1,)) == 6)
    with working():
        assert [each.result(LONG_S).return_value for each in waits] == list(range(6))


def test_more_processes_than_a_record_can_note_look_at_it(project: Configure, server: PrivateServer):
    result = declare(lambda: None).enqueue()
    server.redis.hset(f"rsmq::result:{result.id}", "awaited_by", "x" * 400)
    with working():
        assert result.wait(LONG_S).status == TaskResultStatus.SUCCESSFUL
