"""What becomes of the messages of a child process that died.

Those it was running count a crash each and come back a little later; after `max_crashes` they go to the dead-letter
queue, with how the process ended as the reason. Those that merely waited in it are given back untouched.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from ..core import Client, Message
from ..core.call import Call
from ..core.replies import first_received_ms
from .announcer import Announcer, log_outcome
from .board import Board
from .delivery import Delivery, WorkQueue
from .endings import Ending, ending_calls
from .execution import Execution
from .holds import Hold, forget, read_holds, release_holds
from .outcomes import Dead, Outcome

logger = logging.getLogger(__name__)

#: A message whose process died comes back after so long, times the number of its crashes.
CRASH_WAIT_S = 1.0


class ProcessDied(Exception):
    """The process that ran a message ended in the middle of it."""


def recover(
    client: Client, queues: Sequence[WorkQueue], board: Board, *, worker_id: str, how: str, max_crashes: int
) -> None:
    """Give back or bury everything that a dead child held, and take the child off the list of workers."""
    holds_key = queues[0].holds_key
    holds = read_holds(client, holds_key)
    running = [hold for hold in holds if board.is_running(hold.message_id)]
    waiting = [hold for hold in holds if hold not in running]
    for hold in running:
        _count_crash(client, queues, hold, Announcer(worker_id), how=how, max_crashes=max_crashes)
    release_holds(client, queues, holds_key, waiting)
    forget(client, [worker_id])
    if holds:
        logger.warning(
            "%s held %d messages, %d of them running; they are free again", worker_id, len(holds), len(running)
        )


def _count_crash(
    client: Client, queues: Sequence[WorkQueue], hold: Hold, announcer: Announcer, *, how: str, max_crashes: int
) -> None:
    work_queue = next((each for each in queues if each.name == hold.queue_name), None)
    if work_queue is None:
        return
    keys = work_queue.queue.keys
    call_keys = (keys.messages, keys.settings, keys.releases, work_queue.holds_key)
    args = (hold.message_id, hold.receive_count, round(CRASH_WAIT_S * 1000))
    reply = client.run(Call("worker/crash", call_keys, args, lambda reply: reply, subject=work_queue.name))
    if not reply:
        return  # it had ended, or somebody else holds it
    crashes, body, first, released = reply
    if crashes >= max_crashes:
        message = Message(hold.message_id, body, hold.receive_count, first_received_ms(first))
        delivery = Delivery(work_queue, message, hold.receive_count - int(released), time.monotonic())
        text = f"the process that ran it ended with {how}, {crashes} times in all; see the log of the worker"
        _bury(client, delivery, announcer, Dead("crashed", ProcessDied(text)))
    else:
        logger.error(
            "message %s of queue %s ran when its process ended with %s, %d of %d times; it runs again in %.0f s",
            hold.message_id,
            work_queue.name,
            how,
            crashes,
            max_crashes,
            CRASH_WAIT_S * crashes,
        )


def _bury(client: Client, delivery: Delivery, announcer: Announcer, outcome: Dead) -> None:
    """Move a message to its dead-letter queue.

    No signal is sent: their receivers belong into a worker, and may open connections that children would inherit.
    """
    execution = Execution(delivery, desk=_NoDesk(), announcer=announcer, now_ms=lambda: time.time() * 1000)
    execution.finished_ms = time.time() * 1000
    log_outcome(execution, outcome)
    ((_, call),) = ending_calls([Ending(execution, outcome, announcer.worker_id)])
    client.run(call)


class _NoDesk:
    """Stands where an execution hands its outcome over; nothing is executed here."""

    def began(self, execution: Execution) -> None: ...

    def settle(self, execution: Execution, outcome: Outcome) -> None: ...

    def let_go(self, execution: Execution) -> None: ...
