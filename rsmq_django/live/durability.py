"""What servers lack for the DURABILITY of the settings, for `check --deploy` and the doctor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import redis

from ..conf.settings import Settings
from ..core import Durability
from ..core.doctor.server import ASK_FOR_MINIMUM, Info, read_info, why_writes_are_refused
from ..core.transport.connection import Reply
from ..core.transport.durability import DISK_COMMAND
from ..queues import get_client


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a server lacks, and the next step."""

    text: str
    hint: str


def durabilities_of(settings: Settings, alias: str) -> list[Durability]:
    """Return the durabilities of a connection and of its queues."""
    of_queues = [queue.durability for queue in settings.queues.values() if queue.connection == alias]
    given = [settings.connections[alias].durability, *of_queues]
    return list({each.durability: None for each in given if each is not None})


def shortfalls(settings: Settings, alias: str) -> list[Shortfall]:
    """Return what the server of a connection lacks. Raises RsmqError, or the server's error when it refuses INFO."""
    wanted = durabilities_of(settings, alias)
    if not wanted:
        return []
    questions = [("INFO",), ("COMMAND", "INFO", DISK_COMMAND), ASK_FOR_MINIMUM]
    info, command, minimum = get_client(alias).connection.exchange(questions)
    if isinstance(info, redis.RedisError):
        raise info
    facts = read_info(info)
    return [
        *_missing_replicas(alias, wanted, facts, minimum),
        *_missing_disks(alias, wanted, facts, command),
    ]


def _missing_replicas(alias: str, wanted: Sequence[Durability], info: Info, minimum: Reply) -> Iterator[Shortfall]:
    most, has = max(each.replicas for each in wanted), int(info.get("connected_slaves", 0))
    if most > has:
        plural = "" if most == 1 else "s"
        result = why_writes_are_refused(info, minimum) or "no send would be confirmed"
        text = f"{_of(alias)} {most} replica{plural}, and its server has {has}: {result}"
        yield Shortfall(text, "Add replicas, or lower REPLICAS.")


def _missing_disks(alias: str, wanted: Sequence[Durability], info: Info, command: Reply) -> Iterator[Shortfall]:
    kinds = {each.fsync for each in wanted if each.fsync is not None}
    if kinds and command == [None]:
        text = f"{_of(alias)} FSYNC {min(kinds)!r}, and its server does not know {DISK_COMMAND}: "
        yield Shortfall(f"{text}no send would be confirmed", "It needs Redis 7.2 or Valkey.")
    elif "local" in kinds and info.get("aof_enabled") == "0":
        text = f"{_of(alias)} FSYNC 'local', and its server has no append-only file: no send would be confirmed"
        yield Shortfall(text, "Set appendonly to yes on the server.")


def _of(alias: str) -> str:
    return f"the durability of the connection {alias!r} asks for"
