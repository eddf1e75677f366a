"""One consumer of a topic on its thread: read, run, acknowledge or have it come again.

Whatever happens to a message happens to it alone: a batch that fails is tried message by message, one that goes on
failing ends in the dead-letter topic, and no exception ends the thread.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from asgiref.sync import async_to_sync

from ...core import RsmqError
from ...core.backoff import ReconnectBackoff
from ...core.errors import QueueNotFound
from ...core.limits import MAX_SECONDS
from ...core.log_lines import get_logger
from ...core.topics import Bridge, Group, TopicMessage
from ...queues import ensure_queue
from ...tasks.retry import exponential
from ...tasks.topic_task import TopicTask
from ..execute.contexts import share_handlers
from ..execute.database import close_stale_connections, close_unusable_connections
from ..execute.forks import call_in_one_process
from ..report.error_text import one_line
from .topic_report import TopicReport

logger = get_logger(__name__)

#: How long one read waits, and so how soon a thread notices that it is to stop.
READ_WITHIN_MS = 1000
BRIDGE_BATCH = 100


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """When the threads of a process end by themselves, and whom they tell that something has ended."""

    wake: Callable[[], None]
    #: When nothing lies ahead.
    until_drained: bool = False
    #: When nothing lies ahead and nothing is held by anybody.
    until_empty: bool = False

    @property
    def ends(self) -> bool:
        """Say whether they end by themselves at all."""
        return self.until_drained or self.until_empty


class TopicThread(threading.Thread):
    """A thread that does one step after the other until it is told to stop, or until there is nothing left."""

    def __init__(self, group: Group, plan: TopicPlan) -> None:
        super().__init__(name=f"rsmq-{group.topic.name}-{group.name}", daemon=True)
        self.group = group
        self.stopping = threading.Event()
        self.has_ended = False
        self._plan = plan
        self._block_ms = 0 if plan.ends else READ_WITHIN_MS
        self._backoff = ReconnectBackoff(
            f"topic {group.topic.name!r}, group {group.name!r}", server=group.topic.client.connection
        )

    def run(self) -> None:
        """Work until stopped; while the server is away, wait."""
        share_handlers()
        while not self.stopping.is_set():
            try:
                is_drained = self.step()
                self._backoff.over()
                if is_drained and self._plan.ends:
                    break
            except RsmqError as error:
                self._backoff.note(error)
                self.stopping.wait(max(0.0, self._backoff.next_try_at - time.monotonic()))
            except Exception:  # a mistake of ours: the thread is the only one that reads for this consumer
                logger.exception("reading %s failed; going on in a second", self.group)
                self.stopping.wait(1)
        self._leave()
        self.has_ended = True
        self._plan.wake()

    @abstractmethod
    def step(self) -> bool:
        """Do the next thing; return whether there is nothing left to do."""

    @property
    def is_busy(self) -> bool:
        """Say whether a function is running."""
        return False

    def give_back(self) -> None:
        """Let others have what is being worked on."""

    def renew(self) -> None:
        """Go on holding what is being worked on."""

    def _leave(self) -> None:
        try:
            self.group.leave()
        except RsmqError:
            logger.debug("%s could not be left; it counts as live for a few seconds", self.group)


class ConsumerThread(TopicThread):
    """Runs a topic task."""

    def __init__(self, task: TopicTask, group: Group, plan: TopicPlan, account: TopicReport) -> None:
        super().__init__(group, plan)
        self._task = task
        self._account = account
        #: Under which name and as which task its attempts are counted.
        self._as = group.subject, task.module_path
        #: How long the last call of the function took.
        self._run_us = 0
        self._call: Any = async_to_sync(task.func) if task.is_async else task.func
        self._lock = threading.Lock()
        #: What is being worked on; empty after it was given back.
        self._held: list[TopicMessage] = []
        self._renew_at = 0.0

    @property
    def is_busy(self) -> bool:
        """Say whether the function is running."""
        return bool(self._held)

    def step(self) -> bool:
        """Read a batch and work on it."""
        batch = self.group.read(self._task.batch or 1, block_ms=self._block_ms)
        if batch.skipped:
            logger.warning("%s missed %d messages: they were dropped before it read them", self.group, batch.skipped)
        if batch.dead_lettered:
            where = f"{self.group.topic.name}.dlt"
            logger.error("%s: %d messages failed for good and went to topic %s", self.group, batch.dead_lettered, where)
        if batch.messages:
            self._account.arrived(*self._as, batch.messages)
            try:
                self.work(batch.messages)
            finally:
                self.give_back()  # nothing, unless Redis could not be told how one of them ended
            self._plan.wake()
            return False
        if not self._plan.until_empty or batch.due_ms is None:
            return batch.left == 0
        self.stopping.wait(min(1.0, batch.due_ms / 1000 + 0.001))  # what failed, or what others hold, comes again
        return False

    def work(self, messages: list[TopicMessage]) -> None:
        """Work on messages: those that are new together, those that failed before alone."""
        with self._lock:
            self._held, self._renew_at = list(messages), self._next_renewal()
        fresh = [message for message in messages if message.deliveries == 1]
        again = [message for message in messages if message.deliveries > 1]
        if fresh and (failure := self.attempt(fresh)) is not None:
            if len(fresh) == 1:
                self._fail(fresh[0], failure)
            else:
                self._account.ended(*self._as, fresh, "retried", run_us=self._run_us, error=failure)
                logger.warning("%s raised %s; its %d messages are tried one by one", *self._said(failure, fresh))
                again = fresh + again
        for message in again:
            if (failure := self.attempt([message])) is not None:
                self._fail(message, failure)

    def attempt(self, messages: Sequence[TopicMessage]) -> BaseException | None:
        """Call the function and acknowledge; return what it raised. What was given back meanwhile is not touched."""
        with self._lock:
            if not self._held:
                return None
        self._account.began(*self._as, messages)
        began_at = time.monotonic()
        try:
            close_stale_connections()
            given = list(messages) if self._task.batch is not None else messages[0]
            copy_context().run(call_in_one_process, self._call, [given], {})
        except BaseException as error:  # a function may raise anything; the thread goes on
            return error
        finally:
            self._run_us = int((time.monotonic() - began_at) * 1e6)
            close_unusable_connections()
        if self._abandon(messages):
            self._note_acknowledged(messages, self.group.ack(messages))
        return None

    def _note_acknowledged(self, messages: Sequence[TopicMessage], count: int) -> None:
        # Of a batch that the group held only a part of any more nobody knows which: the numbers are right all the same.
        for part, end in ((messages[:count], "succeeded"), (messages[count:], "lost")):
            self._account.ended(*self._as, part, end, run_us=self._run_us * len(part) // len(messages))

    def _fail(self, message: TopicMessage, error: BaseException) -> None:
        if not self._abandon([message]):
            return
        wait_s = self._wait_s(message)
        logger.warning(
            "topic task %s failed on delivery %d of message %d, again in %.1f s: %s",
            self._task.module_path,
            message.deliveries,
            message.index,
            wait_s,
            one_line(error),
        )
        logger.debug("topic task %s raised", self._task.module_path, exc_info=error)
        most = self._task.options.max_deliveries
        end = "dead" if 0 < most <= message.deliveries else "retried"
        if self.group.retry(message, after_s=wait_s) == 0:
            end = "lost"
            logger.warning("message %d of %s has another reader by now, who decides", message.index, self.group)
        self._account.ended(*self._as, [message], end, run_us=self._run_us, error=error)

    def _wait_s(self, message: TopicMessage) -> float:
        try:
            return min(MAX_SECONDS, max(0.0, float(self._task.backoff(message.deliveries))))
        except Exception:  # the project's function may raise anything; the message comes again all the same
            logger.exception("the backoff of %s raised", self._task.module_path)
            return exponential()(message.deliveries)

    def _said(self, error: BaseException, messages: Sequence[TopicMessage]) -> tuple[str, str, int]:
        return self._task.module_path, one_line(error), len(messages)

    # -- What is held, seen by two threads ----------------------------------------------------------------------------

    def _abandon(self, messages: Sequence[TopicMessage]) -> bool:
        """Stop holding messages; return whether they were held until now."""
        indexes = {message.index for message in messages}
        with self._lock:
            left = [message for message in self._held if message.index not in indexes]
            was_held = len(left) < len(self._held)
            self._held = left
        return was_held

    def give_back(self) -> None:
        """Let others have what is being worked on; its result does not count any more."""
        with self._lock:
            held, self._held = self._held, []
        if not held:
            return
        try:
            self.group.retry(held)
            self._account.ended(*self._as, held, "released")
        except RsmqError as error:
            logger.warning("%s: %d messages come again when their time is over: %s", self.group, len(held), error)

    def renew(self) -> None:
        """Go on holding what is being worked on, and count as live."""
        with self._lock:
            # Under the lock, so that what ends meanwhile is not held once more.
            if self._held and time.monotonic() >= self._renew_at:
                self._renew_at = self._next_renewal()
                timeout_s = self._task.options.visibility_timeout_s
                calls = self.group.retry_calls(self._held, after_s=timeout_s)
                for result in self.group.client.run_many([*calls, self.group.beat_call()]):
                    if isinstance(result, RsmqError):
                        raise result

    def _next_renewal(self) -> float:
        # A third, so that two lost renewals in a row still keep the messages ours; and often enough to count as live.
        return time.monotonic() + min(5.0, self._task.options.visibility_timeout_s / 3)


class BridgeThread(TopicThread):
    """Feeds a queue."""

    def __init__(self, bridge: Bridge, plan: TopicPlan) -> None:
        super().__init__(bridge.group, plan)
        self._bridge = bridge

    def step(self) -> bool:
        """Move a batch."""
        try:
            done = self._bridge.forward(BRIDGE_BATCH, block_ms=self._block_ms)
        except QueueNotFound:  # nothing was moved
            ensure_queue(self._bridge.queue.name)
            return False
        if done.dead_lettered:
            logger.error(
                "%d messages of %s are longer than queue %s allows and went to topic %s.dlt",
                done.dead_lettered,
                self.group,
                self._bridge.queue.name,
                self.group.topic.name,
            )
        return done.left == 0
