"""An item wakes one idle thread, and no item is left while a thread is idle."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rsmq_django.worker.execute.handoff import Handoff
from tests.support import wait_until

THREADS, ITEMS = 4, 20_000


class Waiter:
    """A lock that counts how often its thread was woken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.wakes = 0

    def acquire(self) -> None:
        self._lock.acquire()

    def release(self) -> None:
        self.wakes += 1
        self._lock.release()


class Takers:
    """Threads that take items until they get None."""

    def __init__(self, count: int) -> None:
        self.handoff: Handoff[int | None] = Handoff()
        self.taken: list[int] = []
        self.waiters = [Waiter() for _ in range(count)]
        self._threads = [threading.Thread(target=self._take, args=(waiter,)) for waiter in self.waiters]
        for number, thread in enumerate(self._threads, 1):
            thread.start()
            wait_until(lambda: len(self.handoff._idle) == number)  # noqa: B023

    def _take(self, waiter: Waiter) -> None:
        while (item := self.handoff.get(waiter)) is not None:  # type: ignore[arg-type]
            self.taken.append(item)

    def end(self) -> None:
        for _ in self._threads:
            self.handoff.put(None)
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads)


@pytest.fixture
def takers() -> Iterator[Takers]:
    takers = Takers(THREADS)
    yield takers
    takers.end()


def test_an_item_wakes_only_the_thread_that_became_idle_last(takers: Takers):
    for number in range(10):
        takers.handoff.put(number)
        wait_until(lambda: len(takers.taken) == number + 1 and len(takers.handoff._idle) == THREADS)  # noqa: B023

    assert [waiter.wakes for waiter in takers.waiters] == [0, 0, 0, 10]


def test_every_item_is_taken_once_however_the_threads_take_turns(takers: Takers):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(ITEMS):
            takers.handoff.put(number)
            if number % 100 == 0:  # also with all threads idle
                wait_until(lambda: takers.handoff.qsize() == 0)
        wait_until(lambda: len(takers.taken) == ITEMS)
    finally:
        sys.setswitchinterval(interval)

    assert sorted(takers.taken) == list(range(ITEMS))


def test_a_thread_that_ends_while_it_waits_takes_no_wake_up_with_it(takers: Takers):
    class Broken(Waiter):
        def acquire(self) -> None:
            raise SystemExit

    with pytest.raises(SystemExit):
        takers.handoff.get(Broken())  # type: ignore[arg-type]
    takers.handoff.put(7)

    wait_until(lambda: takers.taken == [7])


def test_an_item_that_relied_on_a_wake_up_without_a_thread_wakes_one_nevertheless():
    handoff: Handoff[int] = Handoff()
    other = Waiter()

    class Taken(list[Any]):
        """Idle threads of which the only one finds an item by itself at the moment of its wake-up."""

        def pop(self, *_: Any) -> Any:
            handoff._idle = [other]  # type: ignore[list-item]
            handoff.put(2)
            raise IndexError

    handoff._idle = Taken([Waiter()])
    handoff.put(1)

    assert other.wakes == 1


def test_an_item_of_a_busy_moment_is_taken_without_waiting():
    handoff: Handoff[int] = Handoff()
    handoff.put(1)
    handoff.put(2)

    assert handoff.qsize() == 2
    assert handoff.get(Waiter()) == 1  # type: ignore[arg-type]
    assert handoff.get_nowait() == 2
