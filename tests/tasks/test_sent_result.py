"""The result of enqueue(): equal to Django's TaskResult, although most fields are computed on access."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
import time
from typing import Any

import pytest
from django.utils import timezone

from rsmq_django.queues import get_queue
from rsmq_django.tasks import Task, TaskResultStatus, Unique, sent_result
from rsmq_django.tasks.compat import TaskResult, task_backends
from tests.worker.workshop import Configure, declare


@pytest.fixture
def paint(project: Configure) -> Task[..., Any]:
    def painting(*colours: Any, **options: Any) -> None: ...

    declared: Task[..., Any] = declare(painting)
    return declared


def test_it_is_equal_to_djangos_own_result_with_the_same_fields(paint: Task):
    before = timezone.now()
    result = paint.enqueue(("red", 1), coats={2: None})

    own: TaskResult[..., Any] = TaskResult(
        task=paint,
        id=result.id,
        status=TaskResultStatus.READY,
        enqueued_at=result.enqueued_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=[["red", 1]],
        kwargs={"coats": {"2": None}},
        backend="default",
        errors=[],
        worker_ids=[],
    )
    assert result == own and own == result
    assert result != dataclasses.replace(own, id="another")
    assert before <= result.enqueued_at <= timezone.now()
    assert (result.attempts, result.is_finished) == (0, False)
    with pytest.raises(ValueError, match="has not finished"):
        result.return_value  # noqa: B018 - a property


def test_it_shows_the_arguments_that_were_sent_even_if_the_sender_changes_them_afterwards(paint: Task):
    colours = ["red"]
    result = paint.enqueue(colours)

    colours.append("blue")

    assert result.args == [["red"]]
    result.args.append("mine")
    assert result.args == [["red"], "mine"]  # made once


def test_it_is_frozen_and_has_no_other_attributes(paint: Task):
    result = paint.enqueue("red")

    with pytest.raises(dataclasses.FrozenInstanceError):
        result.id = "another"  # type: ignore[misc]
    with pytest.raises(AttributeError, match="'colour'"):
        result.colour  # type: ignore[attr-defined]  # noqa: B018


def test_copies_and_replacements_have_fields_that_were_never_read_before(paint: Task):
    result = paint.enqueue("red", coats=2)

    replaced = dataclasses.replace(result, status=TaskResultStatus.FAILED)

    assert copy.copy(result) == result
    assert (replaced.args, replaced.kwargs, replaced.status) == (["red"], {"coats": 2}, TaskResultStatus.FAILED)


def test_it_is_pickled_with_its_task_and_the_changes_of_using(paint: Task):
    result = paint.using(priority=5, tags=["gold"]).enqueue("red", coats=2)

    again = pickle.loads(pickle.dumps(result))

    assert again == result
    assert (again.task.priority, again.task.tags, again.args) == (5, ["gold"], ["red"])
    assert pickle.loads(pickle.dumps(paint)) is paint


def test_refreshed_data_stays_when_other_fields_are_read(paint: Task):
    result = paint.enqueue("red")
    get_queue("default").client.connection.exchange([("HSET", f"rsmq::result:{result.id}", "status", "RUNNING")])

    result.refresh()

    assert (result.status, result.args) == (TaskResultStatus.RUNNING, ["red"])


def test_refreshed_data_stays_although_another_thread_was_about_to_read_for_the_first_time(
    paint: Task, monkeypatch: pytest.MonkeyPatch
):
    result = paint.enqueue("red")
    get_queue("default").client.connection.exchange([("HSET", f"rsmq::result:{result.id}", "status", "RUNNING")])
    is_looking, may_go_on = threading.Event(), threading.Event()

    def ready(_: object) -> TaskResultStatus:
        if threading.current_thread() is looker:
            is_looking.set()
            assert may_go_on.wait(60)
        return TaskResultStatus.READY

    monkeypatch.setitem(sent_result._LATER, "status", ready)
    looker = threading.Thread(target=lambda: result.status)
    looker.start()
    assert is_looking.wait(60)

    result.refresh()
    may_go_on.set()
    looker.join(60)

    assert result.status is TaskResultStatus.RUNNING


async def test_data_refreshed_on_the_event_loop_stays_too(paint: Task):
    result = await paint.aenqueue("red")
    get_queue("default").client.connection.exchange([("HSET", f"rsmq::result:{result.id}", "status", "RUNNING")])

    await result.arefresh()

    assert (result.status, result.args) == (TaskResultStatus.RUNNING, ["red"])


def test_arguments_of_a_signed_call_are_shown_after_its_keys_were_removed(project: Configure, paint: Task):
    project(default={"SIGNING_KEYS": ["k" * 32]})
    result = paint.enqueue("red")

    project(default={"SIGNING_KEYS": ["other" * 8]})

    assert result.args == ["red"]


# -- What Django's own tests of backends ask for ----------------------------------------------------------------------


def test_it_is_equal_to_the_result_of_get_result(paint: Task):
    result = paint.enqueue("red", coats=2)

    assert result == task_backends["default"].get_result(result.id)
    assert result == paint.get_result(result.id)


async def test_it_is_equal_to_the_result_of_aget_result(paint: Task):
    result = await paint.aenqueue("red", coats=2)

    assert result == await task_backends["default"].aget_result(result.id)


def test_a_refresh_of_a_waiting_call_changes_nothing(paint: Task):
    result = paint.enqueue("red")
    before = copy.copy(result)

    result.refresh()

    assert result == before


def test_it_is_equal_where_the_project_uses_no_time_zones(paint: Task, settings: Any):
    settings.USE_TZ = False

    result = paint.enqueue("red")

    assert timezone.is_naive(result.enqueued_at)
    assert abs(result.enqueued_at - timezone.now()).total_seconds() < 60
    assert result == paint.get_result(result.id)


def test_clock_of_the_sender_does_not_matter(paint: Task, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("time.time", lambda now=time.time: now() - 3600)

    result = paint.enqueue("red")

    assert result == paint.get_result(result.id)


def test_call_of_a_unique_task_that_is_dropped_shows_when_the_other_was_sent(project: Configure):
    task: Task[..., Any] = declare(unique=Unique())(lambda: None)
    first = task.enqueue()

    second = task.enqueue()

    assert second == first == task.get_result(first.id)
