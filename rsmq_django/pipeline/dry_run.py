"""Dry run of the steps: counts their work without changes and without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..core.queue import list_queues
from ..spark.config import JobConfig
from ..spark.dead_letters import DeadLetters
from ..spark.lake import Lake
from ..spark.options import Options
from ..spark.schemas import EVENTS
from ..spark.server import Server
from ..spark.steps import changed_days, closed_days
from .config import require_tables
from .health import read_lag


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a step. The address of Redis is in the environment."""

    config: JobConfig
    server: Server
    since: dt.date | None = None
    queues: tuple[str, ...] = ()
    #: The file of a backfill.
    what: str = ""

    @property
    def lake(self) -> Lake:
        """Return the lake."""
        return self.config.find_lake()


def _archive(asked: Asked) -> Iterator[str]:
    lag = read_lag(asked.config, asked.server)
    yield f"archive: {_count(lag.entries, 'event')}"
    if lag.is_reset or lag.lost_unseen:
        yield "archive: it would fail, see rsmq_pipeline doctor"


def _rollup(asked: Asked) -> Iterator[str]:
    days = changed_days(asked.lake, since=asked.since)
    yield f"rollup: {_count(len(days), 'day')}, and the days of newly archived events"


def _analyse(asked: Asked) -> Iterator[str]:
    days = asked.lake.days(EVENTS)
    yield f"analyse: up to {days[-1]}, the newest day of the archive" if days else "analyse: the archive is empty"


def _compact(asked: Asked) -> Iterator[str]:
    yield f"compact: {_count(len(closed_days(asked.lake, today=_today())), 'day')}"


def _expire(asked: Asked) -> Iterator[str]:
    removed = asked.lake.expire(_today(), asked.config.keep_days, dry_run=True)
    yield "expire: " + (", ".join(f"{_count(days, 'day')} of {name}" for name, days in removed.items()) or "nothing")


def _publish(asked: Asked) -> Iterator[str]:
    require_tables()
    from .publish import publish

    done = publish(asked.lake, since=asked.since, dry_run=True)
    yield f"publish: {_count(done.days, 'day')} changed, {done.removed:,} removed"


def _snapshot(asked: Asked) -> Iterator[str]:
    yield f"snapshot: {_count(len(asked.queues or list_queues(asked.server.client)), 'queue')}"


def _dlq(asked: Asked) -> Iterator[str]:
    letters = DeadLetters(Options.read(asked.config.options(kind="dead", queue=",".join(asked.queues))))
    yield f"dlq: {_count(sum(len(part.ids) for part in letters.plan()), 'dead letter')}"


def _drain(asked: Asked) -> Iterator[str]:
    for queue in asked.queues:
        count = asked.server.ask_one("ZCARD", f"{asked.config.namespace}:{queue}")
        yield f"drain {queue}: up to {_count(count, 'message')}"


def _backfill(asked: Asked) -> Iterator[str]:
    yield f"backfill: the rows of {asked.what} to {', '.join(asked.queues) or 'the queues that its column queue names'}"


#: Step -> function that yields the lines of its dry run.
WOULD: Mapping[str, Callable[[Asked], Iterator[str]]] = {
    "archive": _archive,
    "rollup": _rollup,
    "analyse": _analyse,
    "compact": _compact,
    "expire": _expire,
    "publish": _publish,
    "snapshot": _snapshot,
    "dlq": _dlq,
    "drain": _drain,
    "backfill": _backfill,
}


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()
