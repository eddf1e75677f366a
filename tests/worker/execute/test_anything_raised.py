"""A task may raise anything, and what it raises may be as odd as it likes: the worker goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rsmq_django.queues import get_queue
from rsmq_django.tasks import fixed
from rsmq_django.tasks.compat import task_finished, task_started
from tests.support import pass_time, wait_until
from tests.worker.workshop import Configure, declare, the_dead_letter, work, working


class Speechless(Exception):
    """Cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Deadly(Exception):
    """Cannot be shown either, and ends whoever tries without care."""

    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


def overflow(depth: int = 0) -> int:
    return overflow(depth + 1) + 1


def raises(error: BaseException) -> Any:
    def fail() -> None:
        raise error

    return fail


WHAT_TASKS_DO = {
    "SystemExit": raises(SystemExit(3)),
    "KeyboardInterrupt": raises(KeyboardInterrupt()),
    "GeneratorExit": raises(GeneratorExit()),
    "CancelledError": raises(asyncio.CancelledError()),
    "MemoryError": raises(MemoryError()),
    "StopIteration": raises(StopIteration()),
    "RecursionError": overflow,
    "BaseException": raises(BaseException("bare")),
    "BaseExceptionGroup": raises(BaseExceptionGroup("several", [KeyboardInterrupt(), OSError()])),
    "Speechless": raises(Speechless()),
    "Deadly": raises(Deadly()),
    "lines": raises(OSError("two\nlines \x1b[31m \ud83e")),
    "long": raises(OSError("x" * 1_000_000)),
}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("what", WHAT_TASKS_DO)
def test_any_exception_is_a_failed_attempt_only(project: Configure, what: str, is_async: bool):
    attempts, seen = [], []

    def fail() -> None:
        attempts.append(1)
        WHAT_TASKS_DO[what]()

    async def afail() -> None:
        fail()

    result = declare(max_attempts=2, backoff=fixed(0))(afail if is_async else fail).enqueue()
    declare(lambda: seen.append(1)).enqueue()

    assert work(threads=1)

    _, record = the_dead_letter()
    result.refresh()
    assert (len(attempts), seen) == (2, [1])
    assert record["reason"] == "attempts_used_up"
    assert len(result.errors) == 2


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_subtask_that_would_end_the_event_loop_ends_its_own_task_only(project: Configure, error: type[BaseException]):
    goes_on, ended = asyncio.Event(), []

    async def leave() -> None:
        raise error

    async def gather() -> None:
        try:
            await asyncio.gather(leave())
        finally:
            goes_on.set()

    async def other() -> None:
        await goes_on.wait()
        ended.append(1)

    declare(other).enqueue()
    declare(max_attempts=1)(gather).enqueue()

    assert work()

    assert ended == [1]
    assert the_dead_letter()[1]["error"] == f"builtins.{error.__name__}"


def test_exception_that_cannot_be_shown_is_named_by_its_class(project: Configure):
    declare(max_attempts=1)(raises(Speechless())).enqueue()

    work()

    _, record = the_dead_letter()
    assert record["error"] == "tests.worker.execute.test_anything_raised.Speechless"
    assert record["message"] == "(its text cannot be shown)"


def test_log_line_of_an_error_stays_one_line(project: Configure, caplog):
    declare(max_attempts=2, backoff=fixed(0))(raises(OSError("two\nlines \x1b[31m"))).enqueue()

    work()

    (line,) = [record.getMessage() for record in caplog.records if "retry in" in record.getMessage()]
    assert r"OSError: two\nlines \x1b[31m" in line


def test_long_texts_are_cut(project: Configure, caplog):
    declare(max_attempts=1)(raises(OSError("x" * 1_000_000))).enqueue()

    work()

    _, record = the_dead_letter()
    assert len(record["message"]) <= 2000
    assert len(record["traceback"]) < 10_000
    assert len(caplog.text) < 30_000


def test_traceback_is_cut_at_its_beginning(project: Configure):
    def fail() -> None:
        try:
            raise OSError("the first " + "x" * 20_000)
        except OSError as error:
            raise ValueError("the last") from error

    declare(max_attempts=1)(fail).enqueue()

    work()

    traceback = the_dead_letter()[1]["traceback"]
    assert traceback.startswith("...\n")
    assert traceback.endswith("ValueError: the last\n")


# -- What stands around a task -------------------------------------------------------------------------------------


@pytest.mark.parametrize("signal", [task_started, task_finished], ids=["started", "finished"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_listener_that_raises_changes_nothing_for_the_task(project: Configure, signal, is_async: bool):
    calls = []

    async def arun() -> None:
        calls.append(1)

    def listen(**_: Any) -> None:
        raise OSError("listener")

    result = declare(arun if is_async else lambda: calls.append(1)).enqueue()
    signal.connect(listen)

    work()

    signal.disconnect(listen)
    result.refresh()
    assert (calls, result.status) == ([1], "SUCCESSFUL")


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_message_whose_listener_ends_the_thread_becomes_ready_when_its_lease_expires(
    project: Configure, is_async: bool
):
    starts, calls = [], []

    async def arun() -> None:
        calls.append(1)

    def listen(**_: Any) -> None:
        starts.append(1)
        if len(starts) == 1:
            raise SystemExit

    declare(arun if is_async else lambda: calls.append(1)).enqueue()
    task_started.connect(listen)

    with working():
        wait_until(lambda: starts)
        assert get_queue("default").attributes().hidden_messages == 1
        pass_time(get_queue("default"), seconds=31)
        wait_until(lambda: get_queue("default").attributes().messages == 0)

    task_started.disconnect(listen)
    assert (len(starts), calls) == (2, [1])
