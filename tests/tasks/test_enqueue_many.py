"""Sending many calls: their order, their ids, and how often the server is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rsmq_django.core.errors import MessageTooLong
from rsmq_django.queues import get_queue
from rsmq_django.tasks import Task, TaskResultStatus, task
from rsmq_django.tasks.compat import HAS_NATIVE_TASKS
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare


@pytest.fixture
def paint(project: Configure) -> Task[..., Any]:
    def painting(number: int = 0) -> None: ...

    declared: Task[..., Any] = declare(painting)
    return declared


def received(count: int) -> list[dict[str, Any]]:
    """Return the next calls as they arrive."""
    messages = get_queue("default").receive_many(min(count, 1000))
    if len(messages) < count and messages:
        return [json.loads(message.body) for message in messages] + received(count - len(messages))
    return [json.loads(message.body) for message in messages]


def scripts_run(server: PrivateServer) -> int:
    stats = server.redis.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("eval", "evalsha"))


def test_calls_arrive_in_the_order_given(paint: Task):
    paint.enqueue_many([{"number": number} for number in range(2500)])

    assert [call["kwargs"]["number"] for call in received(2500)] == list(range(2500))


def test_ids_come_back_in_the_order_of_the_calls(paint: Task):
    ids = paint.enqueue_many([[number] for number in range(2500)])

    assert [call["id"] for call in received(2500)] == ids
    assert len(set(ids)) == 2500


def test_a_thousand_calls_are_one_round_trip(server: PrivateServer, paint: Task):
    paint.enqueue_many([[0]])  # the queue exists, and the server knows the script
    before = scripts_run(server)

    paint.enqueue_many([[number] for number in range(2500)])

    assert scripts_run(server) == before + 3


def test_calls_are_dictionaries_or_sequences(paint: Task):
    paint.enqueue_many([{"number": 1}, [2], (3,), {}, []])

    assert [(call["args"], call["kwargs"]) for call in received(5)] == [
        ([], {"number": 1}),
        ([2], {}),
        ([3], {}),
        ([], {}),
        ([], {}),
    ]


def test_calls_may_come_from_a_generator(paint: Task):
    ids = paint.enqueue_many([number] for number in range(3))

    assert [call["id"] for call in received(3)] == ids


def test_no_calls_need_no_server(project: Configure, paint: Task):
    project(url="unix:///nowhere/at/all")

    assert paint.enqueue_many([]) == []


@pytest.mark.parametrize("call", ["red", b"red", 7, None])
def test_call_that_is_neither_is_refused(server: PrivateServer, paint: Task, call):
    with pytest.raises(TypeError, match="a call is a dictionary of keyword arguments or a list of positional ones"):
        paint.enqueue_many([[1], call])

    assert not server.redis.keys()


def test_one_bad_call_among_thousands_sends_none(server: PrivateServer, paint: Task):
    calls: list[list[Any]] = [[number] for number in range(1500)]

    with pytest.raises(TypeError, match="cannot be sent as JSON"):
        paint.enqueue_many([*calls, [object()]])
    with pytest.raises(MessageTooLong):
        paint.enqueue_many([*calls, ["x" * 70_000]])

    assert not server.redis.keys()


def test_every_call_has_a_result(paint: Task):
    ids = paint.enqueue_many([[1], [2]])

    results = [paint.get_result(task_id) for task_id in ids]
    assert [(result.status, result.args) for result in results] == [
        (TaskResultStatus.READY, [1]),
        (TaskResultStatus.READY, [2]),
    ]


async def test_async_twin_sends_the_same(paint: Task):
    ids = await paint.aenqueue_many([[number] for number in range(1200)])

    calls = received(1200)
    assert [call["id"] for call in calls] == ids
    assert [call["args"] for call in calls] == [[number] for number in range(1200)]


def scheduled(number: int) -> None: ...


def test_another_backend_says_that_it_cannot(project: Configure, settings, paint: Task):
    package = "django.tasks" if HAS_NATIVE_TASKS else "django_tasks"
    settings.TASKS = {**settings.TASKS, "dummy": {"BACKEND": f"{package}.backends.dummy.DummyBackend"}}
    declared = task(scheduled)

    object.__setattr__(declared, "backend", "dummy")

    with pytest.raises(TypeError, match="'dummy' of .*scheduled is not an RSMQBackend; it has no enqueue_many"):
        declared.enqueue_many([[1]])
