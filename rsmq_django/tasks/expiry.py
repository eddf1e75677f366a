"""Calls that are of no use when they run too late.

The deadline is counted from the time of sending that stands in the message id, which is the server's, so clocks of
different machines do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core import Message
from ..core.limits import MAX_SECONDS


class TaskExpired(Exception):
    """A call that waited for longer than its `expires_in_s`; it is in the failure record of its dead letter."""

    def __init__(self, seconds: float) -> None:
        shown_s = max(seconds, -MAX_SECONDS)  # anybody may have written it, and no float is as small as some numbers
        super().__init__(f"no worker had begun it {shown_s:g} s after it was sent, delay included")


def has_expired(meta: Mapping[str, Any], message: Message, now_ms: float) -> bool:
    """Say whether it is too late to run a message."""
    seconds, sent_ms = meta.get("expires_in_s"), message.sent_ms
    if not isinstance(seconds, (int, float)) or sent_ms is None:
        return False
    return (now_ms - sent_ms) / 1000 > seconds  # no sum: JSON knows integers that are too large for one
