"""Shards: a queue that is spread over several namespaces, each on a connection that is derived from the queue's own.

Shard 0 has the connection and the namespace of the settings. So a queue that was not sharded before keeps its messages,
and more shards can be added at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.keys import shard_namespace
from .options import OptionReader
from .problem_ids import WRONG_DEAD_LETTER, WRONG_NAME, WRONG_VALUE

if TYPE_CHECKING:
    from .sections import ConnectionSettings, QueueSettings


def shard_alias(alias: str, shard: int) -> str:
    """Return the alias of the connection of a shard: "default.3"."""
    return f"{alias}.{shard}" if shard else alias


def derive_connections(
    reader: OptionReader, connections: Mapping[str, ConnectionSettings], queues: Iterable[QueueSettings]
) -> dict[str, ConnectionSettings]:
    """Return the connections with those of the shards, and note shards whose alias or namespace is in use."""
    counts: dict[str, int] = {}
    for queue in queues:
        counts[queue.connection] = max(counts.get(queue.connection, 1), queue.shards)
    derived: dict[str, ConnectionSettings] = {}
    namespaces = {connection.namespace: alias for alias, connection in connections.items()}
    for alias, count in counts.items():
        if alias not in connections:
            continue
        for shard in range(1, count):
            own = _derived(connections[alias], shard)
            _refuse_collision(reader, own, alias, connections, namespaces)
            derived[own.alias] = own
    return {**connections, **derived}


def _derived(connection: ConnectionSettings, shard: int) -> ConnectionSettings:
    alias, namespace = shard_alias(connection.alias, shard), shard_namespace(connection.namespace, shard)
    return replace(connection, alias=alias, namespace=namespace, shard=shard)


def _refuse_collision(
    reader: OptionReader,
    own: ConnectionSettings,
    alias: str,
    connections: Mapping[str, ConnectionSettings],
    namespaces: Mapping[str, str],
) -> None:
    where = f"Shard {own.shard} of the queues on RSMQ['CONNECTIONS'][{alias!r}]"
    if own.alias in connections:
        reader.note(WRONG_NAME, f"{where} has the alias {own.alias!r} of another connection", "Rename that connection.")
    # Whether two addresses are one server cannot be seen from their texts.
    if own.namespace in namespaces:
        said = f"{where} has the namespace {own.namespace!r} of the connection {namespaces[own.namespace]!r}"
        reader.note(WRONG_NAME, said, "Change the NAMESPACE of one of them.")


def check_dead_letters(
    reader: OptionReader, queues: Mapping[str, QueueSettings], dead_letters: Mapping[str, QueueSettings]
) -> None:
    """Note dead-letter queues without the shards of their queue: a dead letter stays in the shard of its message."""
    for queue in queues.values():
        home = queues.get(queue.dead_letter or "") or dead_letters.get(queue.dead_letter or "")
        if home is not None and home.shards < queue.shards:
            where = f"RSMQ['QUEUES'][{queue.name!r}]"
            said = f"{where} has {queue.shards} SHARDS, and its dead-letter queue {home.name!r} has {home.shards}"
            reader.note(WRONG_DEAD_LETTER, said, f"Give {home.name!r} as many: a dead letter stays in its shard.")


def check_features(reader: OptionReader, queues: Iterable[QueueSettings]) -> None:
    """Note options that a queue with shards does not support."""
    for queue in queues:
        if queue.shards > 1 and queue.outbox:
            said = f"RSMQ['QUEUES'][{queue.name!r}] has SHARDS and OUTBOX"
            hint = "Give the queue 'OUTBOX': False or 'SHARDS': 1: the outbox sends to queues without SHARDS only."
            reader.note(WRONG_VALUE, said, hint)
