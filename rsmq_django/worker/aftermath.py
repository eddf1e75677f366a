"""What features want done after a message has ended: in the same exchange, behind the call that ends it.

Only things that may be lost or done twice belong here: each script looks whether the message is really gone, and what
it removes would expire by itself. What must happen with the ending itself belongs into its script (endings.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.call import Call
from ..tasks.unique import unlock
from .delivery import WorkQueue
from .endings import Ending
from .outcomes import Postponed, Released, RetryIn


def aftermath_calls(endings: Sequence[Ending]) -> list[Call[Any]]:
    """Return the calls for endings of messages that use a feature (`Execution.meta`)."""
    locks: dict[WorkQueue, list[tuple[str, str]]] = {}
    for ending in endings:
        digest = (ending.execution.meta or {}).get("unique")
        if isinstance(digest, str) and not isinstance(ending.outcome, (RetryIn, Postponed, Released)):
            locks.setdefault(ending.delivery.work_queue, []).append((ending.delivery.message.id, digest))
    return [unlock(each.queue.client.namespace, each.queue.keys, held) for each, held in locks.items()]
