"""Results: readable from any process while a task waits, fails, succeeds, and after its message was deleted."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import re
import subprocess
import sys
from datetime import datetime
from importlib import import_module
from typing import Any

import pytest
from django.utils import timezone

from rsmq_django.core.errors import BrokenQueue
from rsmq_django.queues import get_queue
from rsmq_django.tasks import Retry, TaskResultStatus, Unique, call, chain, fixed
from rsmq_django.tasks.compat import TaskResultDoesNotExist, task_backends
from rsmq_django.tasks.results import UNFINISHED_TTL_S, restored_task
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, send_raw, work


@pytest.fixture
def backend(project: Configure) -> Any:
    return task_backends["default"]


def ttl_s(server: PrivateServer, task_id: str) -> int:
    return server.redis.ttl(f"rsmq::result:{task_id}")


# -- The life of a result ------------------------------------------------------------------------------------------


def test_waiting_task_is_ready(backend):
    sent = declare(lambda number: number).enqueue(7)

    result = backend.get_result(sent.id)

    assert (result.id, result.status, result.args, result.kwargs) == (sent.id, TaskResultStatus.READY, [7], {})
    assert (result.started_at, result.finished_at, result.attempts) == (None, None, 0)
    assert abs(result.enqueued_at - timezone.now()).total_seconds() < 60
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value


@pytest.mark.parametrize(
    ("stored", "queue_name", "priority"),
    [
        ("default", "default", 0),
        ("mail", "mail", 0),
        ("mail-p5", "mail", 5),
        ("default-m7", "default", -7),
        ("another-p5", "another-p5", 0),  # no queue of the settings: nothing says that this is a priority
        ("mail-lane", "mail-lane", 0),
    ],
)
def test_task_of_a_result_has_the_queue_and_priority_with_which_it_was_sent(
    configure: Configure, stored: str, queue_name: str, priority: int
):
    configure(default={}, mail={})
    known = declare(lambda: None)

    task = restored_task(known.module_path, queue_name=stored, backend="default")

    assert (task.queue_name, task.priority, task.func) == (queue_name, priority, known.func)
    assert (task is known) is (stored == "default")


def test_task_of_a_result_with_its_own_priority_is_the_task_itself(project: Configure):
    known = declare(priority=5)(lambda: None)

    assert restored_task(known.module_path, queue_name="default-p5", backend="default") is known
    assert restored_task(known.module_path, queue_name="default", backend="default").priority == 0


def test_successful_task_has_its_value_times_and_worker(backend):
    sent = declare(lambda number: {"doubled": number * 2}).enqueue(21)
    work(worker_id="painter")

    result = backend.get_result(sent.id)

    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, {"doubled": 42})
    assert (result.worker_ids, result.attempts, result.errors) == (["painter"], 1, [])
    assert result.args == [21]
    assert in_order(result.enqueued_at, result.started_at, result.finished_at)
    assert result.started_at == result.last_attempted_at


def test_record_keeps_the_errors_of_the_first_attempt_and_of_the_last_twenty(backend, server: PrivateServer):
    attempts: list[int] = []

    def fail() -> None:
        attempts.append(len(attempts) + 1)
        raise OSError(f"attempt {attempts[-1]}")

    sent = declare(max_attempts=60, backoff=fixed(0))(fail).enqueue()

    work()

    result = backend.get_result(sent.id)
    said = [error.traceback.rstrip().rpartition(": ")[2] for error in result.errors]
    assert said == [f"attempt {number}" for number in (1, *range(41, 61))]
    assert (result.attempts, result.worker_ids[1:40]) == (60, [""] * 39)


def test_value_none_differs_from_no_value(backend):
    sent = declare(lambda: None).enqueue()
    work()

    result = backend.get_result(sent.id)

    assert result.is_finished
    assert result.return_value is None


def test_failed_attempt_is_ready_again_and_has_its_error(project: Configure, backend):
    def fail() -> None:
        raise OSError("no paint left")

    sent = declare(backoff=fixed(3600), max_attempts=2)(fail).enqueue()
    work(until_empty=False, max_tasks=1, worker_id="first")

    result = backend.get_result(sent.id)

    assert (result.status, result.worker_ids, result.finished_at) == (TaskResultStatus.READY, ["first"], None)
    (error,) = result.errors
    assert error.exception_class is OSError
    assert error.traceback.endswith("OSError: no paint left\n")
    assert re.findall(r", in (\S+)\n", error.traceback) == ["fail"]  # it begins at the task


def test_task_that_failed_for_good_has_failed_with_the_error_of_each_attempt(backend):
    attempts = []

    def fail() -> None:
        attempts.append(1)
        raise OSError(f"attempt {len(attempts)}")

    sent = declare(backoff=fixed(0), max_attempts=3)(fail).enqueue()
    work(worker_id="w")

    result = backend.get_result(sent.id)

    assert (result.status, result.worker_ids) == (TaskResultStatus.FAILED, ["w", "w", "w"])
    assert [error.traceback.splitlines()[-1] for error in result.errors] == [
        "OSError: attempt 1",
        "OSError: attempt 2",
        "OSError: attempt 3",
    ]
    assert in_order(result.started_at, result.last_attempted_at, result.finished_at)
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_refresh_brings_a_result_up_to_date(backend):
    result = declare(lambda: "done").enqueue()
    work()

    result.refresh()

    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, "done")


async def test_async_twins_read_the_same(backend):
    sent = await declare(lambda: None).aenqueue()

    result = await backend.aget_result(sent.id)
    await sent.arefresh()

    assert (result.id, result.status) == (sent.id, TaskResultStatus.READY)
    assert sent.status == TaskResultStatus.READY
    with pytest.raises(TaskResultDoesNotExist):
        await backend.aget_result("unknown")


def in_order(*times: datetime) -> bool:
    return list(times) == sorted(times)


# -- Anybody can read it -------------------------------------------------------------------------------------------

READ_IN_ANOTHER_PROCESS = """
import django, sys
django.setup()
from rsmq_django.tasks.compat import task_backends
result = task_backends["default"].get_result(sys.argv[1])
print(result.status, result.return_value, result.task.module_path)
"""


def test_another_process_reads_the_value(server: PrivateServer, backend):
    sent = declare(lambda: "from here").enqueue()
    work()

    other = subprocess.run(
        [sys.executable, "-c", READ_IN_ANOTHER_PROCESS, sent.id],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "RSMQ_TEST_URL": server.url},
        capture_output=True,
        text=True,
        timeout=180,
    )

    assert other.stdout.strip() == f"SUCCESSFUL from here {sent.task.module_path}", other.stderr


def test_record_is_plain_enough_for_programs_in_other_languages(server: PrivateServer, backend):
    sent = declare(lambda: [1, "two"]).enqueue()
    work(worker_id="w")

    record = server.redis.hgetall(f"rsmq::result:{sent.id}")

    assert (record[b"status"], record[b"queue"], record[b"value"]) == (b"SUCCESSFUL", b"default", b'[1, "two"]')
    assert record[b"worker:1"] == b"w"
    assert record[b"message"].decode().endswith(sent.id)


def test_errors_of_another_program_without_an_attempt_are_left_out(server: PrivateServer, backend):
    sent = declare(max_attempts=1)(lambda: 1 / 0).enqueue()
    work()
    server.redis.hset(f"rsmq::result:{sent.id}", mapping={"error:": "x", "error:last": "x", "worker:1e3": "x"})

    result = backend.get_result(sent.id)

    assert [error.exception_class for error in result.errors] == [ZeroDivisionError]


@pytest.mark.parametrize("settlement", ["returns", "is tried again", "dies"])
def test_result_key_of_another_type_does_not_block_settlements(server: PrivateServer, backend, settlement: str):
    runs: list[int] = []

    def run(number: int) -> int:
        runs.append(number)
        if number == 1 and (settlement == "dies" or (settlement == "is tried again" and runs.count(1) == 1)):
            raise OSError
        return number

    sent = declare(max_attempts=1 if settlement == "dies" else 2, backoff=fixed(0))(run).enqueue_many([[0], [1], [2]])
    foreign = f"rsmq::result:{sent[1]}"
    server.redis.delete(foreign)
    server.redis.set(foreign, "of another program")

    assert work(threads=1)

    assert (server.redis.get(foreign), server.redis.ttl(foreign)) == (b"of another program", -1)
    assert [backend.get_result(sent[number]).return_value for number in (0, 2)] == [0, 2]
    assert sorted(set(runs)) == [0, 1, 2]
    assert get_queue("default").attributes().messages == 0
    with pytest.raises(BrokenQueue):
        backend.get_result(sent[1])


def test_message_written_by_hand_has_a_result_under_its_own_id(backend):
    path = declare(lambda: "done").module_path
    message_id = send_raw(f'{{"task": "{path}"}}')
    work()

    result = backend.get_result(message_id)

    assert (result.id, result.return_value) == (message_id, "done")


def test_result_on_another_connection_is_found(settings, redis_url):
    settings.RSMQ = {
        "CONNECTIONS": {
            "default": {"URL": redis_url, "TIMEOUT_S": 15},
            "far": {"URL": redis_url, "TIMEOUT_S": 15, "NAMESPACE": "far"},
        },
        "QUEUES": {"default": {}, "distant": {"CONNECTION": "far"}},
        "TASKS": {"ENQUEUE_ON_COMMIT": False},
    }
    sent = declare(lambda: "far away").using(queue_name="distant").enqueue()
    work()

    sent.refresh()

    assert sent.return_value == "far away"


# -- What is gone --------------------------------------------------------------------------------------------------


def test_unknown_id_is_named(backend):
    with pytest.raises(TaskResultDoesNotExist, match="no result 'nobody'"):
        backend.get_result("nobody")


@pytest.mark.parametrize("wrong", [7, None, b"0123", ["0123"], "\ud800", "a\0b"])
def test_what_cannot_be_an_id_is_a_result_that_does_not_exist(backend, wrong: Any):
    with pytest.raises(TaskResultDoesNotExist, match="an id is a text of printable characters"):
        backend.get_result(wrong)
    with pytest.raises(TaskResultDoesNotExist, match="an id is a text of printable characters"):
        asyncio.run(backend.aget_result(wrong))
    with pytest.raises(TaskResultDoesNotExist, match="an id is a text of printable characters"):
        declare(lambda: None).get_result(wrong)


@pytest.mark.parametrize("value", ["no JSON", "{", "[" * 100_000, "", "NaN-", "\ud800"])
def test_value_that_is_not_json_is_a_result_that_does_not_exist(server: PrivateServer, backend, value: str):
    damaged = declare(lambda: 1).enqueue()
    work()
    server.redis.hset(f"rsmq::result:{damaged.id}", "value", value.encode("utf-8", "surrogatepass"))

    with pytest.raises(TaskResultDoesNotExist, match="is not readable"):
        backend.get_result(damaged.id)


def test_finished_result_is_kept_for_the_time_to_live_of_its_task(server: PrivateServer, backend):
    kept = declare(result_ttl_s=60)(lambda: None).enqueue()
    assert ttl_s(server, kept.id) > UNFINISHED_TTL_S - 60  # waiting is no reason to be forgotten

    work()

    assert 0 < ttl_s(server, kept.id) <= 60


def test_finished_result_is_kept_as_long_as_the_settings_say(settings, server: PrivateServer, backend):
    settings.RSMQ = {**settings.RSMQ, "TASKS": {"ENQUEUE_ON_COMMIT": False, "RESULT_TTL_S": 500}}
    kept = declare(lambda: None).enqueue()

    work()

    assert 60 < ttl_s(server, kept.id) <= 500


def test_task_without_results_leaves_nothing_behind(server: PrivateServer, backend):
    done = declare(result_ttl_s=0)(lambda: None).enqueue()
    with pytest.raises(TaskResultDoesNotExist):
        backend.get_result(done.id)

    work()

    assert [key for key in server.redis.keys("rsmq::*") if not key.startswith((b"rsmq::stats", b"rsmq::events"))] == []


def test_result_of_a_task_that_is_not_declared_any_more_can_still_be_read(monkeypatch, backend):
    def gone(number: int) -> int:
        return number

    sent = declare(gone).enqueue(7)
    work()
    monkeypatch.setattr(import_module("rsmq_django.tasks.task"), "_tasks", {})

    result = backend.get_result(sent.id)

    assert (result.return_value, result.args) == (7, [7])
    assert result.task.module_path == "tests.tasks.test_results.gone"
    with pytest.raises(LookupError, match=r"tests\.tasks\.test_results\.gone is not declared"):
        result.task.call()


def test_result_of_a_purged_message_can_still_be_read(backend):
    sent = declare(lambda: None).enqueue()
    get_queue("default").pop()

    result = backend.get_result(sent.id)

    assert (result.id, result.status) == (sent.id, TaskResultStatus.READY)


def test_result_of_a_task_sent_elsewhere_names_that_queue(project: Configure):
    project(default={}, mail={})
    declared = declare(lambda: None)
    sent = declared.using(queue_name="mail").enqueue()

    result = declared.get_result(sent.id)

    assert (result.task.queue_name, result.task.func) == ("mail", declared.func)


def test_asking_to_be_run_again_counts_as_an_attempt_with_an_error(backend):
    calls = []

    def impatient() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise Retry("not yet", after_s=0)
        return "now"

    sent = declare(impatient).enqueue()
    work()

    sent.refresh()

    assert (sent.return_value, sent.attempts) == ("now", 2)
    assert sent.errors[0].exception_class is Retry


# -- Calls that are due in a long time --------------------------------------------------------------------------------

IN_A_MONTH = dt.timedelta(days=30)


def record_lives_s(server: PrivateServer, task_id: str) -> int:
    return server.redis.ttl(f"rsmq::result:{task_id}")


def test_record_of_a_call_is_kept_longer_than_the_call_waits(server: PrivateServer, backend):
    later = declare(lambda number: number).using(run_after=IN_A_MONTH)

    ids = [later.enqueue(1).id, *later.enqueue_many([[2], [3]])]

    assert all(record_lives_s(server, task_id) > 36 * 86_400 for task_id in ids)
    assert record_lives_s(server, declare(lambda: None).enqueue().id) <= 7 * 86_400


def test_record_of_a_call_is_kept_longer_than_the_delay_of_its_queue(project: Configure, server: PrivateServer):
    project(default={"DELAY_S": 30 * 86_400})

    result = declare(lambda: None).enqueue()

    assert record_lives_s(server, result.id) > 36 * 86_400


def test_records_of_a_unique_call_and_of_its_dropped_duplicates_are_kept_equally_long(server: PrivateServer, backend):
    later = declare(unique=Unique())(lambda number: number).using(run_after=IN_A_MONTH)

    first = later.enqueue(1)
    (dropped,) = later.enqueue_many([[1]])

    assert record_lives_s(server, first.id) > 36 * 86_400
    assert record_lives_s(server, dropped) > 36 * 86_400


def test_record_of_a_replaced_call_is_kept_as_long_as_that_of_its_replacement(server: PrivateServer, backend):
    task = declare(unique=Unique(mode="replace"))(lambda number: number)
    first = task.enqueue(1)

    task.using(run_after=IN_A_MONTH).enqueue(1)

    assert record_lives_s(server, first.id) > 36 * 86_400


def test_record_of_a_step_that_is_due_in_a_long_time_is_kept_until_then(server: PrivateServer, backend):
    first, second = declare(named(lambda: 1, "first")), declare(named(lambda number: number, "second"))
    chain(call(first), call(second.using(run_after=IN_A_MONTH))).enqueue()

    work(until_empty=False, until_drained=True)

    records = {key: server.redis.hget(key, "status") for key in server.redis.keys("rsmq::result:*")}
    (waiting,) = [key for key, status in records.items() if status == b"READY"]
    assert server.redis.ttl(waiting) > 36 * 86_400


def test_tag_finds_a_call_for_as_long_as_it_waits(server: PrivateServer, backend):
    task = declare(tags=["tour"])(lambda: None)

    task.using(run_after=dt.timedelta(days=100)).enqueue()
    task.enqueue()

    assert server.redis.ttl("rsmq::tag:tour") > 180 * 86_400


def named(function: Any, name: str) -> Any:
    function.__name__ = name
    return function
