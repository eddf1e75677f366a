"""Tags to find and cancel tasks by, and calls that are of no use when they run too late."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rsmq_django.queues import get_queue
from rsmq_django.tasks import Task, cancel, cancel_tagged, current_task, fixed, tagged
from rsmq_django.tasks.compat import TaskResultStatus
from tests.redis_server import PrivateServer
from tests.support import pass_time, wait_until
from tests.worker.workshop import Configure, dead_letters, declare, the_dead_letter, work, working

# -- Tags ------------------------------------------------------------------------------------------------------------


def test_tasks_are_found_by_their_tags_until_they_end(project: Configure, server: PrivateServer):
    task: Task[..., Any] = declare(tags=["mail"])(lambda: None)
    first = task.enqueue()
    second = task.using(tags=["mail", "order 7"]).enqueue()
    assert (sorted(tagged("mail")), tagged("order 7"), tagged("other")) == (
        sorted([first.id, second.id]),
        [second.id],
        [],
    )

    work()

    assert (tagged("mail"), tagged("order 7")) == ([], [])
    assert not server.redis.keys("rsmq::tag:*")


def test_a_task_that_will_be_retried_keeps_its_tags(project: Configure):
    task: Task[..., Any] = declare(tags=["mail"], backoff=fixed(3600))(lambda: 1 / 0)
    result = task.enqueue()

    work(until_empty=False, until_drained=True)

    assert tagged("mail") == [result.id]


@pytest.mark.parametrize("ask", [tagged, cancel_tagged])
@pytest.mark.parametrize("tag", [["mail"], "", None])
def test_what_is_no_tag_is_refused_rather_than_not_found(project: Configure, ask: Any, tag: Any):
    with pytest.raises(ValueError, match="is no tag"):
        ask(tag)


@pytest.mark.slow
def test_all_tasks_of_a_tag_are_cancelled_together_waiting_and_running(project: Configure):
    began, seen = threading.Event(), []

    def patient(name: str) -> None:
        began.set()
        while not current_task()._run.delivery.cancelled:
            pass
        seen.append(name)

    task: Task[..., Any] = declare(patient)
    with working(threads=1):
        running = task.using(tags=["tour"]).enqueue("running")
        assert began.wait(60)
        waiting = [task.using(tags=["tour"], run_after=None).enqueue(f"waiting {n}") for n in range(3)]
        other = task.using(tags=["other"], priority=-5).enqueue("other")

        assert cancel_tagged("tour") == 4
        wait_until(lambda: len(tagged("other")) == 1)
        assert cancel_tagged("other") == 1

    for result in (running, *waiting, other):
        result.refresh()
        assert result.status is TaskResultStatus.FAILED
    assert cancel_tagged("tour") == 0


def test_one_that_was_cancelled_by_its_id_is_found_no_more(project: Configure):
    task: Task[..., Any] = declare(tags=["mail"])(lambda: None)
    for result_ttl_s in (3600, 0):
        assert cancel(task.using(result_ttl_s=result_ttl_s).enqueue().id)

    assert tagged("mail") == []


def test_ids_that_mean_nothing_any_more_do_not_stop_a_cancellation(project: Configure, server: PrivateServer):
    task: Task[..., Any] = declare(tags=["tour"])(lambda: None)
    task.enqueue()
    server.redis.zadd("rsmq::tag:tour", {"never-sent": 9e15})

    assert cancel_tagged("tour") == 1
    assert tagged("tour") == []


@pytest.mark.parametrize("tags", ["mail", [""], ["x" * 101], [7], ["two\nlines"]])
def test_what_is_no_tag_is_refused(project: Configure, tags: Any):
    with pytest.raises(ValueError, match="tags"):
        declare(tags=tags)(lambda: None)


# -- Expiry ----------------------------------------------------------------------------------------------------------


def make_older(server: PrivateServer, *, seconds: float) -> None:
    """Give the only message of the queue an id that was made earlier, as time does."""
    (old,) = (message_id.decode() for message_id in server.redis.zrange("rsmq:default", 0, -1))
    made_us = int(old[:10], 36) - int(seconds * 1e6)
    digits, text = "0123456789abcdefghijklmnopqrstuvwxyz", ""
    while made_us:
        made_us, digit = divmod(made_us, 36)
        text = digits[digit] + text
    body = server.redis.hget("rsmq:default:Q", old)
    server.redis.zadd("rsmq:default", {text + old[10:]: server.redis.zscore("rsmq:default", old) or 0})
    server.redis.hset("rsmq:default:Q", text + old[10:], body)
    server.redis.zrem("rsmq:default", old)
    server.redis.hdel("rsmq:default:Q", old)


def test_a_call_that_waited_for_too_long_does_not_run(project: Configure, server: PrivateServer):
    seen: list[str] = []
    result = declare(expires_in_s=60)(lambda: seen.append("ran")).enqueue()
    make_older(server, seconds=61)

    work()

    result.refresh()
    assert (seen, result.status) == ([], TaskResultStatus.FAILED)
    _, record = the_dead_letter()
    assert (record["reason"], record["error"]) == ("expired", "rsmq_django.tasks.expiry.TaskExpired")


def test_a_call_in_time_runs(project: Configure, server: PrivateServer):
    seen: list[str] = []
    declare(expires_in_s=60)(lambda: seen.append("ran")).enqueue()
    make_older(server, seconds=50)

    work()

    assert (seen, dead_letters()) == (["ran"], [])


def test_a_delay_does_not_count(project: Configure, server: PrivateServer):
    from datetime import timedelta

    seen: list[str] = []
    declare(expires_in_s=60)(lambda: seen.append("ran")).using(run_after=timedelta(hours=1)).enqueue()
    make_older(server, seconds=3600 + 30)
    pass_time(get_queue("default"), seconds=3600 + 30)

    work()

    assert seen == ["ran"]


async def expiring() -> None: ...


def test_a_coroutine_expires_too(project: Configure, server: PrivateServer):
    declare(expires_in_s=1)(expiring).enqueue()
    make_older(server, seconds=2)

    work()

    assert the_dead_letter()[1]["reason"] == "expired"
