"""How often one call may run can be said with the call, here and in any language."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rsmq_django.tasks import Task, fixed
from tests.worker.workshop import Configure, dead_letters, declare, send_raw, the_dead_letter, work


@pytest.fixture
def attempts(project: Configure) -> list[int]:
    """The attempts of the task `fail`, which has two by its declaration."""
    return []


@pytest.fixture
def fail(attempts: list[int]) -> Task[..., Any]:
    def fail() -> None:
        attempts.append(1)
        raise OSError

    task: Task[..., Any] = declare(max_attempts=2, backoff=fixed(0))(fail)
    return task


def send_with_meta(meta: Any) -> None:
    """Send a call of the task `fail` as a program in another language would."""
    send_raw(json.dumps({"task": f"{__name__}.fail", "meta": meta}))


def test_a_call_has_as_many_attempts_as_it_was_sent_with(fail: Task[..., Any], attempts: list[int]):
    fail.using(max_attempts=7).enqueue()

    work()

    assert len(attempts) == 7
    assert the_dead_letter()[1]["attempts"] == 7


def test_other_calls_have_the_declared_number_of_attempts(fail: Task[..., Any], attempts: list[int]):
    fail.using(max_attempts=7)
    fail.enqueue()

    work()

    assert len(attempts) == 2


def test_a_call_of_another_language_can_set_its_number_of_attempts(fail: Task[..., Any], attempts: list[int]):
    send_with_meta({"max_attempts": 4})

    work()

    assert len(attempts) == 4


def test_bulk_calls_have_as_many_attempts_as_they_were_sent_with(fail: Task[..., Any], attempts: list[int]):
    fail.using(max_attempts=1).enqueue_many([{}, {}, {}])

    work()

    assert (len(attempts), len(dead_letters())) == (3, 3)


@pytest.mark.parametrize("given", [0, -1, 10**400, 1_000_001, True, 2.5, "7", None, [3], {"a": 1}])
def test_impossible_number_of_attempts_changes_nothing(fail: Task[..., Any], attempts: list[int], given: Any):
    send_with_meta({"max_attempts": given})

    work()

    assert len(attempts) == 2


@pytest.mark.parametrize("given", [0, "7", 1_000_001])
def test_impossible_number_of_attempts_is_refused_where_the_call_is_sent(fail: Task[..., Any], given: Any):
    with pytest.raises(ValueError, match="max_attempts"):
        fail.using(max_attempts=given)
