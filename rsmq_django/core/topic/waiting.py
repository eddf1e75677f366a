"""Waiting for messages without polling: XREAD blocks on a stream whose only entry has the last index as its id.

A reader at index e requests ids after e-0, so a publish between its two calls returns at once: no wake-up can be lost,
and one publish wakes every group. Plain clients send no wake-ups; waiting in slices finds their messages, too.
"""

from __future__ import annotations

import time

import redis

from ..errors import InvalidValue
from ..numbers import is_whole
from ..queue.replies import read_nothing
from ..transport.call import Call
from ..transport.client import Client, as_our_error
from ..transport.packing import Command, Reply
from .records import TopicBatch

#: Maximum duration of a single wait: the maximum delay of a plain client's message.
SLICE_MS = 1000
MAX_BLOCK_MS = 86_400_000


class Waiter:
    """Sockets on which readers of one server wait, kept across slices."""

    def __init__(self, client: Client) -> None:
        self._connection = client.connection.with_timeout(client.connection.timeout_s + SLICE_MS / 1000)

    def wait(self, topic: str, wake_key: str, last: int, slice_ms: int) -> None:
        """Return after a publish after `last`, or after `slice_ms`."""
        _check(topic, self._connection.exchange([_command(wake_key, last, slice_ms)]))

    async def await_(self, topic: str, wake_key: str, last: int, slice_ms: int) -> None:
        """See wait()."""
        _check(topic, await self._connection.aexchange([_command(wake_key, last, slice_ms)]))


class Patience:
    """The remaining waiting time of a read."""

    def __init__(self, block_ms: int) -> None:
        if not is_whole(block_ms) or not 0 <= block_ms <= MAX_BLOCK_MS:
            raise InvalidValue(f"block_ms is {block_ms!r}; it must be whole milliseconds between 0 and {MAX_BLOCK_MS}")
        self._until = time.monotonic() + block_ms / 1000

    def slice_ms(self, batch: TopicBatch) -> int:
        """Return how long to wait before the next read; 0 to return the batch."""
        left_ms = int((self._until - time.monotonic()) * 1000)
        has_news = batch.messages or batch.skipped or batch.dead_lettered
        if has_news or (left_ms <= 0 and not batch.left):  # a long gap is passed over, without waiting
            return 0
        due_ms = SLICE_MS if batch.due_ms is None else batch.due_ms
        return max(1, min(left_ms, SLICE_MS, due_ms))


def _command(wake_key: str, last: int, slice_ms: int) -> Command:
    return "XREAD", "BLOCK", slice_ms, "STREAMS", wake_key, f"{last}-0"


def _check(topic: str, replies: list[Reply]) -> None:
    if isinstance(replies[0], redis.RedisError):
        raise as_our_error(Call("topic/wait", (), (), read_nothing, subject=topic), replies[0])
