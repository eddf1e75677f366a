"""`settings.RSMQ` -> one frozen `Settings` object.

This module handles dependencies between options, and the only environment variable that the Django side reads
(RSMQ_STATE_DIR). The options are defined in `conf/sections.py`. It does not use the options and opens no connection.

Reading collects all problems: the system checks show them, and `get_settings()` raises one error that lists them. The
address of a server may contain a password, so it never appears in a repr or a problem.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver

from ..core.queue.bands import split_band
from ..core.topic.keys import DEAD_LETTER_SUFFIX
from .durability import read_durability
from .options import TEXT, OptionReader, Problem, nearest, shown
from .problem_ids import MISSING, NO_SERVER, UNKNOWN_OPTION, UNKNOWN_QUEUE, WRONG_NAME, WRONG_VALUE
from .queues import find_dead_letters, read_queues, read_reliable
from .schedules import Schedule, from_options
from .sections import (
    AdminSettings,
    ConnectionSettings,
    DurabilitySettings,
    EventSettings,
    OutboxSettings,
    PipelineSettings,
    QueueSettings,
    ReliableQueueSettings,
    StatisticsSettings,
    TaskSettings,
    TracingSettings,
    WorkerSettings,
)
from .shards import check_dead_letters, check_features, derive_connections, shard_alias

__all__ = [
    "SECTIONS",
    "AdminSettings",
    "ConnectionSettings",
    "DurabilitySettings",
    "EventSettings",
    "OutboxSettings",
    "PipelineSettings",
    "QueueSettings",
    "ReliableQueueSettings",
    "Settings",
    "StatisticsSettings",
    "TaskSettings",
    "TracingSettings",
    "WorkerSettings",
    "get_settings",
    "project_zone",
    "read_settings",
]

SECTIONS = (
    "CONNECTIONS",
    "QUEUES",
    "RELIABLE",
    "TOPICS",
    "TASKS",
    "WORKER",
    "SCHEDULES",
    "OUTBOX",
    "ADMIN",
    "STATISTICS",
    "EVENTS",
    "TRACING",
    "PIPELINE",
    "MIDDLEWARE",
)
PLACES = ("URL", "CACHE", "EMBEDDED")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All values of settings.RSMQ, with defaults filled in."""

    connections: Mapping[str, ConnectionSettings]
    #: Queues, in the order of the settings.
    queues: Mapping[str, QueueSettings]
    #: Reliable queues, in the order of the settings.
    reliable: Mapping[str, ReliableQueueSettings]
    #: Dead-letter queues that are not in QUEUES: no worker consumes them unless they are named on its command line.
    dead_letters: Mapping[str, QueueSettings]
    tasks: TaskSettings
    worker: WorkerSettings
    #: Periodic tasks, by name.
    schedules: Mapping[str, Schedule]
    outbox: OutboxSettings
    admin: AdminSettings
    statistics: StatisticsSettings = field(default_factory=StatisticsSettings)
    events: EventSettings = field(default_factory=EventSettings)
    tracing: TracingSettings = field(default_factory=TracingSettings)
    #: Middleware of all tasks, outermost first: docs/how-to/middleware.md.
    middleware: tuple[Any, ...] = ()
    #: Names of the topics; None allows any name.
    topics: frozenset[str] | None = None
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)

    @cached_property
    def own_connections(self) -> Mapping[str, ConnectionSettings]:
        """Return the connections of RSMQ["CONNECTIONS"], without those derived for shards."""
        return {alias: each for alias, each in self.connections.items() if each.shard is None}

    @cached_property
    def dead_letter_places(self) -> frozenset[tuple[str, str]]:
        """Return connection and name of every dead-letter queue."""
        return frozenset(
            (alias, queue.dead_letter)
            for queue in self.queues.values()
            if queue.dead_letter is not None
            for alias in aliases_of(queue)
        )

    def dead_letter_chain(self, name: str) -> list[str]:
        """Return a dead-letter queue, the dead-letter queue of that queue (used if workers consume it), and so on."""
        chain: list[str] = []
        following: str | None = name
        while following is not None and following not in chain:
            chain.append(following)
            following = self.queues[following].dead_letter if following in self.queues else None
        return chain

    def queue(self, name: str) -> QueueSettings:
        """Return the settings of a queue, one of its priority bands, or a dead-letter queue.

        Raises ImproperlyConfigured for other names.
        """
        found = self._find(name)
        if found is None:
            hint = nearest(name, [*self.queues, *self.dead_letters])
            said = f"Queue {name!r} is not in RSMQ['QUEUES'], where each queue needs an entry."
            raise ImproperlyConfigured(f"{said} {hint}")
        return found

    def queue_on(self, name: str, alias: str) -> QueueSettings | None:
        """Return the settings of a queue, or of its shard, on a connection; None if it is not there.

        Raises ImproperlyConfigured as queue() and connection() do.
        """
        queue, connection = self.queue(name), self.connection(alias)
        if queue.shards == 1:
            return queue if queue.connection == alias else None
        shard = connection.shard or 0
        is_here = shard < queue.shards and shard_alias(queue.connection, shard) == alias
        return _as_shard(queue, shard) if is_here else None

    def shards_of(self, queue: QueueSettings) -> tuple[QueueSettings, ...]:
        """Return the settings of each shard of a queue: of the queue itself if it has one, or is a shard already."""
        if queue.shards == 1 or queue.shard is not None:
            return (queue,)
        return tuple(_as_shard(queue, shard) for shard in range(queue.shards))

    def knows_queue(self, name: str) -> bool:
        """Return whether queue() has settings for this name."""
        return self._find(name) is not None

    def is_sealed(self, name: str) -> bool:
        """Return whether bodies of a queue are signed or encrypted; False for a name unknown to queue()."""
        found = self._find(name)
        return found is not None and found.is_sealed

    def _find(self, name: str) -> QueueSettings | None:
        return self.queues.get(name) or self.dead_letters.get(name) or self._band(name)

    def base_name(self, name: str) -> str:
        """Return the configured queue to which a priority band belongs; any other name is returned unchanged."""
        base, _ = split_band(name)
        return base if base in self.queues and name not in self.queues else name

    def _band(self, name: str) -> QueueSettings | None:
        base = self.base_name(name)
        return None if base == name else _as_band(self.queues[base], name)

    def check_topic(self, name: str) -> None:
        """Raise ImproperlyConfigured for a topic that is neither in RSMQ["TOPICS"] nor a dead-letter topic of one."""
        if self.topics is not None and name.removesuffix(DEAD_LETTER_SUFFIX) not in self.topics:
            raise ImproperlyConfigured(f"Topic {name!r} is not in RSMQ['TOPICS']. {nearest(name, self.topics)}")

    def used_connections(self) -> list[str]:
        """Return the aliases of the connections of queues, of their shards, and of reliable queues."""
        used = {alias for queue in self.queues.values() for alias in aliases_of(queue)}
        return sorted(used | {queue.connection for queue in self.reliable.values()})

    def with_shards(self, alias: str) -> list[ConnectionSettings]:
        """Return the settings of a connection and of those of its shards. Raises ImproperlyConfigured, see below."""
        derived = [each for each in self.connections.values() if each.shard and each.own_alias == alias]
        return [self.connection(alias), *derived]

    def connection(self, alias: str) -> ConnectionSettings:
        """Return the settings of a connection. Raises ImproperlyConfigured for an unknown alias."""
        if alias not in self.connections:
            hint = nearest(alias, self.connections)
            raise ImproperlyConfigured(f"Connection {alias!r} is not in RSMQ['CONNECTIONS']. {hint}")
        return self.connections[alias]


def aliases_of(queue: QueueSettings) -> tuple[str, ...]:
    """Return the aliases of the connections of a queue: of its shards, in order."""
    return tuple(shard_alias(queue.connection, shard) for shard in range(queue.shards))


@cache
def _as_shard(queue: QueueSettings, shard: int) -> QueueSettings:
    return replace(queue, connection=shard_alias(queue.connection, shard), shard=shard)


@cache
def _as_band(queue: QueueSettings, name: str) -> QueueSettings:
    return replace(queue, name=name)


@cache
def get_settings() -> Settings:
    """Return the project's settings. Raises ImproperlyConfigured that lists all problems."""
    settings, problems = read_settings(getattr(django_settings, "RSMQ", None))
    if problems:
        lines = [f"{problem.message}. {problem.hint} ({problem.id})" for problem in problems]
        raise ImproperlyConfigured("\n  ".join(["settings.RSMQ cannot be used:", *lines]))
    return settings


@receiver(setting_changed)
def _forget_settings(*, setting: str, **_: object) -> None:
    if setting in ("RSMQ", "BASE_DIR", "TIME_ZONE"):
        get_settings.cache_clear()


def read_settings(given: object) -> tuple[Settings, list[Problem]]:
    """Return the settings for the value of settings.RSMQ (None if missing); invalid options are noted as problems."""
    reader = OptionReader(unknown_id=UNKNOWN_OPTION, wrong_id=WRONG_VALUE)
    if given is None:
        example = 'RSMQ = {"CONNECTIONS": {"default": {"URL": "redis://localhost:6379/0"}}}'
        reader.note(MISSING, "The setting RSMQ is missing", f"Add {example} with the address of your server.")
    table = {} if given is None else reader.table(given, "RSMQ")
    # Without a table, a problem about missing connections would only repeat the first one.
    connections = {} if reader.problems else _read_connections(reader, table.get("CONNECTIONS", {}))
    reader.keys(table, SECTIONS, "RSMQ")
    tasks = reader.options(TaskSettings, table.get("TASKS", {}), "RSMQ['TASKS']")
    queues = read_queues(reader, table.get("QUEUES", {"default": {}}), connections=connections, tasks=tasks)
    dead_letters = find_dead_letters(reader, queues)
    check_dead_letters(reader, queues, dead_letters)
    check_features(reader, queues.values())
    settings = Settings(
        connections=MappingProxyType(derive_connections(reader, connections, queues.values())),
        queues=MappingProxyType(queues),
        reliable=MappingProxyType(read_reliable(reader, table.get("RELIABLE", {}), connections, queues, tasks)),
        dead_letters=MappingProxyType(dead_letters),
        tasks=tasks,
        worker=reader.options(WorkerSettings, table.get("WORKER", {}), "RSMQ['WORKER']"),
        schedules=MappingProxyType(_read_schedules(reader, table.get("SCHEDULES", {}), queues)),
        outbox=reader.options(OutboxSettings, table.get("OUTBOX", {}), "RSMQ['OUTBOX']"),
        admin=reader.options(AdminSettings, table.get("ADMIN", {}), "RSMQ['ADMIN']"),
        statistics=reader.options(StatisticsSettings, table.get("STATISTICS", {}), "RSMQ['STATISTICS']"),
        events=reader.options(EventSettings, _read_events(table.get("EVENTS", {})), "RSMQ['EVENTS']"),
        tracing=reader.options(TracingSettings, table.get("TRACING", {}), "RSMQ['TRACING']"),
        pipeline=reader.options(PipelineSettings, table.get("PIPELINE", {}), "RSMQ['PIPELINE']"),
        topics=_read_topics(reader, table.get("TOPICS")),
        middleware=_read_middleware(reader, table.get("MIDDLEWARE", ())),
    )
    return settings, reader.problems


def _read_events(given: object) -> object:
    """Return the table of options; a string is the value of RECORD."""
    return {"RECORD": given} if isinstance(given, str) else given


def _read_middleware(reader: OptionReader, given: object) -> tuple[Any, ...]:
    if isinstance(given, list | tuple):
        return tuple(given)
    said = f"RSMQ['MIDDLEWARE'] is {shown(given)}"
    reader.note(WRONG_VALUE, said, "It must be a list of dotted paths, or of functions that return a middleware.")
    return ()


def _read_topics(reader: OptionReader, given: object) -> frozenset[str] | None:
    if given is None:
        return None
    if isinstance(given, list | tuple | set | frozenset) and all(isinstance(name, str) for name in given):
        return frozenset(given)
    reader.note(WRONG_VALUE, f"RSMQ['TOPICS'] is {shown(given)}", "It must be a list of topic names.")
    return None


def _read_connections(reader: OptionReader, given: object) -> dict[str, ConnectionSettings]:
    table = reader.table(given, "RSMQ['CONNECTIONS']")
    if not table:
        reader.note(NO_SERVER, "RSMQ['CONNECTIONS'] is empty", "Add 'default': {'URL': ...}.")
    for alias in table:
        if not TEXT.accepts(alias):
            said = f"RSMQ['CONNECTIONS'][{shown(alias)}] has an invalid alias"
            reader.note(WRONG_NAME, said, f"It must be {TEXT.expects}.")
    return {alias: _read_connection(reader, alias, given) for alias, given in table.items() if TEXT.accepts(alias)}


def _read_connection(reader: OptionReader, alias: str, given: object) -> ConnectionSettings:
    where = f"RSMQ['CONNECTIONS'][{shown(alias)}]"
    options = dict(reader.table(given, where))
    for key in PLACES:
        # None and False count as missing, so that a URL may come from an environment variable that is not set.
        if options.get(key) is None or options[key] is False:
            options.pop(key, None)
    connection = reader.options(ConnectionSettings, options, where, alias=alias)
    durability = read_durability(reader, options, where, timeout_s=connection.timeout_s, inherited=None)
    connection = replace(connection, durability=durability)
    named = [key for key in PLACES if key in options]
    if len(named) != 1:
        said = " and ".join(named) or "no address"
        reader.note(NO_SERVER, f"{where} has {said}", "Give exactly one of URL, CACHE and EMBEDDED.")
    elif connection.embedded:
        return replace(connection, state_dir=_find_state_dir(reader, where))
    return connection


def _find_state_dir(reader: OptionReader, where: str) -> Path | None:
    named, base = os.environ.get("RSMQ_STATE_DIR"), getattr(django_settings, "BASE_DIR", None)
    if named:
        return Path(named).expanduser().absolute()
    if base:
        return Path(base).absolute() / ".rsmq"
    hint = "Set BASE_DIR in your settings, or the environment variable RSMQ_STATE_DIR to a directory."
    reader.note(NO_SERVER, f"{where} has no directory for the data of the embedded server", hint)
    return None


def _read_schedules(reader: OptionReader, given: object, queues: Mapping[str, QueueSettings]) -> dict[str, Schedule]:
    schedules = {}
    for name, options in reader.table(given, "RSMQ['SCHEDULES']").items():
        where = f"RSMQ['SCHEDULES'][{shown(name)}]"
        entry, problems = from_options(name, options, time_zone=project_zone(), where=where)
        reader.problems += problems
        if entry is None:
            continue
        if entry.queue is not None and entry.queue not in queues:
            said = f"{where} sends to {entry.queue!r}, which is not in RSMQ['QUEUES']"
            reader.note(UNKNOWN_QUEUE, said, nearest(entry.queue, queues))
        schedules[entry.name] = entry
    return schedules


def project_zone() -> str:
    """Return the default time zone of cron expressions."""
    return django_settings.TIME_ZONE or "UTC"
