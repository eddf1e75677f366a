"""Expiry of calls: the first attempt does not start after the deadline.

The deadline counts from the time when the call was due: the score of its message. Only the server's clock is compared.
Once an attempt has begun the call does not expire any more: retries run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core import Message
from ..core.limits import MAX_SECONDS


class TaskExpired(Exception):
    """The error in the failure record of a call that was ready for longer than its `expires_in_s`."""

    def __init__(self, seconds: float) -> None:
        shown_s = max(seconds, -MAX_SECONDS)  # written by any program; may exceed a float
        super().__init__(f"no worker had begun it {shown_s:g} s after it was due")


def has_expired(meta: Mapping[str, Any], message: Message, *, attempt: int, wait_us: int | None, now_ms: float) -> bool:
    """Return whether it is too late for the first attempt; `wait_us` is how long the message was ready before it."""
    seconds = meta.get("expires_in_s")
    if attempt > 1 or not isinstance(seconds, (int, float)):
        return False
    due_ms = _due_ms(message, wait_us)
    if due_ms is None:
        return False
    return (now_ms - due_ms) / 1000 > seconds  # no addition: JSON may contain integers that are too large for it


def _due_ms(message: Message, wait_us: int | None) -> float | None:
    first_ms = message.first_received_ms
    if first_ms is None:
        return message.sent_ms
    if message.receive_count == 1 and wait_us is not None:
        return first_ms - wait_us / 1000
    # It was released unused, which changed its score: it was due before its first receive. A redriven message has kept
    # the time of an earlier one, and is due when it was sent again.
    return max(first_ms, message.sent_ms or 0)
