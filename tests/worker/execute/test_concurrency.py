"""How many tasks run at a time, and where: functions on threads, coroutines on one event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from rsmq_django.queues import get_queue
from rsmq_django.worker.execute.pool import Pool
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, work, working


class Crowd:
    """Counts how many are inside at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.inside = self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1


def test_functions_run_on_as_many_threads_as_there_are(project: Configure):
    meet = threading.Barrier(3, timeout=60)
    declare(lambda: meet.wait()).enqueue_many([[]] * 3)

    assert work(threads=3)

    assert not meet.broken


def test_no_more_functions_run_than_there_are_threads(project: Configure):
    crowd, two = Crowd(), threading.Event()

    def join() -> None:
        with crowd:
            if crowd.most >= 2:
                two.set()
            assert two.wait(60)
            threading.Event().wait(0.01)

    declare(join).enqueue_many([[]] * 20)

    work(threads=2)

    assert crowd.most == 2


def test_coroutines_run_together_on_one_event_loop(project: Configure):
    loops: set[Any] = set()
    meet = asyncio.Barrier(10)

    async def join() -> None:
        loops.add((threading.get_ident(), asyncio.get_running_loop()))
        await meet.wait()

    declare(join).enqueue_many([[]] * 10)

    assert work(threads=1, async_tasks=10)

    assert len(loops) == 1


@pytest.mark.parametrize(("threads", "async_tasks"), [(8, 2), (1, 3)])
def test_no_more_coroutines_run_than_are_allowed(project: Configure, threads: int, async_tasks: int):
    crowd = Crowd()

    async def join() -> None:
        with crowd:
            await asyncio.sleep(0.005)

    declare(join).enqueue_many([[]] * 20)

    work(threads=threads, async_tasks=async_tasks)

    assert 1 <= crowd.most <= async_tasks


def test_each_coroutine_has_an_asyncio_task_and_a_context_of_its_own(project: Configure):
    seen: dict[int, list[object]] = {}
    number_here: ContextVar[int] = ContextVar("number_here", default=0)

    async def look(number: int) -> None:
        seen[number] = [asyncio.current_task(), number_here.get()]
        number_here.set(number)
        await asyncio.sleep(0)
        seen[number] += [asyncio.current_task(), number_here.get()]

    declared = declare(look)
    for number in range(1, 4):
        declared.enqueue(number)

    work()

    for number in range(1, 4):
        before, unset, after, own = seen[number]
        assert before is after is not None
        assert (unset, own) == (0, number)
    assert len({tasks[0] for tasks in seen.values()}) == 3


async def limit_a_part() -> None:
    async with asyncio.timeout(60):
        await asyncio.sleep(0)


async def have_parts() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
        group.create_task(asyncio.sleep(0))


async def use_a_thread() -> None:
    assert await sync_to_async(threading.get_ident)() != threading.get_ident()


@pytest.mark.parametrize("begin", [limit_a_part, have_parts, use_a_thread])
def test_coroutine_uses_asyncio_from_its_first_line(project: Configure, begin: Any):
    ended: list[object] = []

    async def run() -> None:
        task = asyncio.current_task()
        await begin()
        assert asyncio.current_task() is task
        ended.append(task)

    declare(run).enqueue_many([[]] * 3)

    work(async_tasks=2)

    assert len(set(ended)) == 3


class Coroutine:
    """What a pool runs on its event loop."""

    is_async, acks_each, interrupted, time_limit, began_at = True, False, False, None, 0.0

    def __init__(self, function: Callable[[], Awaitable[None]]) -> None:
        self.arun = function

    def abandon(self) -> None: ...


def test_coroutines_that_do_not_wait_let_others_continue():
    pool = Pool(threads=0, async_tasks=2, wake=lambda: None, on_interruption=lambda call: None, renews_threads=False)
    have_arrived, is_over = threading.Event(), threading.Event()
    counted_meanwhile: list[int] = []

    async def wait_a_moment() -> None:
        have_arrived.wait(60)
        for _ in range(3):
            await asyncio.sleep(0)
        is_over.set()

    async def count() -> None:
        if not is_over.is_set():
            counted_meanwhile.append(1)

    pool.start()
    for each in [wait_a_moment, *[count] * 50]:
        pool.submit(Coroutine(each))  # type: ignore[arg-type]  # not all that a pool may ask for
    have_arrived.set()
    wait_until(lambda: pool.is_idle)
    pool.stop()

    assert is_over.is_set()
    assert 0 < len(counted_meanwhile) < 50


def test_project_may_make_the_asyncio_tasks_of_its_coroutines(project: Configure):
    made: list[str] = []

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        made.append(coroutine.__name__)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def install() -> None:
        asyncio.get_running_loop().set_task_factory(make)

    async def follow() -> None:
        await asyncio.create_task(asyncio.sleep(0))

    declare(install).enqueue()
    following = declare(follow)
    following.enqueue()
    work(async_tasks=1)

    assert made[:2] == ["_run_coroutine", "sleep"]  # at its end the event loop makes more


def test_coroutines_continue_while_all_threads_are_busy(project: Configure):
    release, told = threading.Event(), []

    async def tell() -> None:
        told.append(1)
        await asyncio.sleep(0)

    declare(lambda: release.wait(60)).enqueue()
    with working(threads=2):
        result = declare(tell).enqueue()
        wait_until(lambda: told)
        release.set()
    result.refresh()

    assert result.status == "SUCCESSFUL"


def test_async_task_uses_the_async_queue_api(project: Configure):
    async def forward() -> None:
        await get_queue("default").asend(b'{"task": "nobody.knows"}')

    declare(forward).enqueue()

    work()

    assert get_queue("default-dead").attributes().messages == 1


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_task_enqueues_more_tasks(project: Configure, is_async: bool):
    seen = []
    child = declare(lambda number: seen.append(number))

    def parent() -> None:
        child.enqueue(1)

    async def aparent() -> None:
        await child.aenqueue(1)

    declare(aparent if is_async else parent).enqueue()

    work()

    assert seen == [1]


def test_worker_leaves_no_threads_behind(project: Configure):
    declare(lambda: None).enqueue()
    before = set(threading.enumerate())

    work(threads=4)

    wait_until(lambda: set(threading.enumerate()) <= before)


async def do_nothing() -> None: ...


@pytest.mark.parametrize("function", [lambda: None, do_nothing], ids=["function", "coroutine"])
def test_end_of_any_run_is_noted(project: Configure, function: Callable[[], Any]):
    declare(function).enqueue()
    began_at = time.monotonic()

    with working() as worker:
        wait_until(lambda: worker.pool.moved_at > began_at)
