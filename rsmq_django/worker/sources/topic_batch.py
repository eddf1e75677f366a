"""Messages of a topic that were read together, for a function that takes batches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from ...core import Client
from ...core.log_lines import get_logger
from ..delivery import AttemptState
from ..execute.batch import Batch
from ..execute.execution import Execution
from ..execute.interrupt import forget_interruption
from ..execute.invoke import RETURNED_NOTHING, Raised, Result
from ..execute.sequence import MessageSequence
from ..outcomes import Released
from ..report.event_log import EventLog, line_of
from ..report.notifications import one_line
from ..report.statistics import Statistics

logger = get_logger(__name__)


class FailedCall:
    """A call of several messages that failed, as counters and events have it."""

    def __init__(self, members: Sequence[AttemptState], error: BaseException) -> None:
        self._queue, self._path, self._error = members[0].delivery.work_queue.name, members[0].path, error
        # Now: a member has other values when it has run alone.
        self._runs = [each.run_us for each in members]
        self._lines = [line_of(each) for each in members]

    def report(self, client: Client, statistics: Statistics | None, event_log: EventLog | None) -> None:
        """Count its messages as retried, and write their events."""
        if statistics is not None:
            for run_us in self._runs:
                statistics.ended(self._queue, self._path, "retried", run_us=run_us)
        if event_log is not None:
            call = event_log.call_of_lines(client.namespace, self._queue, "retried", self._lines, self._error)
            event_log.write(client, self._queue, [call])


class FailedCallSink(Protocol):
    """Accepts calls of several messages that failed, before their messages are tried one by one."""

    def note_failed_call(self, members: Sequence[AttemptState], error: BaseException) -> None:
        """Note a call whose messages are tried again at once."""


class TopicCallBatch(Batch):
    """Messages of one read: first the new ones in one call, then the earlier failures one by one.

    The messages of a call that fails are tried one by one at once, so that one bad message does not fail the others.
    """

    def __init__(self, first: Execution, sink: FailedCallSink) -> None:
        super().__init__(first)
        self._sink = sink
        self._has_failed = False

    def run(self) -> None:
        """Run the messages on this thread."""
        while members := self._next_members():
            for each in members:
                each.begin()
            with self._shared_call(members) as lead:
                result = lead.perform()
            for each in self._ended(members, result):
                each.end(_own_result(result))
                del self._open[each]

    async def arun(self) -> None:
        """See run(); on the event loop."""
        while members := self._next_members():
            for each in members:
                await each.abegin()
            with self._shared_call(members) as lead:
                result = await lead.aperform()
            for each in self._ended(members, result):
                await each.aend(_own_result(result))
                del self._open[each]

    def _next_members(self) -> list[Execution]:
        """Return the members of the next call; without messages that were given back meanwhile."""
        left = [each for each in self._open if not each.interrupted]
        if self.was_interrupted:  # the thread may be broken: the rest runs elsewhere
            for each in left:
                each.sink.settle(each, Released())
            return []
        self.began_at = time.monotonic()
        new = [each for each in left if each.delivery.attempt == 1]
        return new if new and not self._has_failed else (new or left)[:1]

    def _ended(self, members: Sequence[Execution], result: Result) -> Sequence[Execution]:
        """Return the members that end with this call; none if they are tried one by one."""
        lead = members[0]
        run_us = lead.run_us
        for each in members:
            each.run_us = None if run_us is None else run_us // len(members)
        if not lead.was_interrupted:
            forget_interruption(lead)
        if not isinstance(result, Raised) or len(members) == 1 or lead.was_interrupted or lead.interrupted:
            return members
        self._has_failed = True
        self._sink.note_failed_call(members, result.error)
        text = "%s raised %s; its %d messages are tried one by one"
        logger.warning(text, lead.path, one_line(result.error), len(members))
        return []


def _own_result(result: Result) -> Result:
    """Return the result of one member: what the function returns is ignored."""
    return result if isinstance(result, Raised) else RETURNED_NOTHING


def in_topic_calls(
    executions: Iterable[Execution], sink: FailedCallSink
) -> Iterator[Execution | TopicCallBatch | MessageSequence]:
    """Group messages by call: into batches for functions that take them, else into sequences."""
    calls: dict[str, list[Execution]] = {}
    for execution in executions:
        calls.setdefault(execution.delivery.batch, []).append(execution)
    for first, *others in calls.values():
        if first.handler is not None and first.handler.options.batch is not None:
            batch = TopicCallBatch(first, sink)
            for each in others:
                batch.add(each)
            yield batch
        elif others:
            yield MessageSequence([first, *others])
        else:
            yield first
