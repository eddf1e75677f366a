"""Waits for replicas or disks among the commands of a request: they concern the writes of their socket.

When a part of a request is repeated on another socket or server, the waits are repeated behind it. They confirm the
repeated part only, so the result of the first wait counts as well if anything else was carried out before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

WAITS = frozenset({"WAIT", "WAITAOF"})


def waits_of(commands: Sequence[Any]) -> list[int]:
    """Return the positions of the waits."""
    return [at for at, command in enumerate(commands) if command[0] in WAITS]


def some_done(names: Sequence[str | bytes | int], replies: Sequence[Any]) -> bool:
    """Return whether any command was carried out for which a wait counts; loading a script writes no data."""
    return any(
        not isinstance(reply, redis.RedisError) and name not in WAITS and name != "SCRIPT"
        for name, reply in zip(names, replies, strict=True)
    )


def lesser(first: Any, second: Any) -> Any:
    """Return what the replies to two waits confirm together: the lower counts, or an error if one of them is one."""
    if isinstance(first, redis.RedisError) or isinstance(second, redis.RedisError):
        return first if isinstance(first, redis.RedisError) else second
    if isinstance(first, list):
        return [min(pair) for pair in zip(first, second, strict=True)]
    return min(first, second)
