"""Waiting for the end of tasks: one subscription of a process for all that wait on a connection.

Who waits notes the word of the process's channel in the result record; the script that ends the task publishes its id
there. Without a subscription (no right for the channel, a broken socket), and for a call that has no record yet, who
waits looks at the record: more often at first, then once a second.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import redis
from django.db.transaction import TransactionManagementError
from django.utils.asyncio import async_unsafe

from ..core import Client
from ..core.errors import RsmqError
from ..core.ids import random_suffix
from ..core.keys import ended_channel
from ..core.log_lines import get_logger
from ..core.numbers import is_number
from ..core.transport.call import Call
from .compat import TaskResultDoesNotExist, TaskResultStatus
from .results import await_end, read_record
from .route import enqueue_on_commit_of, result_ttl_s
from .sending import is_in_transaction
from .shards import clients_for

logger = get_logger(__name__)

#: Waits between two looks at a record: the first, which doubles, the longest, and that of a noted process.
FIRST_WAIT_S, LONGEST_WAIT_S, NOTED_WAIT_S = 0.05, 1.0, 5.0
#: How long a subscription without waits is kept, and how often its thread looks at that.
LINGER_S, LOOK_S = 10.0, 0.5
#: The wait after a failed subscription.
AGAIN_S = 1.0

Wake = Callable[[], object]


@async_unsafe("wait() would stop the event loop with all of its coroutines; use await result.await_end(timeout_s)")
def wait_for_end(result: Any, timeout_s: float) -> None:
    """Refresh a result until its task has ended. Raises TimeoutError, and TaskResultDoesNotExist."""
    waiting, news = _Waiting(result, timeout_s), threading.Event()
    with waiting:
        while True:
            news.clear()
            for client, call in waiting.to_note():
                waiting.is_noted = bool(_tried(client.run, call))
            with waiting.explaining():
                result.refresh()
            if result.is_finished:
                return
            for client in waiting.candidates():
                waiting.found(client, news.set, _tried(client.run, waiting.look(client)))
            waiting.check_is_sent()
            news.wait(waiting.pause_s())


async def await_end_of(result: Any, timeout_s: float) -> None:
    """See wait_for_end()."""
    waiting, news, loop = _Waiting(result, timeout_s), asyncio.Event(), asyncio.get_running_loop()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed, so no coroutine waits any more
            loop.call_soon_threadsafe(news.set)

    with waiting:
        while True:
            news.clear()
            for client, call in waiting.to_note():
                waiting.is_noted = bool(await _atried(client.arun, call))
            with waiting.explaining():
                await result.arefresh()
            if result.is_finished:
                return
            for client in waiting.candidates():
                waiting.found(client, wake, await _atried(client.arun, waiting.look(client)))
            waiting.check_is_sent()
            pause_s = waiting.pause_s()
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), pause_s)


def _tried(run: Callable[[Any], Any], call: Any) -> Any:
    try:
        return run(call)
    except RsmqError:  # the look at the record that follows raises what concerns the caller
        return None


async def _atried(run: Callable[[Any], Any], call: Any) -> Any:
    try:
        return await run(call)
    except RsmqError:
        return None


class _Waiting:
    """One wait for one result."""

    def __init__(self, result: Any, timeout_s: float) -> None:
        if not is_number(timeout_s) or not timeout_s >= 0:
            raise ValueError(f"timeout_s is {timeout_s!r}; it must be a number of seconds from 0")
        self._result, self._timeout_s = result, timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._wait_s = FIRST_WAIT_S
        #: Of the call that runs: a dropped call of a unique task has the result of another one.
        self._task_id, self._passed = result.id, {result.id}
        #: Of the connection that has the record; None until it has one.
        self._listener: _Listener | None = None
        self._wake: Wake = lambda: None
        #: Whether the end will be published to this process.
        self.is_noted = False

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.remove(self._task_id, self._wake)

    def candidates(self) -> list[Client]:
        """Return the clients that may have the record; once it is known, its own: the call may have been replaced."""
        return clients_for(self._task_id) if self._listener is None else [self._listener.client]

    def look(self, client: Client) -> Call[dict[str, str]]:
        """Return the call whose result shows whether a client has the record."""
        return read_record(client.namespace, self._task_id)

    def found(self, client: Client, wake: Wake, record: Mapping[str, str] | None) -> None:
        """Call `wake` when the task has ended, or the subscription begins, if this client has the record."""
        if not record:
            return
        following = record.get("of", self._task_id)
        if following not in self._passed:  # looked for without a pause
            self.__exit__()
            self._passed.add(following)
            self._task_id, self._wait_s, self._listener, self.is_noted = following, 0.0, None, False
        elif self._listener is None:
            self._wake, self._listener = wake, _listener_of(client)
            self._listener.add(self._task_id, wake)
            if self._listener.is_subscribed:
                self._wait_s = 0.0  # this process can be noted at once

    def to_note(self) -> list[tuple[Client, Call[bool]]]:
        """Return the call that notes this process in the record, if it is necessary and possible."""
        listener = self._listener
        if self.is_noted or listener is None or not listener.is_subscribed:
            return []
        return [(listener.client, await_end(listener.client.namespace, self._task_id, listener.word))]

    def pause_s(self) -> float:
        """Return how long to wait for news. Raises TimeoutError when the time is over."""
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            result = self._result
            status = str(result.status)
            if status == TaskResultStatus.READY and result.errors:
                error = result.errors[-1].exception_class_path.rpartition(".")[2]
                status += f"; attempt {result.attempts} failed with {error}, and another one follows"
            elif status == TaskResultStatus.READY:
                status += f"; manage.py rsmq_doctor says whether a worker consumes queue {result.task.queue_name!r}"
            raise TimeoutError(
                f"task {result.task.module_path} has not ended within {self._timeout_s:g} s, its status is {status}; "
                f"waiting has stopped nothing [{result.id}]"
            )
        wait_s, self._wait_s = self._wait_s, min(max(self._wait_s, FIRST_WAIT_S) * 2, LONGEST_WAIT_S)
        return min(left_s, NOTED_WAIT_S if self.is_noted else wait_s)

    def check_is_sent(self) -> None:
        """Raise TransactionManagementError for a row of the outbox which the open transaction may have to commit."""
        has_paused = self._wait_s > FIRST_WAIT_S  # until then, a relay may be sending it
        if self._listener is None and has_paused and is_in_transaction():
            raise self._not_sent()

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Explain why there is no result: none is kept, or its call waits for a commit."""
        try:
            yield
        except TaskResultDoesNotExist as error:
            task = self._result.task
            if result_ttl_s(task) == 0:
                place = 'RSMQ["TASKS"]["RESULT_TTL_S"]' if task.options.result_ttl_s is None else "result_ttl_s"
                raise TaskResultDoesNotExist(
                    f"task {task.module_path} keeps no results, so nobody can wait for its end: {place} is 0. Set "
                    f"result_ttl_s of the task to a number of seconds [{self._result.id}]"
                ) from error
            if is_in_transaction(enqueue_on_commit_of(task)):
                raise self._not_sent() from error
            raise

    def _not_sent(self) -> TransactionManagementError:
        return TransactionManagementError(
            f"Redis has no call [{self._result.id}] of task {self._result.task.module_path}, and a transaction is "
            "open: what it sends leaves at its commit and cannot end before; wait after the block"
        )


class _Listener:
    """The subscription of this process on one connection, on a thread of its own while there are waits."""

    def __init__(self, client: Client) -> None:
        self.client = client
        #: The word of the channel: letters and digits.
        self.word = random_suffix()
        self.is_subscribed = False
        self._lock = threading.Lock()
        self._wakes: dict[str, list[Wake]] = {}
        self._thread: threading.Thread | None = None
        self._idle_since = 0.0
        self._has_complained = False

    def add(self, task_id: str, wake: Wake) -> None:
        """Begin to listen for the end of a task."""
        with self._lock:
            self._wakes.setdefault(task_id, []).append(wake)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._listen, name="rsmq-ends-of-tasks", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError as error:  # the limit of the system, or the interpreter ends
                    self._thread = None
                    self._complain(error)

    def remove(self, task_id: str, wake: Wake) -> None:
        """End what add() began."""
        with self._lock:
            wakes = self._wakes[task_id]
            wakes.remove(wake)
            if not wakes:
                del self._wakes[task_id]
            self._idle_since = time.monotonic()

    def _is_over(self) -> bool:
        """Return whether there has been no wait for a while; the thread has ended then."""
        with self._lock:
            if self._wakes or time.monotonic() - self._idle_since < LINGER_S:
                return False
            self._thread = None
            return True

    def _listen(self) -> None:
        while not self._is_over():
            try:
                self._listen_once()
            except (redis.RedisError, RsmqError, OSError) as error:
                self._complain(error)
                time.sleep(AGAIN_S)
            finally:
                self.is_subscribed = False

    def _listen_once(self) -> None:
        subscriber = self.client.connection.subscriber([ended_channel(self.client.namespace, self.word)])
        try:
            while not self._is_over_now():
                message = subscriber.get_message(timeout=LOOK_S)
                if message is None:
                    continue
                if message["type"] == "subscribe":
                    self.is_subscribed = True
                    self._wake(None)  # to note this process in the records
                elif message["type"] == "message":
                    self._wake(message["data"])
        finally:
            subscriber.close()

    def _is_over_now(self) -> bool:
        with self._lock:
            return not self._wakes and time.monotonic() - self._idle_since >= LINGER_S

    def _wake(self, data: bytes | str | None) -> None:
        task_id = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
        with self._lock:
            found = [each for wakes in self._wakes.values() for each in wakes] if task_id is None else None
            wakes = self._wakes.get(task_id or "", []) if found is None else found
            for wake in wakes:
                wake()

    def _complain(self, error: Exception) -> None:
        level = logger.debug if self._has_complained else logger.warning
        level("no subscription for the ends of tasks: %s; who waits looks once a second", error)
        self._has_complained = True


# -- The subscriptions of this process --------------------------------------------------------------------------------


class _OfProcess:
    """After a fork, the threads and sockets belong to the parent."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.by_client: dict[Client, _Listener] = {}


_own = _OfProcess()


def _listener_of(client: Client) -> _Listener:
    global _own
    if _own.pid != os.getpid():
        _own = _OfProcess()
    own = _own
    with own.lock:
        if client not in own.by_client:
            own.by_client[client] = _Listener(client)
        return own.by_client[client]
