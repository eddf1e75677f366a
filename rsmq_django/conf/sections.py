"""The sections of `settings.RSMQ`: all options with unit, range, default and its reason.

Each section is a class whose fields are the options in lower case; an annotation adds the rule for valid values to the
type. `conf/settings.py` reads and checks the settings.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from ..core.errors import RsmqError
from ..core.limits import (
    MAX_BODY_BYTES,
    MAX_MAX_SIZE_BYTES,
    MAX_SECONDS,
    MIN_MAX_SIZE_BYTES,
    MOST_SHARDS,
    TIME_UNITS,
    UNLIMITED,
    YEAR_S,
    TimeUnit,
)
from ..core.queue.bands import MOST_LANES
from ..core.transport.durability import LEAST_TIMEOUT_S, MOST_REPLICAS, MOST_TIMEOUT_S, Durability, Fsync
from ..spark.burn import read_objectives
from .options import (
    CONNECTION_OPTIONS,
    DAY_OR_NONE,
    FERNET_KEYS,
    FLAG,
    FLAG_OR_TEXT,
    NAMESPACE,
    PROVIDER_OR_NONE,
    QUEUE_NAME_OR_NONE,
    SECONDS_BY_QUEUE,
    SIGNING_KEYS,
    TEXT,
    TEXT_BY_NAME,
    TEXTS,
    URL,
    Rule,
    is_text,
    one_of,
    seconds,
    whole,
)

_REPLICAS = whole("replicas", least=1, most=MOST_REPLICAS)
TEXTS_OR_NONE = Rule(f"{TEXTS.expects}, or None", lambda value: value is None or TEXTS.accepts(value))
REPLICAS_OR_NONE = Rule(f"{_REPLICAS.expects}, or None", lambda value: value is None or _REPLICAS.accepts(value))
FSYNC_OR_NONE = Rule("'local', 'replicas' or None", lambda value: value is None or value in ("local", "replicas"))
SHARDS = whole("shards", least=1, most=MOST_SHARDS)
#: Read by conf/durability.py.
TABLE_OR_NONE = Rule("a dictionary such as {'REPLICAS': 1}, or None", lambda value: True)


@dataclass(frozen=True, kw_only=True)
class DurabilitySettings:
    """What senders, and workers if wanted, wait for: docs/how-to/durability.md."""

    #: Number of replicas that must have a write. None: only disks count.
    replicas: Annotated[int | None, REPLICAS_OR_NONE] = None
    #: Disks that must have it: "local", the server's own; "replicas", those of as many replicas. None: none.
    fsync: Annotated[Fsync | None, FSYNC_OR_NONE] = None
    #: A web request can wait for half a second. It must be shorter than the TIMEOUT_S of the connection.
    timeout_s: Annotated[float, seconds(least=LEAST_TIMEOUT_S, most=MOST_TIMEOUT_S)] = 0.5
    #: Whether workers wait for the outcomes of tasks, too.
    acknowledge: Annotated[bool, FLAG] = False

    @property
    def durability(self) -> Durability:
        """Return it for senders and workers. Raises InvalidValue when it waits for nothing."""
        return Durability(self.replicas or 0, self.fsync, self.timeout_s)


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """A Redis server and the namespace of its queues. Exactly one of url, cache and embedded is set."""

    alias: str
    url: Annotated[str | None, URL] = field(default=None, repr=False)
    #: Alias of a Redis cache whose address is used for a separate connection.
    cache: Annotated[str | None, TEXT] = None
    #: A private server for development, started on demand.
    embedded: Annotated[bool, FLAG] = False
    #: The default of all RSMQ clients, so that clients in other languages find the queues.
    namespace: Annotated[str, NAMESPACE] = "rsmq"
    #: Timeout of a call to the server. A web request should fail soon rather than hang.
    timeout_s: Annotated[float, seconds(least=0.05, most=60)] = 1.0
    #: Gives user and password for each new socket, instead of the URL: for passwords that expire.
    credential_provider: Annotated[Any, PROVIDER_OR_NONE] = field(default=None, repr=False)
    #: User, password and TLS options of redis-py that are added to the URL.
    options: Annotated[Mapping[str, Any], CONNECTION_OPTIONS] = field(default_factory=dict, repr=False)
    #: Data directory of the embedded server; None without one.
    state_dir: Path | None = None
    #: What senders wait for. None: for the reply of the server, as a server without replicas cannot give more.
    durability: Annotated[DurabilitySettings | None, TABLE_OR_NONE] = None
    #: Default for its queues.
    shards: Annotated[int, SHARDS] = 1
    #: The number of the shards on it; None for the connections of the settings, which have the first shards.
    shard: int | None = None

    @property
    def own_alias(self) -> str:
        """Return the alias of the settings: that of the connection from which the one of a shard is derived."""
        return self.alias.removesuffix(f".{self.shard}") if self.shard else self.alias


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """A queue: attributes for its creation, and defaults for its workers."""

    name: str
    connection: Annotated[str, TEXT] = "default"
    #: RSMQ's default. Workers renew it while a task runs, so it may be shorter than the longest task.
    visibility_timeout_s: Annotated[int, whole("seconds", least=0, most=MAX_SECONDS)] = 30
    #: RSMQ's default: a message can be received at once.
    delay_s: Annotated[int, whole("seconds", least=0, most=MAX_SECONDS)] = 0
    #: Unit in which the two times above are stored. RSMQ clients store seconds, but rsmq_async (Rust) milliseconds.
    vt_unit: Annotated[TimeUnit, one_of(*TIME_UNITS)] = "s"
    #: RSMQ's default, and the maximum of other clients. Larger data belongs in a file store.
    max_size_bytes: Annotated[
        int, whole("bytes", least=MIN_MAX_SIZE_BYTES, most=MAX_MAX_SIZE_BYTES, unlimited=UNLIMITED)
    ] = MAX_MAX_SIZE_BYTES
    #: Default number of attempts for tasks of this queue. Default: the one of TASKS.
    max_attempts: Annotated[int, whole("attempts", least=1, most=1_000_000)]
    #: The queue's share of a worker that has several queues with a backlog. If no queue of a worker has a weight, its
    #: queues are served strictly in order; otherwise queues without a weight have weight 1.
    weight: Annotated[int | None, whole("parts", least=1, most=1_000)] = None
    #: Number of lanes for the calls of tasks with `fair_by`. Each lane is a separate queue that workers poll, so more
    #: lanes cost more.
    fair_lanes: Annotated[int, whole("lanes", least=1, most=MOST_LANES)] = 16
    #: Number of namespaces that the queue is spread over: more than one when a queue needs more than one server.
    #: Default: the one of its connection.
    shards: Annotated[int, SHARDS] = 1
    #: The number of this shard; None for the queue as a whole.
    shard: int | None = None
    #: Consumed by other programs: workers create it, and do not consume it unless it is named on their command line.
    for_others: Annotated[bool, FLAG] = False
    #: Only messages signed with one of these keys run; the first key signs. Insert new keys at the front.
    signing_keys: Annotated[tuple[str, ...], SIGNING_KEYS] = field(default=(), repr=False)
    #: Fernet keys: only messages encrypted with one of these keys run; the first key encrypts.
    encryption_keys: Annotated[tuple[str, ...], FERNET_KEYS] = field(default=(), repr=False)
    #: Until the end of this day (UTC), the queue accepts signatures of releases that did not sign the namespace, and
    #: signs in a form that those releases accept, for deployments with workers of both releases. None: never.
    old_signatures_until: Annotated[str | None, DAY_OR_NONE] = None
    #: Queue for dead letters. Default: the queue's name with the suffix "-dead"; None: they are deleted.
    dead_letter: Annotated[str | None, QUEUE_NAME_OR_NONE]

    @property
    def is_sealed(self) -> bool:
        """Return whether bodies of this queue are signed or encrypted."""
        return bool(self.signing_keys or self.encryption_keys)

    #: Write tasks to a table in the caller's transaction, from which a relay sends them. Default: the one of TASKS.
    outbox: Annotated[bool, FLAG] = False
    #: What senders to this queue wait for. Default: the one of its connection; None: nothing.
    durability: Annotated[DurabilitySettings | None, TABLE_OR_NONE] = None


@dataclass(frozen=True, kw_only=True)
class ReliableQueueSettings:
    """A reliable queue that workers consume."""

    name: str
    connection: Annotated[str, TEXT] = "default"
    #: A message whose lease was not renewed for this time is delivered to another worker. Workers renew leases after a
    #: tenth of it; a function that holds the interpreter lock for longer prevents that.
    lease_s: Annotated[int, whole("seconds", least=1, most=86_400)] = 60
    #: Number of deliveries, to any consumer, after which a message is dead. Default: the number of attempts of TASKS.
    #: 0: no limit.
    max_deliveries: Annotated[int, whole("deliveries", least=0, most=1_000_000)]


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """Defaults for all tasks."""

    #: Number of attempts. With growing backoff, five attempts outlast the restart of a database or a web service.
    max_attempts: Annotated[int, whole("attempts", least=1, most=1_000_000)] = 5
    #: Number of crashed processes after which their message goes to the dead-letter queue.
    max_crashes: Annotated[int, whole("crashes", least=1, most=1_000_000)] = 3
    #: How long calls of unknown tasks are released to other workers that may know the task: longer than a rolling
    #: deployment. 0: they go to the dead-letter queue at once.
    unknown_task_grace_s: Annotated[float, seconds(least=0, most=604_800)] = 900.0
    #: A day: results can be read the next morning, and Redis does not fill up with them. 0 stores none.
    result_ttl_s: Annotated[int, whole("seconds", least=0, most=YEAR_S)] = 86_400
    #: Maximum size of a return value as JSON. A longer value would delay the outcomes of other tasks; store it
    #: elsewhere and return its id.
    max_result_bytes: Annotated[int, whole("bytes", least=2, most=MAX_BODY_BYTES)] = 1_048_576
    #: A task sent within a transaction could start before its rows are visible, or although they were rolled back.
    #: True waits for the default database, an alias for that database, False for none.
    enqueue_on_commit: Annotated[bool | str, FLAG_OR_TEXT] = True
    #: Default for queues. It costs a row in the database for each task, and some milliseconds of delay.
    outbox: Annotated[bool, FLAG] = False


@dataclass(frozen=True, kw_only=True)
class OutboxSettings:
    """Maintenance of the tables of `rsmq_django.outbox`."""

    #: Maximum time between polls of the table. PostgreSQL notifies the relay at once.
    poll_interval_s: Annotated[float, seconds(least=0.01, most=3600)] = 0.5
    #: A day: to be able to check which messages were sent, and when.
    keep_sent_s: Annotated[int, whole("seconds", least=0, most=YEAR_S)] = 86_400
    #: A month: a dead letter may be redriven that late, and must still be recognised.
    keep_done_s: Annotated[int, whole("seconds", least=60, most=316_224_000)] = 2_592_000


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """Defaults for workers, which their command line can override."""

    #: Tasks mostly wait for databases and web services. Each thread may hold one database connection.
    threads: Annotated[int, whole("threads", least=1, most=1_000)] = 8
    #: Coroutines cost little; the limit protects the services they call.
    async_tasks: Annotated[int, whole("tasks", least=1, most=100_000)] = 100
    #: Maximum time between polls of the queues. Senders of this package wake a worker at once; this is the maximum
    #: delay of a message whose sender does not publish or whose wake-up is lost.
    poll_interval_s: Annotated[float, seconds(least=0.01, most=60)] = 1.0
    #: Time for running tasks to finish after SIGTERM. Kubernetes kills after 30 s; the rest is for releasing messages.
    shutdown_timeout_s: Annotated[float, seconds(least=0, most=86_400)] = 25.0


@dataclass(frozen=True, kw_only=True)
class StatisticsSettings:
    """Statistics of workers: docs/how-to/metrics.md."""

    #: Counters and histograms per queue and task, reported once a second. They cost a twentieth of an empty task;
    #: charts and metrics are empty without them.
    enabled: Annotated[bool, FLAG] = True


_EVENTS = whole("events", least=100, most=1_000_000_000)
LOG_LENGTH = Rule(f"{_EVENTS.expects}, or None", lambda value: value is None or _EVENTS.accepts(value))


@dataclass(frozen=True, kw_only=True)
class EventSettings:
    """The log of task attempts: docs/how-to/events.md."""

    #: Which attempts are logged: none, failed ones, failed ones and the last successes of each task, or all. The
    #: default is not all, because an event costs Redis about half as much as the rest of a message, and 170 bytes
    #: until it is trimmed.
    record: Annotated[str, one_of("off", "failures", "recent", "all")] = "recent"
    #: Approximate maximum number of events in the log. Default: 10,000 for "recent", which are 2 to 7 MB, else 100,000,
    #: 17 MB. An archive needs twice the number of events between two of its runs.
    max_length: Annotated[int | None, LOG_LENGTH] = None
    #: Whether events contain the text of exceptions, cut to 500 characters. It is used to group failures; disable it if
    #: your exceptions contain personal data.
    error_text: Annotated[bool, FLAG] = True

    @property
    def length(self) -> int:
        """Return the maximum number of events in the log."""
        return self.max_length or (10_000 if self.record == "recent" else 100_000)


@dataclass(frozen=True, kw_only=True)
class TracingSettings:
    """OpenTelemetry spans: docs/how-to/metrics.md."""

    #: Disabled by default, because it needs the extra `otel`, and a trace id adds 70 bytes to each message.
    enabled: Annotated[bool, FLAG] = False


def _are_objectives(value: Any) -> bool:
    try:
        read_objectives(value)
    except (RsmqError, TypeError, AttributeError):
        return False
    return True


PATH = Rule("a path", lambda value: is_text(value) or isinstance(value, Path))
ADMINS = "admins"
EMAIL_OR_NONE = Rule(
    f"{ADMINS!r}, a list of e-mail addresses, or None", lambda value: value in (None, ADMINS) or _are_addresses(value)
)
WEBHOOK_OR_NONE = Rule(
    "an address such as 'https://hooks.example.org/rsmq' without user and password, or None",
    lambda value: value is None or _is_webhook(value),
    is_secret=True,
)


def _are_addresses(value: object) -> bool:
    addresses = value if isinstance(value, list | tuple) else ()
    return bool(addresses) and all(is_text(each) and re.fullmatch(r"[^\s@]+@[^\s@]+", each) for each in addresses)


def _is_webhook(value: object) -> bool:
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]+", value):
        return False
    try:
        parts = urlsplit(value)
        return (
            parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        )
    except ValueError:
        return False


OBJECTIVES = Rule(
    "a dictionary of objectives by queue: {'mail': {'success': 0.999, 'wait_p95_ms': 2000}}", _are_objectives
)


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """The Spark pipeline for the log of task attempts: docs/how-to/pipeline.md."""

    #: Path or address of the lake. None is `rsmq_lake` below BASE_DIR.
    lake: Annotated[str | Path | None, PATH] = None
    #: Connection of drains and bulk jobs; its log is archived.
    connection: Annotated[str, TEXT] = "default"
    #: More connections whose logs are archived. None: those of all queues, shards and reliable queues.
    connections: Annotated[tuple[str, ...] | None, TEXTS_OR_NONE] = None
    #: Spark master. Two cores of this machine are enough for a million events a day.
    master: Annotated[str, TEXT] = "local[2]"
    #: Additional Spark settings.
    spark_conf: Annotated[Mapping[str, str], TEXT_BY_NAME] = field(default_factory=dict)
    #: Service level objectives of queues.
    objectives: Annotated[Mapping[str, Mapping[str, float]], OBJECTIVES] = field(default_factory=dict)
    #: Who gets an e-mail when a burn alarm begins and ends: "admins", those of Django, or addresses.
    alarm_email: Annotated[str | tuple[str, ...] | None, EMAIL_OR_NONE] = None
    #: The address to which burn alarms are sent as JSON, by POST. It may contain a secret.
    alarm_webhook: Annotated[str | None, WEBHOOK_OR_NONE] = field(default=None, repr=False)
    #: Target latency, for capacity advice.
    wait_targets_s: Annotated[Mapping[str, float], SECONDS_BY_QUEUE] = field(default_factory=dict)
    #: A month: texts of errors may contain personal data, and single rows cannot be deleted from files.
    keep_events_days: Annotated[int, whole("days", least=1, most=3_660)] = 30
    #: A year and a month, to compare a month with the same one of last year.
    keep_hourly_days: Annotated[int, whole("days", least=1, most=3_660)] = 400
    #: A quarter of a year, for failure groups, burn rates, advice, anomalies and depths.
    keep_days: Annotated[int, whole("days", least=1, most=3_660)] = 90

    @property
    def sends_alarms(self) -> bool:
        """Return whether an address gets messages about burn alarms."""
        return self.alarm_email is not None or self.alarm_webhook is not None


TRACE_URL = Rule(
    "an address with {trace_id} in it, such as 'https://jaeger.example.org/trace/{trace_id}', or None",
    lambda value: value is None or _is_trace_url(value),
)


def _is_trace_url(value: object) -> bool:
    is_web = isinstance(value, str) and value.startswith(("https://", "http://"))
    return is_web and str(value).count("{trace_id}") == 1


@dataclass(frozen=True, kw_only=True)
class AdminSettings:
    """Options of the admin."""

    #: Rows per page. Each row costs a read from Redis.
    page_size: Annotated[int, whole("rows", least=1, most=1_000)] = 50
    #: Maximum number of messages that are searched or filtered for one page. The default takes Redis some milliseconds;
    #: the page reports when there are more messages.
    search_limit: Annotated[int, whole("messages", least=100, most=100_000)] = 5_000
    #: A value is hidden if its name contains one of these words, in upper or lower case.
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
    #: URL of a trace in your tracing system, with {trace_id}. None: trace ids are not links.
    trace_url: Annotated[str | None, TRACE_URL] = None
