"""Recovery of the messages of a worker process that died.

Each message that was running counts a crash and becomes visible a little later; after `max_crashes` it moves to the
dead-letter queue, with the exit status of the process as the reason. A message that had run a moment ago is treated the
same, because its outcome was lost with the process. Prefetched messages are released without counting an attempt.

If the supervisor killed the process because a message exceeded its `hard_timeout_s`, that message has failed an
attempt, and all other messages are released.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...conf.settings import get_settings
from ...core import Client, Message, RsmqError, SettleResult
from ...core.errors import RedisFailure
from ...core.keys import worker_key
from ...core.log_lines import get_logger
from ...core.numbers import read_count
from ...core.queue.replies import first_received_ms
from ...core.texts import counted
from ...core.transport.call import Call
from ...tasks.interrupts import HardTimeout
from ..delivery import Delivery, WorkQueue
from ..execute.execution import Execution
from ..execute.invoke import Raised
from ..execute.limits import find_places, free
from ..lease.inflight import InflightEntry, forget, read_inflight, release_inflight, run_each
from ..lease.settle import cleanup_calls, removal_of, settle_calls, settle_keys
from ..outcomes import Outcome, Released, Settlement
from ..report.clock import ServerClock
from ..report.event_log import NO_EVENTS, EventLog, Events
from ..report.notifications import Notifier, log_outcome
from ..report.statistics import Statistics

logger = get_logger(__name__)

#: The retry of a message whose process died is delayed by this time, multiplied by the number of its crashes.
CRASH_WAIT_S = 1.0
#: Crashes counted in one round trip, which also returns the bodies.
CRASHES_AT_ONCE = 50


class ProcessDied(Exception):
    """The process died while it ran a message."""


@dataclass(frozen=True, kw_only=True)
class Death:
    """The end of one worker process, with the data for the recovery of its messages."""

    worker_id: str
    #: A description of how the process ended.
    how: str
    #: Ids of the messages that count a crash, because they were running. Empty after a stop on purpose.
    running: frozenset[str]
    #: Ids of the messages that exceeded their hard time limit, for which it was killed. They have failed an attempt.
    overdue: frozenset[str] = frozenset()
    #: It did not end by itself: a call of it may still be in transit.
    was_sudden: bool = True
    #: It reported at its end that none of its messages needs recovery.
    held_nothing: bool = False
    died_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Reporting:
    """The event log and the statistics for outcomes of attempts; each may be disabled."""

    statistics: Statistics | None
    event_log: EventLog | None


def recover(
    client: Client,
    queues: Sequence[WorkQueue],
    death: Death,
    *,
    max_crashes: int,
    statistics: Statistics | None = None,
) -> None:
    """Release or dead-letter all messages of a dead process, and remove the process from the list of workers.

    Safe to repeat: recovered messages leave the record.
    """
    reporting = Reporting(statistics, EventLog.from_settings(get_settings().events, death.worker_id, client.namespace))
    holds = read_inflight(client, worker_key(client.namespace, death.worker_id))
    running = [entry for entry in holds if entry.message_id in death.running]
    overdue = [entry for entry in holds if entry.message_id in death.overdue]
    waiting = [entry for entry in holds if entry.message_id not in death.running | death.overdue]
    for entry in overdue:
        try:
            _fail(client, queues, entry, death, reporting)
        except RedisFailure:
            raise
        except RsmqError as error:  # for example of its dead-letter queue: other messages need not wait for that
            logger.error("message %s becomes visible when its lease expires: %s", entry.message_id, error)
    for at in range(0, len(running), CRASHES_AT_ONCE):
        part = running[at : at + CRASHES_AT_ONCE]
        _count_crashes(client, queues, part, death, reporting, max_crashes=max_crashes)
    released = 0
    for at in range(0, len(waiting), CRASHES_AT_ONCE):
        released += _give_back(client, queues, waiting[at : at + CRASHES_AT_ONCE], death, reporting)
    # The record stays: the last fetch may be carried out at this very moment, and its messages must be found later.
    forget(client, death.worker_id)
    begun = len(running) + len(overdue)
    if held := released + begun:
        logger.warning("%s held %s, %d running; recovered all", death.worker_id, counted(held), begun)


def _count_crashes(
    client: Client,
    queues: Sequence[WorkQueue],
    holds: Sequence[InflightEntry],
    death: Death,
    reporting: Reporting,
    *,
    max_crashes: int,
) -> None:
    known = _known(queues, holds)
    executions = _read_executions(client, known, death) if reporting.event_log else {}
    calls = []
    for entry, work_queue in known:
        events = NO_EVENTS
        if reporting.event_log is not None and entry in executions:
            events = reporting.event_log.words_of_lost(executions[entry], death.how)
        calls.append(_crash(entry, work_queue, max_crashes=max_crashes, events=events))
    for (entry, work_queue), reply in zip(known, client.run_many(calls), strict=True):
        if isinstance(reply, RsmqError):
            logger.error("message %s becomes visible when its lease expires: %s", entry.message_id, reply)
        elif reply:  # otherwise it had ended, or another worker holds it
            _after_crash(client, work_queue, entry, reply, death, reporting, max_crashes=max_crashes)


def _known(queues: Sequence[WorkQueue], holds: Sequence[InflightEntry]) -> list[tuple[InflightEntry, WorkQueue]]:
    by_name = {work_queue.name: work_queue for work_queue in queues}
    return [(entry, by_name[entry.queue_name]) for entry in holds if entry.queue_name in by_name]


def _crash(entry: InflightEntry, work_queue: WorkQueue, *, max_crashes: int, events: Events) -> Call[list[Any]]:
    receipt = (entry.message_id, entry.receive_count)
    wait_ms = round(CRASH_WAIT_S * 1000)
    args = (*removal_of(entry.batch, entry.message_id), *receipt, wait_ms, max_crashes, *events)
    return Call("tasks/worker/crash", settle_keys(work_queue), args, lambda reply: reply, subject=work_queue.name)


def _after_crash(
    client: Client,
    work_queue: WorkQueue,
    entry: InflightEntry,
    reply: list[Any],
    death: Death,
    reporting: Reporting,
    *,
    max_crashes: int,
) -> None:
    crashes, body, first, released = reply
    execution = _execution(_delivery(entry, work_queue, body, first, released), death)
    find_places(execution)
    if crashes < max_crashes:
        if reporting.statistics is not None:
            reporting.statistics.ended(work_queue.name, execution.path, "lost")
        logger.error(
            "message %s of queue %s was running when its process ended with %s, %d of %d times; retry in %.0f s",
            entry.message_id,
            work_queue.name,
            death.how,
            crashes,
            max_crashes,
            CRASH_WAIT_S * crashes,
        )
        _tidy_up(client, execution, [free(execution)] if execution.places else [])
        return
    text = f"the process that ran it ended with {death.how}, {crashes} times in all; see the log of the worker"
    try:
        _end(client, execution, execution.give_up("crashed", ProcessDied(text)), reporting)
    except RsmqError as error:
        logger.error("message %s stays in queue %s for another attempt: %s", entry.message_id, work_queue.name, error)


def _fail(
    client: Client, queues: Sequence[WorkQueue], entry: InflightEntry, death: Death, reporting: Reporting
) -> None:
    """Apply the task's own retry policy to a message that exceeded its hard time limit."""
    for execution in _read_executions(client, _known(queues, [entry]), death).values():
        find_places(execution)
        limit_s = execution.handler.options.hard_timeout_s if execution.handler else None
        _end(client, execution, execution.decide(Raised(HardTimeout(limit_s))), reporting)


def _give_back(
    client: Client, queues: Sequence[WorkQueue], holds: Sequence[InflightEntry], death: Death, reporting: Reporting
) -> int:
    """Release messages without counting an attempt. Returns how many there were."""
    executions = (
        _read_executions(client, _known(queues, holds), death) if reporting.statistics or reporting.event_log else {}
    )
    released = 0
    settlements = [Settlement(execution, Released()) for execution in executions.values()]
    calls = settle_calls(settlements, event_log=reporting.event_log)
    for each, verdicts in zip(calls, run_each(client, [each.call for each in calls]), strict=True):
        if verdicts is not None:
            released += verdicts.count(SettleResult.DONE)
            if reporting.statistics is not None:
                reporting.statistics.settled(each.settlements, verdicts)
    # Messages that were not found in the queue are gone already, and are removed from the record.
    rest = [entry for entry in holds if entry not in executions]
    return released + release_inflight(client, queues, worker_key(client.namespace, death.worker_id), rest)


def _read_executions(
    client: Client, known: Sequence[tuple[InflightEntry, WorkQueue]], death: Death
) -> dict[InflightEntry, Execution]:
    """Read the calls of the messages that are still held; others are omitted."""
    replies = run_each(client, [_read_held(entry, work_queue) for entry, work_queue in known])
    found = {}
    for (entry, work_queue), reply in zip(known, replies, strict=True):
        if reply:
            body, first, released, crashes = reply
            found[entry] = _execution(_delivery(entry, work_queue, body, first, released, read_count(crashes)), death)
    return found


def _read_held(entry: InflightEntry, work_queue: WorkQueue) -> Call[list[Any]]:
    keys = work_queue.queue.keys
    call_keys = (keys.messages, keys.settings, keys.releases)
    args = (entry.message_id, entry.receive_count)
    return Call(
        "tasks/worker/read_held", call_keys, args, lambda reply: reply, repeatable=True, subject=work_queue.name
    )


def _delivery(
    entry: InflightEntry, work_queue: WorkQueue, body: bytes, first: bytes, released: bytes, crashes: int = 0
) -> Delivery:
    message = Message(entry.message_id, body, entry.receive_count, first_received_ms(first))
    attempt = entry.receive_count - read_count(released)
    return Delivery(work_queue, message, attempt, time.monotonic(), entry.batch, crashes)


def _execution(delivery: Delivery, death: Death) -> Execution:
    return Execution(delivery, sink=_NoSink(), notifier=Notifier(death.worker_id))


def _end(client: Client, execution: Execution, outcome: Outcome, reporting: Reporting) -> None:
    """Settle an outcome.

    No signal is sent: the receivers belong into a worker, and may open connections that children would inherit.
    """
    execution.finished_ms = time.time() * 1000
    log_outcome(execution, outcome)
    settlement = Settlement(execution, outcome)
    (settle_call,) = settle_calls([settlement], event_log=reporting.event_log)
    verdicts = client.run(settle_call.call)
    if reporting.statistics is not None:
        reporting.statistics.settled([settlement], verdicts)
    _tidy_up(client, execution, cleanup_calls([settlement]))


def _tidy_up(client: Client, execution: Execution, calls: Sequence[Call[Any]]) -> None:
    for reply in client.run_many(calls) if calls else ():
        if isinstance(reply, RsmqError):
            message_id = execution.delivery.message.id
            logger.warning("cleanup of message %s failed; its locks and tags will expire: %s", message_id, reply)


class _NoSink:
    """The sink of executions that are never run here."""

    def __init__(self) -> None:
        self.clock = ServerClock()

    def began(self, execution: Execution) -> None: ...

    def settle(self, execution: Execution, outcome: Outcome) -> None: ...

    def flush_soon(self) -> None: ...

    def abandon(self, execution: Execution) -> None: ...

    def note_interruption(self, execution: Execution) -> None: ...
