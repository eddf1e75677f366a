"""Calls that settle outcomes in Redis and clean up after them. Each script checks the receipt: all may be repeated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...core import SettleResult
from ...core.keys import events_key, queue_keys, result_key, successes_key
from ...core.queue.replies import read_nothing, read_settlements
from ...core.stats.events import dropped_key
from ...core.transport.call import Argument, Call
from ...tasks.results import UNFINISHED_TTL_S, encode_error, proven_end
from ...tasks.tags import tags_of, untag_ended
from ...tasks.unique import is_digest, unlock
from ..delivery import Delivery, Handler, WorkQueue
from ..execute.limits import free
from ..execute.workflow import counted, is_member
from ..outcomes import (
    Cancelled,
    Dead,
    Discarded,
    Outcome,
    Postponed,
    Released,
    RetryIn,
    Settlement,
    Succeeded,
)
from ..report.event_log import NO_EVENTS, EventLog, Events
from ..report.notifications import dotted_path, text_of

Verdicts = list[SettleResult]


#: Outcomes of which one call settles many.
_TOGETHER = (Succeeded, Released)

EndingBatches = Callable[[Sequence[Delivery]], list[str]]


@dataclass(slots=True)
class SettleCall:
    """A call that settles outcomes."""

    settlements: list[Settlement]
    #: The batches that it removes from the record as a whole.
    over: list[str]
    call: Call[Verdicts]


def settle_calls(
    settlements: Sequence[Settlement],
    completed_batches: EndingBatches = lambda deliveries: [],
    event_log: EventLog | None = None,
) -> list[SettleCall]:
    """Return the calls that settle these outcomes.

    `completed_batches` returns the batches of which a worker holds nothing any more after these deliveries.
    """
    recent = None if event_log is None else event_log.recent
    if recent is not None:
        recent.turn(time.monotonic())
    #: By queue, kind of outcome, whether results are kept, and the task that logs them as recent successes.
    groups: dict[tuple[WorkQueue, type[Outcome], bool, str], list[Settlement]] = {}
    alone: list[tuple[list[Settlement], str]] = []
    #: The group of the last success of this function and queue, if it was that of a plain message and is not logged.
    alike: list[Settlement] = []
    handler: Handler | None = None
    work_queue: WorkQueue | None = None
    for settlement in settlements:
        execution, how = settlement.execution, type(settlement.outcome)
        if execution.handler is handler and execution.delivery.work_queue is work_queue:
            if alike and how is Succeeded and execution.meta is None:
                alike.append(settlement)
                continue
        apart = execution.path if recent is not None and how is Succeeded and recent.takes(execution.path) else ""
        if how not in _TOGETHER or (execution.meta is not None and is_member(settlement)):
            alone.append(([settlement], apart))
            continue
        key = execution.delivery.work_queue, how, how is Succeeded and execution.keep_result_s > 0, apart
        group = groups.get(key)
        if group is None:
            group = groups[key] = []
        group.append(settlement)
        handler, work_queue = execution.handler, execution.delivery.work_queue
        is_plain = handler is not None and how is Succeeded and execution.meta is None
        alike = group if is_plain and not apart else []
    all_groups = [*alone, *((group, apart) for (_, _, _, apart), group in groups.items())]
    return [_settle_call(group, apart, completed_batches, event_log) for group, apart in all_groups]


def _settle_call(
    group: list[Settlement], apart: str, completed_batches: EndingBatches, event_log: EventLog | None
) -> SettleCall:
    first, deliveries = group[0], [settlement.execution.delivery for settlement in group]
    over, work_queue = completed_batches(deliveries), deliveries[0].work_queue
    events = NO_EVENTS if event_log is None else event_log.words(work_queue.name, group, are_apart=bool(apart))
    log = successes_key(work_queue.queue.client.namespace, apart) if apart else ""
    match first.outcome:
        case Succeeded() if first.result_keys:
            call = keep_results(work_queue, group, over, events, log)
        case Succeeded():
            call = succeed(work_queue, deliveries, over, events, log)
        case Released():
            call = release(work_queue, deliveries, over, events)
        case RetryIn():
            call = retry(first, first.outcome, over, events)
        case Postponed():
            call = postpone(first, first.outcome, over, events)
        case Dead():
            call = bury(first, first.outcome, over, events)
        case Cancelled():
            call = remove_cancelled(deliveries[0], over, events)
    return SettleCall(group, over, counted(first, call))


def succeed(
    work_queue: WorkQueue,
    deliveries: Sequence[Delivery],
    over: Sequence[str] = (),
    events: Events = NO_EVENTS,
    log: str = "",
) -> Call[Verdicts]:
    """Return the call that deletes messages whose functions returned."""
    args: list[Argument] = [*removals(over)]
    messages = [delivery.message for delivery in deliveries]
    receive_counts = {message.receive_count for message in messages}
    if len(receive_counts) == 1:  # mostly each message was received for the first time
        args += (*receive_counts, *[message.id for message in messages])
    else:
        args.append("")
        for message in messages:
            args += (message.id, message.receive_count)
    args += events
    read = _read_refused(len(deliveries))
    return Call("tasks/worker/succeed", _final_keys(work_queue, log), tuple(args), read, True, work_queue.name)


def keep_results(
    work_queue: WorkQueue,
    settlements: Sequence[Settlement],
    over: Sequence[str] = (),
    events: Events = NO_EVENTS,
    log: str = "",
) -> Call[Verdicts]:
    """Return the call that deletes messages whose functions returned, and keeps their results."""
    namespace, worker_id = work_queue.queue.client.namespace, settlements[0].worker_id
    keys = [*_final_keys(work_queue, log)]
    own: list[tuple[str, str, str]] = []
    values: list[str] = []
    last: list[tuple[int, int, int]] = []
    for settlement in settlements:
        execution, outcome = settlement.execution, settlement.outcome
        delivery, ended_ms, envelope = execution.delivery, execution.finished_ms, execution.envelope
        assert isinstance(outcome, Succeeded) and envelope is not None
        value = outcome.value
        if work_queue.is_sealed:
            value = proven_end(value, task_id=envelope.id, queue_name=work_queue.name, field="value")
        began_ms = ended_ms if delivery.started_ms is None else delivery.started_ms
        keys.append(result_key(namespace, envelope.id))
        message = delivery.message
        own.append((message.id, f"{began_ms:.3f}", f"{ended_ms:.3f}"))
        values.append(value)
        last.append((message.receive_count, delivery.attempt, execution.keep_result_s))
    args: list[Argument] = [*removals(over), work_queue.name, worker_id]
    if last.count(last[0]) < len(last):
        args.append(0)
        for words, value, words_of_attempt in zip(own, values, last, strict=True):
            args += (*words, value, *words_of_attempt)
    elif values.count(values[0]) < len(values):
        args += (3, *last[0])
        for words, value in zip(own, values, strict=True):
            args += (*words, value)
    else:  # mostly none of the functions has returned anything
        args += (4, values[0], *last[0])
        for words in own:
            args += words
    args += events
    read = _read_refused(len(settlements))
    return Call("tasks/worker/keep_results", tuple(keys), tuple(args), read, True, work_queue.name)


def retry(
    settlement: Settlement, outcome: RetryIn, over: Sequence[str] = (), events: Events = NO_EVENTS
) -> Call[Verdicts]:
    """Return the call that makes a message visible again later."""
    delivery = settlement.delivery
    error = {f"error:{delivery.attempt}": encode_error(outcome.error, outcome.traceback)}
    wait_ms = round(outcome.after_s * 1000)
    record = settlement.record(UNFINISHED_TTL_S + round(outcome.after_s), status="READY", **error)
    keys = (*settle_keys(delivery.work_queue), *settlement.result_keys)
    args = (*removals(over, [delivery]), *delivery.receipt, wait_ms, "retried", *record, *events)
    return Call("tasks/worker/retry", keys, args, _read_verdict, True, delivery.work_queue.name)


def postpone(
    settlement: Settlement, outcome: Postponed, over: Sequence[str] = (), events: Events = NO_EVENTS
) -> Call[Verdicts]:
    """Return the call that makes a message visible again later, without counting the run."""
    delivery, wait_ms = settlement.delivery, round(outcome.after_s * 1000)
    ttl_s = UNFINISHED_TTL_S + round(outcome.after_s)
    record = settlement.record(ttl_s, status="READY") if outcome.has_run else ()
    keys = (*settle_keys(delivery.work_queue), *(settlement.result_keys if record else ()))
    args = (*removals(over, [delivery]), *delivery.receipt, wait_ms, "released", *record, *events)
    return Call("tasks/worker/retry", keys, args, _read_verdict, True, delivery.work_queue.name)


def bury(settlement: Settlement, outcome: Dead, over: Sequence[str] = (), events: Events = NO_EVENTS) -> Call[Verdicts]:
    """Return the call that moves a message to its dead-letter queue, or deletes it when it is discarded."""
    delivery, work_queue = settlement.delivery, settlement.delivery.work_queue
    target = None if isinstance(outcome, Discarded) else settlement.execution.dead_letter_queue
    # A script may only be given keys of one slot: without a dead-letter queue, the message's own queue takes its place.
    dead = queue_keys(work_queue.queue.client.namespace, target or work_queue.name)
    record = failure_record(settlement, outcome) if target else ""
    error = encode_error(outcome.error, outcome.traceback or text_of(outcome.error))
    if work_queue.is_sealed:
        error = proven_end(error, task_id=settlement.execution.task_id, queue_name=work_queue.name, field="error")
    fields = {"status": "FAILED", "finished_ms": f"{settlement.execution.finished_ms:.3f}", "dead": target or ""}
    result = settlement.record(settlement.keep_result_s, **fields, **{f"error:{delivery.attempt}": error})
    keys = (*_final_keys(work_queue), dead.messages, dead.settings, dead.failures, dead.releases)
    args = (*removals(over, [delivery]), *delivery.receipt, record, *result, *events)
    return Call("tasks/worker/bury", (*keys, *settlement.result_keys), args, _read_verdict, True, work_queue.name)


def release(
    work_queue: WorkQueue, deliveries: Sequence[Delivery], over: Sequence[str] = (), events: Events = NO_EVENTS
) -> Call[Verdicts]:
    """Return the call that releases messages."""
    keys = settle_keys(work_queue)
    receipts = [word for delivery in deliveries for word in delivery.receipt]
    args = (*removals(over, deliveries), work_queue.queue.keys.channel, *receipts, *events)
    return Call("tasks/worker/release", keys, args, read_settlements, True, work_queue.name)


def remove_cancelled(delivery: Delivery, over: Sequence[str] = (), events: Events = NO_EVENTS) -> Call[Verdicts]:
    """Return the call that removes a cancelled message from the record: it is gone from its queue."""
    work_queue, namespace = delivery.work_queue, delivery.work_queue.queue.client.namespace
    keys = (work_queue.inflight_key, events_key(namespace), dropped_key(namespace))
    args = (*removals(over, [delivery]), *events)
    return Call("tasks/worker/strike_off", keys, args, lambda _struck: [SettleResult.MISSING], True, work_queue.name)


def start(settlement: Settlement) -> Call[Verdicts]:
    """Return the call that notes in the result record that an attempt began; the outcome is not used."""
    keys = (*_queue_keys(settlement.delivery.work_queue), *settlement.result_keys)
    args = (*settlement.delivery.receipt, *settlement.record(UNFINISHED_TTL_S, status="RUNNING"))
    return Call("tasks/worker/start", keys, args, _read_verdict, True, settlement.delivery.work_queue.name)


def failure_record(settlement: Settlement, outcome: Dead) -> str:
    """Return the failure record of a dead letter: JSON, for people and programs."""
    kind, envelope = type(outcome.error), settlement.envelope
    record: dict[str, Any] = {
        "reason": outcome.reason,
        "queue": settlement.delivery.work_queue.name,
        "task": envelope.task if envelope else settlement.execution.path,
        "task_id": envelope.id if envelope else None,
        "attempts": settlement.delivery.attempt,
        "error": dotted_path(kind),
        "message": text_of(outcome.error),
        "traceback": outcome.traceback,
        "died_ms": round(settlement.execution.finished_ms or 0),
        "worker": settlement.worker_id,
    }
    return json.dumps(record)


def remove_inflight(inflight_key: str, deliveries: Sequence[Delivery], over: Sequence[str] = ()) -> Call[None]:
    """Return the call that removes messages and batches from the record, so that their leases are not renewed."""
    return Call("tasks/worker/remove_inflight", (inflight_key,), removals(over, deliveries), read_nothing, True)


def removal_of(batch: str, message_id: str) -> tuple[Argument, ...]:
    """Return the arguments of parts/strike.lua for one message."""
    return 1, batch, message_id


def removals(over: Sequence[str], deliveries: Sequence[Delivery] = ()) -> tuple[Argument, ...]:
    """Return the arguments of parts/strike.lua: finished batches, and messages that stay in a queue."""
    words: list[Argument] = [word for batch in over for word in (batch, "")]
    for delivery in deliveries:
        if delivery.batch not in over:
            words += (delivery.batch, delivery.message.id)
    return len(words) // 2, *words


def _queue_keys(work_queue: WorkQueue) -> tuple[str, str, str, str]:
    """Return the keys that every script of a worker begins with."""
    keys = work_queue.queue.keys
    return keys.messages, keys.settings, keys.releases, work_queue.inflight_key


def settle_keys(work_queue: WorkQueue, log: str = "") -> tuple[str, ...]:
    """Return the first keys of every script that ends leases; `log` replaces the event log by another stream."""
    namespace = work_queue.queue.client.namespace
    return *_queue_keys(work_queue), log or events_key(namespace), dropped_key(namespace)


def _final_keys(work_queue: WorkQueue, log: str = "") -> tuple[str, ...]:
    """Return the first keys of every script that removes a message from its queue."""
    return *settle_keys(work_queue, log), work_queue.queue.keys.failures


def _read_verdict(reply: int) -> Verdicts:
    return [SettleResult(reply)]


def _read_refused(count: int) -> Callable[[list[int]], Verdicts]:
    """Return a reader of replies that contain only the refused messages."""

    def read(reply: list[int]) -> Verdicts:
        verdicts = [SettleResult.DONE] * count
        for at in range(0, len(reply), 2):
            verdicts[reply[at]] = SettleResult(reply[at + 1])
        return verdicts

    return read


# -- Cleanup of features after a message was settled ------------------------------------------------------------------


def cleanup_calls(settlements: Sequence[Settlement]) -> list[Call[Any]]:
    """Return the cleanup calls of messages that use a feature; most use none.

    They go in the same exchange, after the call that settles the message. Only steps that may be lost or done twice
    belong here: each script checks that the message is really gone, and everything that it removes would expire anyway.
    Any program may have written the message: values that no sender of this project writes are left alone. A step that
    must happen together with the settling belongs into its script.
    """
    settlements = [each for each in settlements if each.execution.meta is not None or each.execution.places]
    final = [
        settlement for settlement in settlements if not isinstance(settlement.outcome, (RetryIn, Postponed, Released))
    ]
    places = [free(settlement.execution) for settlement in settlements if settlement.execution.places]
    return [*_unlock_calls(final), *_untag_calls(final), *places]


def _unlock_calls(settlements: Sequence[Settlement]) -> list[Call[Any]]:
    locks: dict[WorkQueue, list[tuple[str, str]]] = {}
    for settlement in settlements:
        digest = (settlement.execution.meta or {}).get("unique")
        if is_digest(digest):
            locks.setdefault(settlement.delivery.work_queue, []).append((settlement.delivery.message.id, digest))
    return [unlock(each.queue.client.namespace, each.queue.keys, held) for each, held in locks.items()]


def _untag_calls(settlements: Sequence[Settlement]) -> list[Call[Any]]:
    tags: dict[tuple[WorkQueue, str], list[tuple[str, str]]] = {}
    for settlement in settlements:
        ids = settlement.delivery.message.id, settlement.execution.task_id
        for tag in tags_of(settlement.execution.meta or {}):
            tags.setdefault((settlement.delivery.work_queue, tag), []).append(ids)
    return [
        untag_ended(work_queue.queue.client.namespace, work_queue.queue.keys, tag, ended)
        for (work_queue, tag), ended in tags.items()
    ]
