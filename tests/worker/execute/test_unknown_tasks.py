"""A task that one worker does not know may be known to another one: during a deployment, or in another project."""

from __future__ import annotations

import datetime as dt
import json
import logging
import string
import threading
from typing import Any

import pytest

from rsmq_django.core.queue.listing import workers
from rsmq_django.core.tasks.processes import ProcessRecord, describe, with_different_tasks
from rsmq_django.queues import get_client, get_queue
from rsmq_django.redrive import redrive
from rsmq_django.tasks import TaskContext
from rsmq_django.tasks.compat import InvalidTask
from rsmq_django.worker.execute import execution
from rsmq_django.worker.execute import resolve as unknown_tasks
from rsmq_django.worker.lease.inflight import heartbeat_call
from rsmq_django.worker.supervise.control import ProcessControl
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until
from tests.worker.workshop import (
    Configure,
    a_child,
    dead_letters,
    declare,
    new_worker,
    queue_source,
    run_exchanges,
    send_raw,
    the_dead_letter,
    work,
)

PATH = f"{__name__}.greet"


@pytest.fixture
def graceful(project: Configure, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of unknown tasks have the grace of the default settings, and no task was logged as unknown yet."""
    settings.RSMQ = settings.RSMQ | {"TASKS": {"ENQUEUE_ON_COMMIT": False}}
    monkeypatch.setattr(unknown_tasks, "_logged", set())


def grace(settings: Any, *, seconds: float) -> None:
    settings.RSMQ = settings.RSMQ | {"TASKS": {"ENQUEUE_ON_COMMIT": False, "UNKNOWN_TASK_GRACE_S": seconds}}


def send_call() -> str:
    return send_raw(json.dumps({"task": PATH}))


def work_off() -> None:
    work(until_empty=False, until_drained=True)


def make_older(server: PrivateServer, message_id: str, *, seconds: int, receive_count: int) -> None:
    """Let a message be one that was sent, and first received, so long ago."""
    then_ms = (server.redis.time()[0] - seconds) * 1000
    digits, left = "", then_ms * 1000
    while left:
        left, digit = divmod(left, 36)
        digits = string.digits[digit] + digits if digit < 10 else string.ascii_lowercase[digit - 10] + digits
    old_id = digits + message_id[10:]
    body = server.redis.hget("rsmq:default:Q", message_id)
    server.redis.zrem("rsmq:default", message_id)
    server.redis.zadd("rsmq:default", {old_id: 0})
    fields = {old_id: body, f"{old_id}:rc": receive_count, f"{old_id}:fr": then_ms}
    server.redis.hset("rsmq:default:Q", mapping=fields)


def server_s(server: PrivateServer) -> float:
    """Return the time of the server's clock."""
    seconds, microseconds = server.redis.time()
    return float(seconds) + microseconds / 1e6


def test_call_of_an_unknown_task_waits_for_a_worker_that_has_the_task(graceful: None):
    attempts: list[int] = []
    send_call()
    for _ in range(7):
        work_off()
        pass_time(get_queue("default"), seconds=61)
    assert (dead_letters(), get_queue("default").attributes().messages) == ([], 1)

    def greet(context: TaskContext) -> None:
        attempts.append(context.attempt)

    declare(takes_context=True)(greet)
    work()

    assert attempts == [1]


def test_waits_of_such_a_call_grow(graceful: None, server: PrivateServer, monkeypatch: pytest.MonkeyPatch):
    waits: list[float] = []

    def wait_s(*given: Any, **by_name: Any) -> float | None:
        waits.append(unknown_tasks.unknown_task_wait_s(*given, **by_name) or 0.0)
        return waits[-1]

    monkeypatch.setattr(execution, "unknown_task_wait_s", wait_s)
    send_call()

    for count in range(1, 10):
        began_s = server_s(server)
        while len(waits) < count:
            work_off()
        ((_, due_ms),) = server.redis.zrange("rsmq:default", 0, 0, withscores=True)
        assert began_s - 0.01 < due_ms / 1000 - waits[-1] < server_s(server) + 0.01, "it is due when its wait is over"
        pass_time(get_queue("default"), seconds=61)

    assert all(2**number / 2 <= wait <= 2**number for number, wait in enumerate(waits[:6]))
    assert all(30 <= wait <= 60 for wait in waits[6:])


@pytest.mark.parametrize(("grace_s", "waits"), [(0, False), (1, True)])
def test_without_a_grace_it_does_not_wait(graceful: None, settings: Any, grace_s: int, waits: bool):
    grace(settings, seconds=grace_s)
    send_call()
    (delivery,) = queue_source(new_worker()).exchange(1)

    wait_s = unknown_tasks.unknown_task_wait_s(delivery, now_ms=delivery.message.first_received_ms or 0.0)

    assert (wait_s is not None) == waits


def test_it_is_a_dead_letter_when_its_grace_is_over(graceful: None, settings: Any):
    send_call()
    work_off()
    grace(settings, seconds=0.001)
    pass_time(get_queue("default"), seconds=2)

    work_off()

    _, record = the_dead_letter()
    assert (record["reason"], record["task"]) == ("unknown_task", PATH)


def test_retry_that_comes_long_after_the_first_attempt_is_left_to_its_workers_as_well(
    graceful: None, server: PrivateServer
):
    make_older(server, send_call(), seconds=3600, receive_count=3)

    work_off()
    assert (dead_letters(), get_queue("default").attributes().messages) == ([], 1)
    for _ in range(25):
        pass_time(get_queue("default"), seconds=61)
        work_off()

    _, record = the_dead_letter()
    assert (record["reason"], record["attempts"]) == ("unknown_task", 4)


def test_redriven_call_has_its_grace_again(graceful: None, settings: Any):
    test_it_is_a_dead_letter_when_its_grace_is_over(graceful, settings)
    pass_time(get_queue("default-dead"), seconds=1000)
    grace(settings, seconds=900)

    redrive("default-dead")
    work_off()

    assert (dead_letters(), get_queue("default").attributes().messages) == ([], 1)


def test_it_is_logged_once_for_each_task(graceful: None, caplog: pytest.LogCaptureFixture):
    send_call()
    send_call()
    send_raw('{"task": "other.tasks.greet"}')

    with caplog.at_level(logging.INFO):
        work_off()

    told = [record.getMessage() for record in caplog.records if "declared in this worker" in record.getMessage()]
    assert [PATH in line for line in sorted(told)] == [False, True]
    assert all("given back to their queue for up to 900 s each" in line for line in told)


LEFT = "left 1 call of unknown tasks in the queues, for workers that know the tasks"


def test_a_burst_leaves_such_calls_and_waits_for_delayed_ones(graceful: None, caplog: pytest.LogCaptureFixture):
    seen: list[str] = []
    send_call()
    declare(lambda word: seen.append(word)).using(run_after=dt.timedelta(seconds=1.5)).enqueue("later")

    assert work()

    assert seen == ["later"]
    assert LEFT in caplog.messages
    assert (dead_letters(), get_queue("default").attributes().messages) == ([], 1)


def test_a_burst_waits_for_messages_in_flight_beside_such_calls(
    graceful: None, server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    release = threading.Event()
    declare(lambda: release.wait(60)).enqueue()
    other = threading.Thread(target=new_worker(max_tasks=1).run)
    other.start()
    wait_until(lambda: get_queue("default").attributes().hidden_messages == 1)
    message_id = send_call()
    burst = threading.Thread(target=work)
    burst.start()
    wait_until(lambda: int(server.redis.hget("rsmq:default:Q", f"{message_id}:rc") or 0) == 2)
    assert LEFT not in caplog.messages

    release.set()

    burst.join(90)
    other.join(90)
    assert not burst.is_alive() and not other.is_alive()
    assert LEFT in caplog.messages


# -- Renamed tasks -----------------------------------------------------------------------------------------------------


def test_task_serves_calls_under_the_paths_that_it_had_before(project: Configure):
    seen: list[int] = []

    def welcome(number: int) -> int:
        seen.append(number)
        return number

    task = declare(aliases=[PATH, "old.tasks.greet"])(welcome)
    send_raw(json.dumps({"task": PATH, "id": "first", "args": [1]}))
    send_raw(json.dumps({"task": "old.tasks.greet", "args": [2]}))
    task.enqueue(3)

    work()

    assert sorted(seen) == [1, 2, 3]
    assert task.get_result("first").return_value == 1


@pytest.mark.parametrize("aliases", [[f"{__name__}.first"], ["old.path"]])
def test_path_that_would_mean_two_tasks_is_refused(project: Configure, aliases: list[str]):
    def first() -> None: ...

    def second() -> None: ...

    declare(aliases=["old.path"])(first)

    with pytest.raises(InvalidTask, match="is a path or an alias of"):
        declare(aliases=aliases)(second)


@pytest.mark.parametrize("aliases", ["old.path", [7], [""]])
def test_a_value_that_is_not_a_list_of_paths_is_refused(project: Configure, aliases: Any):
    with pytest.raises(ValueError, match="aliases"):
        declare(aliases=aliases)(lambda: None)


# -- Workers that know different tasks ---------------------------------------------------------------------------------


def a_worker_is_there(worker_id: str, *, tasks: str, queues: tuple[str, ...] = ("default",)) -> None:
    client = get_client()
    client.run(heartbeat_call(client, [worker_id]))
    client.run(describe("rsmq", worker_id, ProcessRecord("host", 7, "1", 0, None, "working", queues, (), tasks=tasks)))


@pytest.mark.parametrize(
    ("tasks", "queues", "warns"),
    [("7 other", ("default",), True), ("7 other", ("mail",), False), ("", ("default",), False)],
    ids=["other tasks", "other queues", "an older release"],
)
def test_worker_that_starts_next_to_one_with_other_tasks_logs_it_once(
    project: Configure, caplog: pytest.LogCaptureFixture, tasks: str, queues: tuple[str, ...], warns: bool
):
    declare(lambda: None)
    a_worker_is_there("theirs", tasks=tasks, queues=queues)
    get_client().run(heartbeat_call(get_client(), ["ours"]))
    process_control = ProcessControl([a_child("ours")], shutdown_timeout_s=1)

    for _ in range(2):
        run_exchanges(get_client(), process_control.publish(get_client(), ["default"]))

    said = [line for line in caplog.messages if "shared with workers that know other tasks (theirs)" in line]
    assert len(said) == int(warns)


def test_workers_with_the_same_tasks_are_no_trouble(project: Configure):
    a_worker_is_there("one", tasks="7 same")
    a_worker_is_there("two", tasks="7 same")

    assert len(get_client().run(workers("rsmq"))) == 2
    record = ProcessRecord("host", 7, "1", 0, None, "working", ("default",), (), tasks="7 same")
    assert with_different_tasks({"one": record, "two": record}) == {}
