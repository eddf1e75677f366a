"""`settings.RSMQ` -> one frozen `Settings` object.

Knows how options depend on each other, and the one environment variable that the Django side reads (RSMQ_STATE_DIR).
The options themselves stand in `sections.py`. Refuses to know what an option is used for, and opens no connection.

Reading collects every problem: the system checks show them all, and `get_settings()` raises one error that
lists them all. The address of a server may hold a password, so it never appears in a repr or a problem.
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

from .core.bands import lane_of, split_band
from .core.limits import UNLIMITED
from .options import QUEUE_NAME, TEXT, OptionReader, Problem, nearest, shown
from .schedule_entry import Schedule, from_options
from .sections import (
    AdminSettings,
    ConnectionSettings,
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

__all__ = [
    "SECTIONS",
    "AdminSettings",
    "ConnectionSettings",
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
DEAD_LETTER_SUFFIX = "-dead"

# The ids of the system checks, explained in docs/settings.md.
MISSING, UNKNOWN_OPTION, WRONG_VALUE, WRONG_NAME = "rsmq.E001", "rsmq.E002", "rsmq.E003", "rsmq.E004"
NO_SERVER, UNKNOWN_CONNECTION, WRONG_DEAD_LETTER = "rsmq.E005", "rsmq.E006", "rsmq.E007"
UNKNOWN_QUEUE = "rsmq.E031"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that settings.RSMQ says, with all defaults in place."""

    connections: Mapping[str, ConnectionSettings]
    #: In the order in which they are written.
    queues: Mapping[str, QueueSettings]
    #: Reliable queues, in the order in which they are written.
    reliable: Mapping[str, ReliableQueueSettings]
    #: Dead-letter queues that are not in QUEUES themselves: no worker takes from them unless it is told to.
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
    #: What surrounds every task, outermost first: docs/middleware.md.
    middleware: tuple[Any, ...] = ()
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)

    @cached_property
    def dead_letter_places(self) -> frozenset[tuple[str, str]]:
        """Return connection and name of every queue that dead letters are sent to."""
        return frozenset((queue.connection, queue.dead_letter) for queue in self.queues.values())

    def queue(self, name: str) -> QueueSettings:
        """Return the settings of a queue, one of its priority bands, or a dead-letter queue.

        Raises ImproperlyConfigured for other names.
        """
        found = self.queues.get(name) or self.dead_letters.get(name) or self._band(name)
        if found is None:
            hint = nearest(name, [*self.queues, *self.dead_letters])
            raise ImproperlyConfigured(f"Queue {name!r} is not in RSMQ['QUEUES']. {hint}")
        return found

    def base_name(self, name: str) -> str:
        """Return the configured queue whose priority band this is; any other name is a queue itself."""
        base, _ = split_band(name)
        return base if base in self.queues and name not in self.queues else name

    def _band(self, name: str) -> QueueSettings | None:
        base = self.base_name(name)
        return None if base == name else _as_band(self.queues[base], name)

    def connection(self, alias: str) -> ConnectionSettings:
        """Return the settings of a connection. Raises ImproperlyConfigured for an unknown alias."""
        if alias not in self.connections:
            hint = nearest(alias, self.connections)
            raise ImproperlyConfigured(f"Connection {alias!r} is not in RSMQ['CONNECTIONS']. {hint}")
        return self.connections[alias]


@cache
def _as_band(queue: QueueSettings, name: str) -> QueueSettings:
    return replace(queue, name=name)


@cache
def get_settings() -> Settings:
    """Return the project's settings. Raises ImproperlyConfigured that lists everything wrong with them."""
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
    """Read the value of settings.RSMQ; None means there is none. What is wrong is noted and keeps its default."""
    reader = OptionReader(unknown_id=UNKNOWN_OPTION, wrong_id=WRONG_VALUE)
    if given is None:
        example = 'RSMQ = {"CONNECTIONS": {"default": {"URL": "redis://localhost:6379/0"}}}'
        reader.note(MISSING, "The setting RSMQ is missing", f"Add {example} with the address of your server.")
    table = {} if given is None else reader.table(given, "RSMQ")
    # Without a table, "there is no connection" would only repeat the first problem.
    connections = {} if reader.problems else _read_connections(reader, table.get("CONNECTIONS", {}))
    reader.keys(table, SECTIONS, "RSMQ")
    tasks = reader.options(TaskSettings, table.get("TASKS", {}), "RSMQ['TASKS']")
    queues = _read_queues(reader, table.get("QUEUES", {"default": {}}), connections=connections, tasks=tasks)
    settings = Settings(
        connections=MappingProxyType(connections),
        queues=MappingProxyType(queues),
        reliable=MappingProxyType(_read_reliable(reader, table.get("RELIABLE", {}), connections, queues, tasks)),
        dead_letters=MappingProxyType(_find_dead_letters(reader, queues)),
        tasks=tasks,
        worker=reader.options(WorkerSettings, table.get("WORKER", {}), "RSMQ['WORKER']"),
        schedules=MappingProxyType(_read_schedules(reader, table.get("SCHEDULES", {}), queues)),
        outbox=reader.options(OutboxSettings, table.get("OUTBOX", {}), "RSMQ['OUTBOX']"),
        admin=reader.options(AdminSettings, table.get("ADMIN", {}), "RSMQ['ADMIN']"),
        statistics=reader.options(StatisticsSettings, table.get("STATISTICS", {}), "RSMQ['STATISTICS']"),
        events=reader.options(EventSettings, table.get("EVENTS", {}), "RSMQ['EVENTS']"),
        tracing=reader.options(TracingSettings, table.get("TRACING", {}), "RSMQ['TRACING']"),
        pipeline=reader.options(PipelineSettings, table.get("PIPELINE", {}), "RSMQ['PIPELINE']"),
        middleware=_read_middleware(reader, table.get("MIDDLEWARE", ())),
    )
    return settings, reader.problems


def _read_middleware(reader: OptionReader, given: object) -> tuple[Any, ...]:
    if isinstance(given, list | tuple):
        return tuple(given)
    said = f"RSMQ['MIDDLEWARE'] is {shown(given)}"
    reader.note(WRONG_VALUE, said, "It must be a list of dotted paths, or of functions that return a middleware.")
    return ()


def _read_connections(reader: OptionReader, given: object) -> dict[str, ConnectionSettings]:
    table = reader.table(given, "RSMQ['CONNECTIONS']")
    if not table:
        reader.note(NO_SERVER, "RSMQ['CONNECTIONS'] names no server", "Add 'default': {'URL': ...}.")
    for alias in table:
        if not TEXT.accepts(alias):
            said = f"RSMQ['CONNECTIONS'][{shown(alias)}] has an impossible alias"
            reader.note(WRONG_NAME, said, f"It must be {TEXT.expects}.")
    return {alias: _read_connection(reader, alias, given) for alias, given in table.items() if TEXT.accepts(alias)}


def _read_connection(reader: OptionReader, alias: str, given: object) -> ConnectionSettings:
    where = f"RSMQ['CONNECTIONS'][{shown(alias)}]"
    options = dict(reader.table(given, where))
    for key in PLACES:
        # None and False say "not this one", so that a URL may come from an environment variable that is not set.
        if options.get(key) is None or options[key] is False:
            options.pop(key, None)
    connection = reader.options(ConnectionSettings, options, where, alias=alias)
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
    reader.note(NO_SERVER, f"{where} has no place for the data of the embedded server", hint)
    return None


def _read_queues(
    reader: OptionReader, given: object, *, connections: Mapping[str, ConnectionSettings], tasks: TaskSettings
) -> dict[str, QueueSettings]:
    queues = {}
    for name, options in reader.table(given, "RSMQ['QUEUES']").items():
        where = f"RSMQ['QUEUES'][{shown(name)}]"
        if not QUEUE_NAME.accepts(name):
            reader.note(WRONG_NAME, f"{where} has an impossible name", f"It must be {QUEUE_NAME.expects}.")
            continue
        queue = reader.options(QueueSettings, options, where, **_derived_defaults(name, tasks))
        if connections and queue.connection not in connections:
            said = f"{where} is on {shown(queue.connection)}, which is not in RSMQ['CONNECTIONS']"
            reader.note(UNKNOWN_CONNECTION, said, nearest(queue.connection, connections))
        if queue.signing_keys and queue.encryption_keys:
            said = f"{where} has both SIGNING_KEYS and ENCRYPTION_KEYS"
            reader.note(WRONG_VALUE, said, "Leave SIGNING_KEYS out: what is encrypted cannot be changed either.")
        if not QUEUE_NAME.accepts(queue.dead_letter):
            said = f"{where} has a name that is too long to add '{DEAD_LETTER_SUFFIX}' to"
            reader.note(WRONG_DEAD_LETTER, said, "Name its DEAD_LETTER queue, or give it a shorter name.")
        queues[name] = queue
    _refuse_bands(reader, queues)
    return queues


def _refuse_bands(reader: OptionReader, queues: Mapping[str, QueueSettings]) -> None:
    """Note queues whose names mean, or could mean, a priority band or lane of another one."""
    for name in queues:
        base, priority = split_band(name)
        if base != name and base in queues:
            part = f"priority {priority}" if lane_of(name) is None else f"lane {lane_of(name)}"
            said = f"RSMQ['QUEUES'][{name!r}] has the name of the queue that holds {part} of {base!r}"
            reader.note(WRONG_NAME, said, "Leave it out: it is created when needed. Or choose another name.")


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
    """Return the time zone in which cron expressions are read that do not say."""
    return django_settings.TIME_ZONE or "UTC"


def _read_reliable(
    reader: OptionReader,
    given: object,
    connections: Mapping[str, ConnectionSettings],
    queues: Mapping[str, QueueSettings],
    tasks: TaskSettings,
) -> dict[str, ReliableQueueSettings]:
    found = {}
    for name, options in reader.table(given, "RSMQ['RELIABLE']").items():
        where = f"RSMQ['RELIABLE'][{shown(name)}]"
        if not QUEUE_NAME.accepts(name):
            reader.note(WRONG_NAME, f"{where} has an impossible name", f"It must be {QUEUE_NAME.expects}.")
            continue
        if name in queues:
            said = f"{where} has the name of a queue of RSMQ['QUEUES']"
            reader.note(WRONG_NAME, said, "Give one of them another name: a worker is told by name which one it is.")
        queue = reader.options(ReliableQueueSettings, options, where, name=name, max_deliveries=tasks.max_attempts)
        if connections and queue.connection not in connections:
            said = f"{where} is on {shown(queue.connection)}, which is not in RSMQ['CONNECTIONS']"
            reader.note(UNKNOWN_CONNECTION, said, nearest(queue.connection, connections))
        found[name] = queue
    return found


def _derived_defaults(name: str, tasks: TaskSettings) -> dict[str, Any]:
    return {
        "name": name,
        "max_attempts": tasks.max_attempts,
        "dead_letter": f"{name}{DEAD_LETTER_SUFFIX}",
        "outbox": tasks.outbox,
    }


def _find_dead_letters(reader: OptionReader, queues: Mapping[str, QueueSettings]) -> dict[str, QueueSettings]:
    """Return the dead-letter queues that QUEUES does not list. Note those that could not work."""
    found: dict[str, QueueSettings] = {}
    for queue in queues.values():
        where, target = f"RSMQ['QUEUES'][{queue.name!r}]['DEAD_LETTER']", queue.dead_letter
        if target not in queues and target not in found:
            # Unlimited, because a message that fitted its queue must fit here, too.
            # And in the same unit of time, because the same clients read both.
            defaults = _derived_defaults(target, TaskSettings())
            found[target] = QueueSettings(
                connection=queue.connection, vt_unit=queue.vt_unit, max_size_bytes=UNLIMITED, **defaults
            )
        base, _ = split_band(target)
        if target not in queues and base != target and base in queues:
            said = f"{where} is {target!r}, where messages of {base!r} with a priority or lane wait for workers"
            reader.note(WRONG_DEAD_LETTER, said, "Choose another name: what fails would run again for ever.")
        home = queues.get(target) or found[target]
        if home.connection != queue.connection:
            said = f"{where} is {target!r}, which is on the connection {home.connection!r}"
            hint = f"Choose a queue on {queue.connection!r}: a message is moved in one step, within one server."
            reader.note(WRONG_DEAD_LETTER, said, hint)
        circle = _circle_from(queue.name, queues)
        # Each circle is reported once, at its first name.
        if circle and queue.name == min(circle):
            said = f"{where} leads back to the queue: {' -> '.join([*circle, queue.name])}"
            reader.note(WRONG_DEAD_LETTER, said, "Choose another one: what fails would go round for ever.")
    return found


def _circle_from(start: str, queues: Mapping[str, QueueSettings]) -> list[str]:
    """Return the names from `start` back to it along the dead-letter queues; nothing when they end elsewhere."""
    path, name = [start], queues[start].dead_letter
    while name in queues and name not in path:
        path.append(name)
        name = queues[name].dead_letter
    return path if name == start else []
