"""Django's signal of a sent task: its sender and its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from rsmq_django.queues import get_queue
from rsmq_django.tasks import Unique
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


async def test_async_enqueue_reports_it_too(project: Configure, heard):
    result = await declare(lambda: None).aenqueue()

    assert heard == [(RSMQBackend, result)]


def test_listener_is_called_for_a_call_that_is_in_the_queue(project: Configure):
    found = []

    def look(**_: Any) -> None:
        found.append(get_queue("default").attributes().messages)

    task_enqueued.connect(look)
    declare(lambda: None).enqueue()

    task_enqueued.disconnect(look)
    assert found == [1]


def test_refused_call_is_not_announced(project: Configure, heard):
    with pytest.raises(TypeError):
        declare(lambda what: None).enqueue(object())

    assert heard == []


@pytest.mark.parametrize("is_async", [False, True])
def test_each_of_many_calls_is_announced_with_its_own_id_and_arguments(project: Configure, heard, is_async: bool):
    declared = declare(lambda number: None)
    calls = [[1], {"number": 2}, [3]]

    ids = async_to_sync(declared.aenqueue_many)(calls) if is_async else declared.enqueue_many(calls)

    assert [sender for sender, _ in heard] == [RSMQBackend] * 3
    assert [result.id for _, result in heard] == ids
    assert [(result.args, result.kwargs) for _, result in heard] == [([1], {}), ([], {"number": 2}), ([3], {})]
    assert [result.enqueued_at for _, result in heard] == [declared.get_result(each).enqueued_at for each in ids]


def test_only_sent_calls_of_many_unique_ones_are_announced(project: Configure, heard):
    declared = declare(unique=Unique())(lambda number: None)

    declared.enqueue_many([[1], [1], [2]])

    assert [result.args for _, result in heard] == [[1], [2]]


@pytest.mark.django_db(transaction=True)
def test_many_calls_of_a_transaction_are_announced_when_they_are_sent(configure: Configure, heard):
    configure(on_commit=True)
    declared = declare(lambda number: None)
    with transaction.atomic():
        ids = declared.enqueue_many([[1], [2]])
        assert heard == []

    assert [result.id for _, result in heard] == ids
