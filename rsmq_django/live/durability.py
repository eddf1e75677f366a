"""What servers lack for the DURABILITY of the settings, for `check --deploy` and the doctor."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

import redis

from ..conf.settings import Settings, aliases_of
from ..core import Durability
from ..core.doctor.server import ASK_FOR_MINIMUM, read_info, why_writes_are_refused
from ..core.texts import counted
from ..core.transport.durability import DISK_COMMAND, Fsync
from ..core.transport.packing import Reply
from ..core.transport.sentinels import ASK_FOR_ROLE
from ..queues import get_client


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a server lacks, and the next step."""

    text: str
    hint: str


def durabilities_of(settings: Settings, alias: str) -> list[Durability]:
    """Return the durabilities of a connection and of its queues."""
    of_queues = [queue.durability for queue in settings.queues.values() if alias in aliases_of(queue)]
    given = [settings.connections[alias].durability, *of_queues]
    return list({each.durability: None for each in given if each is not None})


def shortfalls(settings: Settings, alias: str) -> list[Shortfall]:
    """Return what the server of a connection lacks. Raises RsmqError, or its error when it refuses ROLE and INFO."""
    wanted = durabilities_of(settings, alias)
    if not wanted:
        return []
    get_client(alias).go_to_keys()
    most, kinds = max(each.replicas for each in wanted), {each.fsync for each in wanted if each.fsync is not None}
    has = _replicas(alias) if most else 0
    disk = _waited_for_disk(alias, "local" in kinds) if kinds else None
    return [*_missing_replicas(alias, most, has), *_missing_disks(alias, kinds, disk)]


def _replicas(alias: str) -> int:
    """Return the number of replicas. All roles have the command; a user of another kind may have INFO instead."""
    connection = get_client(alias).connection
    (role,) = connection.exchange([ASK_FOR_ROLE])
    if not isinstance(role, redis.RedisError):
        return len(role[2]) if role[0] == b"master" else 0
    (info,) = connection.exchange([("INFO",)])
    if isinstance(info, redis.RedisError):
        raise info
    return int(read_info(info).get("connected_slaves", 0))


def _waited_for_disk(alias: str, is_local: bool) -> Reply:
    """Return what the server says to the wait for a disk, on a socket that has written nothing: it does not wait."""
    shared = get_client(alias).connection
    connection = shared.with_timeout(shared.timeout_s)
    try:
        (reply,) = connection.exchange([(DISK_COMMAND, int(is_local), 0, 1)])
    finally:
        connection.close()
    if is_local and isinstance(reply, redis.exceptions.NoPermissionError):  # a viewer, who sends nothing
        (info,) = shared.exchange([("INFO",)])
        if not isinstance(info, redis.RedisError) and read_info(info).get("aof_enabled") == "0":
            return redis.ResponseError("appendonly is no")
    return reply


def _missing_replicas(alias: str, most: int, has: int) -> Iterator[Shortfall]:
    if most > has:
        result = _refused(alias) or "no send would be confirmed"
        text = f"{_of(alias)} {counted(most, 'replica')}, and its server has {has}: {result}"
        yield Shortfall(text, "Add replicas, or lower REPLICAS.")


def _refused(alias: str) -> str:
    """Return why the server refuses all writes; "" if it does not, or the user may not ask."""
    info, minimum = get_client(alias).connection.exchange([("INFO",), ASK_FOR_MINIMUM])
    return "" if isinstance(info, redis.RedisError) else why_writes_are_refused(read_info(info), minimum)


def _missing_disks(alias: str, kinds: Set[Fsync], disk: Reply) -> Iterator[Shortfall]:
    if isinstance(disk, redis.RedisError) and not isinstance(disk, redis.exceptions.NoPermissionError):
        why, hint = _without_disks(str(disk))
        text = f"{_of(alias)} FSYNC {min(kinds)!r}, and its server {why}: no send would be confirmed"
        yield Shortfall(text, hint)


def _without_disks(refusal: str) -> tuple[str, str]:
    """Return what a server lacks that refused to wait for its disk, and the next step."""
    if "unknown command" in refusal:
        return f"does not know {DISK_COMMAND}", "It needs Redis 7.2 or Valkey."
    if "appendonly" in refusal:
        return "has no append-only file", "Set appendonly to yes on the server."
    return f"refuses {DISK_COMMAND}: {refusal}", "Correct the server."


def _of(alias: str) -> str:
    return f"the durability of the connection {alias!r} asks for"
