"""One reliable queue in a worker: its recovery, the outcomes it refused, and the wake-ups that it sends."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import redis

from ...conf.settings import QueueSettings, ReliableQueueSettings
from ...core import Queue, RsmqError
from ...core.errors import ConnectionFailed, QueueNotFound
from ...core.reliable import ReliableQueue
from ...core.reliable.waiting import take_token, wake_keys
from ...core.transport.backoff import ReconnectBackoff
from ...queues import get_client
from ..delivery import WorkQueue
from ..lease.steps import is_damage

#: Abandoned messages are looked for after a quarter to a half of a lease, at random, so that workers do not do it at
#: the same time.
RECOVERIES_PER_LEASE = (2.0, 4.0)
#: The limit for messages that may be delivered any number of times.
NO_LIMIT = 1_000_000


@dataclass(slots=True)
class ReliableQueueState:
    """One reliable queue that this worker receives from."""

    settings: ReliableQueueSettings
    queue: ReliableQueue
    #: The same queue for executions: its name and the number of attempts.
    work_queue: WorkQueue
    #: Notes that its keys cannot be used; the other queues of the connection continue.
    damage: ReconnectBackoff
    recover_at: float = 0.0
    is_provisioned: bool = False

    @property
    def is_usable(self) -> bool:
        """Return whether the queue may be asked for something now."""
        return time.monotonic() >= self.damage.next_try_at

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Keep damage of this queue from the other queues; errors of the whole server are raised."""
        try:
            yield
        except RsmqError as error:
            if not is_damage(error):
                raise
            self.damage.note(error)
        else:
            self.damage.over()

    def provision(self) -> None:
        """Store the maximum number of deliveries, also for consumers in other languages."""
        self.queue.configure(max_deliveries=self.settings.max_deliveries)
        self.is_provisioned = True

    def check(self) -> None:
        """Read the queue. Raises an error if it is damaged."""
        with suppress(QueueNotFound):  # it was deleted
            self.queue.info()

    def choose_recovery(self) -> None:
        """Choose the time of the next recovery."""
        self.recover_at = time.monotonic() + self.settings.lease_s / random.uniform(*RECOVERIES_PER_LEASE)  # noqa: S311

    def next_recovery_at(self) -> float:
        """Return when to look for abandoned messages, on the monotonic clock."""
        return max(self.recover_at, self.damage.next_try_at)


def make_state(settings: ReliableQueueSettings, worker_id: str) -> ReliableQueueState:
    """Return the state of a queue in a worker with this id."""
    client = get_client(settings.connection)
    as_executions_know_it = QueueSettings(
        name=settings.name,
        connection=settings.connection,
        visibility_timeout_s=settings.lease_s,
        max_attempts=settings.max_deliveries or NO_LIMIT,
        dead_letter=settings.name,
    )
    # The Queue only provides its name; nothing is ever sent to it.
    work_queue = WorkQueue(as_executions_know_it, Queue(settings.name, client), float(settings.lease_s), "")
    queue = work_queue.reliable = ReliableQueue(settings.name, client, consumer=worker_id)
    return ReliableQueueState(settings, queue, work_queue, ReconnectBackoff(f"reliable queue {settings.name!r}"))


#: Maximum time of one blocking call; stop() waits for its end.
SLICE_S = 1.0
CALL_TIMEOUT_S = 5.0


class ReliableWakeUp:
    """Wakes an idle worker when a message is pushed: takes a token of some queues of one connection, on its own thread.

    Only after expect() was called, when the worker has room: a worker that takes a token must fetch, or put the token
    back by fetching nothing.
    """

    def __init__(self, queues: Sequence[ReliableQueue], *, on_token: Callable[[], None]) -> None:
        self._first, *self._others = queues
        self._connection = self._first.client.connection.with_timeout(SLICE_S + CALL_TIMEOUT_S)
        self._command = take_token(wake_keys(self._first.pop_call(0, self._others).keys), SLICE_S)
        self._on_token = on_token
        self._is_expected = threading.Event()
        self._is_stopping = False
        self._backoff = ReconnectBackoff(f"wake-ups from {self._connection!r}", server=self._connection)
        self._thread = threading.Thread(target=self._wait, name="rsmq-reliable-wake-up", daemon=True)

    def start(self) -> None:
        """Start the thread, which waits after expect() was called."""
        self._thread.start()

    def expect(self) -> None:
        """Wait for the next token: the worker has found no more messages, and has room."""
        self._is_expected.set()

    def stop_soon(self) -> None:
        """Stop waiting."""
        self._is_stopping = True
        self._is_expected.set()

    def stop(self) -> None:
        """Stop waiting; returns when the thread has ended or after two seconds."""
        self.stop_soon()
        if self._thread.ident is not None:
            self._thread.join(2 * SLICE_S)

    def _wait(self) -> None:
        while not self._is_stopping:
            self._is_expected.wait()
            if not self._is_stopping:
                self._try()
        self._connection.close()

    def _try(self) -> None:
        try:
            (reply,) = self._connection.exchange([self._command])
            if isinstance(reply, redis.RedisError):
                raise ConnectionFailed(str(reply))
        except RsmqError as error:
            self._backoff.note(error)
            time.sleep(max(0.0, min(SLICE_S, self._backoff.next_try_at - time.monotonic())))
            return
        self._backoff.over()
        if reply is None:
            return
        self._is_expected.clear()
        if self._is_stopping:
            self._put_back()
        else:
            self._on_token()

    def _put_back(self) -> None:
        try:
            self._first.client.run(self._first.pop_call(0, self._others))
        except RsmqError as error:  # other workers fetch within their poll interval anyway
            self._backoff.note(error)
