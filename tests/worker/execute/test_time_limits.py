"""A task that runs longer than it may is stopped, and that counts as a failed attempt."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection, transaction

from rsmq_django.tasks import TaskTimeout, fixed
from rsmq_django.tasks.compat import task_finished
from rsmq_django.worker.delivery import TimeLimit
from tests.worker.workshop import Configure, TimeIsUp, declare, the_dead_letter, work

#: Much longer than any time limit here, and shorter than what a hanging test is given.
FOR_EVER_S = 120


def count_for_ever() -> None:
    """Compute, as a task that never ends; an exception can reach it between any two steps."""
    end = time.monotonic() + FOR_EVER_S
    while time.monotonic() < end:
        pass


async def sleep_for_ever() -> None:
    await asyncio.sleep(FOR_EVER_S)


@pytest.mark.parametrize("function", [count_for_ever, sleep_for_ever])
def test_task_that_takes_too_long_is_stopped_and_fails(project: Configure, function):
    def run() -> None:
        count_for_ever()

    async def arun() -> None:
        await sleep_for_ever()

    declare(timeout_s=0.1, max_attempts=2, backoff=fixed(0))(run if function is count_for_ever else arun).enqueue()

    assert work(threads=1)

    _, record = the_dead_letter()
    assert record["attempts"] == 2
    assert (record["reason"], record["error"]) == ("attempts_used_up", "rsmq_django.tasks.retry.TaskTimeout")


def test_time_limit_is_kept_while_nothing_else_happens(project: Configure):
    result = declare(timeout_s=0.1, max_attempts=1)(lambda: count_for_ever()).enqueue()

    work(threads=1, poll_interval_s=600)

    result.refresh()
    assert result.status == "FAILED"


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_task_may_clean_up_when_its_time_is_over(project: Configure, time_is_up: TimeIsUp, is_async: bool):
    cleaned = []

    def run() -> None:
        try:
            time_is_up()
            count_for_ever()
        finally:
            cleaned.append(1)

    async def arun() -> None:
        try:
            await sleep_for_ever()
        finally:
            cleaned.append(1)

    declare(timeout_s=0.1 if is_async else 60, max_attempts=1)(arun if is_async else run).enqueue()

    work()

    assert cleaned == [1]


def test_task_may_return_although_its_time_is_over(project: Configure, time_is_up: TimeIsUp):
    def give_up_nicely() -> str:
        try:
            time_is_up()
            count_for_ever()
        except TaskTimeout:
            return "half a result"
        return "never"

    result = declare(timeout_s=60)(give_up_nicely).enqueue()

    work()

    result.refresh()
    assert result.return_value == "half a result"


def test_next_task_is_not_stopped_and_has_a_thread_that_was_never_interrupted(project: Configure, time_is_up: TimeIsUp):
    threads: list[threading.Thread] = []

    def run() -> None:
        threads.append(threading.current_thread())
        time_is_up()
        count_for_ever()

    def good() -> int:
        threads.append(threading.current_thread())
        return sum(range(100_000))

    declare(timeout_s=60, max_attempts=1)(run).enqueue()
    results = [declare(good).enqueue() for _ in range(5)]

    work(threads=1)

    for result in results:
        result.refresh()
    assert [result.status for result in results] == ["SUCCESSFUL"] * 5
    assert threads[0] not in threads[1:]
    assert len(set(threads)) == 2


def test_task_that_catches_exceptions_does_not_catch_it(project: Configure, time_is_up: TimeIsUp):
    def run() -> None:
        while True:
            with suppress(Exception):
                time_is_up()
                count_for_ever()

    declare(timeout_s=60, max_attempts=1)(run).enqueue()

    work()

    assert the_dead_letter()[1]["error"] == "rsmq_django.tasks.retry.TaskTimeout"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("place", ["an except block for everything", "a finalizer"])
def test_interruption_that_was_swallowed_is_repeated(project: Configure, time_is_up: TimeIsUp, place: str):
    class Guard:
        def __del__(self) -> None:  # Python prints what is raised here, and goes on
            time_is_up()
            count_for_ever()

    def run() -> None:
        with suppress(BaseException):
            if place == "a finalizer":
                Guard()
            time_is_up()
            count_for_ever()
        count_for_ever()

    declare(timeout_s=60, max_attempts=1)(run).enqueue()

    work()

    assert the_dead_letter()[1]["error"] == "rsmq_django.tasks.retry.TaskTimeout"


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"retry_on": Exception}, "attempts_used_up"), ({"give_up_on": Exception}, "gave_up")],
    ids=["retry_on", "give_up_on"],
)
def test_exception_represents_it_in_options(
    project: Configure, time_is_up: TimeIsUp, options: dict[str, Any], reason: str
):
    def run() -> None:
        time_is_up()
        count_for_ever()

    declare(timeout_s=60, max_attempts=2, backoff=fixed(0), **options)(run).enqueue()

    work()

    assert the_dead_letter()[1]["reason"] == reason


@pytest.mark.django_db(transaction=True)
def test_connections_of_the_thread_are_closed_before_receivers_of_the_end_are_called(
    project: Configure, time_is_up: TimeIsUp
):
    states: list[tuple[bool, bool]] = []

    def run() -> None:
        # As if the interruption had come at the first step of leaving the block: it is never left.
        transaction.atomic().__enter__()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        states.append((connection.in_atomic_block, connection.connection is None))
        time_is_up()
        count_for_ever()

    def receive(**_: object) -> None:
        states.append((connection.in_atomic_block, connection.connection is None))

    declare(timeout_s=60, max_attempts=1)(run).enqueue()
    task_finished.connect(receive)
    try:
        work(threads=1)
    finally:
        task_finished.disconnect(receive)

    assert states == [(True, False), (False, True)]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_task_within_its_time_is_left_alone(project: Configure, is_async: bool):
    async def arun() -> str:
        return "done"

    result = declare(timeout_s=20)(arun if is_async else lambda: "done").enqueue()

    work()

    result.refresh()
    assert result.return_value == "done"


def test_time_waiting_for_a_thread_does_not_count(project: Configure, monkeypatch: pytest.MonkeyPatch):
    slow_ended: list[float] = []
    deadlines: list[float] = []
    begin = TimeLimit.begin

    def note(limit: TimeLimit) -> None:
        begin(limit)
        deadlines.append(limit.deadline)

    def slow() -> None:
        slow_ended.append(time.monotonic())

    def quick() -> None: ...

    monkeypatch.setattr(TimeLimit, "begin", note)
    declare(slow).enqueue()
    declare(timeout_s=60)(quick).enqueue()

    work(threads=1)

    assert deadlines[0] >= slow_ended[0] + 60


def test_time_out_of_the_tasks_own_making_is_an_error_like_any_other(project: Configure):
    async def wait_for_a_service() -> None:
        async with asyncio.timeout(0.01):
            await sleep_for_ever()

    declare(timeout_s=20, max_attempts=1)(wait_for_a_service).enqueue()

    work()

    assert the_dead_letter()[1]["error"] == "builtins.TimeoutError"


def test_time_out_can_be_hopeless(project: Configure, time_is_up: TimeIsUp):
    attempts = []

    def run() -> None:
        attempts.append(1)
        time_is_up()
        count_for_ever()

    declare(timeout_s=60, give_up_on=TaskTimeout)(run).enqueue()

    work()

    assert len(attempts) == 1
    assert the_dead_letter()[1]["reason"] == "gave_up"


def test_stopped_subtasks_do_not_outlive_their_task(project: Configure):
    ended = []

    async def part() -> None:
        try:
            await sleep_for_ever()
        finally:
            ended.append(1)

    async def whole() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(part())
            group.create_task(part())

    declare(timeout_s=0.1, max_attempts=1)(whole).enqueue()

    work()

    assert ended == [1, 1]
    assert the_dead_letter()[1]["error"] == "rsmq_django.tasks.retry.TaskTimeout"
