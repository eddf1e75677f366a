"""Django's signal of a sent task: who sends it, and with what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.queues import get_queue
from rsmq_django.tasks.backend import RSMQBackend
from rsmq_django.tasks.compat import task_enqueued
from tests.worker.workshop import Configure, declare


@pytest.fixture
def heard() -> Iterator[list[tuple[Any, Any]]]:
    """What a listener has heard: sender and result."""
    heard: list[tuple[Any, Any]] = []

    def listen(sender: Any, task_result: Any, **_: Any) -> None:
        heard.append((sender, task_result))

    task_enqueued.connect(listen)
    yield heard
    task_enqueued.disconnect(listen)


def test_sender_is_the_class_of_the_backend(project: Configure, heard):
    result = declare(lambda: None).enqueue()

    assert heard == [(RSMQBackend, result)]
    assert heard[0][1] is result


async def test_async_enqueue_tells_it_too(project: Configure, heard):
    result = await declare(lambda: None).aenqueue()

    assert heard == [(RSMQBackend, result)]


def test_listener_hears_of_a_call_that_is_in_the_queue(project: Configure):
    found = []

    def look(**_: Any) -> None:
        found.append(get_queue("default").attributes().messages)

    task_enqueued.connect(look)
    declare(lambda: None).enqueue()

    task_enqueued.disconnect(look)
    assert found == [1]


def test_call_that_is_refused_is_not_told(project: Configure, heard):
    with pytest.raises(TypeError):
        declare(lambda what: None).enqueue(object())

    assert heard == []
