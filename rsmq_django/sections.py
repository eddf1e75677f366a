"""The sections of `settings.RSMQ`: every option with its unit, its range, its default and the reason for it.

One class for each section, whose fields are the options in lower case; what an annotation adds to the type is the rule
that a value has to keep to. Reads nothing and checks nothing: `conf.py` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from .core.bands import MOST_LANES
from .core.errors import RsmqError
from .core.limits import (
    MAX_BODY_BYTES,
    MAX_MAX_SIZE_BYTES,
    MAX_SECONDS,
    MIN_MAX_SIZE_BYTES,
    TIME_UNITS,
    UNLIMITED,
    TimeUnit,
)
from .options import (
    DAY_OR_NONE,
    FERNET_KEYS,
    FLAG,
    FLAG_OR_TEXT,
    NAMESPACE,
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
from .spark.burn import read_objectives


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
    #: Among how many lanes the calls of tasks with `fair_by` are spread. Each lane is a queue of its own, which a
    #: worker includes in each look, so that more of them cost more.
    fair_lanes: Annotated[int, whole("lanes", least=1, most=MOST_LANES)] = 16
    #: Programs of others take from it: workers create it, and leave its messages alone unless they are told its name.
    for_others: Annotated[bool, FLAG] = False
    #: Only messages signed with one of these run; the first one signs. Put new ones in front.
    signing_keys: Annotated[tuple[str, ...], SIGNING_KEYS] = field(default=(), repr=False)
    #: Fernet keys: only messages encrypted with one of these run; the first one encrypts.
    encryption_keys: Annotated[tuple[str, ...], FERNET_KEYS] = field(default=(), repr=False)
    #: Until the end of this day (UTC) the queue also takes what a release signed that did not name the namespace, and
    #: signs so that such a release can read it: for a deployment during which workers of both run. None: never.
    old_signatures_until: Annotated[str | None, DAY_OR_NONE] = None
    #: Where messages go that failed for good. Left out, it is the queue's name and "-dead"; None: they are deleted.
    dead_letter: Annotated[str | None, QUEUE_NAME_OR_NONE]

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
    #: tenth of it; a function that holds the interpreter lock for longer keeps them from it.
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
    #: For how long a call of a task that a worker does not know is given back, for workers that know it: a rolling
    #: deployment is over by then. 0: it goes to the dead-letter queue at once.
    unknown_task_grace_s: Annotated[float, seconds(least=0, most=604_800)] = 900.0
    #: A day: results can be looked at the next morning, and Redis does not fill up with them. 0 keeps none.
    result_ttl_s: Annotated[int, whole("seconds", least=0, most=31_622_400)] = 86_400
    #: What a task returns, as JSON. A longer value would delay the outcomes of other tasks; store it elsewhere and
    #: return its id.
    max_result_bytes: Annotated[int, whole("bytes", least=2, most=MAX_BODY_BYTES)] = 1_048_576
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


_EVENTS = whole("events", least=100, most=1_000_000_000)
LOG_LENGTH = Rule(f"{_EVENTS.expects}, or None", lambda value: value is None or _EVENTS.accepts(value))


@dataclass(frozen=True, kw_only=True)
class EventSettings:
    """The log of task attempts: docs/events.md."""

    #: Which attempts are logged: none, those that did not succeed, these and the last successes of each task, or all.
    #: Not all, because an event costs Redis about half of what the rest of a message's life does, and 170 bytes until
    #: it is trimmed.
    record: Annotated[str, one_of("off", "failures", "recent", "all")] = "recent"
    #: The log is cut at about so many events. Left out, it is 10,000 of "recent", which are 2 to 7 MB, and 100,000 of
    #: the others, 17 MB. An archive needs twice what comes in between two of its runs.
    max_length: Annotated[int | None, LOG_LENGTH] = None
    #: Whether events hold the text of exceptions, cut to 500 characters. It groups failures, and is what a function
    #: chose to say: when yours quote personal data, switch it off.
    error_text: Annotated[bool, FLAG] = True

    @property
    def length(self) -> int:
        """Return at how many events the log is cut."""
        return self.max_length or (10_000 if self.record == "recent" else 100_000)


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


TRACE_URL = Rule(
    "an address with {trace_id} in it, such as 'https://jaeger.example.org/trace/{trace_id}', or None",
    lambda value: value is None or _is_trace_url(value),
)


def _is_trace_url(value: object) -> bool:
    is_web = isinstance(value, str) and value.startswith(("https://", "http://"))
    return is_web and str(value).count("{trace_id}") == 1


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
    #: Where your tracing shows one trace, with {trace_id} in it. None: trace ids are not links.
    trace_url: Annotated[str | None, TRACE_URL] = None
