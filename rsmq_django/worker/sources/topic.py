"""One consumer of a topic on its thread: read, run, then acknowledge or schedule another delivery.

A failure affects one message only: the messages of a failed batch are tried one by one, a message that keeps failing
moves to the dead-letter topic, and no exception ends the thread.
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

from ...conf.settings import get_settings
from ...core import Client, RsmqError
from ...core.errors import QueueNotFound
from ...core.limits import MAX_SECONDS
from ...core.log_lines import get_logger
from ...core.topic import Bridge, ConsumerGroup, TopicMessage
from ...core.transport.backoff import ReconnectBackoff
from ...queues import ensure_queue
from ...tasks.retry import exponential
from ...tasks.topic_task import TopicTask
from ..execute.invoke import call_in_one_process, close_stale_connections, close_unusable_connections, share_handlers
from ..report.clock import ServerClock
from ..report.event_log import EventLog
from ..report.notifications import one_line
from ..report.statistics import MOST_LAST_REPORTS, Statistics, carry_out

logger = get_logger(__name__)

#: Maximum time of one read, and so of the reaction of a thread to a stop.
READ_WITHIN_MS = 1000
BRIDGE_BATCH = 100


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """When the threads of a process end by themselves, and the callback when one has ended."""

    wake: Callable[[], None]
    #: End when nothing is left to read.
    until_drained: bool = False
    #: End when nothing is left to read and no consumer holds a message.
    until_empty: bool = False

    @property
    def ends(self) -> bool:
        """Return whether the threads end by themselves."""
        return self.until_drained or self.until_empty


class TopicThread(threading.Thread):
    """A thread that does one step after the other until it is stopped, or until nothing is left."""

    def __init__(self, group: ConsumerGroup, plan: TopicPlan) -> None:
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
        """Work until stopped; while the server is unavailable, wait."""
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
            except Exception:  # a defect of this library; without this thread the consumer would not read any more
                logger.exception("reading %s failed; trying again in a second", self.group)
                self.stopping.wait(1)
        self._leave()
        self.has_ended = True
        self._plan.wake()

    @abstractmethod
    def step(self) -> bool:
        """Do the next step; return whether nothing is left to do."""

    @property
    def is_busy(self) -> bool:
        """Return whether a function is running."""
        return False

    def give_back(self) -> None:
        """Release the messages in progress."""

    def renew(self) -> None:
        """Renew the leases of the messages in progress."""

    def _leave(self) -> None:
        try:
            self.group.leave()
        except RsmqError:
            logger.debug("%s could not be left; it counts as live for a few seconds", self.group)


class ConsumerThread(TopicThread):
    """Runs a topic task."""

    def __init__(self, task: TopicTask, group: ConsumerGroup, plan: TopicPlan, account: TopicReport) -> None:
        super().__init__(group, plan)
        self._task = task
        self._account = account
        #: Queue name and task name in the statistics.
        self._as = group.subject, task.module_path
        #: Run time of the last call of the function.
        self._run_us = 0
        self._call: Any = async_to_sync(task.func) if task.is_async else task.func
        self._lock = threading.Lock()
        #: Messages in progress; empty after they were released.
        self._held: list[TopicMessage] = []
        self._renew_at = 0.0

    @property
    def is_busy(self) -> bool:
        """Return whether the function is running."""
        return bool(self._held)

    def step(self) -> bool:
        """Read a batch and work on it."""
        batch = self.group.read(self._task.batch or 1, block_ms=self._block_ms)
        if batch.skipped:
            logger.warning("%s missed %d messages: they were dropped before it read them", self.group, batch.skipped)
        if batch.dead_lettered:
            where = f"{self.group.topic.name}.dlt"
            logger.error(
                "%s: %d messages failed for good and moved to topic %s", self.group, batch.dead_lettered, where
            )
        if batch.messages:
            self._account.arrived(*self._as, batch.messages)
            try:
                self.work(batch.messages)
            finally:
                self.give_back()  # does nothing, unless an outcome could not be sent to Redis
            self._plan.wake()
            return False
        if not self._plan.until_empty or batch.due_ms is None:
            return batch.left == 0
        self.stopping.wait(min(1.0, batch.due_ms / 1000 + 0.001))  # until the next retry, or the end of another lease
        return False

    def work(self, messages: list[TopicMessage]) -> None:
        """Work on messages: new ones together, the ones that failed before one by one."""
        with self._lock:
            self._held, self._renew_at = list(messages), self._next_renewal()
        fresh = [message for message in messages if message.deliveries == 1]
        again = [message for message in messages if message.deliveries > 1]
        if fresh and (failure := self.attempt(fresh)) is not None:
            if len(fresh) == 1:
                self._fail(fresh[0], failure)
            else:
                self._account.ended(*self._as, fresh, "retried", run_us=self._run_us, error=failure)
                logger.warning("%s raised %s; its %d messages are tried one by one", *self._log_words(failure, fresh))
                again = fresh + again
        for message in again:
            if (failure := self.attempt([message])) is not None:
                self._fail(message, failure)

    def attempt(self, messages: Sequence[TopicMessage]) -> BaseException | None:
        """Call the function and acknowledge; return its exception. Messages released meanwhile are not touched."""
        with self._lock:
            if not self._held:
                return None
        self._account.began(*self._as, messages)
        began_at = time.monotonic()
        try:
            close_stale_connections()
            given = list(messages) if self._task.batch is not None else messages[0]
            copy_context().run(call_in_one_process, self._call, [given], {})
        except BaseException as error:  # a function may raise anything; the thread continues
            return error
        finally:
            self._run_us = int((time.monotonic() - began_at) * 1e6)
            close_unusable_connections()
        if self._abandon(messages):
            self._note_acknowledged(messages, self.group.ack(messages))
        return None

    def _note_acknowledged(self, messages: Sequence[TopicMessage], count: int) -> None:
        # If the group held only a part of a batch any more, it is unknown which; the totals are right anyway.
        for part, end in ((messages[:count], "succeeded"), (messages[count:], "lost")):
            self._account.ended(*self._as, part, end, run_us=self._run_us * len(part) // len(messages))

    def _fail(self, message: TopicMessage, error: BaseException) -> None:
        if not self._abandon([message]):
            return
        wait_s = self._wait_s(message)
        logger.warning(
            "topic task %s failed on delivery %d of message %d, retry in %.1f s: %s",
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
            logger.warning(
                "message %d of %s was delivered to another consumer, which decides", message.index, self.group
            )
        self._account.ended(*self._as, [message], end, run_us=self._run_us, error=error)

    def _wait_s(self, message: TopicMessage) -> float:
        try:
            return min(MAX_SECONDS, max(0.0, float(self._task.backoff(message.deliveries))))
        except Exception:  # the project's function may raise anything; the message is still delivered again
            logger.exception("the backoff of %s raised", self._task.module_path)
            return exponential()(message.deliveries)

    def _log_words(self, error: BaseException, messages: Sequence[TopicMessage]) -> tuple[str, str, int]:
        return self._task.module_path, one_line(error), len(messages)

    # -- Held messages, shared by two threads -------------------------------------------------------------------------

    def _abandon(self, messages: Sequence[TopicMessage]) -> bool:
        """Stop holding messages; return whether they were held until now."""
        indexes = {message.index for message in messages}
        with self._lock:
            left = [message for message in self._held if message.index not in indexes]
            was_held = len(left) < len(self._held)
            self._held = left
        return was_held

    def give_back(self) -> None:
        """Release the messages in progress; the result of the function does not count any more."""
        with self._lock:
            held, self._held = self._held, []
        if not held:
            return
        try:
            self.group.retry(held)
            self._account.ended(*self._as, held, "released")
        except RsmqError as error:
            logger.warning(
                "%s: %d messages will be redelivered after the visibility timeout: %s", self.group, len(held), error
            )

    def renew(self) -> None:
        """Renew the leases of the messages in progress, and the registration of the consumer."""
        with self._lock:
            # Under the lock, so that messages that end meanwhile are not leased once more.
            if self._held and time.monotonic() >= self._renew_at:
                self._renew_at = self._next_renewal()
                timeout_s = self._task.options.visibility_timeout_s
                calls = self.group.retry_calls(self._held, after_s=timeout_s)
                for result in self.group.client.run_many([*calls, self.group.beat_call()]):
                    if isinstance(result, RsmqError):
                        raise result

    def _next_renewal(self) -> float:
        # A third, so that leases survive two lost renewals in a row; and often enough to count as live.
        return time.monotonic() + min(5.0, self._task.options.visibility_timeout_s / 3)


class BridgeThread(TopicThread):
    """Moves messages of a topic into a queue."""

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


class TopicReport:
    """Statistics and events of the topic tasks of one process on one connection: tasks of a queue named `topic:group`.

    Consumers count on their own threads; the maintenance thread reports for all of them once a second. Events are
    written directly after the acknowledgement, in a separate round trip.
    """

    def __init__(self, client: Client, worker_id: str) -> None:
        self.client = client
        self._lock = threading.Lock()
        self._statistics = Statistics.from_settings(client.namespace, worker_id, now_ms=ServerClock().now_ms)
        self._event_log = EventLog.from_settings(get_settings().events, worker_id, client.namespace)

    def arrived(self, queue: str, task: str, messages: Sequence[TopicMessage]) -> None:
        """Count first deliveries as sent."""
        if self._statistics is not None:
            with self._lock:
                self._statistics.sent(queue, task, sum(message.deliveries == 1 for message in messages))

    def began(self, queue: str, task: str, messages: Sequence[TopicMessage]) -> None:
        """Count attempts that begin."""
        if self._statistics is not None:
            with self._lock:
                for _ in messages:
                    self._statistics.began(queue, task)

    def ended(
        self,
        queue: str,
        task: str,
        messages: Sequence[TopicMessage],
        end: str,
        *,
        run_us: int | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Count attempts that ended after Redis has settled them, and write their events. One run took `run_us`."""
        each_us = None if run_us is None or not messages else run_us // len(messages)
        if self._statistics is not None:
            with self._lock:
                for _ in messages:
                    self._statistics.ended(queue, task, end, run_us=each_us)
        if self._event_log is not None and messages:
            lines = [(task, _line(task, message, each_us)) for message in messages]
            self._event_log.write(self.client, queue, end, lines, error)

    def report(self) -> None:
        """Send the counters, once a second."""
        if self._statistics is not None:
            with self._lock:
                steps = self._statistics.steps()
            carry_out(self.client, steps)

    def report_the_rest(self) -> None:
        """Send everything: the process ends."""
        for _ in range(MOST_LAST_REPORTS):
            if self._statistics is None or self._statistics.is_empty:
                return
            self._statistics.flush_soon()
            self.report()


def _line(task: str, message: TopicMessage, run_us: int | None) -> str:
    """Return the values of one event; messages of a topic do not contain the time of sending."""
    run = "" if run_us is None else run_us
    return f"{task}\n\n{message.index}\n{message.deliveries}\n\n\n{run}\n{len(message.body)}"
