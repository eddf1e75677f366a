"""Tags to find and cancel tasks by, and calls that expire."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from rsmq_django.core import Message
from rsmq_django.queues import get_queue
from rsmq_django.redrive import redrive
from rsmq_django.tasks import Task, Unique, cancel, cancel_tagged, current_task, fixed, tagged
from rsmq_django.tasks.compat import TaskResultStatus
from rsmq_django.tasks.expiry import has_expired
from rsmq_django.worker.execute.execution import Execution
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


def test_a_late_ending_leaves_the_tag_of_a_task_that_another_worker_runs(
    project: Configure, monkeypatch: pytest.MonkeyPatch
):
    task: Task[..., Any] = declare(tags=["mail"])(lambda: None)
    result = task.enqueue()
    perform = Execution.perform

    def lose_lease(self: Execution) -> Any:
        pass_time(get_queue("default"), seconds=1000)
        get_queue("default").receive()  # by another worker
        return perform(self)

    monkeypatch.setattr(Execution, "perform", lose_lease)
    work(until_empty=False, until_drained=True)

    assert tagged("mail") == [result.id]


@pytest.mark.parametrize("ask", [tagged, cancel_tagged])
@pytest.mark.parametrize("tag", [["mail"], "", None])
def test_invalid_tag_is_refused_instead_of_not_found(project: Configure, ask: Any, tag: Any):
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


def test_call_that_was_cancelled_by_its_id_is_not_found_by_its_tag(project: Configure):
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
def test_invalid_tag_is_refused(project: Configure, tags: Any):
    with pytest.raises(ValueError, match="tags"):
        declare(tags=tags)(lambda: None)


# -- Expiry ----------------------------------------------------------------------------------------------------------


def test_a_call_that_waited_for_too_long_does_not_run(project: Configure):
    seen: list[str] = []
    result = declare(expires_in_s=60)(lambda: seen.append("ran")).enqueue()
    pass_time(get_queue("default"), seconds=61)

    work()

    result.refresh()
    assert (seen, result.status) == ([], TaskResultStatus.FAILED)
    _, record = the_dead_letter()
    assert (record["reason"], record["error"]) == ("expired", "rsmq_django.tasks.expiry.TaskExpired")


def test_a_call_in_time_runs(project: Configure):
    seen: list[str] = []
    declare(expires_in_s=60)(lambda: seen.append("ran")).enqueue()
    pass_time(get_queue("default"), seconds=50)

    work()

    assert (seen, dead_letters()) == (["ran"], [])


def test_cancelling_by_a_tag_ends_although_another_program_has_written_an_id_that_is_no_text(
    project: Configure, server: PrivateServer
):
    task = declare(tags=["tour"])(lambda: None)
    task.enqueue()
    server.redis.zadd("rsmq::tag:tour", {b"\xff": 0})

    assert cancel_tagged("tour") == 1


@pytest.mark.parametrize(
    "options",
    [
        {"run_after": timedelta(hours=1)},
        {"unique": Unique(mode="debounce", window_s=3600)},
    ],
    ids=["deferred", "debounced"],
)
def test_the_time_until_a_call_is_due_does_not_count(project: Configure, options: Any):
    seen: list[str] = []
    task: Task[..., Any] = declare(expires_in_s=60)(lambda: seen.append("ran"))
    task.using(**options).enqueue()
    pass_time(get_queue("default"), seconds=3600 + 30)

    work()

    assert (seen, dead_letters()) == (["ran"], [])


@pytest.mark.parametrize(
    "options",
    [{"run_after": timedelta(hours=1)}, {"unique": Unique(mode="debounce", window_s=3600)}],
    ids=["deferred", "debounced"],
)
def test_a_delayed_call_expires_after_its_due_time(project: Configure, options: Any):
    task: Task[..., Any] = declare(expires_in_s=60)(lambda: None)
    task.using(**options).enqueue()
    pass_time(get_queue("default"), seconds=3600 + 61)

    work()

    assert the_dead_letter()[1]["reason"] == "expired"


def test_a_retry_does_not_expire(project: Configure):
    seen: list[str] = []

    def fail_once() -> None:
        seen.append("ran")
        if len(seen) == 1:
            raise OSError

    declare(expires_in_s=60, backoff=fixed(3600))(fail_once).enqueue()
    work(until_empty=False, until_drained=True)
    pass_time(get_queue("default"), seconds=3600 + 61)

    work()

    assert (seen, dead_letters()) == (["ran", "ran"], [])


SENT_AN_HOUR_BEFORE = f"{'hefg8dts00'}{'x' * 22}"
NOW_MS = int(SENT_AN_HOUR_BEFORE[:10], 36) / 1000 + 3_600_000


@pytest.mark.parametrize(
    ("receive_count", "attempt", "first_received_s", "waited_s", "is_too_late"),
    [
        (1, 1, 0, 61, True),
        (1, 1, 0, 59, False),
        (3, 1, 61, 0, True),  # taken and given back twice, a limit say: the first receive counts
        (3, 1, 59, 0, False),
        (3, 2, 61, 61, False),
        (3, 1, None, 0, True),  # a client that does not note the first receive: the time of sending counts
    ],
)
def test_a_call_that_was_given_back_unused_expires_after_its_first_receive(
    receive_count: int, attempt: int, first_received_s: int | None, waited_s: int, is_too_late: bool
):
    first_ms = None if first_received_s is None else int(NOW_MS - first_received_s * 1000)
    message = Message(SENT_AN_HOUR_BEFORE, b"", receive_count, first_ms)

    late = has_expired({"expires_in_s": 60}, message, attempt=attempt, wait_us=waited_s * 1_000_000, now_ms=NOW_MS)

    assert late is is_too_late


def test_a_tag_is_kept_for_longer_than_its_call_waits(project: Configure, server: PrivateServer):
    for tag, delay_s in (("now", 0), ("later", 1_000_000)):
        declare(tags=[tag])(lambda: None).using(run_after=timedelta(seconds=delay_s)).enqueue()

    kept_s = {key.rpartition(b":")[2]: server.redis.ttl(key) for key in server.redis.keys("rsmq::tag:*")}

    assert kept_s[b"later"] - kept_s[b"now"] == pytest.approx(1_000_000, abs=90)


@pytest.mark.parametrize(("received_before_s", "is_too_late"), [(61, True), (59, False)])
def test_a_call_whose_id_contains_no_time_expires_after_its_first_receive(received_before_s: int, is_too_late: bool):
    message = Message("an id of another program", b"", 2, int(NOW_MS - received_before_s * 1000))

    assert has_expired({"expires_in_s": 60}, message, attempt=1, wait_us=None, now_ms=NOW_MS) is is_too_late


@pytest.mark.parametrize("received_before_s", [61, 4000])
def test_an_earlier_receive_than_the_sending_does_not_count(received_before_s: int):
    message = Message(SENT_AN_HOUR_BEFORE, b"", 2, int(NOW_MS - 3_600_000 - received_before_s * 1000))

    assert not has_expired({"expires_in_s": 3601}, message, attempt=1, wait_us=None, now_ms=NOW_MS)
    assert has_expired({"expires_in_s": 3599}, message, attempt=1, wait_us=None, now_ms=NOW_MS)


def test_a_redriven_call_expires_after_it_was_redriven(project: Configure):
    seen: list[str] = []
    declare(expires_in_s=60)(lambda: seen.append("ran")).enqueue()
    pass_time(get_queue("default"), seconds=61)
    work()

    redrive("default-dead")
    work()

    assert (seen, dead_letters()) == (["ran"], [])


async def expiring() -> None: ...


def test_a_coroutine_expires_too(project: Configure):
    declare(expires_in_s=1)(expiring).enqueue()
    pass_time(get_queue("default"), seconds=2)

    work()

    assert the_dead_letter()[1]["reason"] == "expired"


async def test_call_that_is_enqueued_on_the_event_loop_is_found_by_its_tags(project: Configure):
    result = await declare(tags=["tour"])(_nothing).aenqueue()

    assert await sync_to_async(tagged)("tour") == [result.id]


def _nothing() -> None: ...
