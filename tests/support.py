"""Helpers of many tests: moving time, waiting for a condition."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import redis

if TYPE_CHECKING:
    from rsmq_django.core import Queue

T = TypeVar("T")

_POLL_S = 0.005

# One script, so that no message can be received between reading its score and writing it.
_MOVE_SCORES_BACK = """
local moved = redis.call("ZRANGE", KEYS[1], 0, -1)
for _, id in ipairs(moved) do redis.call("ZINCRBY", KEYS[1], -tonumber(ARGV[1]), id) end
return #moved
"""


def wait_until(condition: Callable[[], T], timeout_s: float = 90) -> T:
    """Wait for the condition to be true and return what it returned; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"still not true after {timeout_s} s: {condition}"
        time.sleep(_POLL_S)
    return value


def pass_time(queue: Queue, *, seconds: float) -> None:
    """Let `seconds` pass for every message of the queue, by moving all scores back: RSMQ has no other clock."""
    with redis.Redis.from_url(os.environ["RSMQ_TEST_URL"], socket_timeout=60) as server:
        server.eval(_MOVE_SCORES_BACK, 1, f"{queue.client.namespace}:{queue.name}", int(seconds * 1000))
