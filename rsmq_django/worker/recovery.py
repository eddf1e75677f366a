"""What becomes of the messages of a child process that died.

Those it was running count a crash each and come back a little later; after `max_crashes` they go to the dead-letter
queue, with how the process ended as the reason. Those that had run a moment ago are treated the same, because their
outcome died with the process. Those that merely waited in it are given back untouched.

A child that its supervisor killed because a message ran longer than its `hard_timeout_s` is another matter: that
message has failed an attempt, and everything else is given back untouched.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core import Client, Message, RsmqError
from ..core.call import Call
from ..core.replies import first_received_ms
from ..tasks.interrupts import HardTimeout
from .announcer import Announcer, log_outcome
from .delivery import Delivery, WorkQueue
from .endings import Ending, ending_calls, strike_of
from .execution import Execution, Raised
from .holds import Hold, forget, read_holds, release_holds
from .outcomes import Dead, Outcome

logger = logging.getLogger(__name__)

#: A message whose process died comes back after so long, times the number of its crashes.
CRASH_WAIT_S = 1.0
#: Crashes counted in one round trip; the bodies come back with it.
CRASHES_AT_ONCE = 50


class ProcessDied(Exception):
    """The process that ran a message ended in the middle of it."""


@dataclass(frozen=True, kw_only=True)
class Death:
    """The end of one child, as far as its messages are concerned."""

    worker_id: str
    #: In words, how the process ended.
    how: str
    #: Ids of the messages that count a crash: it was running them. Empty when it was stopped on purpose.
    running: frozenset[str]
    #: Ids of the messages for which it was killed, because they ran too long. They have failed an attempt.
    overdue: frozenset[str] = frozenset()
    #: It did not end by itself: a call of it may still be on its way.
    was_sudden: bool = True
    died_at: float = field(default_factory=time.monotonic)


def recover(client: Client, queues: Sequence[WorkQueue], death: Death, *, max_crashes: int) -> None:
    """Give back or bury everything that a dead child held, and take the child off the list of workers.

    Safe to repeat: what is done leaves the record.
    """
    holds_key = queues[0].holds_key
    holds = read_holds(client, holds_key)
    running = [hold for hold in holds if hold.message_id in death.running]
    overdue = [hold for hold in holds if hold.message_id in death.overdue]
    waiting = [hold for hold in holds if hold.message_id not in death.running | death.overdue]
    for hold in overdue:
        _fail(client, queues, hold, death)
    for at in range(0, len(running), CRASHES_AT_ONCE):
        _count_crashes(client, queues, running[at : at + CRASHES_AT_ONCE], death, max_crashes=max_crashes)
    released = release_holds(client, queues, holds_key, waiting)
    # Not the record: its last fetch may be carried out at this very moment, and what came of it must be found later.
    forget(client, death.worker_id, with_record=False)
    begun = len(running) + len(overdue)
    if held := released + begun:
        text = "%s held %d messages, %d of them running; they are free again"
        logger.warning(text, death.worker_id, held, begun)


def _count_crashes(
    client: Client, queues: Sequence[WorkQueue], holds: Sequence[Hold], death: Death, *, max_crashes: int
) -> None:
    by_name = {work_queue.name: work_queue for work_queue in queues}
    known = [(hold, by_name[hold.queue_name]) for hold in holds if hold.queue_name in by_name]
    replies = client.run_many([_crash(hold, work_queue) for hold, work_queue in known])
    for (hold, work_queue), reply in zip(known, replies, strict=True):
        if isinstance(reply, RsmqError):
            logger.error("message %s comes back when its lease is over: %s", hold.message_id, reply)
        elif reply:  # else it had ended, or somebody else holds it
            _after_crash(client, work_queue, hold, reply, death, max_crashes=max_crashes)


def _crash(hold: Hold, work_queue: WorkQueue) -> Call[list[Any]]:
    keys = work_queue.queue.keys
    call_keys = (keys.messages, keys.settings, keys.releases, work_queue.holds_key)
    receipt = (hold.message_id, hold.receive_count)
    args = (*strike_of(hold.batch, hold.message_id), *receipt, round(CRASH_WAIT_S * 1000))
    return Call("worker/crash", call_keys, args, lambda reply: reply, subject=work_queue.name)


def _after_crash(
    client: Client, work_queue: WorkQueue, hold: Hold, reply: list[Any], death: Death, *, max_crashes: int
) -> None:
    crashes, body, first, released = reply
    if crashes < max_crashes:
        logger.error(
            "message %s of queue %s ran when its process ended with %s, %d of %d times; it runs again in %.0f s",
            hold.message_id,
            work_queue.name,
            death.how,
            crashes,
            max_crashes,
            CRASH_WAIT_S * crashes,
        )
        return
    message = Message(hold.message_id, body, hold.receive_count, first_received_ms(first))
    attempt = hold.receive_count - int(released)
    delivery = Delivery(work_queue, message, attempt, time.monotonic(), hold.batch)
    text = f"the process that ran it ended with {death.how}, {crashes} times in all; see the log of the worker"
    try:
        _bury(client, delivery, Announcer(death.worker_id), Dead("crashed", ProcessDied(text)))
    except RsmqError as error:
        logger.error("message %s stays in queue %s for another attempt: %s", message.id, work_queue.name, error)


def _fail(client: Client, queues: Sequence[WorkQueue], hold: Hold, death: Death) -> None:
    """Let the task's own policy decide what becomes of a message that ran too long."""
    work_queue = next((each for each in queues if each.name == hold.queue_name), None)
    reply = client.run(_read_held(hold, work_queue)) if work_queue is not None else None
    if work_queue is None or not reply:
        return  # it had ended, or somebody else holds it
    body, first, released, crashes = reply
    message = Message(hold.message_id, body, hold.receive_count, first_received_ms(first))
    attempt = hold.receive_count - int(released)
    delivery = Delivery(work_queue, message, attempt, time.monotonic(), hold.batch, int(crashes))
    execution = _execution(delivery, Announcer(death.worker_id))
    limit_s = execution.work.options.hard_timeout_s if execution.work else None
    _end(client, execution, execution.decide(Raised(HardTimeout(limit_s))))


def _read_held(hold: Hold, work_queue: WorkQueue) -> Call[list[Any]]:
    keys = work_queue.queue.keys
    call_keys = (keys.messages, keys.settings, keys.releases)
    args = (hold.message_id, hold.receive_count)
    return Call("worker/read_held", call_keys, args, lambda reply: reply, repeatable=True, subject=work_queue.name)


def _bury(client: Client, delivery: Delivery, announcer: Announcer, outcome: Dead) -> None:
    """Move a message to its dead-letter queue."""
    _end(client, _execution(delivery, announcer), outcome)


def _execution(delivery: Delivery, announcer: Announcer) -> Execution:
    return Execution(delivery, desk=_NoDesk(), announcer=announcer, now_ms=lambda: time.time() * 1000)


def _end(client: Client, execution: Execution, outcome: Outcome) -> None:
    """Carry an outcome out.

    No signal is sent: their receivers belong into a worker, and may open connections that children would inherit.
    """
    execution.finished_ms = time.time() * 1000
    log_outcome(execution, outcome)
    (ending,) = ending_calls([Ending(execution, outcome, execution.announcer.worker_id)])
    client.run(ending.call)


class _NoDesk:
    """Stands where an execution hands its outcome over; nothing is executed here."""

    def began(self, execution: Execution) -> None: ...

    def settle(self, execution: Execution, outcome: Outcome) -> None: ...

    def let_go(self, execution: Execution) -> None: ...
