"""Sending many calls: their order, their ids, and the number of round trips."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from rsmq_django.core import list_queues
from rsmq_django.core.errors import ConnectionFailed, MessageTooLong, OutcomeUnknown, PartlyDone, QueueFull
from rsmq_django.core.queue.bands import band_name
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import Task, TaskResultStatus, Unique, task
from rsmq_django.tasks.compat import HAS_NATIVE_TASKS
from rsmq_django.tasks.lanes import lane_of_call
from tests.exchanges import Exchanges
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


def test_another_backend_reports_that_it_has_no_support(project: Configure, settings, paint: Task):
    package = "django.tasks" if HAS_NATIVE_TASKS else "django_tasks"
    settings.TASKS = {**settings.TASKS, "dummy": {"BACKEND": f"{package}.backends.dummy.DummyBackend"}}
    declared = task(scheduled)

    object.__setattr__(declared, "backend", "dummy")

    with pytest.raises(TypeError, match="'dummy' of .*scheduled is not an RSMQBackend; it has no enqueue_many"):
        declared.enqueue_many([[1]])


# -- Failures in the middle -------------------------------------------------------------------------------------------


def test_full_server_in_the_middle_is_not_reported_as_if_nothing_was_stored(paint: Task, exchanges: Exchanges):
    paint.enqueue_many([[0]])
    exchanges.count, exchanges.full_after = 0, 2

    with pytest.raises(PartlyDone, match=r"^2000 were carried out, the others were not: .*memory limit") as caught:
        paint.enqueue_many([[number] for number in range(3000)])

    assert isinstance(caught.value.__cause__, QueueFull)
    assert list(caught.value.done) == list(range(2000))
    assert [call["id"] for call in received(2001)][1:] == list(caught.value.done.values())


async def test_partly_sent_async_calls_report_the_sent_ones(paint: Task, exchanges: Exchanges):
    await paint.aenqueue_many([[0]])
    exchanges.count, exchanges.full_after = 0, 1

    with pytest.raises(PartlyDone) as caught:
        await paint.aenqueue_many([[number] for number in range(3000)])

    assert list(caught.value.done) == list(range(1000))


def test_lost_reply_in_the_middle_reports_which_calls_may_have_been_sent(paint: Task, exchanges: Exchanges):
    paint.enqueue_many([[0]])
    exchanges.count, exchanges.lost_after = 0, 1

    with pytest.raises(PartlyDone) as caught:
        paint.enqueue_many([[number] for number in range(3000)])

    exchanges.lost_after = 10**9
    assert list(caught.value.done) == list(range(1000))
    assert [call["id"] for call in received(2001)][1001:] == list(caught.value.unknown.values())
    assert list(caught.value.unknown) == list(range(1000, 2000))


def test_lost_reply_to_the_only_exchange_is_an_unknown_outcome(paint: Task, exchanges: Exchanges):
    paint.enqueue_many([[0]])
    exchanges.count, exchanges.lost_after = 0, 0

    with pytest.raises(OutcomeUnknown, match="^did not answer$") as caught:
        paint.enqueue_many([[1], [2]])

    assert not isinstance(caught.value, PartlyDone)


def test_positions_are_those_of_the_caller_although_lanes_are_sent_one_after_the_other(
    project: Configure, exchanges: Exchanges
):
    def painting(number: int, tenant: int) -> None: ...

    paint: Task[..., Any] = declare(fair_by=["tenant"])(painting)
    calls = [{"number": number, "tenant": number % 3} for number in range(30)]
    paint.enqueue_many(calls)
    too_long = [{"number": n, "tenant": "x" * 1500 if n == 7 else n % 3} for n in range(30)]
    lane = lane_of_call(paint, (), too_long[7])
    ensure_queue(band_name("default", 0, lane)).set_attributes(max_size_bytes=1024)
    in_lane = {n for n, call in enumerate(too_long) if lane_of_call(paint, (), call) == lane}

    with pytest.raises(PartlyDone) as caught:
        paint.enqueue_many(too_long)

    assert set(caught.value.done) == set(range(30)) - in_lane
    sent = {call["id"]: call["kwargs"]["number"] for name in lane_names() for call in waiting_in(name)}
    assert all(sent[task_id] == position for position, task_id in caught.value.done.items())


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_exchange_for_several_lanes_that_fails_has_sent_none_of_their_calls(
    project: Configure, exchanges: Exchanges, is_async: bool
):
    def painting(number: int, tenant: int) -> None: ...

    paint: Task[..., Any] = declare(fair_by=["tenant"])(painting)
    calls = [{"number": number, "tenant": number} for number in range(9)]
    await paint.aenqueue_many(calls)
    exchanges.count, exchanges.gone_after = 0, 0

    with pytest.raises(ConnectionFailed) as caught:
        await (paint.aenqueue_many(calls) if is_async else sync_to_async(paint.enqueue_many)(calls))

    assert not isinstance(caught.value, PartlyDone)
    exchanges.begin_again()
    assert sum(len(waiting_in(name)) for name in lane_names()) == 9, "those of before"


# -- Unique tasks -----------------------------------------------------------------------------------------------------


def declared_unique(**options: Any) -> Task[..., Any]:
    def painting(colour: Any, coats: int = 1) -> None: ...

    task: Task[..., Any] = declare(unique=Unique(by=["colour"], **options))(painting)
    return task


@pytest.mark.parametrize("mode", ["reject", "replace"])
def test_calls_of_a_unique_task_take_a_round_trip_for_a_thousand(project: Configure, exchanges: Exchanges, mode: str):
    paint = declared_unique(mode=mode)
    paint.enqueue(-1)
    exchanges.count = 0

    ids = paint.enqueue_many([[number] for number in range(300)])

    assert exchanges.count == 1
    assert [call["id"] for call in received(301)][1:] == ids


@pytest.mark.parametrize("mode", ["reject", "replace"])
@pytest.mark.parametrize("before", ["none", "waiting", "running"])
def test_equal_calls_take_three_round_trips_at_most(project: Configure, exchanges: Exchanges, mode: str, before: str):
    paint = declared_unique(mode=mode)
    first = paint.enqueue("red") if before != "none" else None
    if before == "running":
        get_queue("default").receive()
    exchanges.count = 0

    ids = paint.enqueue_many([["red", number] for number in range(100)])

    assert exchanges.count <= 3
    left = waiting_in("default")
    if mode == "replace" and before != "running":
        assert [call["id"] for call in left] == [ids[-1]]
        assert {paint.get_result(each).id for each in ids} == {ids[-1]}
    else:
        stands = first.id if first else ids[0]
        assert [call["id"] for call in left] == [stands]
        assert {paint.get_result(each).id for each in ids} == {stands}


def test_partly_sent_unique_calls_report_the_sent_ones(project: Configure, exchanges: Exchanges):
    paint = declared_unique()
    first = paint.enqueue("red")
    exchanges.count, exchanges.full_after = 0, 1  # the second exchange is that of the call which is there already

    with pytest.raises(PartlyDone, match=r"^2 were carried out, the others were not: .*memory limit") as caught:
        paint.enqueue_many([["blue"], ["red"], ["green"]])

    assert list(caught.value.done) == [0, 2]
    assert [call["id"] for call in waiting_in("default")] == [first.id, *caught.value.done.values()]


async def test_async_calls_of_a_unique_task_take_a_round_trip_for_a_thousand(project: Configure, exchanges: Exchanges):
    paint = declared_unique()
    paint.enqueue(-1)
    exchanges.count = 0

    await paint.aenqueue_many([[number] for number in range(300)])

    assert exchanges.count == 1


def test_tag_that_cannot_be_removed_does_not_make_a_call_that_was_sent_fail(
    project: Configure, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    task: Task[..., Any] = declare(unique=Unique(mode="replace"), tags=["wall"])(lambda: None)
    task.enqueue()

    def fail(*_: object) -> Any:
        raise ConnectionFailed("cannot connect; nothing was sent")

    monkeypatch.setattr("rsmq_django.tasks.unique_sending.untag", fail)

    second = task.enqueue()

    assert [call["id"] for call in waiting_in("default")] == [second.id]


def lane_names() -> list[str]:
    return [name for name in list_queues(get_client()) if "lane" in name]


def waiting_in(queue_name: str) -> list[dict[str, Any]]:
    """Return the calls in a queue, without receiving them."""
    queue = get_queue(queue_name)
    (ids,) = queue.client.connection.exchange([("ZRANGE", queue.keys.messages, 0, -1)])
    bodies = queue.client.connection.exchange([("HGET", queue.keys.settings, each) for each in ids]) if ids else []
    return [json.loads(body) for body in bodies]
