"""`RSMQ["QUEUES"]` and `RSMQ["RELIABLE"]`: queues and their dead-letter queues.

Checks names and connections of queues against each other. Problems are noted with the reader; the queue keeps its
defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..core.limits import UNLIMITED
from ..core.queue.bands import lane_of, split_band
from .durability import read_durability
from .options import QUEUE_NAME, OptionReader, nearest, shown
from .problem_ids import UNKNOWN_CONNECTION, WRONG_DEAD_LETTER, WRONG_NAME, WRONG_VALUE
from .sections import ConnectionSettings, QueueSettings, ReliableQueueSettings, TaskSettings

DEAD_LETTER_SUFFIX = "-dead"


def read_queues(
    reader: OptionReader, given: object, *, connections: Mapping[str, ConnectionSettings], tasks: TaskSettings
) -> dict[str, QueueSettings]:
    """Return the queues of a table, by name and in its order."""
    queues = {}
    for name, options in reader.table(given, "RSMQ['QUEUES']").items():
        where = f"RSMQ['QUEUES'][{shown(name)}]"
        if not _is_possible(reader, name, where):
            continue
        queue = reader.options(QueueSettings, options, where, **_derived_defaults(name, tasks))
        _check_connection(reader, queue.connection, connections, where)
        server = connections.get(queue.connection)
        if server is not None:
            table, inherited = options if isinstance(options, Mapping) else {}, server.durability
            durability = read_durability(reader, table, where, timeout_s=server.timeout_s, inherited=inherited)
            shards = queue.shards if "SHARDS" in table else server.shards
            queue = replace(queue, durability=durability, shards=shards)
        if queue.signing_keys and queue.encryption_keys:
            said = f"{where} has both SIGNING_KEYS and ENCRYPTION_KEYS"
            reader.note(WRONG_VALUE, said, "Remove SIGNING_KEYS: encrypted messages cannot be changed either.")
        if queue.dead_letter is not None and not QUEUE_NAME.accepts(queue.dead_letter):
            said = f"{where} has a name that is too long for the suffix '{DEAD_LETTER_SUFFIX}'"
            reader.note(WRONG_DEAD_LETTER, said, "Set its DEAD_LETTER queue, or shorten its name.")
        queues[name] = queue
    _refuse_bands(reader, queues)
    return queues


def _refuse_bands(reader: OptionReader, queues: Mapping[str, QueueSettings]) -> None:
    """Note queues with the name of a priority band or lane of another queue."""
    for name in queues:
        base, priority = split_band(name)
        if base != name and base in queues:
            part = f"priority {priority}" if lane_of(name) is None else f"lane {lane_of(name)}"
            said = f"RSMQ['QUEUES'][{name!r}] has the name of the queue for {part} of {base!r}"
            reader.note(WRONG_NAME, said, "Remove it: it is created when needed. Or choose another name.")


def read_reliable(
    reader: OptionReader,
    given: object,
    connections: Mapping[str, ConnectionSettings],
    queues: Mapping[str, QueueSettings],
    tasks: TaskSettings,
) -> dict[str, ReliableQueueSettings]:
    """Return the reliable queues of a table; a name belongs to one queue of one kind."""
    found = {}
    for name, options in reader.table(given, "RSMQ['RELIABLE']").items():
        where = f"RSMQ['RELIABLE'][{shown(name)}]"
        if not _is_possible(reader, name, where):
            continue
        if name in queues:
            said = f"{where} has the name of a queue of RSMQ['QUEUES']"
            reader.note(WRONG_NAME, said, "Rename one of them: workers identify queues by name.")
        queue = reader.options(ReliableQueueSettings, options, where, name=name, max_deliveries=tasks.max_attempts)
        _check_connection(reader, queue.connection, connections, where)
        found[name] = queue
    return found


def _is_possible(reader: OptionReader, name: object, where: str) -> bool:
    """Return whether a name is valid for a queue, and note a problem if not."""
    if QUEUE_NAME.accepts(name):
        return True
    reader.note(WRONG_NAME, f"{where} has an invalid name", f"It must be {QUEUE_NAME.expects}.")
    return False


def _check_connection(
    reader: OptionReader, alias: str, connections: Mapping[str, ConnectionSettings], where: str
) -> None:
    # If there is no connection at all, that was already noted.
    if connections and alias not in connections:
        said = f"{where} is on {shown(alias)}, which is not in RSMQ['CONNECTIONS']"
        reader.note(UNKNOWN_CONNECTION, said, nearest(alias, connections))


def _derived_defaults(name: str, tasks: TaskSettings) -> dict[str, Any]:
    return {
        "name": name,
        "max_attempts": tasks.max_attempts,
        "dead_letter": f"{name}{DEAD_LETTER_SUFFIX}",
        "outbox": tasks.outbox,
    }


def find_dead_letters(reader: OptionReader, queues: Mapping[str, QueueSettings]) -> dict[str, QueueSettings]:
    """Return the dead-letter queues that are not in QUEUES, and note problems."""
    found: dict[str, QueueSettings] = {}
    for queue in queues.values():
        where, target = f"RSMQ['QUEUES'][{queue.name!r}]['DEAD_LETTER']", queue.dead_letter
        if target is None:
            continue
        if target not in queues and target not in found:
            # Unlimited, because every message of the queue must fit.
            # The same unit of time, because the same clients read both.
            defaults = _derived_defaults(target, TaskSettings())
            found[target] = QueueSettings(
                connection=queue.connection, vt_unit=queue.vt_unit, max_size_bytes=UNLIMITED, **defaults
            )
        if target in found and found[target].shards < queue.shards:
            found[target] = replace(found[target], shards=queue.shards)
        base, _ = split_band(target)
        if target not in queues and base != target and base in queues:
            said = f"{where} is {target!r}, the queue for a priority or lane of {base!r}"
            reader.note(WRONG_DEAD_LETTER, said, "Choose another name: failed messages would run again forever.")
        home = queues.get(target) or found[target]
        if home.connection != queue.connection:
            said = f"{where} is {target!r}, which is on the connection {home.connection!r}"
            hint = f"Choose a queue on {queue.connection!r}: messages are moved atomically, within one server."
            reader.note(WRONG_DEAD_LETTER, said, hint)
        circle = _circle_from(queue.name, queues)
        # Each cycle is reported once, at its first name.
        if circle and queue.name == min(circle):
            said = f"{where} leads back to the queue: {' -> '.join([*circle, queue.name])}"
            reader.note(WRONG_DEAD_LETTER, said, "Choose another one: failed messages would circulate forever.")
    return found


def _circle_from(start: str, queues: Mapping[str, QueueSettings]) -> list[str]:
    """Return the cycle of dead-letter queues that contains `start`; empty if there is none."""
    path, name = [start], queues[start].dead_letter
    while name is not None and name in queues and name not in path:
        path.append(name)
        name = queues[name].dead_letter
    return path if name == start else []
