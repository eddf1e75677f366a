"""The topics that a worker process consumes: a thread for each consumer, and a maintenance thread for all of them.

Topics are independent of the queues: their consumers read, run and acknowledge on threads and sockets of their own, so
that a quiet topic costs nothing and a busy queue does not wait for one. Messages of a process that dies are delivered
again after the visibility timeout.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from ...core import Client, RsmqError
from ...core.log_lines import get_logger
from ...core.topic import Bridge, ConsumerGroup, Topic
from ...core.topic.lag import group_statuses, note_lag_call
from ...core.transport.backoff import ReconnectBackoff
from ...queues import get_client, get_queue
from ...tasks.topic_task import TopicBridge, TopicTask, registered_topic_tasks
from .topic import BridgeThread, ConsumerThread, TopicPlan, TopicReport

logger = get_logger(__name__)

#: Interval of renewals; a third of the shortest timeout in sensible use.
MAINTAIN_EVERY_S = 1.0
#: Interval at which topics apply their retention, and forget idle groups.
SWEEP_EVERY_S = 60.0
#: Interval at which the lag of all groups of the consumed topics is noted for charts, whose finest points are minutes.
NOTE_LAG_EVERY_S = 15.0
#: After the shutdown timeout, the threads have this long to notice.
STOP_WITHIN_S = 2.0


class TopicThreads:
    """All work of one process for topics. Without topic tasks it does nothing at all."""

    def __init__(self, plan: TopicPlan, *, names: Sequence[str] | None = None, worker_id: str = "") -> None:
        self._worker_id = worker_id
        #: Reports by client.
        self._reports: dict[int, TopicReport] = {}
        declared = [each for each in registered_topic_tasks() if names is None or each.topic in names]
        self.threads: list[ConsumerThread | BridgeThread] = []
        for each in declared:
            self.threads += self._make_threads(each, plan)
        self._stopping = threading.Event()
        self._maintenance = threading.Thread(target=self._maintain, name="rsmq-topics", daemon=True)
        self._sweep_at = 0.0
        self._note_lag_at = 0.0
        #: One for each step that can fail, so that a lasting failure is not logged every second.
        self._backoffs: dict[str, ReconnectBackoff] = {}

    def start(self) -> None:
        """Start all threads."""
        for thread in self.threads:
            thread.start()
        if self.threads:
            self._maintenance.start()

    @property
    def is_drained(self) -> bool:
        """Return whether all threads have ended because nothing is left to do."""
        return all(thread.has_ended for thread in self.threads)

    @property
    def is_idle(self) -> bool:
        """Return whether no function is running."""
        return not any(thread.is_busy for thread in self.threads)

    def stop_soon(self) -> None:
        """Stop reading; running functions may continue."""
        for thread in self.threads:
            thread.stopping.set()

    def stop(self) -> bool:
        """Stop, and release the messages of running functions. Returns whether every started function could end.

        Further calls do nothing.
        """
        if self._stopping.is_set() or not self.threads:
            return True
        self.stop_soon()
        unfinished = [thread for thread in self.threads if thread.is_busy]
        for thread in unfinished:
            thread.give_back()
        deadline = time.monotonic() + STOP_WITHIN_S
        for thread in self.threads:
            if thread not in unfinished and thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        self._stopping.set()
        for report in self._reports.values():
            self._do("counters of topic tasks", report.report_the_rest, report.client)
        if unfinished:
            logger.warning("%d topic tasks were released unfinished", len(unfinished))
        return not unfinished

    # -- Maintenance --------------------------------------------------------------------------------------------------

    def _maintain(self) -> None:
        while not self._stopping.wait(MAINTAIN_EVERY_S):
            for thread in self.threads:
                self._do(f"messages held by {thread.name}", thread.renew, thread.group.client)
            for report in self._reports.values():
                self._do("counters of topic tasks", report.report, report.client)
            if time.monotonic() >= self._sweep_at:
                self._sweep_at = time.monotonic() + SWEEP_EVERY_S
                for topic in self._topics():
                    self._do(f"old messages of {topic!r}", topic.trim, topic.client)
            if time.monotonic() >= self._note_lag_at:
                self._note_lag_at = time.monotonic() + NOTE_LAG_EVERY_S
                for topic in self._topics():
                    self._do(f"the lag of groups of {topic!r}", partial(note_lag, topic), topic.client)

    def _do(self, what: str, step: Callable[[], object], client: Client) -> None:
        """Run a maintenance step; its failure must not delay the other steps."""
        backoff = self._backoffs.setdefault(what, ReconnectBackoff(what, server=client.connection))
        try:
            step()
        except RsmqError as error:
            backoff.note(error)
        except Exception:  # a defect of this library; this thread renews the leases of all consumers of the process
            logger.exception("%s: maintenance failed; trying again later", what)
        else:
            backoff.over()

    def _topics(self) -> Sequence[Topic]:
        places = {(group.topic.name, id(group.client)): group for group in (thread.group for thread in self.threads)}
        return [Topic(group.topic.name, group.client) for group in places.values()]

    # -- Creation of the threads --------------------------------------------------------------------------------------

    def _make_threads(
        self, declared: TopicTask | TopicBridge, plan: TopicPlan
    ) -> Sequence[ConsumerThread | BridgeThread]:
        if isinstance(declared, TopicBridge):
            queue = get_queue(declared.queue)
            group = ConsumerGroup(Topic(declared.topic, queue.client), declared.group, declared.options)
            return [BridgeThread(Bridge(group, queue), plan)]
        client = get_client(declared.connection)
        report = self._reports.setdefault(id(client), TopicReport(client, self._worker_id))
        return [
            ConsumerThread(
                declared, ConsumerGroup(Topic(declared.topic, client), declared.group, declared.options), plan, report
            )
            for _ in range(declared.consumers)
        ]


def note_lag(topic: Topic) -> None:
    """Note the lag of all groups of a topic, including groups without a consumer in this process."""
    lags = {group.name: group.lag for group in group_statuses(topic)}
    if lags:
        topic.client.run(note_lag_call(topic, lags, at_s=time.time()))
