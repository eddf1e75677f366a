"""Stopping a worker: what runs may end, what waits is given back at once, and neither counts as an attempt."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from rsmq_django.core.transport.call import load_script
from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.tasks import TaskCancelled, TaskContext
from rsmq_django.worker.execute import invoke, pool
from rsmq_django.worker.execute.execution import Execution
from rsmq_django.worker.fetch import queues
from rsmq_django.worker.fetch.queues import SLICE
from rsmq_django.worker.outcomes import NOTHING_RETURNED, Outcome, Released
from rsmq_django.worker.report.shared_state import SharedState
from rsmq_django.worker.sources.queues import QueueSource
from rsmq_django.worker.worker import Worker
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, new_worker, queue_source, send_raw, until, work, working


class Gate:
    """Tasks that wait at a gate, so that a test decides when they end."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun: list[Any] = []
        self.attempts: list[int] = []

    def wait(self, context: TaskContext, name: Any = None) -> None:
        self.begun.append(name)
        self.attempts.append(context.attempt)
        self.open.wait(60)

    async def await_(self, context: TaskContext, name: Any = None) -> None:
        self.begun.append(name)
        self.attempts.append(context.attempt)
        await until(self.open)

    def task(self, *, is_async: bool = False, **options: Any) -> Any:
        def waits(context: TaskContext, name: Any = None) -> None:
            self.wait(context, name)

        async def awaits(context: TaskContext, name: Any = None) -> None:
            await self.await_(context, name)

        return declare(takes_context=True, **options)(awaits if is_async else waits)


@pytest.fixture
def gate() -> Gate:
    return Gate()


def ready_messages() -> int:
    return get_queue("default").attributes().ready_messages


def hold_back(worker: Worker, gate: Gate, *, count: int) -> threading.Thread:
    """Run a worker with one thread until one task runs and `count - 1` messages wait for it in this process."""
    ensure_queue("default")
    for _ in range(200):
        worker.pool._prefetch.note(0.0001)  # what a worker learns from many quick tasks: it fetches ahead
    thread = threading.Thread(target=worker.run)
    thread.start()
    wait_until(lambda: gate.begun and worker.pool.sync_count == count)
    return thread


def test_worker_that_creates_its_queues_stops_after_the_next_ones(
    project: Configure, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    project(**{f"q{number}": {"DEAD_LETTER": None} for number in range(3 * SLICE)})
    worker = new_worker()
    provide = queues._provide

    def provide_and_stop(part: Any) -> Any:
        worker.stop(within_s=3600)
        return provide(part)

    monkeypatch.setattr(queues, "_provide", provide_and_stop)

    assert worker.run()
    assert server.redis.scard("rsmq:QUEUES") == SLICE


def test_worker_with_many_queues_creates_them_all_before_it_receives(project: Configure, server: PrivateServer):
    project(default={}, **{f"q{number}": {} for number in range(2 * SLICE)})
    ran = []
    declare()(lambda: ran.append(server.redis.scard("rsmq:QUEUES"))).enqueue()

    with working():
        wait_until(lambda: ran)

    assert ran == [2 * (2 * SLICE + 1)]


# -- What runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_running_task_may_end(project: Configure, gate: Gate, is_async: bool):
    result = gate.task(is_async=is_async).enqueue()
    with working() as worker:
        wait_until(lambda: gate.begun)

        worker.stop(within_s=60)
        gate.open.set()

    result.refresh()
    assert (result.status, gate.begun) == ("SUCCESSFUL", [None])


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_task_that_does_not_end_in_time_is_released(project: Configure, gate: Gate, caplog, is_async: bool):
    gate.task(is_async=is_async, max_attempts=1).enqueue()
    worker, ended_well = new_worker(), []
    thread = threading.Thread(target=lambda: ended_well.append(worker.run()))
    thread.start()
    wait_until(lambda: gate.begun)

    worker.stop(within_s=0)
    thread.join(90)

    assert ended_well == [False]
    assert "released 1 message unfinished" in caplog.text
    assert ready_messages() == 1
    gate.open.set()
    work()
    assert gate.attempts == [1, 1]  # the first one does not count


def test_late_end_of_a_released_task_is_ignored(project: Configure, gate: Gate):
    gate.task().enqueue()
    worker = new_worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    wait_until(lambda: gate.begun)
    worker.stop(within_s=0)
    thread.join(90)

    message = get_queue("default").receive()
    assert message is not None
    gate.open.set()

    assert get_queue("default").delete(message)


def test_coroutines_are_cancelled_while_the_event_loop_continues(project: Configure):
    begun, cancelled, may_end = threading.Event(), threading.Event(), threading.Event()

    async def slow() -> None:
        begun.set()
        try:
            await until(may_end)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    declare(slow).enqueue()
    with working() as worker:
        assert begun.wait(60)
        worker.pool.cancel_coroutines()
        assert cancelled.wait(60)
        may_end.set()


def test_coroutine_that_ignores_its_cancellation_does_not_block_the_worker(project: Configure):
    begun, may_end = threading.Event(), threading.Event()

    async def stubborn() -> None:
        begun.set()
        while not may_end.is_set():
            try:
                await until(may_end)
            except asyncio.CancelledError:
                continue

    declare(stubborn).enqueue()
    with working() as worker:
        assert begun.wait(60)
        worker.stop(within_s=0)

    assert ready_messages() == 1
    may_end.set()


def test_nothing_new_is_taken(project: Configure, gate: Gate):
    declared = gate.task()
    declared.enqueue("first")
    with working() as worker:
        wait_until(lambda: gate.begun)
        worker.stop(within_s=60)

        declared.enqueue("second")
        gate.open.set()

    assert gate.begun == ["first"]
    assert ready_messages() == 1


# -- What waits ----------------------------------------------------------------------------------------------------


def test_waiting_messages_are_released_at_once_while_tasks_still_run(project: Configure, gate: Gate):
    gate.task(max_attempts=1).enqueue_many([[name] for name in range(20)])
    worker = new_worker(threads=1)
    thread = hold_back(worker, gate, count=20)

    worker.stop(within_s=60)

    wait_until(lambda: ready_messages() == 19)
    assert not gate.open.is_set() and len(gate.begun) == 1
    gate.open.set()
    thread.join(90)
    work()
    assert sorted(gate.begun) == list(range(20))
    assert set(gate.attempts) == {1}


def test_stop_that_comes_while_a_turn_is_under_way_is_heeded_at_once(
    project: Configure, gate: Gate, monkeypatch: pytest.MonkeyPatch
):
    gate.task().enqueue()
    worker = new_worker()

    def stop() -> None:
        wait_until(lambda: gate.begun)
        worker.stop(within_s=60)

    monkeypatch.setattr(worker.wakeup, "step_aside", stop)
    worker.pool.start()

    worker._turn()

    assert worker.stop_by is not None and worker._next_turn_at() == 0.0
    worker._turn()
    assert worker._next_turn_at() != 0.0
    gate.open.set()
    worker.pool.stop()
    worker.wakeup.close()


def test_giving_back_counts_once_when_the_reply_was_lost(configure: Configure, server: PrivateServer, gate: Gate):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        script = load_script("tasks/worker/release")
        server.redis.script_load(script.source)
        gate.task(max_attempts=1).enqueue_many([[name] for name in range(5)])
        worker = new_worker(threads=1)
        thread = hold_back(worker, gate, count=5)

        proxy.lose_reply_to(script.sha1.encode())
        worker.stop(within_s=60)

        wait_until(lambda: len(queue_source(worker).leases) == 1)
        assert set(server.redis.hvals("rsmq::released:default")) == {b"1"}
        gate.open.set()
        thread.join(90)


def test_other_worker_takes_over_messages_queued_behind_slow_tasks(
    project: Configure, gate: Gate, monkeypatch: pytest.MonkeyPatch
):
    seen: list[int] = []
    gate.task().enqueue()
    declare(lambda number: seen.append(number)).enqueue_many([[number] for number in range(20)])
    stuck = new_worker(threads=1, poll_interval_s=60)
    thread = hold_back(stuck, gate, count=21)
    monkeypatch.setattr(pool, "STUCK_AFTER_S", 0.5)

    with working(threads=1, poll_interval_s=60):  # it learns at once of what is given back
        wait_until(lambda: len(seen) == 20)

    assert sorted(seen) == list(range(20))
    assert not gate.open.is_set()
    gate.open.set()
    stuck.stop(within_s=60)
    thread.join(90)


def test_coroutines_that_a_stop_cuts_off_are_settled_once(project: Configure, monkeypatch: pytest.MonkeyPatch):
    gate, settled = Gate(), list[str]()
    task = gate.task(is_async=True)
    task.enqueue_many([[number] for number in range(5)])
    settle = QueueSource.settle

    def settle_and_note(source: QueueSource, execution: Execution, outcome: Outcome) -> None:
        settled.append(execution.delivery.message.id)
        settle(source, execution, outcome)

    monkeypatch.setattr(QueueSource, "settle", settle_and_note)
    with working() as worker:
        wait_until(lambda: len(gate.begun) == 5)
        worker.stop(within_s=0)
        wait_until(lambda: worker.pool.is_idle)

    assert len(settled) == len(set(settled)) == 5


def test_coroutine_that_is_cut_off_between_its_end_and_its_outcome_is_no_failed_step(
    project: Configure, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    is_over = threading.Event()
    monkeypatch.setattr(invoke, "is_check_due", lambda _now: True)
    monkeypatch.setattr(invoke, "close_unusable_connections_async", lambda: until(is_over))
    gate = Gate()
    gate.task(is_async=True).enqueue()
    with working() as worker:
        wait_until(lambda: gate.begun)
        worker.stop(within_s=0)
    is_over.set()  # the stop and the end of the loop cancel it, but only once when they come in one turn of the loop

    assert not [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_call_that_was_to_be_interrupted_before_it_began_is_given_back(project: Configure, gate: Gate):
    gate.task(max_attempts=1).enqueue()
    worker = new_worker()
    source = queue_source(worker)
    (delivery,) = source.exchange(1)
    execution = Execution(delivery, sink=source, notifier=source.notifier)

    assert not execution.interrupt(TaskCancelled), "it does not run"

    assert isinstance(execution.end_unfinished(), Released)


def test_stopping_an_idle_worker_ends_it(project: Configure):
    with working(poll_interval_s=60) as worker:
        wait_until(lambda: queue_source(worker).is_empty)

        worker.stop(within_s=60)  # and `working` sees that it ends


def test_outcome_that_was_sent_when_the_server_failed_counts_as_not_reported(
    configure: Configure, server: PrivateServer
):
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        send_raw(b"1")
        worker = new_worker()
        source = queue_source(worker)
        (held,) = source.exchange(1)
        assert source.selector.is_settled or source.exchange(0) == []
        source.settle(Execution(held, sink=source, notifier=worker.notifier), NOTHING_RETURNED)

    source.exchange(0)
    source.flush()

    assert source.unreported == 1


def test_quiet_worker_is_woken_and_takes_nothing(project: Configure):
    seen: list[int] = []
    project()
    declared = declare(lambda number: seen.append(number))
    worker = new_worker()
    worker.shared_state = state = SharedState(1)
    state.set_paused(True)
    turns = list[bool]()
    thread = threading.Thread(target=worker.run)
    thread.start()
    declared.enqueue(1)

    def has_turned() -> bool:
        turns.append(worker.wakeup._is_asleep)
        worker.wakeup.wake()
        return len([each for each in turns if each]) > 20

    wait_until(has_turned)
    before = list(seen)
    state.set_paused(False)
    worker.wakeup.wake()
    wait_until(lambda: seen == [1])
    worker.stop(within_s=60)
    thread.join(90)

    assert before == []
