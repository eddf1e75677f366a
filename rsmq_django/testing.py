"""A kit for the tests of a project: real queues on a private server, tasks run in the thread of the test.

With pytest, ask for the fixture `rsmq`; with unittest, write `self.rsmq = self.enterContext(private_queues())` in
`setUp`. Either way the settings' connections lead to an empty server of this process until the test ends, whatever
they say, and nothing is replaced by a fake: calls are sent, fetched, retried and buried as in production.

Knows nothing of pytest: `pytest_plugin.py` does. docs/testing.md teaches it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings as django_settings
from django.db import connections
from django.test.utils import override_settings
from django.utils.module_loading import autodiscover_modules

from .conf import get_settings
from .core import Client, Queue, list_queues
from .core.bands import bands_of, split_band
from .core.browse import WHOLE_BODY, Failure, Page, Position, StoredMessage, page
from .core.call import Call
from .core.errors import QueueNotFound
from .embedded import EmbeddedServer
from .queues import get_client
from .tasks.envelope import Envelope, Unreadable, decode
from .tasks.registry import registered_tasks
from .tasks.running import current_run
from .tasks.sealing import peek
from .worker.announcer import Announcer
from .worker.batches import in_batches
from .worker.database import connections_kept
from .worker.execution import Execution
from .worker.fetcher import Fetcher
from .worker.outcomes import Dead, Outcome, RetryIn, Succeeded
from .worker.worker import queue_settings, work_queues_by_client

#: Name of the worker in results.
WORKER_ID = "test"
#: A task that sends itself again would run for ever.
MOST_RUNS = 10_000
#: A database server of a busy machine must not fail a test.
TIMEOUT_S = 15
_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueued:
    """A call that waits in a queue."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    id: str
    queue_name: str
    priority: int
    #: Seconds until it is ready; 0 when it is.
    due_in_s: float
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt of a task or consumer, and what became of it."""

    task: str
    id: str
    attempt: int
    outcome: Outcome

    @property
    def error(self) -> BaseException | None:
        """Return what the function raised."""
        return self.outcome.error if isinstance(self.outcome, (RetryIn, Dead)) else None

    @property
    def succeeded(self) -> bool:
        """Say whether the function returned."""
        return isinstance(self.outcome, Succeeded)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that failed for good, and why; None when another program put it there."""

    message_id: str
    body: bytes
    failure: Failure | None


@contextmanager
def private_queues() -> Iterator[Kit]:
    """Put an empty private server in the place of all Redis servers of the settings, until the block ends."""
    with override_settings(RSMQ=settings_on_private_server()):
        kit = Kit()
        kit.empty()
        yield kit


class Kit:
    """What a test does with its queues."""

    # -- Running ------------------------------------------------------------------------------------------------------

    def run(self, *queue_names: str) -> list[Run]:
        """Run all ready messages, one after the other in this thread, and those that they send; return the runs.

        Without names, from all queues of the settings, in a worker's order. Delayed messages and retries wait until
        `pass_time()`. A failing task raises nothing here, as in a worker: look at the runs. Raises AssertionError when
        there is no end to it.
        """
        autodiscover_modules("tasks")
        runs: list[Run] = []
        bursts = [_Burst(client, queues) for client, queues in work_queues_by_client(_named(queue_names), WORKER_ID)]
        while _send_from_outbox() or any(burst.turn(runs) for burst in bursts):
            if len(runs) > MOST_RUNS:
                raise AssertionError(f"still not done after {MOST_RUNS} runs; the last one was of {runs[-1].task}")
        return runs

    async def arun(self, *queue_names: str) -> list[Run]:
        """See run()."""
        return await sync_to_async(self.run)(*queue_names)

    def pass_time(self, time_passed: timedelta | float) -> None:
        """Let time (a timedelta, or seconds) pass for all messages: delays, retries and leases come closer.

        The clock itself stands still: `now()` is not concerned, nor is what expires in Redis by itself.
        """
        seconds = time_passed.total_seconds() if isinstance(time_passed, timedelta) else time_passed
        for queue in _all_queues():
            keys, milliseconds = (queue.keys.messages,), round(seconds * 1000)
            queue.client.run(Call("testing/pass_time", keys, (milliseconds,), int))

    def empty(self) -> None:
        """Delete everything on the private server."""
        for client in _clients():
            client.connection.exchange([("FLUSHDB",)])

    # -- Looking ------------------------------------------------------------------------------------------------------

    def enqueued(self, task: Any = None) -> list[Enqueued]:
        """Return the calls that wait, of one task or of all, in the order of the queues and of becoming ready."""
        path = None if task is None else _path_of(task)
        _send_from_outbox()
        calls = [call for name in get_settings().queues for call in _calls_in(name)]
        return [call for call in calls if path in (None, call.task)]

    def bodies(self, queue_name: str) -> list[bytes]:
        """Return the bodies of all messages of a queue, for queues that hold no tasks."""
        return [stored.body for _, stored in _stored(get_client_of(queue_name), queue_name)]

    def dead_letters(self, queue_name: str | None = None) -> list[DeadLetter]:
        """Return what failed for good: in one dead-letter queue, or in all."""
        settings = get_settings()
        own = (task.options.dead_letter_queue for task in registered_tasks().values())
        names = dict.fromkeys([*(queue.dead_letter for queue in settings.queues.values()), *filter(None, own)])
        return [
            DeadLetter(stored.id, stored.body, stored.failure())
            for name in ([queue_name] if queue_name else names)
            for _, stored in _stored(get_client_of(name), name)
        ]

    # -- Asserting ----------------------------------------------------------------------------------------------------

    def assert_enqueued(self, task: Any, *args: Any, **kwargs: Any) -> Enqueued:
        """Return the call of this task with exactly these arguments; AssertionError when there is none."""
        calls = self.enqueued()
        for call in calls:
            if call.task == _path_of(task) and _same(call, args, kwargs):
                return call
        wanted = f"{_path_of(task)}{_shown(args, kwargs)}"
        others = "".join(f"\n  {call.task}{_shown(call.args, call.kwargs)}" for call in calls) or " nothing"
        raise AssertionError(f"{wanted} is not enqueued{_hint()}; what is:{others}")

    def assert_not_enqueued(self, task: Any) -> None:
        """Raise AssertionError when a call of this task waits, with whatever arguments."""
        for call in self.enqueued(task):
            raise AssertionError(f"{call.task}{_shown(call.args, call.kwargs)} is enqueued")


class _Burst:
    """Works on the queues of one connection, a call at a time: a message, or a batch of them."""

    def __init__(self, client: Client, queues: Sequence[Any]) -> None:
        announcer = Announcer(WORKER_ID)
        self._fetcher = Fetcher(client, queues, announcer=announcer, poll_interval_s=1.0, wake=lambda: None)
        self._announcer = announcer

    def turn(self, runs: list[Run]) -> bool:
        """Make the next call, if something is ready; say whether there may be more."""
        fetcher = self._fetcher
        fetcher.look_now()
        deliveries = fetcher.exchange(1)
        if fetcher.outage.next_try_at > time.monotonic():
            raise AssertionError("the private server does not answer; its log is in the temporary directory")
        desk = _Desk(fetcher)
        executions = [
            Execution(delivery, desk=desk, announcer=self._announcer, now_ms=fetcher.clock.now_ms)
            for delivery in deliveries
        ]
        for runnable in in_batches(executions):
            with connections_kept():
                _ = async_to_sync(runnable.arun)() if runnable.is_async else runnable.run()
            current_run.set(None)  # the test itself is no task
        runs += [_run_of(execution, desk.outcomes[execution]) for execution in executions]
        return bool(deliveries) or not fetcher.is_drained


class _Desk:
    """Hands everything on to the fetcher, and keeps the outcomes."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.outcomes: dict[Execution, Outcome] = {}
        self.began = fetcher.began
        self.let_go = fetcher.let_go
        self._fetcher = fetcher

    def settle(self, execution: Execution, outcome: Outcome) -> None:
        """Keep it."""
        self.outcomes[execution] = outcome
        self._fetcher.settle(execution, outcome)


def _run_of(execution: Execution, outcome: Outcome) -> Run:
    envelope, delivery = execution.envelope, execution.delivery
    task_id = envelope.id if envelope else delivery.message.id
    return Run(task=execution.path, id=task_id, attempt=delivery.attempt, outcome=outcome)


def _send_from_outbox() -> int:
    """Do what the relay of a worker does, and return how many messages that was."""
    if not any(queue.outbox for queue in get_settings().queues.values()):
        return 0
    from .worker.relay import Relay  # its tables belong to an application that need not be installed

    return Relay().relay_waiting()


def get_client_of(queue_name: str) -> Client:
    """Return the client of the server that a queue of the settings is on."""
    return get_client(get_settings().queue(queue_name).connection)


# -- The private server ---------------------------------------------------------------------------------------------


@cache
def private_server_url() -> str:
    """Start the server of this process, unless it runs, and return its URL. It stops when the process ends."""
    directory = tempfile.mkdtemp(prefix="rsmq-tests-")
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a child made by fork
            server.release()
            shutil.rmtree(directory, ignore_errors=True)

    server = EmbeddedServer(directory)
    atexit.register(remove)
    return server.ensure()


def settings_on_private_server() -> dict[str, Any]:
    """Return settings.RSMQ with the connections on the private server, a database each, all else as it is."""
    given: Mapping[str, Any] = getattr(django_settings, "RSMQ", {})
    connections = {}
    for number, (alias, options) in enumerate(given.get("CONNECTIONS", {"default": {}}).items()):
        kept = {key: value for key, value in options.items() if key not in ("URL", "CACHE", "EMBEDDED")}
        connections[alias] = {**kept, "URL": f"{private_server_url()}?db={number}", "TIMEOUT_S": TIMEOUT_S}
    return {**given, "CONNECTIONS": connections}


def _clients() -> list[Client]:
    return [get_client(alias) for alias in get_settings().connections]


# -- What lies in the queues ----------------------------------------------------------------------------------------


def _named(queue_names: Sequence[str]) -> list[Any]:
    return queue_settings(queue_names)


def _all_queues() -> Iterator[Queue]:
    for client in _clients():
        for name in list_queues(client):
            yield Queue(name, client)


def _stored(client: Client, queue_name: str) -> Iterator[tuple[int, StoredMessage]]:
    """Yield the server's time and each message of a queue with its whole body and failure record."""
    after = Position()
    while True:
        call = page(client.namespace, queue_name, after=after, count=_PAGE, body_bytes=WHOLE_BODY, with_failures=True)
        try:
            found: Page = client.run(call)
        except QueueNotFound:  # nobody has sent anything there yet
            return
        for stored in found.messages:
            yield found.now_ms, stored
        if len(found.messages) < _PAGE:
            return
        after = found.messages[-1].position


def _calls_in(queue_name: str) -> list[Enqueued]:
    client = get_client_of(queue_name)
    base_name = get_settings().base_name
    calls = []
    for name in bands_of(queue_name, [name for name in list_queues(client) if base_name(name) == queue_name]):
        for now_ms, stored in _stored(client, name):
            envelope = _envelope_of(stored, queue_name)
            if envelope is not None:
                priority = 0 if name == queue_name else split_band(name)[1]
                calls.append(_enqueued(envelope, stored, queue_name, priority, now_ms))
    return calls


def _envelope_of(stored: StoredMessage, queue_name: str) -> Envelope | None:
    try:
        return peek(stored.body, queue_name=queue_name, message_id=stored.id)
    except Unreadable:
        return None


def _enqueued(envelope: Envelope, stored: StoredMessage, queue_name: str, priority: int, now_ms: int) -> Enqueued:
    return Enqueued(
        task=envelope.task,
        args=envelope.args,
        kwargs=envelope.kwargs,
        id=envelope.id,
        queue_name=queue_name,
        priority=priority,
        due_in_s=max(0.0, (stored.visible_at_ms - now_ms) / 1000),
        message_id=stored.id,
    )


def _path_of(task: Any) -> str:
    return task if isinstance(task, str) else str(task.module_path)


def _same(call: Enqueued, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    sent = Envelope(call.task, call.id, list(args), dict(kwargs)).encode()  # as they look after JSON
    wanted = decode(sent, message_id=call.message_id)
    return (call.args, call.kwargs) == (wanted.args, wanted.kwargs)


def _shown(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    words = [repr(value) for value in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
    return f"({', '.join(words)})"


def _hint() -> str:
    waiting = [each for each in connections.all(initialized_only=True) if each.in_atomic_block and each.run_on_commit]
    if not waiting:
        return ""
    return (
        " (something waits for the commit of a transaction, which a TestCase never makes: "
        "wrap the code in captureOnCommitCallbacks(execute=True))"
    )
