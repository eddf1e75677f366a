"""Calls without features are prepared once per task: the same messages, checks and errors, and settings still apply."""

from __future__ import annotations

import json
import math
import threading
from typing import Any

import pytest
from django.utils.safestring import mark_safe

from rsmq_django.core.errors import MessageTooLong, OutcomeUnknown, QueueFull
from rsmq_django.queues import get_queue
from rsmq_django.tasks import Task
from rsmq_django.tasks.backend import RSMQBackend
from rsmq_django.tasks.compat import InvalidTask
from rsmq_django.tasks.envelope import encode, encode_plain, head_of
from rsmq_django.tasks.route import route_of
from tests.exchanges import Exchanges
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare

PATH = 'shop."tasks".Größe'


class OfTheThread(RSMQBackend):
    """A backend of a project that keeps something per thread."""


class Tenant:
    """A middleware that adds to each call."""

    def sending(self, call: Any) -> None:
        """Name the tenant."""
        call.context["tenant"] = "acme"


@pytest.fixture
def paint(project: Configure) -> Task[..., Any]:
    def painting(*colours: Any, **options: Any) -> None: ...

    declared: Task[..., Any] = declare(painting)
    assert route_of(declared).request is not None
    return declared


def the_call() -> dict[str, Any]:
    """Return the only message of the queue as it was sent, and delete it."""
    message = get_queue("default").pop()
    assert message is not None and get_queue("default").pop() is None
    return dict(json.loads(message.body))


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((1, -(10**30), 0.1, 1e300, True, None), {}),
        (("", 'Ä\u2028\x00"\\\n', "😀"), {"größe": 1}),
        ([1], {"colour": "red", "coats": 2}),
        (([1, (2, 3)], {"a": {"b": []}}), {"also": {1: "one", None: 2}}),
        ((mark_safe("safe"),), {"flag": mark_safe("<b>")}),
        ((), {1: "one", None: "none"}),
    ],
)
def test_bodies_are_the_same_as_of_other_calls(args: Any, kwargs: Any):
    assert encode_plain(head_of(PATH), PATH, "x" * 22, args, kwargs) == encode(PATH, "x" * 22, args, kwargs, None)


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, "\ud800", b"bytes", {1, 2}, object(), [math.nan], 10**5000],
    ids=["nan", "inf", "surrogate", "bytes", "set", "object", "list", "long"],
)
def test_values_that_json_lacks_are_the_same_errors_as_in_other_calls(value: Any):
    with pytest.raises((TypeError, ValueError)) as expected:
        encode(PATH, "x" * 22, ["red", value], {"coats": value}, None)
    with pytest.raises((TypeError, ValueError)) as caught:
        encode_plain(head_of(PATH), PATH, "x" * 22, ["red", value], {"coats": value})

    assert (type(caught.value), str(caught.value)) == (type(expected.value), str(expected.value))


@pytest.mark.parametrize("name", [("red", 1), b"red"], ids=["tuple", "bytes"])
def test_names_that_json_lacks_are_the_same_errors_as_in_other_calls(paint: Task, name: Any):
    with pytest.raises(TypeError) as expected:
        encode(paint.module_path, "x" * 22, [], {name: 1}, None)
    with pytest.raises(TypeError) as caught:
        paint.enqueue_many([{name: 1}])

    assert str(caught.value) == str(expected.value)
    assert str(caught.value).startswith(f"arguments of {paint.module_path} cannot be sent as JSON: ")


def test_cycle_is_an_error():
    cycle: list[Any] = []
    cycle.append(cycle)

    with pytest.raises(ValueError, match="(?i)circular|contains itself|cycle"):
        encode_plain(head_of(PATH), PATH, "x" * 22, [cycle], {})


@pytest.mark.parametrize("ttl_s", [0, 60])
def test_message_and_result_are_stored(project: Configure, server: PrivateServer, ttl_s: int):
    def painting(colour: str, coats: int = 1) -> None: ...

    paint = declare(result_ttl_s=ttl_s)(painting)
    result = paint.enqueue("red", coats=2)

    assert bool(server.redis.exists(f"rsmq::result:{result.id}")) is (ttl_s > 0)
    (message,) = get_queue("default").receive_many(10)
    assert message.id.endswith(result.id) and result.enqueued_at is not None
    assert json.loads(message.body) == {
        "task": paint.module_path,
        "id": result.id,
        "args": ["red"],
        "kwargs": {"coats": 2},
    }


def test_server_that_forgot_the_script_gets_it_again(paint: Task, server: PrivateServer):
    paint.enqueue("red")
    the_call()
    server.redis.script_flush()

    paint.enqueue("blue")

    assert the_call()["args"] == ["blue"]


def test_queue_that_was_deleted_is_created_again(paint: Task):
    paint.enqueue("red")
    get_queue("default").delete_queue()

    paint.enqueue("blue")

    assert the_call()["args"] == ["blue"]


def test_full_server_is_the_error_of_every_send(paint: Task, exchanges: Exchanges):
    paint.enqueue("red")
    exchanges.full_after = exchanges.count

    with pytest.raises(QueueFull, match="^queue 'default': the server is at its memory limit, nothing was stored"):
        paint.enqueue("blue")


def test_lost_reply_is_an_unknown_outcome_and_the_call_is_not_repeated(paint: Task, exchanges: Exchanges):
    paint.enqueue("red")
    exchanges.begin_again()
    exchanges.lost_after = 0

    with pytest.raises(OutcomeUnknown):
        paint.enqueue("blue")

    assert exchanges.count == 1
    exchanges.begin_again()
    assert get_queue("default").attributes().messages == 2


def test_call_that_is_too_long_is_refused_before_anything_is_sent(paint: Task, exchanges: Exchanges):
    paint.enqueue("x")
    exchanges.begin_again()

    with pytest.raises(MessageTooLong, match="a call of .*painting is .* bytes, queue 'default' allows 65536"):
        paint.enqueue("ü" * 32_768)

    assert exchanges.count == 0


# -- Changed settings, as in tests -------------------------------------------------------------------------------------


def test_changed_settings_apply_to_the_next_call(paint: Task, project: Configure, settings: Any):
    paint.enqueue("red")
    assert "meta" not in the_call()

    settings.RSMQ = {**settings.RSMQ, "MIDDLEWARE": [Tenant]}
    paint.enqueue("blue")
    assert the_call()["meta"] == {"context": {"tenant": "acme"}}

    project(default={"MAX_SIZE_BYTES": 1024})
    with pytest.raises(MessageTooLong, match="allows 1024"):
        paint.enqueue("x" * 1024)

    project(other={})
    with pytest.raises(InvalidTask, match="'default'"):
        paint.enqueue("green")


def test_another_backend_gets_the_calls(paint: Task, settings: Any):
    paint.enqueue("red")
    module = type(paint).__mro__[1].__module__.partition(".base")[0]
    settings.TASKS = {"default": {"BACKEND": f"{module}.backends.dummy.DummyBackend", "QUEUES": []}}

    result = paint.enqueue("blue")

    assert [each.id for each in paint.get_backend().results] == [result.id]
    assert the_call()["args"] == ["red"]


def test_own_backend_is_the_same_in_all_threads_and_one_of_a_project_is_not(paint: Task, settings: Any):
    def in_a_thread() -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(paint.get_backend()))
        thread.start()
        thread.join()
        return found[0]

    assert in_a_thread() is paint.get_backend()
    settings.TASKS = {"default": {"BACKEND": f"{__name__}.OfTheThread", "QUEUES": []}}
    assert in_a_thread() is not paint.get_backend()
    assert type(paint.get_backend()) is OfTheThread


def test_one_exchange_sends_a_call(paint: Task, exchanges: Exchanges):
    paint.enqueue("red")
    exchanges.begin_again()

    paint.enqueue("blue", coats=[1, 2])

    assert exchanges.count == 1
