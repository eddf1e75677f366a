"""Chains, groups and maps: what follows whom, with which results, exactly once, and what happens when members fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import transaction
from django.db.transaction import TransactionManagementError

from rsmq_django.core import Queue
from rsmq_django.core.errors import WorkflowNotFound
from rsmq_django.core.transport.call import load_script
from rsmq_django.queues import get_client, get_queue
from rsmq_django.redrive import redrive
from rsmq_django.tasks import (
    Failure,
    Postpone,
    Retry,
    Unique,
    Workflow,
    amap_tasks,
    call,
    cancel,
    chain,
    current_task,
    fixed,
    get_workflow,
    group,
    map_tasks,
    newest_workflows,
    workflow_plan,
)
from rsmq_django.tasks.compat import InvalidTask
from rsmq_django.tasks.workflow_progress import WorkflowStopped
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks as site
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, declare, send_raw, the_dead_letter, work, working

Seen = list[Any]


@pytest.fixture
def seen() -> Seen:
    """What the tasks of a test have noted."""
    return []


def report_into(seen: Seen, **options: Any) -> Any:
    """Declare the task that notes what it gets."""

    def report(got: Any = "nothing") -> None:
        seen.append(got)

    return declare(**options)(report)


def doubling(**options: Any) -> Any:
    """Declare the task that doubles a number and refuses negative ones."""

    def double(number: int) -> int:
        if number < 0:
            raise ValueError(f"{number} is negative")
        return number * 2

    return declare(max_attempts=1, **options)(double)


# -- Chains ----------------------------------------------------------------------------------------------------------


def test_each_step_of_a_chain_gets_the_result_of_the_one_before(project: Configure, seen: Seen):
    double, report = doubling(), report_into(seen)
    started = chain(call(double, 1), call(double), call(double), call(report)).enqueue()

    work()

    assert seen == [8]
    status = started.status()
    assert (status.kind, status.state, status.done, status.total, status.failed) == ("chain", "succeeded", 4, 4, 0)
    assert started.results() == [None]


def test_a_step_may_do_without_the_result_and_have_arguments_of_its_own(project: Configure, seen: Seen):
    def note(*args: Any, **kwargs: Any) -> str:
        seen.append((args, kwargs))
        return "said"

    task = declare(note)
    chain(call(task, 1), call(task, 2, word="x"), call(task, 3).without_result()).enqueue()

    work()

    assert seen == [((1,), {}), (("said", 2), {"word": "x"}), ((3,), {})]


def test_steps_may_be_coroutines_in_other_queues_and_of_other_priorities(project: Configure, seen: Seen):
    project(default={}, mail={})

    async def fetch(number: int) -> int:
        await asyncio.sleep(0)
        return number + 1

    fetch_task, report = declare(fetch), report_into(seen)
    steps = (call(fetch_task, 1), call(fetch_task.using(queue_name="mail", priority=50)), call(report))
    asyncio.run(chain(*steps).aenqueue())

    work()

    assert seen == [3]


def test_a_chain_continues_after_retries_and_postponements(project: Configure, seen: Seen):
    attempts: list[int] = []

    def unlucky(number: int) -> int:
        attempts.append(number)
        if len(attempts) == 1:
            raise Postpone(0)
        if len(attempts) == 2:
            raise Retry(0)
        return number + 1

    chain(call(declare(max_attempts=2, backoff=fixed(0))(unlucky), 1), call(report_into(seen))).enqueue()

    work()

    assert (attempts, seen) == ([1, 1, 1], [2])


def test_a_step_that_fails_for_good_ends_the_chain(project: Configure, seen: Seen):
    double, report = doubling(), report_into(seen)
    started = chain(call(double, -1), call(double), call(report), on_failure=call(report)).enqueue()

    work()

    ((failure,),) = seen
    assert isinstance(failure, Failure)
    assert (failure.member, failure.reason, failure.error) == (0, "attempts_used_up", "builtins.ValueError")
    assert failure.message == "-1 is negative"
    status = started.status()
    assert (status.state, status.done, status.failed) == ("failed", 0, 1)
    assert started.failures() == [failure]


def test_a_chain_continues_when_the_step_that_failed_is_sent_again(project: Configure, seen: Seen):
    broken = [True]

    def flaky(number: int) -> int:
        if broken:
            raise ValueError
        return number + 1

    started = chain(call(doubling(), 1), call(declare(max_attempts=1)(flaky)), call(report_into(seen))).enqueue()
    work()
    assert (started.status().state, seen) == ("failed", [])

    broken.clear()
    redrive("default-dead")
    work()

    assert seen == [3]
    assert (started.status().state, started.status().failed) == ("succeeded", 0)


def test_a_step_may_have_to_wait_longer_than_its_workflow_is_kept(
    project: Configure, server: PrivateServer, seen: Seen
):
    late = report_into(seen).using(run_after=timedelta(hours=1))
    started = chain(call(doubling(), 1), call(late), keep_s=60).enqueue()

    work(until_empty=False, until_drained=True)
    assert (seen, get_queue("default").attributes().hidden_messages) == ([], 1)
    assert server.redis.ttl(f"rsmq::workflow:{started.id}") > 3600
    pass_time(get_queue("default"), seconds=3601)
    work()

    assert seen == [2]


def test_a_chain_goes_through_encrypted_and_signed_queues(project: Configure, server: PrivateServer, seen: Seen):
    key = Fernet.generate_key().decode()
    project(default={"SIGNING_KEYS": ["k" * 32]}, secret={"ENCRYPTION_KEYS": [key]})
    report = report_into(seen, queue_name="secret")
    started = chain(call(doubling(), 1), call(report)).enqueue()

    stored = server.redis.hget(f"rsmq::workflow:{started.id}:steps", "0.1")
    work()

    assert b"encrypted" in stored and b"report" not in stored
    assert seen == [2]


# -- Groups ----------------------------------------------------------------------------------------------------------


def test_the_callback_of_a_group_gets_all_results_in_the_order_of_the_members(project: Configure, seen: Seen):
    double = doubling()
    started = group([call(double, n) for n in range(20)], then=call(report_into(seen))).enqueue()

    work()

    assert seen == [[2 * n for n in range(20)]]
    assert started.results() == seen[0]
    status = started.status()
    assert (status.state, status.done, status.total, status.waiting) == ("succeeded", 20, 20, 0)


@pytest.mark.slow
def test_a_group_of_a_thousand_members_has_one_callback(project: Configure, seen: Seen):
    members = [call(doubling(), n) for n in range(1000)]
    group(members, then=call(report_into(seen))).enqueue()

    work(threads=4)

    assert seen == [[2 * n for n in range(1000)]]


def test_the_callback_of_a_group_without_members_runs_at_once(project: Configure, seen: Seen):
    group([], then=call(report_into(seen))).enqueue()

    work()

    assert seen == [[]]


def test_a_group_in_which_something_failed_has_only_the_callback_for_that(project: Configure, seen: Seen):
    double, bad = doubling(), report_into(seen)

    def good(results: list[int]) -> None:
        seen.append(results)

    members = [call(double, n) for n in (1, -2, 3, -4)]
    started = group(members, then=call(declare(good)), on_failure=call(bad)).enqueue()

    work()

    ((first, second),) = seen
    assert (first.member, second.member) == (1, 3)
    assert started.results() == [2, first, 6, second]
    assert started.status().state == "failed"


def test_a_callback_that_always_follows_gets_failures_in_their_places(project: Configure, seen: Seen):
    double = doubling()
    group([call(double, 1), call(double, -1)], then=call(report_into(seen)), then_always=True).enqueue()

    work()

    ((value, failure),) = seen
    assert value == 2
    assert isinstance(failure, Failure) and failure.message == "-1 is negative"


def test_a_failed_member_that_is_sent_again_completes_the_group(project: Configure, seen: Seen):
    broken = [True]

    def flaky(number: int) -> int:
        if broken and number == 1:
            raise ValueError
        return number

    task = declare(max_attempts=1)(flaky)
    started = group([call(task, n) for n in range(3)], then=call(report_into(seen))).enqueue()
    work()
    assert (started.status().state, seen) == ("failed", [])

    broken.clear()
    redrive("default-dead")
    work()

    assert seen == [[0, 1, 2]]
    assert (started.status().state, started.status().failed) == ("succeeded", 0)


def test_chains_may_be_members_of_a_group(project: Configure, seen: Seen):
    double = doubling()
    members = [chain(call(double, n), call(double), call(double)) for n in range(3)]
    started = group([*members, call(double, 5)], then=call(report_into(seen))).enqueue()

    work()

    assert seen == [[0, 8, 16, 10]]
    assert (started.status().total, started.status().done) == (10, 10)


def test_a_member_without_a_result_record_gives_its_result_to_the_group(project: Configure, seen: Seen):
    double = doubling(result_ttl_s=0)
    group([call(double, n) for n in (1, 2)], then=call(report_into(seen, result_ttl_s=0))).enqueue()

    work()

    assert seen == [[2, 4]]


def test_the_result_of_the_callback_is_found_by_its_id(project: Configure):
    def total(results: list[int]) -> int:
        return sum(results)

    task = declare(total)
    started = group([call(doubling(), n) for n in (1, 2)], then=call(task)).enqueue()

    work()

    assert task.get_result(started.status().then_id).return_value == 6


def test_a_unique_member_with_a_waiting_duplicate_counts_as_done(project: Configure, seen: Seen):
    double = doubling(unique=Unique())
    double.enqueue(1)
    group([call(double, 1), call(double, 2)], then=call(report_into(seen))).enqueue()

    work()

    assert seen == [[None, 4]]


@pytest.mark.parametrize("mode", ["replace", "debounce"])
def test_a_waiting_unique_member_is_not_replaced_by_another_call(project: Configure, seen: Seen, mode: Any):
    double = doubling(unique=Unique(mode=mode, window_s=0.05 if mode == "debounce" else None))
    started = group([call(double.using(unique=Unique()), n) for n in (1, 2)], then=call(report_into(seen))).enqueue()

    dropped = double.enqueue(1)
    work()

    assert (seen, started.status().state) == ([[2, 4]], "succeeded")
    assert double.get_result(dropped.id).return_value == 2, "that of the member"
    assert double.enqueue(1).id != dropped.id, "the member has ended"


def test_a_message_that_is_there_twice_counts_once(project: Configure, seen: Seen):
    queue = get_queue("default")
    started = group([call(doubling(), n) for n in (1, 2)], then=call(report_into(seen))).enqueue()
    (first, second) = queue.receive_many(2)
    for message in (first, first, first, second):
        queue.send(message.body)
    queue.delete_many([first, second])

    work()

    assert seen == [[2, 4]]
    assert started.status().done == 2


# -- Cancelling ------------------------------------------------------------------------------------------------------


def test_a_cancelled_group_sends_nothing_more(project: Configure, seen: Seen):
    double = doubling()
    members = [chain(call(double, n), call(double)) for n in range(5)]
    started = group(members, then=call(report_into(seen)), on_failure=call(report_into(seen))).enqueue()

    assert started.cancel()
    work()

    assert seen == []
    assert started.status().state == "cancelled"
    assert get_queue("default").attributes().total_sent == 5
    assert started.cancel(), "it may be repeated"


def test_a_group_is_cancelled_by_a_coroutine_too(project: Configure, seen: Seen):
    async def start_and_cancel() -> tuple[bool, str, list[Any]]:
        started = await group([call(doubling(), n) for n in (1, 2)], then=call(report_into(seen))).aenqueue()
        return await started.acancel(), (await started.astatus()).state, await started.aresults()

    is_cancelled, state, results = asyncio.run(start_and_cancel())
    work()

    assert (is_cancelled, state, seen) == (True, "cancelled", [])
    assert [failure.reason for failure in results] == ["cancelled", "cancelled"]


@pytest.mark.parametrize("cancels", [Workflow.cancel, lambda copied: asyncio.run(copied.acancel())])
def test_a_cancelled_workflow_leaves_calls_of_the_same_ids_on_other_connections(
    project: Configure, settings: Any, server: PrivateServer, cancels: Any
):
    connections = {**settings.RSMQ["CONNECTIONS"], "copy": {"URL": f"{server.url}?db=1"}}
    queues = {"default": {}, "copied": {"CONNECTION": "copy"}}
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": connections, "QUEUES": queues}
    started = group([call(doubling(), n) for n in (1, 2)]).enqueue()
    for key in server.redis.keys():
        server.redis.copy(key, key, destination_db=1)

    assert cancels(Workflow(started.id, "copy"))

    assert Queue("default", get_client("copy")).attributes().messages == 0
    assert Queue("default", get_client("default")).attributes().messages == 2


def test_a_member_that_is_cancelled_has_failed(project: Configure, seen: Seen, server: PrivateServer):
    double = doubling()
    started = group([call(double, 1), call(double, 2)], on_failure=call(report_into(seen))).enqueue()
    (task_id,) = server.redis.hmget(f"rsmq::workflow:{started.id}:members", 1)

    assert cancel(task_id.decode())
    work()

    ((failure,),) = seen
    assert (failure.member, failure.reason, failure.task_id) == (1, "cancelled", task_id.decode())


# -- What is known of workflows --------------------------------------------------------------------------------------


def test_workflows_are_found_by_id_and_listed_newest_first(project: Configure):
    double = doubling()
    first = group([call(double, 1)], name="one").enqueue()
    (made,) = newest_workflows()
    wait_until(lambda: time.time() * 1000 > made.created_ms + 1)
    second = chain(call(double, 1), name="two").enqueue()

    assert get_workflow(first.id) == first
    assert [status.name for status in newest_workflows()] == ["two", "one"]
    assert [status.id for status in newest_workflows(1)] == [second.id]
    with pytest.raises(WorkflowNotFound, match="no workflow 'nobody'"):
        get_workflow("nobody")


def test_a_workflow_expires_as_a_whole(project: Configure, server: PrivateServer, seen: Seen):
    double = doubling()
    started = group([chain(call(double, 1), call(double)), call(double, -1)], then=call(report_into(seen))).enqueue()

    work()

    keys = server.redis.keys(f"rsmq::workflow:{started.id}*")
    assert len(keys) >= 3
    assert all(0 < server.redis.ttl(key) <= 7 * 86_400 for key in keys)


def test_a_callback_whose_workflow_has_expired_goes_to_the_dead_letters(
    project: Configure, server: PrivateServer, seen: Seen
):
    started = group([], then=call(report_into(seen))).enqueue()
    server.redis.delete(f"rsmq::workflow:{started.id}")

    work()

    _, failure = the_dead_letter()
    assert (seen, failure["reason"]) == ([], "workflow_gone")


def test_a_member_of_a_deleted_workflow_runs_anyway(project: Configure, server: PrivateServer):
    ran: Seen = []

    def run() -> None:
        ran.append(current_task().id)

    started = group([call(declare(run))]).enqueue()
    server.redis.delete(*server.redis.keys("rsmq::workflow*"))

    work()

    assert len(ran) == 1
    assert get_queue("default").attributes().messages == 0
    with pytest.raises(WorkflowNotFound):
        Workflow(started.id).status()


# -- Maps ------------------------------------------------------------------------------------------------------------


def test_a_map_never_has_more_calls_waiting_than_its_window(project: Configure, seen: Seen):
    waiting: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(60):
            waiting.append(newest_workflows(1)[0].waiting)
            yield number

    with working():
        started = map_tasks(doubling(), numbers(), then=call(report_into(seen)), window=8, keep_results=True)
        wait_until(lambda: seen)

    assert seen == [[2 * n for n in range(60)]]
    assert max(waiting) <= 8
    status = started.status()
    assert (status.kind, status.state, status.done, status.total) == ("map", "succeeded", 60, 60)


def test_a_map_without_kept_results_stores_none(project: Configure, seen: Seen, server: PrivateServer):
    with working():
        started = asyncio.run(amap_tasks(doubling(), range(20), then=call(report_into(seen)), window=5))
        wait_until(lambda: seen)

    assert seen == ["nothing"]
    assert server.redis.exists(f"rsmq::workflow:{started.id}:results", f"rsmq::workflow:{started.id}:members") == 0


def test_a_map_takes_an_async_generator(project: Configure, seen: Seen):
    async def numbers() -> AsyncIterator[int]:
        for number in range(7):
            yield number

    asyncio.run(amap_tasks(doubling(), numbers(), then=call(report_into(seen)), keep_results=True))

    work()

    assert seen == [[0, 2, 4, 6, 8, 10, 12]]


@pytest.mark.parametrize("items", [5, None])
def test_a_map_refuses_a_value_that_is_not_a_collection(project: Configure, items: Any):
    declared = declare(lambda item: None)

    with pytest.raises(TypeError, match=f"map_tasks.. got {items} for .*give a list"):
        map_tasks(declared, items)
    with pytest.raises(TypeError, match="give a list"):
        asyncio.run(amap_tasks(declared, items))


def test_a_map_refuses_a_value_that_is_not_a_task(project: Configure):
    with pytest.raises(TypeError, match="give the function that @task decorates"):
        map_tasks(print, [1])  # type: ignore[arg-type]


def test_nothing_follows_a_map_whose_items_raise(project: Configure, seen: Seen):
    def numbers() -> Iterator[int]:
        yield 1
        raise LookupError("no more files")

    with pytest.raises(LookupError, match="no more files"):
        map_tasks(doubling(), numbers(), then=call(report_into(seen)), window=4)
    work()

    assert seen == []
    assert newest_workflows(1)[0].state == "cancelled"


def test_a_map_that_is_cancelled_stops_its_sender(project: Configure):
    def numbers() -> Iterator[int]:
        for number in range(100):
            if number == 10:
                get_workflow(newest_workflows(1)[0].id).cancel()
            yield number

    with pytest.raises(WorkflowStopped, match="was cancelled after"):
        map_tasks(doubling(), numbers(), window=400)


# -- What cannot be sent ---------------------------------------------------------------------------------------------


def test_all_queues_of_a_workflow_are_on_one_connection(settings: Any, server: PrivateServer):
    settings.RSMQ = {
        "CONNECTIONS": {
            "default": {"URL": server.url, "TIMEOUT_S": 15},
            "other": {"URL": server.url, "TIMEOUT_S": 15, "NAMESPACE": "other"},
        },
        "QUEUES": {"default": {}, "far": {"CONNECTION": "other"}},
    }
    double = doubling()

    with pytest.raises(InvalidTask, match="queue 'far' is on connection 'other'.*of one connection"):
        chain(call(double, 1), call(double.using(queue_name="far"))).enqueue()


@pytest.mark.parametrize("keep_s", [float("nan"), float("inf"), "60", timedelta(days=1), None, True, 0, -5])
def test_a_time_to_keep_a_workflow_that_cannot_be_is_refused_before_the_commit(project: Configure, keep_s: Any):
    step = call(doubling(), 1)

    for plan in (chain(step, keep_s=keep_s), group([step], keep_s=keep_s)):
        with pytest.raises(ValueError, match="keep_s is .*; it must be a number of seconds above 0"):
            plan.enqueue()
    with pytest.raises(ValueError, match="keep_s is"):
        map_tasks(step.task, [1], keep_s=keep_s)


@pytest.mark.parametrize("name", [None, 7, "half a pair \ud83d"])
def test_a_name_of_a_workflow_that_is_no_text_is_refused_before_the_commit(project: Configure, name: Any):
    with pytest.raises(ValueError, match="it must be a text that UTF-8 can hold"):
        chain(call(doubling(), 1), name=name).enqueue()


def test_a_step_of_a_chain_cannot_be_unique(project: Configure):
    with pytest.raises(InvalidTask, match="is unique; in a workflow only those members"):
        chain(call(doubling(unique=Unique()), 1)).enqueue()


def test_only_tasks_can_be_called():
    with pytest.raises(TypeError, match="is not a task of an RSMQ backend"):
        call(len, "x")


@pytest.mark.parametrize(
    "make",
    [
        lambda task: chain(task),
        lambda task: group([task]),
        lambda task: group([], then=task),
        lambda task: chain(call(task), on_failure=task),
        lambda task: map_tasks(task, [], then=task),
    ],
)
def test_a_task_without_its_call_is_refused_with_the_right_form(configure: Configure, make: Any):
    configure()

    with pytest.raises(TypeError, match=r"task .* is not .*write call\(task, \.\.\.\)"):
        make(doubling())


@pytest.mark.django_db(transaction=True)
def test_a_group_waits_for_the_commit_and_a_map_refuses_to(configure: Configure, seen: Seen):
    configure(on_commit=True)
    double = doubling()

    with transaction.atomic():
        started = group([call(double, 1)], then=call(report_into(seen))).enqueue()
        with pytest.raises(WorkflowNotFound):
            started.status()
        with pytest.raises(TransactionManagementError, match="call it outside of atomic"):
            map_tasks(double, [1])
    work()

    assert seen == [[2]]


# -- Messages of others ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "meta",
    [
        {"id": 5},
        {"id": "../x", "member": 0},
        {"id": "abc", "member": -1},
        {"id": "abc", "member": 10**12},
        {"id": "abc", "member": 0, "next": ["x"]},
        {"id": "abc", "member": 0, "next": ["x", "not a queue"]},
        {"id": "abc", "member": 0, "then": [1, 2]},
        {"id": "abc", "takes": "everything"},
        "abc",
    ],
)
def test_a_message_with_garbage_for_a_workflow_runs_as_any_other(project: Configure, meta: Any):
    ran: Seen = []

    def run() -> None:
        ran.append(1)

    task = declare(run)
    send_raw(json.dumps({"task": task.module_path, "meta": {"workflow": meta}}))

    work()

    assert ran == [1]
    assert get_queue("default").attributes().messages == 0


# -- Faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    [
        "tasks/workflow/start",
        "tasks/workflow/create",
        "tasks/workflow/expect",
        "tasks/workflow/seal",
        "tasks/worker/keep_results",
    ],
)
def test_a_lost_reply_changes_nothing(
    project: Configure, server: PrivateServer, seen: Seen, monkeypatch: pytest.MonkeyPatch, script: str
):
    if script in ("tasks/workflow/create", "tasks/workflow/expect", "tasks/workflow/seal"):  # those of a large workflow
        monkeypatch.setattr(workflow_plan, "MOST_BYTES", 0)
    double = doubling()
    report = report_into(seen)
    with FaultProxy(server.url) as proxy:
        project(url=proxy.url)
        group([call(double, 7)]).enqueue()  # so that the server knows the scripts
        work()
        proxy.lose_reply_to(load_script(script).sha1.encode(), times=1)
        started = group([chain(call(double, n), call(double)) for n in range(4)], then=call(report)).enqueue()
        work()
        status = started.status()

    assert seen == [[0, 4, 8, 12]]
    assert (status.state, status.done, status.waiting) == ("succeeded", 8, 0)


def test_a_lost_reply_to_the_end_of_a_failed_member_counts_it_once(
    project: Configure, server: PrivateServer, seen: Seen
):
    double, report = doubling(), report_into(seen)
    with FaultProxy(server.url) as proxy:
        project(url=proxy.url)
        group([call(double, -7)]).enqueue()
        work()
        proxy.lose_reply_to(load_script("tasks/worker/bury").sha1.encode(), times=1)
        started = group([call(double, n) for n in (1, -2)], on_failure=call(report)).enqueue()
        work()
        status = started.status()

    ((failure,),) = seen
    assert failure.member == 1
    assert (status.state, status.done, status.failed) == ("failed", 1, 1)


@pytest.mark.slow
def test_a_group_has_one_callback_after_any_crash(project: Configure, start_worker: StartWorker, journal: Journal):
    queues = {"default": {"VISIBILITY_TIMEOUT_S": 1}}
    project(**queues)
    count, rng = 300, random.Random(7)
    command = ("--processes", "2", "--threads", "4")
    members = [call(site.square, n, 0.02) for n in range(count)]
    started = group(members, then=call(site.gather)).enqueue()
    worker = start_worker(*command, queues=queues)

    for number in range(1, 7):
        target = number * count // 7 + rng.randrange(20)
        wait_until(lambda: len(journal.names("end")) >= target)  # noqa: B023
        if number % 3:
            with contextlib.suppress(ProcessLookupError):  # it has died already
                os.kill(int(rng.choice(journal.lines("start")[-4:])[1]), signal.SIGKILL)
        else:
            worker.destroy()
            worker = start_worker(*command, queues=queues)
    wait_until(lambda: get_queue("default").attributes().messages == 0)
    # All may have been done before the last worker has begun; only then does it know what the signal means.
    wait_until(lambda: "started process" in worker.output)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0

    status, gathered = started.status(), journal.lines("gathered")
    assert (status.state, status.done, status.failed) == ("succeeded", count, 0)
    assert get_queue("default").attributes().total_sent == count + 1
    assert {line[0] for line in gathered} == {status.then_id}
    assert all(line[1:] == [str(n * n) for n in range(count)] for line in gathered)
