"""Runs messages in the thread of the test, with the steps of a worker except threads and sleeping."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from asgiref.sync import async_to_sync

from ..conf.settings import get_settings
from ..core import Client
from ..tasks.running import current_run
from ..worker.delivery import WorkQueue
from ..worker.execute.batch import in_batches
from ..worker.execute.execution import Execution
from ..worker.execute.invoke import connections_kept
from ..worker.execute.pool import Runnable
from ..worker.fetch.queues import queue_settings, work_queues_by_client
from ..worker.outcomes import Dead, Outcome, RetryIn, Succeeded
from ..worker.report.notifications import Notifier
from ..worker.sources.queues import QueueSource
from ..worker.sources.source import SourceContext
from .commits import is_block_open

#: Worker name in results.
WORKER_ID = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An attempt of a task or consumer, with its outcome."""

    task: str
    id: str
    attempt: int
    outcome: Outcome

    @property
    def error(self) -> BaseException | None:
        """Return the exception that the function raised."""
        return self.outcome.error if isinstance(self.outcome, (RetryIn, Dead)) else None

    @property
    def succeeded(self) -> bool:
        """Return whether the function succeeded."""
        return isinstance(self.outcome, Succeeded)


def bursts_on(queue_names: Sequence[str]) -> list[Burst]:
    """Return the runners for these queues, in this order; without names, for all queues of the settings."""
    return [Burst(client, queues) for client, queues in work_queues_by_client(queue_settings(queue_names), WORKER_ID)]


class Burst:
    """Runs messages of the queues of one connection, one call at a time: a message, or a batch."""

    def __init__(self, client: Client, queues: Sequence[WorkQueue]) -> None:
        notifier = Notifier(WORKER_ID)
        context = SourceContext(notifier=notifier, poll_interval_s=1.0, wake=lambda: None, ends_by_itself=True)
        self._source = QueueSource(client, queues, context)
        self._notifier = notifier

    def turn(self, runs: list[Run]) -> bool:
        """Run the next call, if a message is ready; return whether there may be more."""
        source = self._source
        source.fetch_now()
        deliveries = source.exchange(1)
        if source.backoff.next_try_at > time.monotonic():
            raise AssertionError("the private server does not respond; its log is in the temporary directory")
        recorder = _RecordingSink(source)
        executions = [Execution(delivery, sink=recorder, notifier=self._notifier) for delivery in deliveries]
        for runnable in in_batches(executions):
            with connections_kept():
                run_here(runnable)
        runs += [_run_of(execution, recorder.outcomes[execution]) for execution in executions]
        return bool(deliveries) or not source.is_drained


def run_here(runnable: Runnable) -> None:
    """Run a call in this thread, which is no longer inside of a task afterwards."""
    try:
        if runnable.is_async:
            async_to_sync(runnable.arun)()
        else:
            runnable.run()
    finally:
        current_run.set(None)


class _RecordingSink:
    """Delegates to the source, and records the outcomes."""

    def __init__(self, source: QueueSource) -> None:
        self.outcomes: dict[Execution, Outcome] = {}
        self.clock = source.clock
        self.began = source.began
        self.flush_soon = source.flush_soon
        self.abandon = source.abandon
        self.note_interruption = source.note_interruption
        self._source = source

    def settle(self, execution: Execution, outcome: Outcome) -> None:
        """Record an outcome."""
        self.outcomes[execution] = outcome
        self._source.settle(execution, outcome)


def _run_of(execution: Execution, outcome: Outcome) -> Run:
    envelope, delivery = execution.envelope, execution.delivery
    task_id = envelope.id if envelope else delivery.message.id
    return Run(task=execution.path, id=task_id, attempt=delivery.attempt, outcome=outcome)


def send_from_outbox() -> int:
    """Relay the outbox, and return how many messages were sent; none while a block of the code is open."""
    if not any(queue.outbox for queue in get_settings().queues.values()):
        return 0
    from ..outbox.relay import Relay  # its application is optional

    relay = Relay()
    if is_block_open(relay.database):
        return 0
    try:
        return relay.relay_waiting()
    except (AssertionError, RuntimeError) as error:  # those of SimpleTestCase and of pytest-django
        if "Database" not in str(error) or "not allowed" not in str(error):
            raise
        return 0  # this test has no database, so it has no rows either
