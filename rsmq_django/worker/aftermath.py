"""What features want done after a message has ended: in the same exchange, behind the call that ends it.

Only things that may be lost or done twice belong here: each script looks whether the message is really gone, and what
it removes would expire by itself. Anybody may have written the message: what no sender of ours writes is left alone.
What must happen with the ending itself belongs into its script (endings.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.call import Call
from ..tasks.tags import tags_of, untag_ended
from ..tasks.unique import is_digest, unlock
from .delivery import WorkQueue
from .endings import Ending
from .limits import free
from .outcomes import Postponed, Released, RetryIn


def aftermath_calls(endings: Sequence[Ending]) -> list[Call[Any]]:
    """Return the calls for endings of messages that use a feature; most use none."""
    endings = [each for each in endings if each.execution.meta is not None or each.execution.places]
    final = [ending for ending in endings if not isinstance(ending.outcome, (RetryIn, Postponed, Released))]
    places = [free(ending.execution) for ending in endings if ending.execution.places]
    return [*_unlock_calls(final), *_untag_calls(final), *places]


def _unlock_calls(endings: Sequence[Ending]) -> list[Call[Any]]:
    locks: dict[WorkQueue, list[tuple[str, str]]] = {}
    for ending in endings:
        digest = (ending.execution.meta or {}).get("unique")
        if is_digest(digest):
            locks.setdefault(ending.delivery.work_queue, []).append((ending.delivery.message.id, digest))
    return [unlock(each.queue.client.namespace, each.queue.keys, held) for each, held in locks.items()]


def _untag_calls(endings: Sequence[Ending]) -> list[Call[Any]]:
    tags: dict[tuple[WorkQueue, str], list[tuple[str, str]]] = {}
    for ending in endings:
        ids = ending.delivery.message.id, ending.execution.task_id
        for tag in tags_of(ending.execution.meta or {}):
            tags.setdefault((ending.delivery.work_queue, tag), []).append(ids)
    return [
        untag_ended(work_queue.queue.client.namespace, work_queue.queue.keys, tag, ended)
        for (work_queue, tag), ended in tags.items()
    ]
