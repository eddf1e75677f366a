"""Waits for replicas or disks among the commands of a request: they concern the writes of their socket.

When a part of a request is repeated on another socket or server, the waits are repeated behind it. They confirm the
repeated part only, so the result of the first wait counts as well if anything else was carried out before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from .packing import Reply, Request
from .sockets import REFUSED_ALL, lacks_replicas

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


def replace_repeated(
    commands: Sequence[Request], replies: list[Reply], places: Sequence[int], answers: list[Reply]
) -> None:
    """Replace the replies to commands that were sent again, and those to waits for them."""
    waits = waits_of(commands) if some_done([command[0] for command in commands], replies) else []
    for at, answer in zip(places, answers, strict=True):
        replies[at] = lesser(replies[at], answer) if at in waits else answer


def is_in_vain(commands: Sequence[Request], replies: Sequence[Reply]) -> bool:
    """Return whether a server refused all commands before the waits, for lack of replicas or as it refuses everything.

    In the second case the socket is closed already.
    """
    is_refused = any(lacks_replicas(reply) or isinstance(reply, REFUSED_ALL) for reply in replies)
    return is_refused and not some_done([command[0] for command in commands[: len(replies)]], replies)


def not_waited(count: int) -> list[redis.ResponseError]:
    """Return the replies to waits that were not waited for."""
    return [redis.ResponseError("nothing was carried out that could be waited for") for _ in range(count)]
