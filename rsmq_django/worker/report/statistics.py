"""Counters of a process between two reports: attempts that began and ended, their latencies and run times.

Counting is an append to a list; buckets and fields are computed once a second. A report is sent with the next exchange,
and is kept until its reply has arrived: the script adds it once, however often it is sent.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import attrgetter

from ...conf.settings import get_settings
from ...core import Client, RsmqError, SettleResult
from ...core.errors import ConnectionFailed, OutcomeUnknown, ServerRefused
from ...core.log_lines import get_logger
from ...core.stats.counters import MOST_FIELDS, report
from ...core.stats.histogram import bucket_of
from ...core.transport.call import Call
from ..delivery import AttemptState
from ..outcomes import Postponed, Released, Settlement
from .notifications import event_name

logger = get_logger(__name__)

#: The maximum loss when a process is killed. A shorter interval would cost more without a benefit.
REPORT_EVERY_S = 1.0
#: A process that ends sends its last counters; many tasks in many queues take more than one exchange.
MOST_LAST_REPORTS = 10

_path_of = attrgetter("path")


class Durations:
    """Latencies and run times of attempts of one kind, in microseconds; None where unknown."""

    __slots__ = ("runs", "waits")

    def __init__(self) -> None:
        #: One entry per attempt.
        self.runs: list[int | None] = []
        self.waits: list[int | None] = []


class Statistics:
    """Counters of one process on one connection."""

    def __init__(self, namespace: str, reporter: str, *, now_ms: Callable[[], float]) -> None:
        self._namespace = namespace
        self._reporter = reporter
        self._now_ms = now_ms
        #: Queue and task of messages that were received for the first time.
        self._sent: list[tuple[str, str]] = []
        #: Queue and task of attempts that began. The threads that run them append to it.
        self.begun: deque[tuple[str, str]] = deque()
        #: By queue, task and outcome.
        self._ended: dict[tuple[str, str, str], Durations] = {}
        #: Fields to report, by queue.
        self._grown: dict[str, Counter[str]] = {}
        #: The report whose reply has not arrived, by queue.
        self._open: dict[str, ReportStep] = {}
        self._number = 0
        self._report_at = 0.0
        self._refused: set[str] = set()

    @classmethod
    def from_settings(cls, namespace: str, reporter: str, *, now_ms: Callable[[], float]) -> Statistics | None:
        """Return a new object; None when statistics are disabled."""
        return cls(namespace, reporter, now_ms=now_ms) if get_settings().statistics.enabled else None

    def arrived(self, executions: Sequence[AttemptState]) -> None:
        """Count first receives as sent: only now it is known which task the message is for."""
        self._sent += [
            (each.delivery.work_queue.name, each.path)
            for each in executions
            if each.delivery.message.receive_count == 1
        ]

    def sent(self, queue: str, task: str, count: int) -> None:
        """Count messages received for the first time."""
        self._sent += [(queue, task)] * count

    def began(self, queue: str, task: str) -> None:
        """Count an attempt that begins to run. From any thread."""
        self.begun.append((queue, task))

    def interrupted(self, queue: str, task: str) -> None:
        """Count a function that was interrupted. Only the main thread does that."""
        self._grown.setdefault(queue, Counter())[f"interrupted:{task}"] += 1

    def ended(self, queue: str, task: str, end: str, *, wait_us: int | None = None, run_us: int | None = None) -> None:
        """Count an attempt that ended, after Redis has settled it."""
        times = self._times(queue, task, end)
        times.runs.append(run_us)
        times.waits.append(wait_us)

    def settled(self, settlements: Sequence[Settlement], verdicts: Sequence[SettleResult]) -> None:
        """Count attempts whose outcomes have reached Redis; they are of one kind and of one queue."""
        outcome = settlements[0].outcome
        if isinstance(outcome, Postponed) and not outcome.has_run:
            return  # it is postponed again and again
        executions = [settlement.execution for settlement in settlements]
        if SettleResult.LEASE_LOST in verdicts:
            both = list(zip(executions, verdicts, strict=True))
            executions = [execution for execution, verdict in both if verdict is not SettleResult.LEASE_LOST]
            if not isinstance(outcome, Released):  # released, and another worker has it already
                self._count("lost", [execution for execution, verdict in both if verdict is SettleResult.LEASE_LOST])
        # MISSING is usually the reply to a second try: the first one was carried out.
        self._count(event_name(outcome), executions)

    def _count(self, end: str, executions: Iterable[AttemptState]) -> None:
        for task, group in groupby(executions, key=_path_of):
            alike = list(group)
            times = self._times(alike[0].delivery.work_queue.name, task, end)
            times.runs += [execution.run_us for execution in alike]
            times.waits += [execution.delivery.wait_us for execution in alike if execution.run_us is not None]

    def _times(self, queue: str, task: str, end: str) -> Durations:
        key = (queue, task, end)
        times = self._ended.get(key)
        if times is None:
            times = self._ended[key] = Durations()
        return times

    # -- Reports ------------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Return whether everything has been reported."""
        return not (self._open or self._grown or self._ended or self.begun or self._sent)

    def next_report_at(self) -> float | None:
        """Return when a report is due, on the monotonic clock; None when there is nothing to report."""
        return None if self.is_empty else self._report_at

    def flush_soon(self) -> None:
        """Report with the next exchange: the process ends."""
        self._report_at = 0.0

    def steps(self) -> list[ReportStep]:
        """Return the reports that are due as steps of an exchange."""
        now = time.monotonic()
        if now < self._report_at or self.is_empty:
            return []
        self._fold()
        for queue in list(self._grown):
            if queue not in self._open:
                self._open_report(queue)
        # Fields beyond the size of one report follow with the next exchange.
        self._report_at = 0.0 if self._grown else now + REPORT_EVERY_S
        return list(self._open.values())

    def report_to(self, client: Client) -> None:
        """Send the reports that are due in a round trip of their own."""
        carry_out(client, self.steps())

    def report_the_rest(self, client: Client) -> None:
        """Send everything: the process ends. Many tasks in many queues take more than one report."""
        for _ in range(MOST_LAST_REPORTS):
            if self.is_empty:
                return
            self.flush_soon()
            self.report_to(client)

    def reported(self, queue: str) -> None:
        """Forget a report whose reply has arrived."""
        self._open.pop(queue, None)
        self._refused.discard(queue)

    def refused(self, queue: str, error: RsmqError) -> None:
        """Drop a report that can never be carried out, and log that once."""
        self._open.pop(queue, None)
        if queue not in self._refused:
            self._refused.add(queue)
            logger.error("the counters of queue %s cannot be written; its statistics have a gap: %s", queue, error)

    def _fold(self) -> None:
        sent, self._sent = self._sent, []
        for (queue, task), count in Counter(sent).items():
            self._grown.setdefault(queue, Counter())[f"sent:{task}"] += count
        begun = [self.begun.popleft() for _ in range(len(self.begun))]
        for (queue, task), count in Counter(begun).items():
            self._grown.setdefault(queue, Counter())[f"started:{task}"] += count
        ended, self._ended = self._ended, {}
        for (queue, task, end), times in ended.items():
            grown = self._grown.setdefault(queue, Counter())
            grown[f"{end}:{task}"] += len(times.runs)
            _add_histogram(grown, "wait", task, times.waits)
            _add_histogram(grown, "run", task, times.runs)

    def _open_report(self, queue: str) -> None:
        grown = self._grown[queue]
        part = dict(islice(grown.items(), MOST_FIELDS))
        for name in part:
            del grown[name]
        if not grown:
            del self._grown[queue]
        self._number += 1
        at_s = self._now_ms() / 1000
        call = report(self._namespace, queue, reporter=self._reporter, number=self._number, at_s=at_s, grown=part)
        self._open[queue] = ReportStep(self, queue, call)


@dataclass(slots=True)
class ReportStep:
    """Adds a report to the counters of a queue."""

    statistics: Statistics
    queue: str
    call: Call[bool]

    def done(self, _is_new: bool) -> None:
        """Forget the report."""
        self.statistics.reported(self.queue)

    def failed(self, error: RsmqError) -> None:
        """Send it again with a later exchange, unless it can never succeed."""
        if not isinstance(error, (ConnectionFailed, OutcomeUnknown, ServerRefused)):
            self.statistics.refused(self.queue, error)


def carry_out(client: Client, steps: Sequence[ReportStep]) -> None:
    """Send reports in one round trip."""
    for step, reply in zip(steps, client.run_many([step.call for step in steps]) if steps else (), strict=True):
        if isinstance(reply, RsmqError):
            step.failed(reply)
        else:
            step.done(reply)


def _add_histogram(grown: Counter[str], name: str, task: str, durations_us: Iterable[int | None]) -> None:
    buckets, total_us = Counter[int](), 0
    # Short tasks have equal run times: most buckets need not be computed again.
    for duration_us, count in Counter(durations_us).items():
        if duration_us is not None:
            buckets[bucket_of(duration_us)] += count
            total_us += duration_us * count
    for bucket, count in buckets.items():
        grown[f"{name}:{bucket}:{task}"] += count
    if buckets:
        grown[f"{name}_us:{task}"] += total_us
