"""Waiting for a message: a publish or the next due time ends a sleep; queues are polled every second at least."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import redis

from ..core import Queue
from ..core.queue.browse import page

T = TypeVar("T")

#: Polling interval, since not every sender publishes.
LOOK_EVERY_S = 1.0


def until_found(queue: Queue, look: Callable[[], list[T]], *, wait_s: float) -> list[T]:
    """Return the first non-empty result of `look`, or an empty list after `wait_s` seconds."""
    found = look()
    if found or wait_s <= 0:
        return found
    deadline = time.monotonic() + wait_s
    with _sleeper(queue) as sleep:
        # Once more, for messages sent before the subscription; then after each sleep.
        while not (found := look()) and (left_s := deadline - time.monotonic()) > 0:
            sleep(min(left_s, LOOK_EVERY_S, _next_due_s(queue)))
    return found


@contextlib.contextmanager
def _sleeper(queue: Queue) -> Iterator[Callable[[float], object]]:
    """Yield a function that sleeps for a number of seconds, or until a publish on the queue's channel."""
    try:
        subscriber = queue.client.connection.subscriber([queue.keys.channel])
    except redis.RedisError:  # without permission to subscribe, poll
        yield time.sleep
        return

    def sleep(seconds: float) -> None:
        try:
            subscriber.get_message(ignore_subscribe_messages=True, timeout=seconds)
        except redis.RedisError:
            time.sleep(seconds)

    with subscriber:
        yield sleep


def _next_due_s(queue: Queue) -> float:
    seen = queue.client.run(page(queue.client.namespace, queue.name, count=1))
    if not seen.messages:
        return LOOK_EVERY_S
    return max(0.0, (seen.messages[0].visible_at_ms - seen.now_ms) / 1000)
