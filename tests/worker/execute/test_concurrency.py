"""How many tasks run at a time, and where: functions on threads, coroutines on one event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from rsmq_django.queues import get_queue
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
