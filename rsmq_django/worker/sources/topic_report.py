"""Statistics and events of topic tasks: they are reported as tasks of a queue with the name `topic:group`.

Consumers count on their own threads; the maintenance thread reports for all of them once a second. Events are written
directly after the acknowledgement, in a separate round trip.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ...conf import get_settings
from ...core import Client
from ...core.topics import TopicMessage
from ..report.clock import ServerClock
from ..report.event_log import EventLog
from ..report.statistics import MOST_LAST_REPORTS, Statistics, carry_out


class TopicReport:
    """Counts for the topic tasks of one process on one connection. Threads may share it."""

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
