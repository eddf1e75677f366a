"""Pausing queues: workers receive no messages from a paused queue until it is resumed.

The names of paused queues are a set in Redis that the fetch script itself reads. So a pause applies to every worker
from its next fetch on, including workers that start later, and survives restarts. Running tasks finish, and sending is
not affected; neither are clients that receive without a worker. A queue's priority bands are paused with it.

Each function returns a `Call`, to be given to `client.run()` or awaited with `client.arun()`.
"""

from __future__ import annotations

from ..errors import InvalidValue
from ..keys import checked_name, paused_key, queue_keys
from ..limits import MAX_BATCH
from ..transport.call import Argument, Call


def pause(namespace: str, *names: str) -> Call[int]:
    """Return the call that pauses queues; its result is how many were not paused before."""
    return Call("queue/pause/pause", (paused_key(namespace),), _checked(names), int, repeatable=True)


def resume(namespace: str, *names: str) -> Call[int]:
    """Return the call that resumes queues and wakes their workers; its result is how many were paused before."""
    args: list[Argument] = []
    for name in _checked(names):
        args += (name, queue_keys(namespace, name).channel)
    return Call("queue/pause/resume", (paused_key(namespace),), tuple(args), int, repeatable=True)


def paused(namespace: str) -> Call[frozenset[str]]:
    """Return the call that reads the names of all paused queues."""
    return Call("SMEMBERS", (paused_key(namespace),), (), _read_names, repeatable=True)


def _checked(names: tuple[str, ...]) -> tuple[str, ...]:
    if not 1 <= len(names) <= MAX_BATCH:
        raise InvalidValue(f"{len(names)} queues in one call; name 1 to {MAX_BATCH}")
    return tuple(map(checked_name, names))


def _read_names(reply: list[bytes]) -> frozenset[str]:
    return frozenset(name.decode("utf-8", "backslashreplace") for name in reply)
