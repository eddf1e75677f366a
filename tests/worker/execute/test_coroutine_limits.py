"""Time limits of coroutines have the semantics of `asyncio.timeout()`, with one timer for all of them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from rsmq_django.tasks import TaskTimeout
from rsmq_django.worker.execute.coroutine_limits import within

#: Much longer than any time limit here, and shorter than what a hanging test is given.
FOR_EVER_S = 120
SHORT_S = 0.02


def cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def wait_for_ever() -> None:
    await asyncio.sleep(FOR_EVER_S)


async def test_coroutine_whose_time_is_over_is_cancelled_once_and_may_clean_up():
    steps: list[str] = []

    async def clean_up() -> None:
        try:
            await wait_for_ever()
        finally:
            steps.append("begins to clean up")
            await asyncio.sleep(2 * SHORT_S)
            steps.append("is clean")

    with pytest.raises(TaskTimeout):
        await within(SHORT_S, clean_up())

    assert steps == ["begins to clean up", "is clean"]
    assert cancelling() == 0
    await asyncio.sleep(0)


async def test_value_counts_when_the_cancellation_was_caught():
    async def catch() -> str:
        try:
            await wait_for_ever()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "a part"
        return "all"

    assert await within(SHORT_S, catch()) == "a part"
    assert cancelling() == 0


async def test_error_counts_when_the_cancellation_became_another_error():
    async def catch() -> None:
        try:
            await wait_for_ever()
        except asyncio.CancelledError:
            raise OSError("no paint left") from None

    with pytest.raises(OSError, match="no paint left"):
        await within(SHORT_S, catch())
    assert cancelling() == 0


async def test_coroutine_within_its_time_is_left_alone():
    async def be_quick() -> int:
        await asyncio.sleep(0)
        return 7

    assert await within(FOR_EVER_S, be_quick()) == 7
    assert await within(SHORT_S, be_quick()) == 7
    await asyncio.sleep(2 * SHORT_S)
    assert cancelling() == 0


async def test_inner_time_out_that_comes_first_is_an_error_of_the_coroutine():
    async def wait_inside() -> None:
        async with asyncio.timeout(SHORT_S):
            await wait_for_ever()

    with pytest.raises(TimeoutError) as raised:
        await within(FOR_EVER_S, wait_inside())
    assert type(raised.value) is TimeoutError


async def test_inner_time_out_that_was_handled_leaves_the_limit_as_it_was():
    async def wait_twice() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SHORT_S):
                await wait_for_ever()
        await wait_for_ever()

    with pytest.raises(TaskTimeout):
        await within(10 * SHORT_S, wait_twice())


async def test_limit_within_an_inner_time_out_of_the_coroutine():
    async def wait_inside() -> None:
        async with asyncio.timeout(FOR_EVER_S):
            await wait_for_ever()

    with pytest.raises(TaskTimeout):
        await within(SHORT_S, wait_inside())
    assert cancelling() == 0


async def test_limit_wins_when_an_inner_time_out_is_over_at_the_same_time():
    async def block() -> None:
        async with asyncio.timeout(SHORT_S):
            time.sleep(3 * SHORT_S)  # noqa: ASYNC251 - both times are over when the event loop looks
            await wait_for_ever()

    with pytest.raises(TaskTimeout):
        await within(SHORT_S, block())
    assert cancelling() == 0


async def test_cancellation_by_somebody_else_is_passed_on():
    begun = asyncio.Event()

    async def begin() -> None:
        begun.set()
        await wait_for_ever()

    task = asyncio.create_task(within(FOR_EVER_S, begin()))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancellation_by_somebody_else_wins_over_the_limit():
    async def ask_for_both() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(SHORT_S, task.cancel)
        time.sleep(3 * SHORT_S)  # noqa: ASYNC251 - as above
        await wait_for_ever()

    task = asyncio.create_task(within(SHORT_S, ask_for_both()))

    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


async def test_limit_of_a_later_call_may_be_over_first():
    long = asyncio.create_task(within(FOR_EVER_S, wait_for_ever()))
    await asyncio.sleep(0)

    with pytest.raises(TaskTimeout):
        await within(SHORT_S, wait_for_ever())

    assert not long.done()
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long


async def test_all_limits_are_kept_after_the_first_one_is_over():
    calls = [within(number * SHORT_S, wait_for_ever()) for number in (1, 3, 2)]

    ends = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(end) for end in ends] == [TaskTimeout] * 3


def test_each_event_loop_of_a_thread_keeps_its_limits():
    async def begin() -> asyncio.Task[Any]:
        task = asyncio.create_task(within(SHORT_S, wait_for_ever()))
        await asyncio.sleep(0)
        return task

    async def await_end(task: asyncio.Task[Any]) -> None:
        with pytest.raises(TaskTimeout):
            await task

    with asyncio.Runner() as one, asyncio.Runner() as other:
        of_one, of_other = one.run(begin()), other.run(begin())
        one.run(await_end(of_one))
        other.run(await_end(of_other))
