"""Sending the rows of an outbox: a repeat sends no row twice.

A relay sends, and then marks the rows in its database as sent. When it crashes in between, the next relay sends again:
so the script stores the task ids until the rows are known to be marked. Functions return calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from ..keys import QueueKeys, relayed_key, result_key
from ..transport.call import Argument, Call

#: How long sent task ids are stored if the relay does not confirm them: a crashed relay may return after a weekend.
REMEMBER_UNCONFIRMED_MS = 7 * 86_400_000
#: The same after the confirmation: another relay may have read the rows just before they were marked.
REMEMBER_CONFIRMED_MS = 60_000


class Relayed(IntEnum):
    """The result for one message."""

    SENT = 1
    SENT_BEFORE = 0
    TOO_LONG = -2


@dataclass(frozen=True, slots=True)
class RelayItem:
    """One message to send."""

    task_id: str
    body: bytes
    #: Milliseconds; or "s" or "ms", the unit of the queue's own delay, to use that delay.
    delay: Argument
    keeps_result: bool


def relay(
    namespace: str, queue: QueueKeys, queue_name: str, items: Sequence[RelayItem], *, channel: str, record_ttl_s: int
) -> Call[list[Relayed]]:
    """Return the call that sends messages in this order, except those that were sent before."""
    keys = [queue.messages, queue.settings, relayed_key(namespace)]
    args: list[Argument] = [channel, queue_name, REMEMBER_UNCONFIRMED_MS, record_ttl_s]
    for item in items:
        args += (item.task_id, item.delay, int(item.keeps_result), item.body)
        if item.keeps_result:
            keys.append(result_key(namespace, item.task_id))
    return Call("tasks/outbox/relay", tuple(keys), tuple(args), _read_relayed, True, queue_name)


def keep_back(namespace: str, task_id: str, *, queue_name: str, error: str, body: bytes, keep_s: int) -> Call[bool]:
    """Return the call that cancels a task: no relay sends it. Its result is False when a relay has sent it.

    `keep_s` is how long its result is kept, 0 for none.
    """
    keys = (relayed_key(namespace), result_key(namespace, task_id))
    args = (task_id, REMEMBER_UNCONFIRMED_MS, queue_name, error, body, keep_s)
    return Call("tasks/outbox/cancel", keys, args, bool)


def confirm(namespace: str, task_ids: Sequence[str]) -> Call[int]:
    """Return the call that confirms that the rows of these tasks are marked as sent."""
    return Call(
        "tasks/outbox/confirm", (relayed_key(namespace),), (REMEMBER_CONFIRMED_MS, *task_ids), int, repeatable=True
    )


def _read_relayed(reply: list[int]) -> list[Relayed]:
    return [Relayed(number) for number in reply]
