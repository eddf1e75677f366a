"""Sending one call: its message in the queue, when it is ready, and refusals before the send."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from rsmq_django.core import Message
from rsmq_django.core.errors import ConnectionFailed, MessageTooLong
from rsmq_django.core.limits import MAX_BODY_BYTES
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import Task, TaskResultStatus
from tests.redis_server import PrivateServer
from tests.support import pass_time
from tests.worker.workshop import Configure, declare


@pytest.fixture
def paint(project: Configure) -> Task[..., Any]:
    """A task that paints nothing; its path is "tests.tasks.test_enqueue.painting"."""

    def painting(*colours: Any, **options: Any) -> None: ...

    declared: Task[..., Any] = declare(painting)
    return declared


def received(queue_name: str = "default") -> Message:
    message = get_queue(queue_name).receive()
    assert message is not None
    return message


def call_in(message: Message) -> Any:
    return json.loads(message.body)


# -- Priorities ----------------------------------------------------------------------------------------------------


def test_call_with_a_priority_is_stored_in_a_separate_ordinary_queue(paint: Task):
    urgent = paint.using(priority=50).enqueue("red")
    paint.using(priority=-7).enqueue("grey")
    paint.enqueue("blue")

    assert [call_in(received(name))["args"] for name in ("default-p50", "default-m7", "default")] == [
        ["red"],
        ["grey"],
        ["blue"],
    ]
    assert paint.get_result(urgent.id).status is TaskResultStatus.READY


def test_workers_of_the_queue_are_woken_for_every_priority(paint: Task, server: PrivateServer):
    with get_client().connection.subscriber(["rsmq:rt:default"]) as waiting:
        assert waiting.get_message(timeout=60)["type"] == "subscribe"

        paint.using(priority=50).enqueue("red")

        assert waiting.get_message(timeout=60)["type"] == "message"


# -- What arrives --------------------------------------------------------------------------------------------------


def test_call_arrives_as_one_json_object(paint: Task):
    result = paint.enqueue("red", "blue", coats=2)

    assert call_in(received()) == {
        "task": "tests.tasks.test_enqueue.painting",
        "id": result.id,
        "args": ["red", "blue"],
        "kwargs": {"coats": 2},
    }


def test_task_id_is_the_random_end_of_the_message_id(paint: Task):
    result = paint.enqueue("red")

    message = received()
    assert len(result.id) == 22
    assert message.id.endswith(result.id)


def test_result_of_an_enqueued_call_is_ready_and_has_its_call(paint: Task):
    result = paint.enqueue("red", coats=2)

    assert result.status == TaskResultStatus.READY
    assert (result.task, result.args, result.kwargs) == (paint, ["red"], {"coats": 2})
    assert (result.backend, result.errors, result.worker_ids) == ("default", [], [])
    assert not result.is_finished


def test_result_shows_the_arguments_as_the_worker_will_see_them(paint: Task):
    result = paint.enqueue(("red", "blue"), prices={1: "cheap", None: "free"})

    arrived = call_in(received())
    assert result.args == arrived["args"] == [["red", "blue"]]
    assert result.kwargs == arrived["kwargs"] == {"prices": {"1": "cheap", "null": "free"}}


def test_text_in_any_script_arrives_unchanged(paint: Task):
    paint.enqueue("červená 赤 🟥 \x00 \u2028")

    message = received()
    assert call_in(message)["args"] == ["červená 赤 🟥 \x00 \u2028"]
    assert "赤".encode() in message.body  # not escaped: half the size


def test_queue_that_does_not_exist_yet_is_created_as_the_settings_say(project: Configure, paint: Task):
    project(default={"VISIBILITY_TIMEOUT_S": 7})

    paint.enqueue("red")

    attributes = get_queue("default").attributes()
    assert (attributes.visibility_timeout_s, attributes.messages) == (7, 1)


def test_copy_for_another_queue_is_sent_there(project: Configure, paint: Task):
    project(default={}, mail={})

    paint.using(queue_name="mail").enqueue("red")

    assert call_in(received("mail"))["args"] == ["red"]


def test_waiting_consumers_of_any_language_are_reported(server: PrivateServer, paint: Task):
    subscriber = server.redis.pubsub(ignore_subscribe_messages=True)
    with subscriber:
        subscriber.subscribe("rsmq:rt:default")
        subscriber.get_message(timeout=60)

        paint.enqueue("red")

        told = subscriber.get_message(timeout=60)
    assert told is not None and told["data"] == b"1"


async def test_async_enqueue_sends_the_same(paint: Task):
    result = await paint.aenqueue("red", coats=2)

    message = await get_queue("default").areceive()
    assert message is not None and message.id.endswith(result.id)
    assert call_in(message)["kwargs"] == {"coats": 2}


async def test_enqueue_in_async_code_needs_no_thread_as_long_as_no_transaction_can_be_open(
    project: Configure, paint: Task
):
    project(on_commit=True)

    result = paint.enqueue("red")

    assert received().id.endswith(result.id)


async def test_async_enqueue_creates_a_missing_queue(server: PrivateServer, paint: Task):
    await paint.aenqueue("red")

    assert server.redis.smembers("rsmq:QUEUES") == {b"default"}


# -- Later ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_time", [False, True], ids=["timedelta", "time"])
def test_call_for_later_is_hidden_until_then(paint: Task, is_time: bool):
    in_five_minutes = dt.timedelta(minutes=5)

    paint.using(run_after=timezone.now() + in_five_minutes if is_time else in_five_minutes).enqueue("red")
    assert get_queue("default").receive() is None

    pass_time(get_queue("default"), seconds=301)

    assert call_in(received())["args"] == ["red"]


def test_call_for_a_time_that_has_passed_is_ready(paint: Task):
    paint.using(run_after=timezone.now() - dt.timedelta(days=1)).enqueue("red")

    assert call_in(received())["args"] == ["red"]


def test_call_without_a_time_of_its_own_waits_for_the_delay_of_the_queue(project: Configure, paint: Task):
    project(default={"DELAY_S": 60})

    paint.enqueue("red")
    paint.using(run_after=dt.timedelta(0)).enqueue("blue")

    assert call_in(received())["args"] == ["blue"]
    assert get_queue("default").receive() is None


def test_time_without_a_zone_is_local_time_where_the_project_uses_no_zones(settings, paint: Task):
    settings.USE_TZ = False

    paint.using(run_after=dt.datetime.now() + dt.timedelta(minutes=5)).enqueue("red")  # noqa: DTZ005

    assert get_queue("default").receive() is None
    pass_time(get_queue("default"), seconds=301)
    assert call_in(received())["args"] == ["red"]


def beyond_a_change_of_clocks(now: dt.datetime) -> dt.datetime:
    """The same time of the day on the next day that has another distance to UTC."""

    def distance(day: dt.datetime) -> object:
        return day.utcoffset() if day.tzinfo is not None else day.astimezone().utcoffset()

    days = (now + dt.timedelta(days=day) for day in range(1, 366))
    return next(day for day in days if distance(day) != distance(now))


def due_at_ms(server: PrivateServer) -> float:
    ((_, visible_ms),) = server.redis.zrange("rsmq:default", 0, -1, withscores=True)
    return float(visible_ms)


def test_time_beyond_a_change_of_clocks_is_the_one_on_the_clock(paint: Task, server: PrivateServer):
    when = beyond_a_change_of_clocks(dt.datetime.now(ZoneInfo("Europe/Berlin")))

    paint.using(run_after=when).enqueue("red")

    assert due_at_ms(server) == pytest.approx(1000 * when.timestamp(), abs=60_000)


@pytest.mark.parametrize("is_time", [False, True], ids=["timedelta", "time"])
def test_time_beyond_a_change_of_clocks_is_right_where_the_project_uses_no_zones(
    settings, paint: Task, server: PrivateServer, is_time: bool
):
    settings.USE_TZ = False
    now = dt.datetime.now()  # noqa: DTZ005
    when = beyond_a_change_of_clocks(now)
    due_ms = 1000 * (when.timestamp() if is_time else now.timestamp() + (when - now).total_seconds())

    paint.using(run_after=when if is_time else when - now).enqueue("red")

    assert due_at_ms(server) == pytest.approx(due_ms, abs=60_000)


# -- What is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "kind"),
    [
        (object(), TypeError),
        ({1, 2}, TypeError),
        (b"bytes", TypeError),
        (uuid.uuid4(), TypeError),
        (dt.datetime.now(dt.UTC), TypeError),
        ({(1, 2): "tuple"}, TypeError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        ("half a pair: \ud83e", ValueError),
    ],
)
def test_argument_that_json_lacks_is_refused_with_the_name_of_the_task(
    server: PrivateServer, paint: Task, argument, kind
):
    with pytest.raises(kind, match=r"arguments of tests\.tasks\.test_enqueue\.painting cannot be sent as JSON"):
        paint.enqueue(argument)

    assert not server.redis.keys()


def test_argument_that_contains_itself_is_refused(server: PrivateServer, paint: Task):
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(ValueError, match="cannot be sent as JSON"):
        paint.enqueue(circle)

    assert not server.redis.keys()


def test_call_above_the_size_limit_is_refused_with_both_sizes(server: PrivateServer, project: Configure, paint: Task):
    project(default={"MAX_SIZE_BYTES": 2000})

    with pytest.raises(MessageTooLong, match=r"painting is \d{4} bytes, queue 'default' allows 2000"):
        paint.enqueue("赤" * 700)

    assert not server.redis.keys()


def test_smaller_size_limit_of_the_stored_queue_applies(project: Configure, paint: Task):
    ensure_queue("default").set_attributes(max_size_bytes=1024)

    with pytest.raises(MessageTooLong, match="allows 1024"):
        paint.enqueue("x" * 1024)

    assert get_queue("default").attributes().messages == 0


def test_no_limit_means_none(project: Configure, paint: Task):
    project(default={"MAX_SIZE_BYTES": -1})

    paint.enqueue("x" * 100_000)

    assert len(received().body) > 100_000


def test_call_above_the_maximum_is_refused_also_on_a_queue_without_a_limit(
    server: PrivateServer, project: Configure, paint: Task
):
    project(default={"MAX_SIZE_BYTES": -1})

    with pytest.raises(MessageTooLong, match=rf"queue 'default' allows {MAX_BODY_BYTES}"):
        paint.enqueue("x" * MAX_BODY_BYTES)

    assert not server.redis.keys()


def test_settings_that_lost_the_queue_since_the_declaration_are_noticed(project: Configure, paint: Task):
    project(mail={})

    with pytest.raises(Exception, match="'default' is not in RSMQ"):
        paint.enqueue("red")


def test_call_without_a_server_reports_that_nothing_was_sent(project: Configure, paint: Task):
    project(url="unix:///nowhere/at/all")

    with pytest.raises(ConnectionFailed, match="nothing was sent"):
        paint.enqueue("red")
