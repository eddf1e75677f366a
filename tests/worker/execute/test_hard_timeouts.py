"""What nothing inside a process can stop is stopped with its process: that task has failed, and no other one has."""

from __future__ import annotations

import pytest

from rsmq_django.queues import get_queue
from rsmq_django.tasks import HardTimeout, TaskTimeout, task
from rsmq_django.worker.report.shared_state import SharedState
from tests.chaos.fleet import ONE, start  # noqa: F401
from tests.chaos.project import tasks
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, dead_letters, declare, the_dead_letter

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["spin", "hang"])
def test_endless_task_fails_with_its_process(
    project: Configure,
    start: StartWorker,  # noqa: F811
    journal: Journal,
    name: str,
):
    result = getattr(tasks, name).enqueue(name)

    worker = start("--burst", *ONE)

    assert worker.wait() == 0
    assert "runs longer than its hard_timeout_s" in worker.output
    _, record = the_dead_letter()
    assert (record["reason"], record["attempts"]) == ("attempts_used_up", 1)
    assert record["error"] == "rsmq_django.tasks.interrupts.HardTimeout"
    assert record["message"] == "it ran longer than its hard_timeout_s of 2 s; its process was killed"
    result.refresh()
    assert [error.exception_class for error in result.errors] == [HardTimeout]
    assert result.last_attempted_at is None or result.last_attempted_at >= result.enqueued_at
    assert issubclass(HardTimeout, TaskTimeout)


def test_it_is_tried_again_as_after_any_other_failure(
    project: Configure,
    start: StartWorker,  # noqa: F811
    journal: Journal,
):
    result = tasks.hang_once.enqueue("once")

    assert start("--burst", *ONE).wait() == 0

    result.refresh()
    assert journal.names("start") == ["once", "once"]
    assert (result.status, [error.exception_class for error in result.errors]) == ("SUCCESSFUL", [HardTimeout])
    assert dead_letters() == []


def test_other_messages_of_the_process_are_released_and_lose_no_attempt(
    project: Configure,
    server: PrivateServer,
    start: StartWorker,  # noqa: F811
    journal: Journal,
):
    tasks.gate.enqueue_many([["innocent"], ["bystander"]])
    start("--processes", "1", "--threads", "3")
    wait_until(lambda: len(journal.names("start")) == 2)
    tasks.hang.enqueue("hang")

    wait_until(lambda: journal.names("start").count("innocent") == 2)
    wait_until(lambda: journal.names("start").count("bystander") == 2)

    released = server.redis.hgetall("rsmq::released:default")
    assert set(released.values()) == {b"1"} and not any(b":crashes" in field for field in released)
    journal.open_gate()
    wait_until(lambda: get_queue("default").attributes().messages == 0)
    ((_, record),) = dead_letters()
    assert record["task"].endswith(".hang")


def test_limits_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="hard_timeout_s is 5 and timeout_s is 5; it must be longer"):
        declare(timeout_s=5, hard_timeout_s=5)(lambda: None)
    with pytest.raises(ValueError, match="hard_timeout_s is 0"):
        task(hard_timeout_s=0)(len)


# -- Shared state ------------------------------------------------------------------------------------------------------


def test_run_without_a_limit_is_never_overdue():
    shared_state = SharedState(2)
    shared_state.enter("a", began_at=0.0)

    assert shared_state.overdue(1e12) == frozenset()
    assert shared_state.running() == {"a"}


def test_run_is_overdue_until_it_has_ended():
    shared_state = SharedState(2)
    slot = shared_state.enter("a", began_at=0.0, run_by=100.0)
    shared_state.enter("b", began_at=0.0, run_by=200.0)
    assert slot is not None

    assert shared_state.next_limit() == 100.0
    assert shared_state.overdue(99.9) == frozenset()
    assert shared_state.overdue(100.0) == {"a"}

    shared_state.lift_limit(slot)  # it has run, and its outcome waits to be told
    assert shared_state.overdue(150.0) == frozenset()
    assert shared_state.running() == {"a", "b"}

    shared_state.leave(slot)
    shared_state.enter("c", began_at=0.0)  # in the same place
    assert shared_state.overdue(1e12) == {"b"}
