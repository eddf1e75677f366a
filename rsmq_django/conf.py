"""`settings.RSMQ` -> one frozen `Settings` object.

Knows every option with its unit, its range, its default and the reason for it, how options depend on each
other, and the one environment variable that the Django side reads (RSMQ_STATE_DIR). Refuses to know what an
option is used for, and opens no connection.

Reading collects every problem: the system checks show them all, and `get_settings()` raises one error that
lists them all. The address of a server may hold a password, so it never appears in a repr or a problem.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver

from .core.bands import split_band
from .core.errors import RsmqError
from .core.limits import MAX_MAX_SIZE_BYTES, MAX_SECONDS, MIN_MAX_SIZE_BYTES, TIME_UNITS, UNLIMITED, TimeUnit
from .options import (
    FERNET_KEYS,
    FLAG,
    FLAG_OR_TEXT,
    NAMESPACE,
    QUEUE_NAME,
    SECONDS_BY_QUEUE,
    SIGNING_KEYS,
    TEXT,
    TEXT_BY_NAME,
    TEXTS,
    URL,
    OptionReader,
    Problem,
    Rule,
    is_text,
    nearest,
    one_of,
    seconds,
    shown,
    whole,
)
from .schedule_entry import Schedule, from_options
from .spark.burn import read_objectives

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
class ConnectionSettings:
    """One Redis server, and the namespace of our queues in it. One of url, cache and embedded is set."""

    alias: str
    url: Annotated[str | None, URL] = field(default=None, repr=False)
    #: Alias of a Redis cache, whose address is used for a connection of our own.
    cache: Annotated[str | None, TEXT] = None
    #: A private server for development, started when the first process needs it.
    embedded: Annotated[bool, FLAG] = False
    #: What every RSMQ client uses by default, so that other languages find the queues.
    namespace: Annotated[str, NAMESPACE] = "rsmq"
    #: How long one call may wait for the server. A web request should fail soon rather than hang.
    timeout_s: Annotated[float, seconds(least=0.05, most=60)] = 1.0
    #: Where the embedded server keeps its data; None without one.
    state_dir: Path | None = None


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """One queue: what it is created with, and what its workers do by default."""

    name: str
    connection: Annotated[str, TEXT] = "default"
    #: RSMQ's default. Workers renew it while a task runs, so it may be shorter than the longest task.
    visibility_timeout_s: Annotated[int, whole("seconds", least=0, most=MAX_SECONDS)] = 30
    #: RSMQ's default: a message can be received at once.
    delay_s: Annotated[int, whole("seconds", least=0, most=MAX_SECONDS)] = 0
    #: In which unit the two times above are stored. Clients of RSMQ store seconds, but rsmq_async (Rust) milliseconds.
    vt_unit: Annotated[TimeUnit, one_of(*TIME_UNITS)] = "s"
    #: RSMQ's default, and the most that other clients accept. Larger things belong into a file store.
    max_size_bytes: Annotated[
        int, whole("bytes", least=MIN_MAX_SIZE_BYTES, most=MAX_MAX_SIZE_BYTES, unlimited=UNLIMITED)
    ] = MAX_MAX_SIZE_BYTES
    #: Runs in all, for tasks that do not say. Left out, it is the one of TASKS.
    max_attempts: Annotated[int, whole("attempts", least=1, most=1_000_000)]
    #: The queue's part of a worker that has several queues with a backlog. As long as no queue of a worker has a
    #: weight, its queues are served strictly in order; as soon as one has, those without count as 1.
    weight: Annotated[int | None, whole("parts", least=1, most=1_000)] = None
    #: Only messages signed with one of these run; the first one signs. Put new ones in front.
    signing_keys: Annotated[tuple[str, ...], SIGNING_KEYS] = field(default=(), repr=False)
    #: Fernet keys: only messages encrypted with one of these run; the first one encrypts.
    encryption_keys: Annotated[tuple[str, ...], FERNET_KEYS] = field(default=(), repr=False)
    #: Where messages go that failed for good. Left out, it is the queue's name and "-dead".
    dead_letter: Annotated[str, QUEUE_NAME]

    @property
    def is_sealed(self) -> bool:
        """Say whether bodies of this queue are signed or encrypted."""
        return bool(self.signing_keys or self.encryption_keys)

    #: Tasks are written to a table in the caller's transaction and sent by a relay. Left out, it is the one of TASKS.
    outbox: Annotated[bool, FLAG] = False


@dataclass(frozen=True, kw_only=True)
class ReliableQueueSettings:
    """One reliable queue that workers work on."""

    name: str
    connection: Annotated[str, TEXT] = "default"
    #: A message whose worker has not said anything for so long is given to another one. Workers say something at a
    #: third of it; a function that holds the interpreter lock for longer keeps them from it.
    lease_s: Annotated[int, whole("seconds", least=1, most=86_400)] = 60
    #: Deliveries after which a message is put aside as dead, whoever it was delivered to. Left out, it is the number
    #: of attempts of TASKS. 0: as often as it takes.
    max_deliveries: Annotated[int, whole("deliveries", least=0, most=1_000_000)]


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """What holds for every task that does not say otherwise."""

    #: Runs in all. With growing waits between them, five outlive the restart of a database or a web service.
    max_attempts: Annotated[int, whole("attempts", least=1, most=1_000_000)] = 5
    #: Deaths of a process in the middle of a message after which it goes to the dead-letter queue.
    max_crashes: Annotated[int, whole("crashes", least=1, most=1_000_000)] = 3
    #: A day: results can be looked at the next morning, and Redis does not fill up with them. 0 keeps none.
    result_ttl_s: Annotated[int, whole("seconds", least=0, most=31_622_400)] = 86_400
    #: A task sent inside a transaction could start before its rows can be seen, or although they were rolled
    #: back. True waits for the default database, an alias for that database, False for none.
    enqueue_on_commit: Annotated[bool | str, FLAG_OR_TEXT] = True
    #: For queues that do not say. It costs a row in the database for each task, and some milliseconds until it is sent.
    outbox: Annotated[bool, FLAG] = False


@dataclass(frozen=True, kw_only=True)
class OutboxSettings:
    """How the tables of `rsmq_django.outbox` are looked after."""

    #: The longest wait between two looks at the table. PostgreSQL tells the relay at once.
    poll_interval_s: Annotated[float, seconds(least=0.01, most=3600)] = 0.5
    #: A day: to be able to look up what was sent, and when.
    keep_sent_s: Annotated[int, whole("seconds", least=0, most=31_622_400)] = 86_400
    #: A month: a dead letter may be sent again that late, and must still be recognised.
    keep_done_s: Annotated[int, whole("seconds", least=60, most=316_224_000)] = 2_592_000


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What a worker process does unless its command line says otherwise."""

    #: Tasks mostly wait for databases and web services. Each thread may hold one database connection.
    threads: Annotated[int, whole("threads", least=1, most=1_000)] = 8
    #: Coroutines cost little; the limit protects the services they call.
    async_tasks: Annotated[int, whole("tasks", least=1, most=100_000)] = 100
    #: The longest wait between two looks at the queues. Our own senders wake a worker at once; this is how late
    #: a message may start whose sender does not publish, and how soon a lost wake-up is made good.
    poll_interval_s: Annotated[float, seconds(least=0.01, most=60)] = 1.0
    #: How long running tasks may go on after SIGTERM. Kubernetes kills after 30 s; the rest is for giving
    #: messages back.
    shutdown_timeout_s: Annotated[float, seconds(least=0, most=86_400)] = 25.0


@dataclass(frozen=True, kw_only=True)
class StatisticsSettings:
    """What workers count: docs/metrics.md."""

    #: Counters and histograms per queue and task, reported once a second. They cost a twentieth of a task that does
    #: nothing, and charts and metrics are empty without them.
    enabled: Annotated[bool, FLAG] = True


@dataclass(frozen=True, kw_only=True)
class EventSettings:
    """The log of task attempts: docs/events.md."""

    #: Which attempts are logged: none, those that did not succeed, or all. Off, because an event costs Redis about
    #: half of what the rest of a message's life does, and 170 bytes until it is trimmed.
    record: Annotated[str, one_of("off", "failures", "all")] = "off"
    #: The log is cut at about so many events: 17 MB. An archive needs twice what comes in between two of its runs.
    max_length: Annotated[int, whole("events", least=100, most=1_000_000_000)] = 100_000
    #: Whether events hold the text of exceptions, cut to 500 characters. It groups failures, and is what a function
    #: chose to say: when yours quote personal data, switch it off.
    error_text: Annotated[bool, FLAG] = True


@dataclass(frozen=True, kw_only=True)
class TracingSettings:
    """OpenTelemetry spans: docs/metrics.md."""

    #: Off, because it needs the extra `otel`, and a trace id adds 70 bytes to each message.
    enabled: Annotated[bool, FLAG] = False


def _are_objectives(value: Any) -> bool:
    try:
        read_objectives(value)
    except (RsmqError, TypeError, AttributeError):
        return False
    return True


PATH = Rule("a path", lambda value: is_text(value) or isinstance(value, Path))
OBJECTIVES = Rule(
    "a dictionary of objectives by queue: {'mail': {'success': 0.999, 'wait_p95_ms': 2000}}", _are_objectives
)


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """What Spark makes of the log of task attempts: docs/pipeline.md."""

    #: Directory of the archive. None is `rsmq_lake` below BASE_DIR.
    lake: Annotated[str | Path | None, PATH] = None
    #: Whose log is archived.
    connection: Annotated[str, TEXT] = "default"
    #: Where Spark runs. Two cores of this machine are enough for a million events a day.
    master: Annotated[str, TEXT] = "local[2]"
    #: Settings of Spark beside ours.
    spark_conf: Annotated[Mapping[str, str], TEXT_BY_NAME] = field(default_factory=dict)
    #: What each queue promises.
    objectives: Annotated[Mapping[str, Mapping[str, float]], OBJECTIVES] = field(default_factory=dict)
    #: How long a message may wait, for advice on how many workers that takes.
    wait_targets_s: Annotated[Mapping[str, float], SECONDS_BY_QUEUE] = field(default_factory=dict)
    #: A month: texts of errors may hold personal data, and files cannot forget a single row.
    keep_events_days: Annotated[int, whole("days", least=1, most=3_660)] = 30
    #: A year and a month, to compare a month with the same one of last year.
    keep_hourly_days: Annotated[int, whole("days", least=1, most=3_660)] = 400
    #: A quarter of a year, for failure groups, burn rates, advice, odd hours and depths.
    keep_days: Annotated[int, whole("days", least=1, most=3_660)] = 90


@dataclass(frozen=True, kw_only=True)
class AdminSettings:
    """What the admin shows."""

    #: Rows on a page. Each row costs Redis a read.
    page_size: Annotated[int, whole("rows", least=1, most=1_000)] = 50
    #: Messages that a search, or a filter that Redis cannot answer by itself, looks at for one page. So many take it
    #: some milliseconds; the page says when there were more.
    search_limit: Annotated[int, whole("messages", least=100, most=100_000)] = 5_000
    #: A value is hidden when its name contains one of these words, in either case.
    redact: Annotated[tuple[str, ...], TEXTS] = (
        "password",
        "passwd",
        "secret",
        "token",
        "authorization",
        "cookie",
        "card",
        "key",
    )


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
        base, priority = split_band(name)
        return base if priority and base in self.queues and name not in self.queues else name

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
    """Note queues whose names mean, or could mean, a priority band of another one."""
    for name in queues:
        base, priority = split_band(name)
        if base != name and base in queues:
            said = f"RSMQ['QUEUES'][{name!r}] has the name of the queue that holds priority {priority} of {base!r}"
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
            said = f"{where} is {target!r}, where messages of {base!r} with a priority wait for workers"
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
