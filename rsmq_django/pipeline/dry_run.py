"""Dry run of the steps: counts their work without changes and without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..core.keys import queue_keys
from ..core.queue.queue import list_queues
from ..spark.config import JobConfig
from ..spark.dead_letters import DeadLetters
from ..spark.lake import Lake
from ..spark.options import Options
from ..spark.rollup import new_events
from ..spark.schemas import EVENTS, FIVE_MINUTES
from ..spark.server import Server
from ..spark.topics import unarchived_messages
from .config import require_tables
from .health import read_lags, together


@dataclass(frozen=True, slots=True)
class StepOptions:
    """The options of a step. The address of Redis is in the environment."""

    config: JobConfig
    #: Alias of a connection -> its server, for each archived log.
    servers: Mapping[str, Server]
    since: dt.date | None = None
    queues: tuple[str, ...] = ()
    #: The file of a backfill.
    what: str = ""

    @property
    def server(self) -> Server:
        """Return the server of RSMQ['PIPELINE']['CONNECTION']."""
        return next(iter(self.servers.values()))

    @property
    def lake(self) -> Lake:
        """Return the lake."""
        return self.config.find_lake()


def _archive(options: StepOptions) -> Iterator[str]:
    lags, failed = read_lags(options.config, options.servers)
    for error in failed.values():
        raise error
    lag = together(list(lags.values()))
    yield f"archive: {_count(lag.entries, 'event')}"
    if lag.lost_unseen:
        yield f"archive: {_count(lag.lost_unseen, 'event')} trimmed before, to be counted as lost"
    if lag.is_reset:
        yield "archive: it would fail, see rsmq_pipeline doctor"


def _rollup(options: StepOptions) -> Iterator[str]:
    found = new_events(options.lake, options.lake.open(FIVE_MINUTES), options.since)
    yield f"rollup: {_count(found.rows if found else 0, 'event')}, and newly archived ones"


def _analyse(options: StepOptions) -> Iterator[str]:
    days = options.lake.days(EVENTS)
    yield f"analyse: up to {days[-1]}, the newest day of the archive" if days else "analyse: the archive is empty"


def _compact(options: StepOptions) -> Iterator[str]:
    work = options.lake.bins_to_compact(_today())
    yield f"compact: {_count(sum(len(files) for _, files in work), 'small file')}"


def _expire(options: StepOptions) -> Iterator[str]:
    removed = options.lake.expire(_today(), options.config.keep_days, dry_run=True)
    yield "expire: " + (", ".join(f"{_count(days, 'day')} of {name}" for name, days in removed.items()) or "nothing")


def _publish(options: StepOptions) -> Iterator[str]:
    require_tables()
    from .publish import publish

    done = publish(options.lake, since=options.since, dry_run=True)
    yield f"publish: {_count(done.days, 'day')} changed, {done.removed:,} removed"


def _notify(options: StepOptions) -> Iterator[str]:
    require_tables()
    from .history import burn_alarms

    yield f"notify: {_count(len(burn_alarms()), 'burn rate')} beyond the limit"


def _snapshot(options: StepOptions) -> Iterator[str]:
    found = options.queues or [name for server in options.servers.values() for name in list_queues(server.client)]
    yield f"snapshot: {_count(len({*found}), 'queue')}"


def _dlq(options: StepOptions) -> Iterator[str]:
    asked = {"kind": "dead", "queue": ",".join(options.queues)}
    letters = [DeadLetters(Options.read({**source, **asked})) for source in options.config.sources().values()]
    yield f"dlq: {_count(sum(len(part.ids) for each in letters for part in each.plan()), 'dead letter')}"


def _drain(options: StepOptions) -> Iterator[str]:
    servers = [Options.read(source).server() for source in options.config.shards().values()]
    for queue in options.queues:
        count = sum(server.ask_one("ZCARD", queue_keys(server.namespace, queue).messages) for server in servers)
        yield f"drain {queue}: up to {_count(count, 'message')}"


def _archive_topic(options: StepOptions) -> Iterator[str]:
    yield f"archive-topic {options.what}: {_count(unarchived_messages(options.config, options.what), 'message')}"


def _backfill(options: StepOptions) -> Iterator[str]:
    yield f"backfill: the rows of {options.what} to {', '.join(options.queues) or 'the queues in its column queue'}"


#: Step -> function that yields the lines of its dry run.
DRY_RUNS: Mapping[str, Callable[[StepOptions], Iterator[str]]] = {
    "archive": _archive,
    "rollup": _rollup,
    "analyse": _analyse,
    "compact": _compact,
    "expire": _expire,
    "publish": _publish,
    "notify": _notify,
    "snapshot": _snapshot,
    "dlq": _dlq,
    "drain": _drain,
    "backfill": _backfill,
    "archive-topic": _archive_topic,
}


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()
