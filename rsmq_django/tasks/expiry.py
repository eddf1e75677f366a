"""Calls that are of no use when they run too late.

The deadline is counted from the time of sending that stands in the message id, which is the server's, so clocks of
different machines do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core import Message


class TaskExpired(Exception):
    """A call that waited for longer than its `expires_in_s`; it is in the failure record of its dead letter."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no worker had begun it {seconds:g} s after it was sent, delay included")


def has_expired(meta: Mapping[str, Any], message: Message, now_ms: float) -> bool:
    """Say whether it is too late to run a message."""
    seconds, sent_ms = meta.get("expires_in_s"), message.sent_ms
    return isinstance(seconds, (int, float)) and sent_ms is not None and now_ms > sent_ms + seconds * 1000
