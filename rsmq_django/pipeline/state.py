"""The state of the pipeline in figures, for the command, pages and metrics: lag, log, clock and steps.

The log is read from Redis with a few short commands, the runs of steps from the lake or from the database.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Max, Q

from ..conf.settings import get_settings
from ..core import Client, Connection
from ..core.errors import RedisFailure, RsmqError
from ..core.keys import events_key
from ..core.stats.events import state as read_log_state
from ..core.transport.streams import first_after, id_order, position_of
from ..queues import get_client
from ..spark.archive import READER
from ..spark.runs import StepRun
from .config import archived_connections

if TYPE_CHECKING:
    from .models import PipelineRun

#: Clocks that differ by less agree.
MOST_CLOCK_S = 5.0

__all__ = ["LogHealth", "StepState", "log_state", "lost_events", "published_steps", "steps_of"]


@dataclass(frozen=True, slots=True)
class LogHealth:
    """The state of the event log. Times are those of the server."""

    #: Seconds since the oldest event was logged that is not archived; 0 without one.
    lag_s: float
    #: Events in the log, and their share of MAX_LENGTH.
    length: int
    fill: float
    #: By how much the server's clock is ahead of this machine's.
    clock_s: float
    #: By how much the newest event is dated after the server's clock, which was set back: later events get its time.
    ahead_s: float


@dataclass(frozen=True, slots=True)
class StepState:
    """The latest run of a step, and the end of its last successful one; None if none is known."""

    step: str
    started_at: dt.datetime
    seconds: float
    error: str
    succeeded_at: dt.datetime | None


def log_state(client: Client, *, after: str | None = None) -> LogHealth:
    """Return the state of the log. `after` is the last archived id; None: as the archive told Redis."""
    stream = events_key(client.namespace)
    if after is None:
        after = client.run(position_of(stream, READER))
    begin = time.time()
    ((seconds, micros),) = client.connection.exchange([("TIME",)])
    now_s, here_s = int(seconds) + int(micros) / 1e6, (begin + time.time()) / 2
    oldest, log = client.run(first_after(stream, after=after)), client.run(read_log_state(client.namespace))
    lag_s = max(0.0, now_s - id_order(oldest)[0] / 1000) if oldest else 0.0
    ahead_s = max(0.0, log.newest_ms / 1000 - now_s) if log.newest_ms else 0.0
    return LogHealth(lag_s, log.events, log.events / get_settings().events.length, now_s - here_s, ahead_s)


def project_logs() -> dict[str, LogHealth | None]:
    """Return the state of the logs that this project archives, by connection; None if its server does not answer.

    A server is waited for once, also if it has several shards.
    """
    found: dict[str, LogHealth | None] = {}
    silent: list[Connection] = []
    for alias in archived_connections():
        client, found[alias] = get_client(alias), None
        if any(client.connection.shares_server_with(each) for each in silent):
            continue
        try:
            found[alias] = log_state(client)
        except RedisFailure:
            silent.append(client.connection)
        except RsmqError:
            continue
    return found


def worst_log(logs: Collection[LogHealth]) -> LogHealth:
    """Return the worst of each figure, and all events."""
    return LogHealth(
        lag_s=max(log.lag_s for log in logs),
        length=sum(log.length for log in logs),
        fill=max(log.fill for log in logs),
        clock_s=max((log.clock_s for log in logs), key=abs),
        ahead_s=max(log.ahead_s for log in logs),
    )


# -- Runs -------------------------------------------------------------------------------------------------------------


def steps_of(runs: Iterable[StepRun]) -> list[StepState]:
    """Return the state of each step from runs in the lake, newest first."""
    newest: dict[str, StepRun] = {}
    good: dict[str, StepRun] = {}
    for run in runs:
        newest.setdefault(run.step, run)
        if not run.error:
            good.setdefault(run.step, run)

    def state(run: StepRun) -> StepState:
        begin, done = dt.datetime.fromisoformat(run.started_at), good.get(run.step)
        return StepState(run.step, begin, run.seconds, run.error, _end_of(done) if done else None)

    return [state(newest[name]) for name in sorted(newest)]


def published_steps() -> list[StepState]:
    """Return the state of each step from the database: as of the last publishing."""
    from .models import PipelineRun

    about = {"newest": Max("started_at"), "good": Max("started_at", filter=Q(error=""))}
    times: list[Any] = list(PipelineRun.objects.order_by("step").values("step").annotate(**about))
    wanted = {at for row in times for at in (row["newest"], row["good"]) if at}
    runs = {(run.step, run.started_at): run for run in PipelineRun.objects.filter(started_at__in=wanted)}
    found = []
    for row in times:
        step = row["step"]
        run, good = runs.get((step, row["newest"])), runs.get((step, row["good"]))
        if run is None:  # publishing has removed it meanwhile, with the other runs of an expired day
            continue
        found.append(StepState(step, run.started_at, run.seconds, run.error, _end_of(good) if good else None))
    return found


def worst_of(figures: Mapping[str, float]) -> str:
    """Return the name of the log with the largest figure; "" if there is only one log, or the largest is 0."""
    name = max(figures, key=lambda name: figures[name], default="")
    return name if len(figures) > 1 and figures[name] else ""


def lost_events() -> dict[str, int]:
    """Return the events that the archive has counted as lost since each log was created, as of the last publishing.

    Logs have the alias of their connection.
    """
    from .models import PipelineRun

    run = PipelineRun.objects.filter(step="archive", error="").first()
    lost: Counter[str] = Counter()
    for name, offset in (run.offsets if run else {}).items():
        connection, _, _stream = name.rpartition("#")
        lost[connection or get_settings().pipeline.connection] += offset.get("lost", 0)
    return dict(lost)


def _end_of(run: StepRun | PipelineRun) -> dt.datetime:
    begin = run.started_at
    begin = begin if isinstance(begin, dt.datetime) else dt.datetime.fromisoformat(begin)
    return begin + dt.timedelta(seconds=run.seconds)
