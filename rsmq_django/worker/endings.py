"""From outcomes to Redis calls. Every call checks the receipt in its script, so all of them are safe to repeat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core import Settlement
from ..core.call import Argument, Call
from ..core.keys import queue_keys, result_key
from ..core.replies import read_nothing, read_settlements
from ..tasks.envelope import Envelope
from ..tasks.results import UNFINISHED_TTL_S, encode_error
from .delivery import Delivery, WorkQueue
from .error_text import text_of
from .execution import Execution
from .outcomes import Dead, Outcome, Released, RetryIn, Succeeded

Verdicts = list[Settlement]


@dataclass(frozen=True, slots=True)
class Ending:
    """A message's outcome on its way to Redis."""

    execution: Execution
    outcome: Outcome
    worker_id: str

    @property
    def delivery(self) -> Delivery:
        """Return the message that ends."""
        return self.execution.delivery

    @property
    def envelope(self) -> Envelope | None:
        """Return the task call, as far as the message got as being one."""
        return self.execution.envelope

    @property
    def keep_result_s(self) -> int:
        """Return how long the finished result is kept; 0 for messages without one."""
        return self.execution.keep_result_s

    @property
    def result_keys(self) -> tuple[str, ...]:
        """Return the key of the result record, or nothing when none is kept."""
        envelope = self.envelope
        if envelope is None or not self.keep_result_s:
            return ()
        return (result_key(self.delivery.work_queue.queue.client.namespace, envelope.id),)

    def record(self, ttl_s: int, **fields: str) -> tuple[Argument, ...]:
        """Return what write_result() in shared/results.lua reads, or nothing when no result is kept."""
        if not self.result_keys:
            return ()
        attempt, started_ms = self.delivery.attempt, f"{self.delivery.started_ms or 0:.3f}"
        fields |= {
            "queue": self.delivery.work_queue.name,
            "message": self.delivery.message.id,
            f"worker:{attempt}": self.worker_id,
            "attempted_ms": started_ms,
        }
        if attempt == 1:
            fields["started_ms"] = started_ms
        words = [word for field in fields.items() for word in field]
        return ttl_s, len(words), *words


def ending_calls(endings: Sequence[Ending]) -> list[tuple[list[Ending], Call[Verdicts]]]:
    """Return the calls that carry the outcomes out, each with the endings that its verdicts are about."""
    together: dict[tuple[str, type[Outcome]], list[Ending]] = {}
    calls: list[tuple[list[Ending], Call[Verdicts]]] = []
    for ending in endings:
        match ending.outcome:
            case Succeeded() | Released():
                together.setdefault((ending.delivery.work_queue.name, type(ending.outcome)), []).append(ending)
            case RetryIn():
                calls.append(([ending], retry(ending, ending.outcome)))
            case Dead():
                calls.append(([ending], bury(ending, ending.outcome)))
    for (_, kind), group in together.items():
        work_queue = group[0].delivery.work_queue
        call = succeed(work_queue, group) if kind is Succeeded else release(work_queue, [e.delivery for e in group])
        calls.append((group, call))
    return calls


def succeed(work_queue: WorkQueue, endings: Sequence[Ending]) -> Call[Verdicts]:
    """Return the call that deletes messages whose functions returned, and keeps their results."""
    keys = [*_queue_keys(work_queue)]
    args: list[Argument] = []
    for ending in endings:
        assert isinstance(ending.outcome, Succeeded)
        if not ending.keep_result_s:
            args += (*ending.delivery.receipt, 0)
            continue
        finished_ms = f"{ending.execution.finished_ms:.3f}"
        record = ending.record(
            ending.keep_result_s, status="SUCCESSFUL", value=ending.outcome.value, finished_ms=finished_ms
        )
        keys += ending.result_keys
        args += (*ending.delivery.receipt, *record)
    return Call("worker/succeed", tuple(keys), tuple(args), read_settlements, True, work_queue.name)


def retry(ending: Ending, outcome: RetryIn) -> Call[Verdicts]:
    """Return the call that makes a message visible again later."""
    delivery = ending.delivery
    error = {f"error:{delivery.attempt}": encode_error(outcome.error, outcome.traceback)}
    wait_ms = round(outcome.after_s * 1000)
    record = ending.record(UNFINISHED_TTL_S + round(outcome.after_s), status="READY", **error)
    keys = (*_queue_keys(delivery.work_queue), *ending.result_keys)
    args = (*delivery.receipt, wait_ms, *record)
    return Call("worker/retry", keys, args, _read_verdict, True, delivery.work_queue.name)


def bury(ending: Ending, outcome: Dead) -> Call[Verdicts]:
    """Return the call that moves a message to its dead-letter queue."""
    delivery, work_queue = ending.delivery, ending.delivery.work_queue
    dead = queue_keys(work_queue.queue.client.namespace, dead_letter_queue(ending))
    error = {f"error:{delivery.attempt}": encode_error(outcome.error, outcome.traceback or text_of(outcome.error))}
    finished_ms = f"{ending.execution.finished_ms:.3f}"
    result = ending.record(ending.keep_result_s, status="FAILED", finished_ms=finished_ms, **error)
    keys = (*_queue_keys(work_queue), dead.messages, dead.settings, dead.failures)
    args = (*delivery.receipt, failure_record(ending, outcome), *result)
    return Call("worker/bury", (*keys, *ending.result_keys), args, _read_verdict, True, work_queue.name)


def release(work_queue: WorkQueue, deliveries: Sequence[Delivery]) -> Call[Verdicts]:
    """Return the call that gives messages back untouched."""
    keys = _queue_keys(work_queue)
    args = (work_queue.queue.keys.channel, *(word for delivery in deliveries for word in delivery.receipt))
    return Call("worker/release", keys, args, read_settlements, True, work_queue.name)


def start(ending: Ending) -> Call[Verdicts]:
    """Return the call that notes in the result record that an attempt began; the outcome of the ending is not used."""
    keys = (*_queue_keys(ending.delivery.work_queue), *ending.result_keys)
    args = (*ending.delivery.receipt, *ending.record(UNFINISHED_TTL_S, status="RUNNING"))
    return Call("worker/start", keys, args, _read_verdict, True, ending.delivery.work_queue.name)


def dead_letter_queue(ending: Ending) -> str:
    """Return the task's own dead-letter queue, or the one of its queue."""
    work = ending.execution.work
    own = work.options.dead_letter_queue if work else None
    return own or ending.delivery.work_queue.settings.dead_letter


def failure_record(ending: Ending, outcome: Dead) -> str:
    """Return the failure record of a dead letter: JSON, for people and programs."""
    kind, envelope = type(outcome.error), ending.envelope
    record: dict[str, Any] = {
        "reason": outcome.reason,
        "queue": ending.delivery.work_queue.name,
        "task": envelope.task if envelope else ending.execution.path,
        "task_id": envelope.id if envelope else None,
        "attempts": ending.delivery.attempt,
        "error": f"{kind.__module__}.{kind.__qualname__}",
        "message": text_of(outcome.error),
        "traceback": outcome.traceback,
        "died_ms": round(ending.execution.finished_ms or 0),
        "worker": ending.worker_id,
    }
    return json.dumps(record)


def unhold(holds_key: str, deliveries: Sequence[Delivery]) -> Call[None]:
    """Return the call that strikes messages off the record, so that nobody renews their leases."""
    ids = tuple(delivery.message.id for delivery in deliveries)
    return Call("worker/unhold", (holds_key,), ids, read_nothing, True)


def _queue_keys(work_queue: WorkQueue) -> tuple[str, str, str, str]:
    """Return the keys that every script of a worker begins with."""
    keys = work_queue.queue.keys
    return keys.messages, keys.settings, keys.releases, work_queue.holds_key


def _read_verdict(reply: int) -> Verdicts:
    return [Settlement(reply)]
