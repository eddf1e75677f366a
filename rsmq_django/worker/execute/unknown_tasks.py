"""Calls of tasks that are not declared in this worker, but perhaps in another one.

During a rolling deployment old workers receive calls of new tasks, and two projects may share a queue. Such a call is
postponed without counting an attempt, later each time, until UNKNOWN_TASK_GRACE_S after it was first received; a retry,
as often as fits into that time.
"""

from __future__ import annotations

import random

from ...conf import get_settings
from ...core.log_lines import get_logger
from ...tasks.envelope import Unreadable
from ..lease.delivery import Delivery

logger = get_logger(__name__)

REASON = "unknown_task"
#: The waits of one message double from the first to the longest.
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
#: A wait is random; this share of its maximum is the mean.
MEAN_SHARE = 0.75
#: More than fit into the longest grace period; a receive count may be any number.
MOST_TIMES = 20_000
#: Maximum number of names remembered as logged; a message may contain any name.
MOST_NAMES = 1000

_logged: set[str] = set()


def wait_s(delivery: Delivery, *, now_ms: float) -> float | None:
    """Return how long to postpone a call; None when its grace period is over, or its start is unknown."""
    message, grace_s = delivery.message, get_settings().tasks.unknown_task_grace_s
    if grace_s == 0 or message.first_received_ms is None:
        return None
    # A redriven message has kept the time of an earlier receive.
    left_s = grace_s - (now_ms - max(message.first_received_ms, message.sent_ms or 0)) / 1000
    times_before = message.receive_count - delivery.attempt
    if delivery.attempt > 1:
        # A retry: its first receive may be long ago although nothing was unknown then.
        waits_s = map(_longest_wait_s, range(min(times_before, MOST_TIMES)))
        left_s = max(left_s, grace_s - sum(waits_s) * MEAN_SHARE)
    if left_s <= 0:
        return None
    longest_s = _longest_wait_s(times_before)
    return min(longest_s * random.uniform(2 * MEAN_SHARE - 1, 1.0), left_s)  # noqa: S311 - spreads load


def _longest_wait_s(times_before: int) -> float:
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(times_before, 10))


def log_once(error: Unreadable) -> None:
    """Log that calls of a task are postponed; once for each task in this process."""
    name = error.envelope.task if error.envelope is not None else ""
    if name in _logged or len(_logged) >= MOST_NAMES:
        return
    _logged.add(name)
    grace_s = get_settings().tasks.unknown_task_grace_s
    text = "%s; its calls are given back to their queue for up to %.0f s each, and then become dead letters"
    logger.warning(text, error, grace_s)
