"""Cleanup of features after a message was settled: in the same exchange, after the call that settles it.

Only steps that may be lost or done twice belong here: each script checks that the message is really gone, and
everything that it removes would expire anyway. Any program may have written the message: values that no sender of this
project writes are left alone. A step that must happen together with the settling belongs into its script (settle.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.call import Call
from ...tasks.tags import tags_of, untag_ended
from ...tasks.unique import is_digest, unlock
from ..execute.limits import free
from ..execute.outcomes import Postponed, Released, RetryIn
from .delivery import WorkQueue
from .settle import Settlement


def cleanup_calls(settlements: Sequence[Settlement]) -> list[Call[Any]]:
    """Return the cleanup calls of messages that use a feature; most use none."""
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
