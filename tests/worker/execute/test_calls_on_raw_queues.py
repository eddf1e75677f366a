"""Calls of tasks on the queue of a consumer: they are not given to it, and not lost."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.queues import get_client
from rsmq_django.tasks import TaskResultStatus, consumer, registry
from rsmq_django.tasks.compat import task_backends
from tests.worker.workshop import Configure, dead_letters, declare, send_raw, work


def send_call_to(queue_name: str, task: Any) -> Any:
    """Send a call as a process does that has not imported the queue's consumer."""
    hidden = registry._consumers.pop(queue_name, None)
    result = task.using(queue_name=queue_name).enqueue(7)
    if hidden is not None:
        registry._consumers[queue_name] = hidden
    return result


@pytest.mark.parametrize("batch", [None, 10])
def test_call_of_a_known_task_on_the_queue_of_a_consumer_becomes_a_dead_letter(
    project: Configure, batch: int | None, caplog: pytest.LogCaptureFixture
):
    project(default={}, readings={})
    seen: list[Any] = []
    paint = declare(lambda number: seen.append(number))
    consumer("readings", batch=batch)(seen.append)
    result = send_call_to("readings", paint)

    with caplog.at_level(logging.WARNING):
        work()

    ((message, record),) = dead_letters("readings-dead")
    assert seen == []
    assert json.loads(message.body)["args"] == [7]
    assert (record["reason"], record["task"], record["queue"]) == ("wrong_queue", paint.module_path, "readings")
    assert "queue 'readings' has the consumer" in record["message"]
    assert "wrong_queue" in caplog.text
    assert task_backends["default"].get_result(result.id).status == TaskResultStatus.FAILED


def test_consumer_with_takes_calls_gets_calls(project: Configure):
    project(default={}, audit={})
    seen: list[bytes] = []
    paint = declare(lambda number: None)
    consumer("audit", takes_calls=True)(lambda message: seen.append(message.body))
    send_call_to("audit", paint)

    work()

    assert [json.loads(body)["task"] for body in seen] == [paint.module_path]
    assert dead_letters("audit-dead") == []


@pytest.mark.parametrize(
    "body", [b'{"task": "cleaning"}', b'{"task": 7}', b'"task":"', b'{"note": "\\"task\\": \\"x\\""}']
)
def test_messages_that_only_look_like_calls_go_to_the_consumer(project: Configure, body: bytes):
    seen: list[bytes] = []
    consumer("default")(lambda message: seen.append(message.body))
    send_raw(body)

    work()

    assert seen == [body]


def test_body_that_quotes_a_call_is_not_a_call(project: Configure):
    project(default={}, readings={})
    seen: list[bytes] = []
    paint = declare(lambda number: None)
    consumer("readings")(lambda message: seen.append(message.body))
    body = json.dumps({"log": {"task": paint.module_path}}).encode()
    send_raw(body, "readings")

    work()

    assert seen == [body]


def test_reliable_queue_buries_calls_of_tasks_as_well(project: Configure, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "RELIABLE": {"orders": {}}}
    seen: list[Any] = []
    paint = declare(lambda number: seen.append(number))
    consumer("orders")(seen.append)
    queue = ReliableQueue("orders", get_client())
    queue.push(json.dumps({"task": paint.module_path, "args": [7]}))

    work("orders")

    assert seen == []
    assert len(queue.messages("dead")) == 1
