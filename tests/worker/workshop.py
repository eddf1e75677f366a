"""What tests of tasks and workers share: local functions as tasks, a project with queues, workers on threads.

A task is declared inside its test, as a closure over what the test looks at. It keeps its functions in registries of
its own, so that no test meets the tasks of another one.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from rsmq_django.core import Client, Message
from rsmq_django.core.transport.shared_exchanges import Exchanges, run_side_by_side
from rsmq_django.queues import ensure_queue, get_queue
from rsmq_django.tasks import TaskTimeout, registry, task
from rsmq_django.worker.delivery import TimeLimit
from rsmq_django.worker.execute.execution import Execution
from rsmq_django.worker.execute.interrupt import Interruptions
from rsmq_django.worker.execute.pool import Runnable
from rsmq_django.worker.sources.common import CommonSource
from rsmq_django.worker.sources.queues import QueueSource
from rsmq_django.worker.sources.reliable import ReliableSource
from rsmq_django.worker.worker import Worker, WorkerOptions, make_worker
from tests.redis_server import PrivateServer
from tests.support import wait_until

T = TypeVar("T")
Configure = Callable[..., None]
TimeIsUp = Callable[[], None]


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the tasks and consumers of all other tests."""
    monkeypatch.setattr(registry, "_consumers", {})
    monkeypatch.setattr(registry, "_followers", {})
    # By their names: the package has functions that are called like these modules.
    monkeypatch.setattr(import_module("rsmq_django.tasks.task"), "_tasks", {})
    monkeypatch.setattr(import_module("rsmq_django.tasks.topic_task"), "_tasks", {})


@pytest.fixture(autouse=True)
def patient_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers and supervisors go on when the machine is busy for seconds.

    A message that waits behind a running task is kept: one that is given back is received again after those that were
    sent later. A supervisor waits as long for the server as its settings say.
    """
    monkeypatch.setattr("rsmq_django.worker.execute.pool.STUCK_AFTER_S", 3600)
    monkeypatch.setattr("rsmq_django.worker.supervise.maintenance.CALL_TIMEOUT_S", 3600)


@pytest.fixture
def time_is_up(monkeypatch: pytest.MonkeyPatch) -> TimeIsUp:
    """Return the function by which a task lets its own time be over, at a place of its choice.

    A busy machine may take longer than any short limit before a function comes to its first line.
    """
    limits = threading.local()
    begin, began = TimeLimit.begin, CommonSource.began

    def note(limit: TimeLimit) -> None:
        begin(limit)
        limits.begun = limit

    def note_source(source: CommonSource, execution: Execution) -> None:
        began(source, execution)
        limits.source = source

    def end() -> None:
        limits.begun.deadline = 0.0
        limits.source.flush_soon()  # the main thread sleeps until the deadline that it knows

    monkeypatch.setattr(TimeLimit, "begin", note)
    monkeypatch.setattr(CommonSource, "began", note_source)
    return end


@dataclass
class LateInterruption:
    """A worker that notices a time limit only when the next call has begun, and what became of that call."""

    time_is_up: TimeIsUp
    noticed: threading.Event = field(default_factory=threading.Event)
    next_began: threading.Event = field(default_factory=threading.Event)
    came: threading.Event = field(default_factory=threading.Event)
    #: Whether the next call was interrupted in place of the late one.
    hit_the_next: bool = False

    def overdue_call(self) -> None:
        """Be the call whose time is over, and end when the worker noticed that."""
        self.time_is_up()
        assert self.noticed.wait(60)

    def next_call(self) -> None:
        """Be the call behind it, and run until the interruption came."""
        self.next_began.set()
        try:
            while not self.came.is_set():
                threading.Event().wait(0.001)
        except TaskTimeout:
            self.hit_the_next = True
            raise


@pytest.fixture
def late_interruption(time_is_up: TimeIsUp, monkeypatch: pytest.MonkeyPatch) -> LateInterruption:
    """Let interruptions wait until the call behind the overdue one has begun."""
    late, interrupt = LateInterruption(time_is_up), Interruptions.interrupt

    def interrupt_late(self: Interruptions[Any], *words: Any) -> None:
        late.noticed.set()
        assert late.next_began.wait(60)
        interrupt(self, *words)
        late.came.set()

    monkeypatch.setattr(Interruptions, "interrupt", interrupt_late)
    return late


def run_exchanges(client: Client, exchanges: Exchanges[T]) -> T:
    """Make exchanges on the client's own connection, and return their result."""
    results: list[T] = []

    def run() -> Exchanges[None]:
        results.append((yield from exchanges))

    run_side_by_side([(client, run())])
    return results[0]


@pytest.fixture
def configure(settings: Any, server: PrivateServer) -> Configure:
    """Return the function that writes settings.RSMQ; without an argument there is one queue, "default".

    Calls are sent at once, so that tests need no database; those about transactions ask for on_commit.
    """

    def write(
        *, on_commit: bool | str = False, url: str = server.url, timeout_s: float = 15, **queues: dict[str, Any]
    ) -> None:
        settings.RSMQ = {
            "CONNECTIONS": {"default": {"URL": url, "TIMEOUT_S": timeout_s}},
            "QUEUES": queues or {"default": {}},
            # Workers of tests end by themselves, and no other one will know a task.
            "TASKS": {"ENQUEUE_ON_COMMIT": on_commit, "UNKNOWN_TASK_GRACE_S": 0},
        }

    return write


@pytest.fixture
def project(configure: Configure) -> Configure:
    """A project with one empty queue, "default"; the same function writes other settings."""
    configure()
    return configure


def declare(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a function of a test as a task, as if it stood at the level of its module. Used like `task`."""

    def as_task(function: Callable[..., Any]) -> Any:
        function.__qualname__ = function.__name__
        return task(**options)(function)

    return as_task if function is None else as_task(function)


def new_worker(*queue_names: str, **options: Any) -> Worker:
    """Make a small worker that looks often; the options are those of WorkerOptions."""
    defaults = {"threads": 2, "async_tasks": 10, "poll_interval_s": 0.05, "shutdown_timeout_s": 5.0}
    return make_worker(queue_names, WorkerOptions(**(defaults | options)))


def work(*queue_names: str, **options: Any) -> bool:
    """Run a worker on this thread until no message is left; without names, on all queues of the settings."""
    return new_worker(*queue_names, **({"until_empty": True, "threads": 1} | options)).run()


@contextmanager
def working(*queue_names: str, **options: Any) -> Iterator[Worker]:
    """Run a worker on another thread until the block ends. Running tasks must have ended by then."""
    worker = new_worker(*queue_names, **options)
    thread = threading.Thread(target=worker.run, name="worker of a test")
    thread.start()
    try:
        yield worker
    finally:
        if worker.stop_by is None:
            worker.stop(within_s=60)
        thread.join(120)
        assert not thread.is_alive(), "the worker did not stop"


def a_child(worker_id: str) -> Any:
    """Return what a supervisor's records need of a process."""
    shared_state = SimpleNamespace(running_since=dict, is_paused=False, use=None)
    return SimpleNamespace(
        worker_id=worker_id,
        pid=1,
        started_at=0.0,
        asked_to_stop=False,
        shared_state=shared_state,
        ask_for=lambda what: None,
    )


def run_apart(runnable: Runnable) -> None:
    """Run what a worker hands to a thread, on a thread of its own.

    An earlier test may have connected the thread of the test to a database, which this test may not use.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="rsmq-task-of-a-test") as executor:
        executor.submit(runnable.run).result(120)


def queue_source(worker: Worker) -> QueueSource:
    """Return the only source of a worker on RSMQ queues of one connection."""
    (source,) = worker.sources
    assert isinstance(source, QueueSource)
    return source


def reliable_source(worker: Worker) -> ReliableSource:
    """Return the source of a worker for the reliable queues of one connection."""
    (source,) = [source for source in worker.sources if isinstance(source, ReliableSource)]
    return source


def let_leases_be_renewed(worker: Worker) -> None:
    """Let half of its lease pass for each message that a worker holds, and wait until it has renewed what is due."""
    sources = [source for source in worker.sources if isinstance(source, QueueSource | ReliableSource)]
    for leases in [source.leases for source in sources]:
        for held in leases.held():
            held.renewed_at -= held.work_queue.lease_s / 2
        leases._quiet_until = 0.0
        wait_until(lambda leases=leases: not leases.may_be_due(time.monotonic()))  # type: ignore[misc]


async def until(event: threading.Event) -> None:
    """Wait on the event loop until another thread sets the event."""
    while not event.is_set():  # noqa: ASYNC110 - an asyncio.Event cannot be set by another thread
        await asyncio.sleep(0.01)


def send_raw(body: bytes | str, queue_name: str = "default") -> str:
    """Send a message as a program in another language would; returns its id."""
    return ensure_queue(queue_name).send(body)


def dead_letters(queue_name: str = "default-dead") -> list[tuple[Message, dict[str, Any]]]:
    """Return what a dead-letter queue holds: each message as its next receiver gets it, and its failure record."""
    queue = get_queue(queue_name)
    messages = queue.receive_many(1000)
    return [(message, failure_record(message.id, queue_name)) for message in messages]


def failure_record(message_id: str, queue_name: str = "default-dead") -> dict[str, Any]:
    """Return the failure record of a dead letter."""
    queue = get_queue(queue_name)
    (stored,) = queue.client.connection.exchange([("HGET", queue.keys.failures, message_id)])
    return dict(json.loads(stored))


def the_dead_letter(queue_name: str = "default-dead") -> tuple[Message, dict[str, Any]]:
    """Return the only dead letter and its failure record."""
    (found,) = dead_letters(queue_name)
    return found
