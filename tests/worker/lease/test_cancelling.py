"""A task that is cancelled while it runs is told so, ends as cancelled, and never runs again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from rsmq_django.core import Queue
from rsmq_django.core.transport.listener import Listener
from rsmq_django.queues import get_client, get_queue
from rsmq_django.tasks import TaskCancelled, TaskContext, cancel, fixed, is_cancelled, lease_lost
from rsmq_django.tasks.compat import task_finished
from rsmq_django.worker.execute.interrupt import call_interruptibly, interrupt
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, let_leases_be_renewed, queue_source, until, working


def is_empty() -> bool:
    return get_queue("default").attributes().messages == 0


class Runs:
    """What a task of a test went through."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.release = threading.Event()
        self.seen: list[Any] = []


@pytest.fixture
def runs() -> Runs:
    return Runs()


def test_function_gets_the_cancellation_raised_and_can_clean_up(
    project: Configure, server: PrivateServer, runs: Runs, caplog: pytest.LogCaptureFixture
):
    def wait() -> None:
        try:
            runs.began.set()
            while not runs.release.is_set():
                time.sleep(0.01)
        except Exception:
            runs.seen.append("an Exception")
        finally:
            runs.seen.append("cleaned up")

    result = declare(max_attempts=5, backoff=fixed(0))(wait).enqueue()
    with caplog.at_level("INFO", "rsmq_django"), working() as worker:
        wait_until(runs.began.is_set)

        assert cancel(result.id)

        wait_until(lambda: runs.seen)
        wait_until(lambda: queue_source(worker).is_idle)

    result.refresh()
    assert runs.seen == ["cleaned up"]
    assert (result.status, [error.exception_class for error in result.errors]) == ("FAILED", [TaskCancelled])
    assert "wait was cancelled on attempt 1" in caplog.text
    assert is_empty() and get_queue("default-dead").attributes().messages == 0
    assert server.redis.keys("rsmq::worker:*") == []


async def _nap(runs: Runs) -> None:
    runs.began.set()
    try:
        await until(runs.release)
    except asyncio.CancelledError:
        runs.seen.append("cancelled")
        raise


def test_coroutine_is_cancelled(project: Configure, runs: Runs):
    async def wait() -> None:
        await _nap(runs)

    result = declare(max_attempts=5, backoff=fixed(0))(wait).enqueue()
    with working() as worker:
        wait_until(runs.began.is_set)
        assert cancel(result.id)
        wait_until(lambda: runs.seen == ["cancelled"])
        wait_until(lambda: queue_source(worker).is_idle)

    result.refresh()
    assert (result.status, [error.exception_class for error in result.errors]) == ("FAILED", [TaskCancelled])


@pytest.mark.parametrize("how", ["returns", "raises"])
def test_task_that_does_not_listen_ends_as_cancelled_anyway(project: Configure, runs: Runs, how: str):
    def go_on() -> str:
        try:
            runs.began.set()
            while True:
                time.sleep(0.01)
        except TaskCancelled:
            runs.seen.append("told")
        assert runs.release.wait(60)
        if how == "raises":
            raise OSError
        return "done"

    result = declare(max_attempts=5, backoff=fixed(0))(go_on).enqueue()
    with working() as worker:
        wait_until(runs.began.is_set)
        cancel(result.id)
        wait_until(lambda: runs.seen == ["told"])
        runs.release.set()
        wait_until(lambda: queue_source(worker).is_idle)

    result.refresh()
    assert result.status == "FAILED"
    assert [error.exception_class for error in result.errors] == [TaskCancelled]
    assert is_empty() and get_queue("default-dead").attributes().messages == 0


def test_message_that_waits_behind_others_in_the_process_is_not_begun(project: Configure, runs: Runs):
    def run(name: str) -> None:
        runs.seen.append(name)
        runs.began.set()
        runs.release.wait(60)

    declared = declare(run)
    declared.enqueue("first")
    with working(threads=1) as worker:
        wait_until(runs.began.is_set)
        second = declared.enqueue("second")
        held = declared.enqueue("third")
        cancel(second.id)
        runs.release.set()
        wait_until(lambda: "third" in runs.seen and queue_source(worker).is_idle)

    held.refresh()
    assert runs.seen == ["first", "third"]
    assert held.status == "SUCCESSFUL"


def test_task_can_ask_whether_it_is_cancelled(project: Configure, runs: Runs):
    def patient(context: TaskContext) -> None:
        runs.seen.append((is_cancelled(), context.is_cancelled, lease_lost()))
        try:
            runs.began.set()
            while True:
                time.sleep(0.01)
        except TaskCancelled:
            runs.seen.append((is_cancelled(), context.is_cancelled, context.lease_lost))

    result = declare(takes_context=True)(patient).enqueue()
    with working() as worker:
        wait_until(runs.began.is_set)
        cancel(result.id)
        wait_until(lambda: queue_source(worker).is_idle and len(runs.seen) == 2)

    assert runs.seen == [(False, False, False), (True, True, True)]
    assert not is_cancelled() and not lease_lost()


def test_missed_cancellation_is_found_at_the_next_renewal(
    project: Configure, runs: Runs, monkeypatch: pytest.MonkeyPatch
):
    # A network that swallows what is published: the worker goes on, and hears nothing.
    monkeypatch.setattr(Listener, "take_markers", lambda self: set())

    def wait() -> None:
        runs.began.set()
        while True:
            time.sleep(0.01)

    result = declare(wait).enqueue()
    with working() as worker:
        wait_until(runs.began.is_set)
        cancel(result.id)
        let_leases_be_renewed(worker)
        wait_until(lambda: queue_source(worker).is_idle)

    result.refresh()
    assert [error.exception_class for error in result.errors] == [TaskCancelled]


def test_cancellation_is_received_after_the_connection_broke(project: Configure, server: PrivateServer, runs: Runs):
    def wait() -> None:
        runs.began.set()
        while True:
            time.sleep(0.01)

    result = declare(wait).enqueue()
    with working() as worker:
        wait_until(runs.began.is_set)
        server.redis.client_kill_filter(_type="pubsub")
        cancel(result.id)
        wait_until(lambda: queue_source(worker).is_idle)


def test_worker_without_room_receives_cancellations_too(
    project: Configure, runs: Runs, monkeypatch: pytest.MonkeyPatch
):
    project(default={"VISIBILITY_TIMEOUT_S": 3600})
    monkeypatch.setattr("rsmq_django.worker.worker.LONGEST_SLEEP_S", 600)

    def wait() -> None:
        try:
            runs.began.set()
            while not runs.release.is_set():
                time.sleep(0.01)
        finally:
            runs.seen.append("ended")

    declared = declare(wait)
    result = declared.enqueue()
    with working(threads=1, poll_interval_s=600) as worker:
        wait_until(runs.began.is_set)
        declared.enqueue()  # told that there is more, it listens to nothing that is published for now
        wait_until(lambda: queue_source(worker).has_wakeup and worker.wakeup._is_asleep)

        assert cancel(result.id)

        wait_until(lambda: runs.seen)
        runs.release.set()


def test_deleted_message_does_not_count_as_cancelled(project: Configure, runs: Runs):
    def wait() -> None:
        runs.began.set()
        wait_until(lease_lost)
        runs.seen.append(is_cancelled())

    result = declare(wait).enqueue()
    with working() as worker:
        wait_until(runs.began.is_set)
        foreign = Queue("default", get_client())
        (held,) = queue_source(worker).leases.held()
        foreign.delete(held.message.id)
        let_leases_be_renewed(worker)
        wait_until(lambda: runs.seen)

    assert runs.seen == [False]
    result.refresh()
    assert result.status != "SUCCESSFUL"


def test_signal_is_sent_for_the_end_of_a_cancelled_task(project: Configure, runs: Runs):
    def wait() -> None:
        runs.began.set()
        while True:
            time.sleep(0.01)

    def hear(sender: object, task_result: object, **_: object) -> None:
        runs.seen.append(task_result)

    result = declare(wait).enqueue()
    task_finished.connect(hear)
    try:
        with working() as worker:
            wait_until(runs.began.is_set)
            cancel(result.id)
            wait_until(lambda: queue_source(worker).is_idle and runs.seen)
    finally:
        task_finished.disconnect(hear)

    (told,) = runs.seen
    assert (told.id, told.status, told.errors[-1].exception_class) == (result.id, "FAILED", TaskCancelled)


# -- Interrupting a thread ---------------------------------------------------------------------------------------------


@dataclass
class Run:
    """What can be interrupted."""

    began: threading.Event = field(default_factory=threading.Event)
    asked_to_end_with: type[BaseException] | None = None
    thread_id: int | None = None
    was_interrupted: bool = False


def test_interruption_never_leaves_the_call():
    hits, outside = 0, 0
    for _ in range(3000):
        run = Run()

        def interrupt_it(target: Run = run) -> None:
            target.began.wait()
            while interrupt(target, TaskCancelled):  # it is repeated until the call has ended
                pass

        thread = threading.Thread(target=interrupt_it)
        thread.start()
        try:
            call_interruptibly(lambda it: it.began.set(), run)
        except TaskCancelled:
            hits += 1
        try:
            thread.join()
            sum(range(50))
        except TaskCancelled:
            outside += 1

    assert outside == 0


def test_functions_can_be_traced_after_an_interrupted_call():
    program = """
import sys
from rsmq_django.tasks import TaskCancelled
from rsmq_django.worker.execute.interrupt import call_interruptibly, interrupt
from tests.worker.lease.test_cancelling import Run

def interrupt_and_end(run):
    try:
        interrupt(run, TaskCancelled)
    except TaskCancelled:
        pass

call_interruptibly(interrupt_and_end, Run())
sys.settrace(lambda *_: None)
(lambda: print("traced"))()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert done.stdout == "traced\n", done.stderr


def test_call_that_was_interrupted_before_it_began_does_not_begin():
    run, called = Run(), list[Run]()
    interrupt(run, TaskCancelled)

    with pytest.raises(TaskCancelled):
        call_interruptibly(called.append, run)

    assert called == []


def test_call_that_is_over_is_not_interrupted():
    run = Run()
    assert call_interruptibly(lambda it: 7, run) == 7

    interrupt(run, TaskCancelled)

    assert sum(range(1000)) == 499500


def test_call_that_ends_in_the_moment_of_its_interruption_does_no_harm():
    class EndsAtOnce(Run):
        """Its thread says between two looks that the call is over."""

        looks = 0

        def __getattribute__(self, name: str) -> Any:
            if name != "thread_id":
                return super().__getattribute__(name)
            self.looks += 1
            return 1 if self.looks == 1 else None  # no thread has this id

    assert interrupt(EndsAtOnce(), TaskCancelled)
