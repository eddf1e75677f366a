"""Arguments that a function does not accept: refused in the sender, for every way of sending."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from rsmq_django.core.errors import QueueNotFound
from rsmq_django.queues import get_queue
from rsmq_django.reliable_queues import task_body
from rsmq_django.tasks import TaskContext, call, chain, group
from rsmq_django.tasks.arguments import misfit
from tests.worker.workshop import Configure, declare, work


def ship(order: int, *, express: bool = False) -> None: ...


def with_context(context: TaskContext, order: int) -> None: ...


def anything(*args: Any, **kwargs: Any) -> None: ...


def only_by_position(order: int, /, note: str = "") -> None: ...


def by_keyword_only(*, order: int) -> None: ...


def open_ended(order: int, **more: Any) -> None: ...


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@wrapped
def decorated(order: int) -> None: ...


def sent_messages() -> int:
    try:
        return get_queue("default").attributes().messages
    except QueueNotFound:
        return 0


PLACE = "tests.tasks.test_arguments"


@pytest.mark.parametrize(
    ("function", "options", "args", "kwargs", "said"),
    [
        (ship, {}, (), {}, "ship(order: 'int', *, express: 'bool' = False) -> 'None': missing a required argument"),
        (ship, {}, (1, 2), {}, "too many positional arguments"),
        (ship, {}, (1,), {"expres": True}, "got an unexpected keyword argument 'expres'"),
        (ship, {}, (), {"oder": 1}, "missing a required argument: 'order'; it takes no 'oder'"),
        (ship, {}, (1,), {"order": 1}, "multiple values for argument 'order'"),
        (with_context, {"takes_context": True}, (), {}, "with_context(order: 'int') -> 'None': missing a required"),
        (with_context, {"takes_context": True}, (1, 2), {}, "too many positional arguments"),
        (with_context, {"takes_context": True}, (), {"context": 1, "order": 2}, "multiple values for argument"),
        (only_by_position, {}, (), {"order": 1}, "'order'"),
        (by_keyword_only, {}, (1,), {}, "too many positional arguments"),
        (open_ended, {}, (), {"note": "x"}, "missing a required argument: 'order'"),
        (decorated, {}, (), {}, "decorated(order: 'int') -> 'None': missing a required argument: 'order'"),
    ],
)
def test_call_that_does_not_fit_is_refused_where_it_is_made(
    project: Configure,
    function: Callable[..., Any],
    options: dict[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    said: str,
):
    task = declare(**options)(function) if options else declare(function)

    with pytest.raises(TypeError) as refused:
        task.enqueue(*args, **kwargs)

    assert str(refused.value).startswith(f"{PLACE}.{function.__name__}(")
    assert said in str(refused.value)
    assert sent_messages() == 0


@pytest.mark.parametrize(
    ("function", "options", "args", "kwargs"),
    [
        (ship, {}, (1,), {}),
        (ship, {}, (), {"order": 1, "express": True}),
        (ship, {}, (1,), {"express": True}),
        (with_context, {"takes_context": True}, (1,), {}),
        (with_context, {"takes_context": True}, (), {"order": 1}),
        (anything, {}, (1, 2, 3), {"a": 4}),
        (anything, {}, (), {}),
        (only_by_position, {}, (1,), {"note": "x"}),
        (by_keyword_only, {}, (), {"order": 1}),
        (open_ended, {}, (1,), {"note": "x"}),
        (decorated, {}, (1,), {}),
    ],
)
def test_call_that_fits_is_sent_and_runs(
    project: Configure,
    function: Callable[..., Any],
    options: dict[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
):
    task = declare(**options)(function) if options else declare(function)

    result = task.enqueue(*args, **kwargs)

    work()
    result.refresh()
    assert result.status == "SUCCESSFUL"


def test_arguments_of_a_function_that_takes_batches_are_not_checked(project: Configure):
    seen: list[Any] = []

    def stow(calls: list[Any]) -> None:
        seen.extend(each.kwargs for each in calls)

    declare(batch=10)(stow).enqueue(shelf=7)

    work()
    assert seen == [{"shelf": 7}]


def test_function_in_c_without_a_signature_is_trusted():
    assert misfit(dict, [1, 2, 3], {"anything": 1}, given=1) == ""


def test_none_of_many_calls_is_sent_when_one_does_not_fit(project: Configure):
    with pytest.raises(TypeError, match="too many positional"):
        declare(ship).enqueue_many([*([number] for number in range(1500)), [1, 2]])

    assert sent_messages() == 0


def test_async_call_that_does_not_fit_is_refused(project: Configure):
    task = declare(ship)

    with pytest.raises(TypeError, match="missing a required argument"):
        asyncio.run(task.aenqueue())


@pytest.mark.django_db(transaction=True)
def test_call_in_a_transaction_is_refused_before_the_commit(project: Configure):
    task = declare(ship)

    with transaction.atomic(), pytest.raises(TypeError, match="missing a required argument"):
        task.enqueue()


def test_workflow_counts_the_result_that_it_will_put_in_front(project: Configure):
    task, end = declare(ship), declare(by_keyword_only)

    chain(call(task, 1), call(task, express=True)).enqueue()
    group([call(task, 1)], then=call(end, order=1).without_result()).enqueue()

    with pytest.raises(TypeError, match="too many positional"):
        chain(call(task, 1), call(task, 2)).enqueue()
    with pytest.raises(TypeError, match="missing a required argument"):
        group([call(task)]).enqueue()
    with pytest.raises(TypeError, match=r"by_keyword_only.*too many positional"):
        group([call(task, 1)], then=call(end, order=1)).enqueue()


def test_body_for_a_reliable_queue_is_of_a_call_that_fits(project: Configure):
    task = declare(ship)

    assert task_body(task, 7)
    with pytest.raises(TypeError, match="missing a required argument"):
        task_body(task)
