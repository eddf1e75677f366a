"""How many messages are fetched ahead, and in which portions: as many as are a moment of work."""

from __future__ import annotations

import pytest

from rsmq_django.outbox.batch_size import BatchSize
from rsmq_django.worker import delivery
from rsmq_django.worker.delivery import TimeLimit
from rsmq_django.worker.execute import pool as module
from rsmq_django.worker.execute.pool import MOST_PREFETCHED, PREFETCH_S, Pool, Prefetch
from tests.worker.still_clock import StillClock

THREADS = 4


class Call:
    """What waits for a thread or a place on the event loop."""

    def __init__(self, *, is_async: bool = False, limit_s: float | None = None) -> None:
        self.is_async = is_async
        self.time_limit = None if limit_s is None else TimeLimit(limit_s)

    @property
    def running_now(self) -> Call:
        return self


class Loop:
    """An event loop that never runs anything."""

    def call_soon_threadsafe(self, callback: object) -> None:
        pass


def resting_pool(run_s: float | None = None, *, runs: int = 1000) -> Pool:
    """Return a pool whose threads do not run; it has seen so many runs of so long."""
    pool = Pool(
        threads=THREADS, async_tasks=10, wake=lambda: None, on_interruption=lambda call: None, renews_threads=False
    )
    pool._loop = Loop()  # type: ignore[assignment]
    for _ in range(0 if run_s is None else runs):
        pool._prefetch.note(run_s or 0.0)
    return pool


def submit(pool: Pool, count: int, *, is_async: bool = False) -> None:
    for _ in range(count):
        pool.submit(Call(is_async=is_async))  # type: ignore[arg-type]


# -- Pace -------------------------------------------------------------------------------------------------------------


def test_nothing_is_fetched_ahead_before_a_run_was_seen():
    assert Prefetch().ahead(THREADS) == 0


def test_no_more_is_fetched_ahead_than_runs_were_seen():
    pace = Prefetch()
    for seen in range(1, 6):
        pace.note(0.0001)
        assert pace.ahead(THREADS) == seen


@pytest.mark.parametrize(("run_s", "ahead"), [(0.0, 200), (0.001, 200), (0.004, 50), (0.2, 1), (0.21, 0), (60, 0)])
def test_prefetch_is_a_moment_of_work_for_all_threads(run_s: float, ahead: int):
    pace = Prefetch()
    for _ in range(1000):
        pace.note(run_s)

    assert pace.ahead(THREADS) == pytest.approx(ahead, abs=1 if ahead > 1 else 0)
    assert pace.ahead(THREADS) <= MOST_PREFETCHED


def test_first_runs_count_alike_and_later_ones_a_twentieth():
    pace = Prefetch()
    for run_s in (0.1, 0.2, 0.3):
        pace.note(run_s)
    assert pace._average_s == pytest.approx(0.2)

    for _ in range(27):
        pace.note(0.2)
    pace.note(1.2)
    assert pace._average_s == pytest.approx(0.25)


# -- Room -------------------------------------------------------------------------------------------------------------


def test_an_idle_pool_has_room_for_as_many_tasks_as_run_at_a_time():
    pool = resting_pool()

    assert (pool.room(), pool.portion) == (THREADS, THREADS)
    submit(pool, 3)
    assert (pool.room(), pool.sync_count, pool.is_idle) == (1, 3, False)
    submit(pool, 1)
    assert pool.room() == 0


def test_half_of_the_room_is_fetched_at_once_for_short_tasks():
    pool = resting_pool(0.004)

    assert pool.room() == pytest.approx(THREADS + 50, abs=1)
    assert pool.portion == pool.room() // 2


@pytest.mark.parametrize("is_async", [False, True])
def test_of_long_messages_few_are_fetched_ahead_until_short_ones_come_again(is_async: bool):
    pool = resting_pool(0.0001)
    pool._async_pace, pool._sync_share = pool._prefetch, 0.0 if is_async else 1.0
    places = 10 if is_async else THREADS

    pool.note_longest(4 * 1024 * 1024)
    assert (pool.room(), pool.portion) == (places + 4, places + 4)
    pool.note_longest(40 * 1024 * 1024)
    assert (pool.room(), pool.portion) == (places, places)

    for _ in range(100):
        pool.note_longest(1000)
    assert pool.room() == places + MOST_PREFETCHED


def test_messages_within_the_limit_of_rsmq_are_all_fetched_ahead():
    pool = resting_pool(0.0001)

    pool.note_longest(65_536)

    assert pool.room() == THREADS + MOST_PREFETCHED


def test_long_tasks_are_not_fetched_ahead():
    pool = resting_pool(PREFETCH_S * THREADS * 2)

    assert (pool.room(), pool.portion) == (THREADS, THREADS)


def test_no_more_is_fetched_while_half_of_the_short_tasks_wait():
    pool = resting_pool(0.004)
    room = pool.room()
    submit(pool, room)
    assert pool.is_ahead and pool.room() == 0

    for _ in range(room // 2 + 4):
        pool._todo.get_nowait()
        pool._ended[0] += 1

    assert [pool.is_ahead] == [False]
    assert pool.room() == pytest.approx(room // 2, abs=4)


def test_no_message_waits_while_a_thread_waits_for_its_settlement():
    pool = resting_pool(0.004)
    submit(pool, pool.room())
    pool._awaits_ack[1] = True

    assert [pool.is_ahead] == [False]


def test_room_is_for_the_kind_of_task_that_the_latest_messages_were():
    pool = resting_pool()
    for _ in range(300):
        submit(pool, 1, is_async=True)
        pool.take_back()

    assert pool._sync_share < 0.001
    assert pool.room() == 10, "of functions and coroutines, what there is room for"
    assert pool.portion == 10
    submit(pool, 4, is_async=True)
    assert pool.room() == 6
    submit(pool, 7, is_async=True)
    assert pool.room() == 0


def test_waiting_messages_of_a_plan_are_taken_back_and_not_counted():
    pool = resting_pool()
    submit(pool, 3)
    submit(pool, 2, is_async=True)

    assert len(pool.take_back()) == 5

    assert (pool.sync_count, pool.is_idle, pool.take_back()) == (0, True, [])


@pytest.mark.parametrize("is_async", [False, True])
def test_messages_that_wait_behind_long_tasks_are_stuck_after_a_while(monkeypatch: pytest.MonkeyPatch, is_async: bool):
    clock, pool = StillClock(monkeypatch, module), resting_pool()
    assert not pool.is_stuck()
    submit(pool, 1, is_async=is_async)
    clock.now += module.STUCK_AFTER_S
    submit(pool, 1, is_async=is_async)
    assert not pool.is_stuck()

    clock.now += 0.001
    assert pool.is_stuck()
    pool.take_back()
    assert not pool.is_stuck()
    submit(pool, 1, is_async=is_async)
    assert not pool.is_stuck(), "it has just come"


def test_a_pool_that_slows_down_fetches_nothing_ahead():
    pool = resting_pool(0.001)
    assert pool.room() > THREADS

    pool.slow_down()

    assert pool.room() == THREADS


# -- Rows of an outbox ------------------------------------------------------------------------------------------------


def test_rows_are_sent_in_portions_by_count_and_bytes():
    portion = BatchSize()

    assert portion.choose([(1, 10), (2, 10)]) == [1, 2]
    assert [portion.leaves_some] == [False]
    portion.rows = 2
    assert portion.choose([(1, 10), (2, 10)]) == [1, 2]
    assert [portion.leaves_some] == [True], "there may be more than were asked for"
    portion.rows, portion.size_bytes = 500, 100
    assert portion.choose([(1, 60), (2, 60), (3, 10)]) == [1]
    assert [portion.leaves_some] == [True]
    assert portion.choose([(1, 600), (2, 60)]) == [1], "one goes out whatever its size"
    assert portion.choose([]) == []


# -- When to look for functions that exceed their time limit -----------------------------------------------------------


def run_on_a_thread(pool: Pool, number: int) -> None:
    """Begin the next call as a thread does."""
    call = pool._now[number] = pool._todo.get_nowait()
    assert call is not None and call.time_limit is not None
    call.time_limit.begin()


def test_worker_looks_again_before_a_call_can_exceed_its_limit_although_no_call_wakes_it(
    monkeypatch: pytest.MonkeyPatch,
):
    clock, pool = StillClock(monkeypatch, module, delivery), resting_pool()
    looks = [pool.next_interruption_at()]
    for limit_s in (None, 30, 20):
        pool.submit(Call(limit_s=limit_s))  # type: ignore[arg-type]
    looks.append(pool.next_interruption_at())

    pool._todo.get_nowait()  # the one without a limit
    clock.now += 5
    run_on_a_thread(pool, 0)
    looks.append(pool.next_interruption_at())
    clock.now += 5
    run_on_a_thread(pool, 1)
    clock.now += 5
    looks.append(pool.next_interruption_at())

    began_at = StillClock.now
    # Nothing; one that waits could begin right now, with 20 s; the same, later; both run, and the deadlines are known.
    assert looks == [None, began_at + 20, began_at + 5 + 20, began_at + 10 + 20]


def test_worker_looks_for_no_limit_when_calls_with_one_are_given_back(monkeypatch: pytest.MonkeyPatch):
    StillClock(monkeypatch, module, delivery)
    pool = resting_pool()
    for limit_s in (None, 0.05, 30):
        pool.submit(Call(limit_s=limit_s))  # type: ignore[arg-type]

    pool.take_back()

    assert pool.next_interruption_at() is None
    pool.submit(Call(limit_s=30))  # type: ignore[arg-type]
    assert pool.next_interruption_at() == StillClock.now + 30
