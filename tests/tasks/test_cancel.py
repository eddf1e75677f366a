"""A waiting task is cancelled: its message and arguments are deleted, and its result is cancelled."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.core.management import CommandError, call_command

from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.tasks import TaskCancelled, Unique, acancel, cancel, fixed
from rsmq_django.tasks.compat import TaskResultDoesNotExist
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, work

_READ: dict[bytes, Callable[[redis.Redis, bytes], object]] = {
    b"string": redis.Redis.get,
    b"hash": redis.Redis.hgetall,
    b"list": lambda server, key: server.lrange(key, 0, -1),
    b"set": redis.Redis.smembers,
    b"zset": lambda server, key: server.zrange(key, 0, -1, withscores=True),
    b"stream": redis.Redis.xrange,
}


def everything_in(server: PrivateServer) -> bytes:
    """Return all that the server stores, as one text to search in. DUMP would not do: it compresses."""
    return repr([(key, _READ[server.redis.type(key)](server.redis, key)) for key in server.redis.keys("*")]).encode()


@pytest.mark.parametrize("delay", [None, dt.timedelta(hours=1)], ids=["ready", "delayed"])
def test_cancelled_waiting_task_never_runs_and_its_arguments_are_deleted(
    project: Configure, server: PrivateServer, delay: dt.timedelta | None
):
    runs: list[str] = []
    declared = declare(lambda secret: runs.append(secret))
    result = declared.using(run_after=delay).enqueue("the-secret-word")
    assert b"the-secret-word" in everything_in(server)

    assert cancel(result.id)

    assert b"the-secret-word" not in everything_in(server)
    work()
    assert runs == []
    assert get_queue("default").attributes().messages == 0


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_dropped_calls_that_name_each_other_are_not_followed_for_ever(
    project: Configure, server: PrivateServer, is_async: bool
):
    server.redis.hset("rsmq::result:one", "of", "other")
    server.redis.hset("rsmq::result:other", "of", "one")

    done = await acancel("one") if is_async else cancel("one")

    assert not done


@pytest.mark.parametrize("field", [None, ""], ids=["missing", "empty"])
def test_record_without_the_id_of_its_message_is_not_cancelled(
    project: Configure, server: PrivateServer, field: str | None
):
    result = declare(lambda number: None).enqueue(7)
    if field is None:
        server.redis.hdel(f"rsmq::result:{result.id}", "message")
    else:
        server.redis.hset(f"rsmq::result:{result.id}", "message", field)

    assert not cancel(result.id)

    assert get_queue("default").attributes().messages == 1


def test_result_of_a_cancelled_task_has_the_cancellation(project: Configure):
    declared = declare(lambda number: None)
    result = declared.enqueue(7)

    cancel(result.id)

    result = declared.get_result(result.id)
    assert (result.status, result.is_finished, result.args) == ("FAILED", True, [])
    assert result.task.module_path == declared.module_path
    (error,) = result.errors
    assert error.exception_class is TaskCancelled
    assert error.traceback == "the task was cancelled"
    assert result.finished_at is not None


def test_task_that_waits_for_its_next_attempt_keeps_the_error_of_the_last_one(project: Configure):
    def fail() -> None:
        raise OSError

    result = declare(max_attempts=3, backoff=fixed(3600))(fail).enqueue()
    work(until_empty=False, until_drained=True)

    assert cancel(result.id)

    result.refresh()
    assert [error.exception_class for error in result.errors] == [OSError, TaskCancelled]
    assert get_queue("default").attributes().messages == 0


async def test_cancelling_on_the_event_loop(project: Configure):
    declared = declare(lambda: None)
    result = await declared.aenqueue()
    silent = await declare(result_ttl_s=0)(_named("silent")).aenqueue()

    assert await acancel(result.id)
    assert await acancel(silent.id)

    await result.arefresh()
    assert result.status == "FAILED"
    with pytest.raises(TaskResultDoesNotExist):
        await acancel("nobody")


def _named(name: str) -> Any:
    def function() -> None: ...

    function.__name__ = name
    return function


def test_task_that_has_finished_cannot_be_cancelled(project: Configure):
    succeeded = declare(lambda: 1).enqueue()

    def fail() -> None:
        raise OSError

    failed = declare(max_attempts=1)(fail).enqueue()
    work()

    assert not cancel(succeeded.id)
    assert not cancel(failed.id)
    succeeded.refresh()
    assert (succeeded.status, succeeded.return_value) == ("SUCCESSFUL", 1)
    assert get_queue("default-dead").attributes().messages == 1


def test_second_cancellation_is_too_late(project: Configure):
    result = declare(lambda: None).enqueue()

    assert cancel(result.id)
    assert not cancel(result.id)


def test_task_without_a_result_record_is_found_among_others(project: Configure):
    project(default={}, mail={})
    declared = declare(result_ttl_s=0)(_named("silent"))
    declared.enqueue_many([[]] * 2000)
    result = declared.using(queue_name="mail").enqueue()
    declared.using(queue_name="mail").enqueue()

    assert cancel(result.id)

    assert get_queue("mail").attributes().messages == 1
    assert get_queue("default").attributes().messages == 2000


def test_dead_letter_without_a_result_record_stays_where_it_is(project: Configure):
    def fail() -> None:
        raise OSError

    result = declare(max_attempts=1, result_ttl_s=0)(fail).enqueue()
    work()

    with pytest.raises(TaskResultDoesNotExist, match="it has finished and its result is gone"):
        cancel(result.id)

    assert get_queue("default-dead").attributes().messages == 1


def test_task_of_another_program_is_cancelled_by_its_own_id(project: Configure):
    runs: list[int] = []
    declared = declare(lambda: runs.append(1))
    queue = ensure_queue("default")
    queue.send(f'{{"task": "{declared.module_path}", "id": "from-node"}}')

    with pytest.raises(TaskResultDoesNotExist):  # its message id says nothing of it, and nobody asked for a result
        cancel("from-node")

    work()
    assert runs == [1]


def test_priority_does_not_matter(project: Configure):
    result = declare(lambda: None).using(priority=10).enqueue()

    assert cancel(result.id)

    result.refresh()
    assert result.status == "FAILED"


# -- The command -------------------------------------------------------------------------------------------------------


def run(*words: str) -> str:
    output = io.StringIO()
    call_command("rsmq_cancel", *words, stdout=output, stderr=output)
    return output.getvalue()


def test_command_cancels_by_id(project: Configure, monkeypatch: pytest.MonkeyPatch):
    declared = declare(lambda: None)
    ids = declared.enqueue_many([[]] * 3)

    assert run(ids[0], ids[1]) == f"{ids[0]} cancelled\n{ids[1]} cancelled\n"

    monkeypatch.setattr("sys.stdin", io.StringIO(f"{ids[2]}\n\n"))
    assert run("-") == f"{ids[2]} cancelled\n"


def test_command_for_programs_prints_one_object_per_task(project: Configure):
    result = declare(lambda: None).enqueue()
    output = io.StringIO()

    with pytest.raises(CommandError) as failure:
        call_command("rsmq_cancel", result.id, "unknown", "--json", stdout=output)

    first, second = map(json.loads, output.getvalue().splitlines())
    assert first == {"task_id": result.id, "cancelled": True, "error": ""}
    assert (second["task_id"], second["cancelled"]) == ("unknown", False)
    assert second["error"]
    assert failure.value.returncode == 1


def test_command_reports_late_events(project: Configure):
    result = declare(lambda: None).enqueue()
    work()

    with pytest.raises(CommandError, match="2 of 2 tasks could not be cancelled"):
        run(result.id, "unknown")


# -- Calls of unique tasks --------------------------------------------------------------------------------------------


def test_id_of_a_dropped_call_cancels_the_existing_call(project: Configure):
    task = declare(unique=Unique())(lambda: None)
    first = task.enqueue()
    (dropped,) = task.enqueue_many([[]])

    assert cancel(dropped)

    assert get_queue("default").attributes().messages == 0
    assert task.get_result(dropped).status == "FAILED"
    assert task.get_result(first.id).errors[0].exception_class is TaskCancelled
    assert not cancel(dropped)


async def test_id_of_a_call_that_was_replaced_again_and_again_cancels_the_last_one(project: Configure):
    task = declare(unique=Unique(mode="replace"))(lambda: None)
    results = [await task.aenqueue() for _ in range(20)]

    assert await acancel(results[0].id)

    assert get_queue("default").attributes().messages == 0
