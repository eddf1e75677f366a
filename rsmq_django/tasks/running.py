"""The running attempt and its progress, for any code inside a task.

from rsmq_django.tasks import current_task, lease_lost

for number, page in enumerate(pages):
    if lease_lost():
        return  # another worker has received the message; this result is discarded
    current_task().progress(number, len(pages))
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ..core import Client, Message, Queue, RsmqError, SettleResult
from ..core.keys import result_key
from ..core.limits import milliseconds
from ..core.log_lines import get_logger
from ..core.reliable import ReliableQueue
from ..core.topic import ConsumerGroup, TopicMessage
from ..core.transport.call import Call
from .compat import BaseTaskContext

logger = get_logger(__name__)

#: After a failure no progress is stored for this time: a task must not wait for Redis repeatedly.
NOT_NOTED_FOR_S = 5.0
_not_noted_until: WeakKeyDictionary[Client, float] = WeakKeyDictionary()


def _is_not_noted(client: Client) -> bool:
    """Return whether storing progress has failed a moment ago."""
    return time.monotonic() < _not_noted_until.get(client, 0.0)


class SourceQueue(Protocol):
    """The queue of a received message, as its worker has it."""

    name: str
    lease_s: float
    queue: Queue
    reliable: ReliableQueue | None
    group: ConsumerGroup | None


class Received(Protocol):
    """A received message and the lease on it, as its worker has them."""

    attempt: int
    message: Message
    renewed_at: float
    lease_lost: bool
    cancelled: bool
    given: TopicMessage | None
    wait_us: int | None

    @property
    def work_queue(self) -> SourceQueue:
        """Queue of the message."""

    @property
    def body_bytes(self) -> int:
        """Size of the message."""

    @property
    def receipt(self) -> tuple[str, int]:
        """Id and receive count, which prove the lease."""


class RunningAttempt(Protocol):
    """One attempt of a task, with the data of its worker."""

    keep_result_s: int
    meta: dict[str, Any] | None
    run_us: int | None

    @property
    def delivery(self) -> Received:
        """Message that this run belongs to."""

    @property
    def path(self) -> str:
        """Dotted path of the task."""

    @property
    def task_id(self) -> str:
        """Id of the call."""


#: The attempt of this thread or coroutine. Threads that a task starts do not inherit it.
current_run: ContextVar[RunningAttempt | None] = ContextVar("rsmq_run", default=None)


def lease_lost() -> bool:
    """Return whether the current task has lost its lease; False outside of a task.

    True once another worker may have received the message: the process was paused, or cut off from Redis, for longer
    than the visibility timeout; or the message was deleted. The result will be discarded, so the task may as well stop.
    """
    run = current_run.get()
    return run is not None and run.delivery.lease_lost


def is_cancelled() -> bool:
    """Return whether the current task was cancelled; False outside of a task.

    For tasks that catch everything, or that wait where nothing can be raised.
    """
    run = current_run.get()
    return run is not None and run.delivery.cancelled


def current_task() -> CurrentTask:
    """Return the task of the calling thread or coroutine. Raises RuntimeError outside of a task."""
    run = current_run.get()
    if run is None:
        raise RuntimeError(
            "no task runs here; threads that a task starts have to be given what they need, and each call of a batch "
            "has its own, `call.current`"
        )
    return CurrentTask(run)


class CurrentTask:
    """The running task: its id, attempt and queue, and its operations."""

    __slots__ = ("_run",)

    def __init__(self, run: RunningAttempt) -> None:
        self._run = run

    @property
    def id(self) -> str:
        """Return the task's id, the same for all attempts, also after a redrive: use it as an idempotency key."""
        return self._run.task_id

    @property
    def path(self) -> str:
        """Return the dotted path of the function."""
        return self._run.path

    @property
    def attempt(self) -> int:
        """Return 1 for the first attempt; released and postponed deliveries do not count."""
        return self._run.delivery.attempt

    @property
    def queue_name(self) -> str:
        """Return the queue, or priority band, that the message came from."""
        return self._run.delivery.work_queue.name

    @property
    def message_id(self) -> str:
        """Return the id of the message."""
        return self._run.delivery.message.id

    @property
    def body_bytes(self) -> int:
        """Return the size of the message as it was received."""
        return self._run.delivery.body_bytes

    @property
    def context(self) -> Mapping[str, Any]:
        """Return the values that middleware sent with the call."""
        context = (self._run.meta or {}).get("context")
        return context if isinstance(context, dict) else {}

    @property
    def waited_for_s(self) -> float | None:
        """Return how long the message was ready before it was received; None where its queue does not tell."""
        wait_us = self._run.delivery.wait_us
        return None if wait_us is None else wait_us / 1e6

    @property
    def ran_for_s(self) -> float | None:
        """Return how long the function ran; None before it has ended, and when it did not run.

        Of a batch, it is the message's share.
        """
        return None if self._run.run_us is None else self._run.run_us / 1e6

    @property
    def lease_lost(self) -> bool:
        """See the function of this name."""
        return self._run.delivery.lease_lost

    @property
    def is_cancelled(self) -> bool:
        """See the function of this name."""
        return self._run.delivery.cancelled

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """Return a logger named like the task's module, whose records carry task, id, attempt and queue as fields."""
        fields = {
            "rsmq_task": self.path,
            "rsmq_task_id": self.id,
            "rsmq_attempt": self.attempt,
            "rsmq_queue": self.queue_name,
        }
        return _BoundLogger(logging.getLogger(self.path.rpartition(".")[0] or "rsmq_django.task"), fields)

    def progress(self, done: float, total: float | None = None, note: str = "") -> bool:
        """Store the progress of the task: one round trip. Returns False when the lease is lost.

        `progress_of()` reads it. Without a result record it is not stored: `result_ttl_s=0`, a reliable queue, a topic.
        A slow, full or unavailable Redis never fails the task: this progress is not stored, and neither is any other of
        this process for the next five seconds.
        """
        text = json.dumps({"done": done, "total": total, "note": note})
        if _is_not_noted(self._client):
            return not self.lease_lost
        try:
            return self._check_in(text, 0)
        except RsmqError as error:
            return self._not_noted(error)

    async def aprogress(self, done: float, total: float | None = None, note: str = "") -> bool:
        """See progress()."""
        text = json.dumps({"done": done, "total": total, "note": note})
        if _is_not_noted(self._client):
            return not self.lease_lost
        try:
            return await self._acheck_in(text, 0)
        except RsmqError as error:
            return self._not_noted(error)

    @property
    def _client(self) -> Client:
        return self._run.delivery.work_queue.queue.client

    def _not_noted(self, error: RsmqError) -> bool:
        _not_noted_until[self._client] = time.monotonic() + NOT_NOTED_FOR_S
        logger.debug("progress is not noted for %.0f s: %s [%s]", NOT_NOTED_FOR_S, error, self.message_id)
        return not self.lease_lost

    def extend(self, seconds: float) -> bool:
        """Keep the message invisible for at least `seconds` from now. Returns False when the lease is lost.

        Raises RedisFailure when that is unknown. The worker renews leases automatically; this is for a task whose work
        continues outside. When the process dies, its supervisor releases the message anyway.
        """
        return self._check_in("", milliseconds("seconds", seconds))

    async def aextend(self, seconds: float) -> bool:
        """See extend()."""
        return await self._acheck_in("", milliseconds("seconds", seconds))

    def _check_in(self, progress: str, hidden_ms: int) -> bool:
        called_at = time.monotonic()
        done = self._client.run(self._call(progress, hidden_ms))
        return self._checked_in(done, called_at, hidden_ms)

    async def _acheck_in(self, progress: str, hidden_ms: int) -> bool:
        called_at = time.monotonic()
        done = await self._client.arun(self._call(progress, hidden_ms))
        return self._checked_in(done, called_at, hidden_ms)

    def _checked_in(self, done: SettleResult, called_at: float, hidden_ms: int) -> bool:
        delivery = self._run.delivery
        if done is not SettleResult.DONE:
            delivery.lease_lost = True
            return False
        # The worker renews a lease that is nearly over; this one is good for longer than those it takes itself.
        delivery.renewed_at = max(delivery.renewed_at, called_at + hidden_ms / 1000 - delivery.work_queue.lease_s)
        return True

    def _call(self, progress: str, hidden_ms: int) -> Call[SettleResult]:
        delivery = self._run.delivery
        queue, reliable = delivery.work_queue.queue, delivery.work_queue.reliable
        if reliable is not None:
            message_id, receive_count = delivery.receipt
            return reliable.check_in_call(f"{message_id}:{receive_count}", from_now_ms=hidden_ms)
        group = delivery.work_queue.group
        if group is not None and delivery.given is not None:
            (call,) = group.retry_calls(delivery.given, after_s=max(hidden_ms / 1000, delivery.work_queue.lease_s))
            return Call(call.script, call.keys, call.args, _verdict, repeatable=True, subject=call.subject)
        keys = [queue.keys.messages, queue.keys.settings]
        if self._run.keep_result_s:
            keys.append(result_key(queue.client.namespace, self.id))
        args = (*delivery.receipt, progress, hidden_ms, queue.name)
        return Call("tasks/worker/check_in", tuple(keys), args, SettleResult, repeatable=True, subject=queue.name)


def _verdict(still_held: int) -> SettleResult:
    """Return the verdict of a group on the renewal of one message."""
    return SettleResult.DONE if still_held else SettleResult.LEASE_LOST


class _BoundLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


class TaskContext(BaseTaskContext):  # type: ignore[type-arg]  # generic only for type checkers
    """Django's context with the data of the running attempt."""

    __slots__ = ("current",)
    #: The running task; see CurrentTask.
    current: CurrentTask

    @classmethod
    def of(cls, run: RunningAttempt, *, task_result: Any) -> TaskContext:
        """Return the context of an attempt."""
        context = cls(task_result=task_result)
        object.__setattr__(context, "current", CurrentTask(run))  # Django's is frozen
        return context

    @property
    def lease_lost(self) -> bool:
        """See the function of this name."""
        return self.current._run.delivery.lease_lost

    @property
    def is_cancelled(self) -> bool:
        """See the function of this name."""
        return self.current._run.delivery.cancelled

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """See CurrentTask.logger."""
        return self.current.logger

    def progress(self, done: float, total: float | None = None, note: str = "") -> bool:
        """See CurrentTask.progress()."""
        return self.current.progress(done, total, note)
