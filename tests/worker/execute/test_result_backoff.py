"""A backoff in the form proposed for Django: from the exception and the result to seconds, or None for no retry."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.queues import get_queue
from rsmq_django.tasks import Retry, TaskResultStatus, consumer, exponential, fixed
from rsmq_django.tasks.compat import InvalidTask
from rsmq_django.tasks.retry import takes_result
from rsmq_django.tasks.topic_task import topic_task
from tests.worker.workshop import Configure, declare, work


class Refused(Exception):
    pass


def test_backoff_gets_the_exception_and_the_result_of_each_failed_attempt(project: Configure):
    seen: list[tuple[BaseException, Any]] = []

    def backoff(exception: BaseException, task_result: Any) -> float:
        seen.append((exception, task_result))
        return 0.0

    def refuse(number: int) -> None:
        raise Refused(f"no {number}")

    sent = declare(max_attempts=3, backoff=backoff)(refuse).enqueue(7)
    work("default")

    assert [(str(error), result.attempts, result.status) for error, result in seen] == [
        ("no 7", 1, TaskResultStatus.FAILED),
        ("no 7", 2, TaskResultStatus.FAILED),
    ]
    result = seen[0][1]
    assert (result.id, result.args, len(result.errors)) == (sent.id, [7], 1)
    assert result.errors[0].exception_class is Refused
    assert "Refused: no 7" in result.errors[0].traceback


def test_backoff_that_returns_none_ends_the_attempts(project: Configure):
    seen: list[int] = []

    def refuse() -> None:
        raise Refused

    def backoff(exception: BaseException, task_result: Any) -> float | None:
        seen.append(task_result.attempts)
        return 0.0 if task_result.attempts < 2 else None

    sent = declare(max_attempts=9, backoff=backoff)(refuse).enqueue()
    work("default")
    sent.refresh()

    assert (seen, sent.status, sent.attempts) == ([1, 2], TaskResultStatus.FAILED, 2)
    assert get_queue("default-dead").attributes().messages == 1


def test_result_after_a_failure_does_not_change_that_of_a_later_signal(project: Configure):
    def refuse() -> None:
        raise Refused

    sent = declare(max_attempts=2, backoff=lambda exception, result: 0)(refuse).enqueue()
    work("default")
    sent.refresh()

    assert [error.exception_class for error in sent.errors] == [Refused, Refused]


def test_time_of_retry_overrules_such_a_backoff(project: Configure):
    attempts: list[int] = []

    def refuse() -> None:
        attempts.append(1)
        raise Retry("later", after_s=0)

    declare(max_attempts=3, backoff=lambda exception, result: None)(refuse).enqueue()
    work("default")

    assert len(attempts) == 3


def test_backoff_that_raises_leaves_the_call_to_the_default_backoff(project: Configure, caplog):
    def refuse() -> None:
        raise Refused

    def backoff(exception: BaseException, task_result: Any) -> float:
        raise KeyError("seconds")

    declare(backoff=backoff)(refuse).enqueue()
    work("default", until_empty=False, until_drained=True)

    assert "the backoff of" in caplog.text
    assert get_queue("default").attributes().hidden_messages == 1


@pytest.mark.parametrize(
    ("backoff", "takes"),
    [
        (lambda exception, task_result: 1, True),
        (lambda exception, task_result, most_s=60: 1, True),
        (lambda attempt: 1, False),
        (lambda attempt, most_s=60: 1, False),
        (lambda *attempts: 1, False),
        (fixed(3), False),
        (exponential(), False),
        (float, False),
    ],
)
def test_form_of_a_backoff_is_told_by_its_parameters_without_a_default(backoff: Any, takes: bool):
    assert takes_result(backoff) is takes


def test_consumers_and_topic_tasks_have_no_result_and_refuse_such_a_backoff(project: Configure):
    project(readings={})

    with pytest.raises(ValueError, match="its messages have no result"):
        consumer("readings", backoff=lambda exception, task_result: 1)(lambda message: None)
    with pytest.raises(InvalidTask, match="its messages have no result"):
        topic_task("orders", group="billing", backoff=lambda exception, task_result: 1)(lambda message: None)
