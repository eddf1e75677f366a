"""Queries of the history for admin pages: functions on the database, without Redis, Spark or Java.

Percentiles of any range are computed from sums of histograms, so they are exact to one per cent over hours, tasks and
queues.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, Literal, TypeVar

from django.db.models import Count, ExpressionWrapper, F, Max, Min, Q, QuerySet, Sum, TextField

from ..core.stats.histogram import LAST_BUCKET, Histogram
from ..spark.burn import ALARMS, WINDOWS_S
from .days import LENGTHS, begin_of, cover
from .fields import numbers_of, utc
from .models import (
    ALL,
    Anomaly,
    CapacityAdvice,
    FailureGroup,
    LakeDay,
    LakeState,
    PipelineRun,
    QueueDepth,
    SloAlarm,
    SloBurn,
    TaskDay,
    TaskHour,
)

__all__ = [
    "BurnAlarm",
    "FailureSummary",
    "Freshness",
    "LakeFigures",
    "Point",
    "anomalies",
    "burn_alarms",
    "burn_history",
    "capacity_advice",
    "depth_history",
    "failure_groups",
    "freshness",
    "lake_days",
    "lake_state",
    "lake_tables",
    "pipeline_runs",
    "queue_depths",
    "slo_alarms",
    "slo_burns",
    "task_history",
    "task_totals",
]

K = TypeVar("K", bound=Hashable)
Step = Literal["hour", "day"]
#: The highest burn rates of an objective: window -> hour or day -> rate.
Burns = dict[str, dict[dt.datetime | dt.date, float]]
#: Columns of rows that are added up, and their histograms.
COUNTED = ("attempts", "succeeded", "retried", "dead", "lost", "busy_us")
TEXTS = ("wait_hist", "run_hist")
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(slots=True)
class Point:
    """Statistics of tasks in an hour or a day."""

    at: dt.datetime | dt.date
    attempts: int = 0
    succeeded: int = 0
    retried: int = 0
    dead: int = 0
    lost: int = 0
    busy_s: float = 0.0
    wait: Histogram = field(default_factory=Histogram)
    run: Histogram = field(default_factory=Histogram)

    @property
    def failure_rate(self) -> float:
        """Return the share of failed attempts, with or without a retry."""
        return (self.retried + self.dead + self.lost) / self.attempts if self.attempts else 0.0

    def wait_ms(self, q: float) -> float | None:
        """Return a quantile of the latency."""
        return _milliseconds(self.wait.quantile_us(q))

    def run_ms(self, q: float) -> float | None:
        """Return a quantile of the run times."""
        return _milliseconds(self.run.quantile_us(q))


@dataclass(slots=True)
class DepthPoint:
    """The largest depths of queues in an hour or a day."""

    at: dt.datetime | dt.date
    waiting: int = 0
    delayed: int = 0
    in_flight: int = 0
    oldest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FailureSummary:
    """Similar failures over some days."""

    fingerprint: str
    task: str
    error_type: str
    n: int
    retried: int
    dead: int
    first_at: dt.datetime
    last_at: dt.datetime
    #: The text of the latest failure.
    sample: str
    sample_task_id: str
    queues: list[str]
    #: Failures by day.
    by_day: dict[dt.date, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BurnAlarm:
    """An objective whose error budget burns too fast in a window."""

    burn: SloBurn
    limit: float


@dataclass(frozen=True, slots=True)
class LakeFigures:
    """The days, rows, files and bytes of a table of the lake."""

    table: str
    days: int
    first_day: dt.date
    last_day: dt.date
    rows: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Freshness:
    """The age of the history and its gaps; None where nothing was published yet."""

    newest_hour: dt.datetime | None
    last_run: PipelineRun | None
    last_error: PipelineRun | None
    #: Events that were trimmed before they were archived, over all recorded runs.
    lost: int


def task_history(
    *,
    queue: str | None = None,
    task: str | None = None,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    step: Step = "hour",
) -> list[Point]:
    """Return the history of all tasks, a queue or a task, without hours or days without attempts.

    Hours are those of 90 days; days are whole days in UTC, for as long as the lake has their hours.
    """
    rows = _hours(queue, task, since, until) if step == "hour" else _days(queue, task, since, until)
    at = "hour" if step == "hour" else "day"
    points = add_up((row[0], row[0], row[1:]) for row in _values(rows, at))
    return [points[at] for at in sorted(points, key=str)]


def task_totals(
    *,
    queue: str | None = None,
    task: str | None = None,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    step: Step = "day",
) -> dict[tuple[str, str], Point]:
    """Return (queue, task) -> the sum of the range as one point, the busiest first. `step` as of task_history()."""
    rows = _hours(queue, task, since, until) if step == "hour" else _longest(queue, task, since, until)
    totals = add_up(((row[0], row[1]), row[2], row[3:]) for row in _values(rows, "queue", "task", "day"))
    return dict(sorted(totals.items(), key=lambda item: -item[1].busy_s))


def busiest_queues(*, task: str | None, since: dt.datetime, until: dt.datetime) -> dict[dt.datetime, str]:
    """Return the queue with the most attempts in each hour."""
    rows: QuerySet[Any] = _hours(None, task, since, until).order_by()
    counted = rows.values_list("hour", "queue").annotate(of_queue=Sum("attempts"))
    return {hour: queue for hour, queue, _attempts in counted.order_by("of_queue")}


def failure_groups(
    *,
    since: dt.date | None = None,
    queue: str | None = None,
    task: str | None = None,
    kind: str | None = None,
    fingerprint: str | None = None,
    new_since: dt.datetime | None = None,
    without: Collection[str] = (),
    limit: int = 100,
) -> list[FailureSummary]:
    """Return the groups of similar failures, the most frequent first.

    `kind` is a part of the name of the exception, `without` are fingerprints. `new_since` leaves out the groups that
    failed before, as far as days are kept.
    """
    rows = FailureGroup.objects.all()
    rows = rows.filter(day__gte=since) if since else rows
    rows = rows.filter(task=task) if task else rows
    rows = rows.filter(error_type__icontains=kind) if kind else rows
    rows = rows.filter(fingerprint=fingerprint) if fingerprint else rows
    if new_since:
        begins = FailureGroup.objects.order_by().values("fingerprint").annotate(begin=Min("first_at"))
        rows = rows.filter(fingerprint__in=begins.filter(begin__gte=new_since).values("fingerprint"))
    days: dict[str, list[FailureGroup]] = {}
    for row in rows.order_by("day").iterator(chunk_size=1000):
        if queue in (None, *row.queues) and row.fingerprint not in without:
            days.setdefault(row.fingerprint, []).append(row)
    return sorted(map(_summary, days.values()), key=lambda group: (-group.n, group.fingerprint))[:limit]


def failure_names(*, since: dt.date, most: int) -> dict[str, list[str]]:
    """Return the tasks, the kinds of errors and the queues of failures, each up to a number."""
    rows = FailureGroup.objects.filter(day__gte=since).order_by()
    queues = {queue for names in rows.values_list("queues", flat=True).iterator() for queue in names}
    return {
        "tasks": sorted(rows.values_list("task", flat=True).distinct()[:most]),
        "kinds": sorted(rows.values_list("error_type", flat=True).distinct()[:most]),
        "queue_names": sorted(queues)[:most],
    }


def slo_burns() -> list[SloBurn]:
    """Return the newest burn rates of every objective and window."""
    newest = SloBurn.objects.values("queue", "objective").annotate(newest=Max("at"))
    wanted = Q()
    for row in newest:
        wanted |= Q(queue=row["queue"], objective=row["objective"], at=row["newest"])
    found = SloBurn.objects.filter(wanted) if wanted else []
    return sorted(found, key=lambda burn: (burn.queue, burn.objective, WINDOWS_S.get(burn.window, 0)))


def burn_alarms() -> list[BurnAlarm]:
    """Return the objectives whose budget burns faster than the usual threshold for paging."""
    found = [BurnAlarm(burn, ALARMS[burn.window]) for burn in slo_burns() if burn.window in ALARMS]
    return [alarm for alarm in found if alarm.burn.burn_rate > alarm.limit]


def burn_history(*, since: dt.datetime, step: Step) -> dict[tuple[str, str], Burns]:
    """Return (queue, objective) -> the highest burn rate of each window in each hour or day."""
    rows: QuerySet[Any] = SloBurn.objects.filter(at__gte=since).order_by("queue", "objective")
    found: dict[tuple[str, str], Burns] = {}
    about = ("queue", "objective", "window", "day" if step == "day" else "at")
    for queue, objective, window, at, rate in rows.values_list(*about).annotate(most=Max("burn_rate")):
        key = at if step == "day" else at.replace(minute=0, second=0, microsecond=0)
        rates = found.setdefault((queue, objective), {}).setdefault(window, {})
        rates[key] = max(rates.get(key, 0.0), rate)
    return found


def slo_alarms(*, limit: int = 20) -> list[SloAlarm]:
    """Return the alarms about which messages are sent, newest first, as of the last `notify`."""
    return list(SloAlarm.objects.all()[:limit])


def capacity_advice() -> list[CapacityAdvice]:
    """Return the newest advice for each queue, or the reason why there is none."""
    newest = CapacityAdvice.objects.aggregate(day=Max("day"))["day"]
    return list(CapacityAdvice.objects.filter(day=newest)) if newest else []


def anomalies(
    *,
    queue: str | None = None,
    task: str | None = None,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    limit: int = 100,
) -> list[Anomaly]:
    """Return the anomalies of all tasks, a queue or a task, newest first."""
    asked = {"queue": queue, "task": task, "hour__gte": since, "hour__lt": until}
    return list(Anomaly.objects.filter(**{name: value for name, value in asked.items() if value})[:limit])


def queue_depths(*, queue: str, since: dt.datetime | None = None) -> list[QueueDepth]:
    """Return the depths of a queue, oldest first."""
    rows = QueueDepth.objects.filter(queue=queue)
    return list((rows.filter(taken_at__gte=since) if since else rows).order_by("taken_at"))


def depth_history(*, queue: str | None = None, since: dt.datetime, step: Step) -> list[DepthPoint]:
    """Return the largest depths of all queues together, or of one, in each hour or day with snapshots."""
    rows = QueueDepth.objects.filter(taken_at__gte=since)
    rows = rows.filter(queue=queue) if queue else rows
    sums = {name: Sum(name) for name in ("waiting", "delayed", "in_flight")}
    points: dict[dt.datetime | dt.date, DepthPoint] = {}
    found: Iterable[Any] = rows.order_by().values("taken_at").annotate(**sums, oldest=Max("oldest_age_us"))
    for row in sorted(found, key=lambda row: row["taken_at"]):
        at = row["taken_at"].replace(minute=0, second=0, microsecond=0)
        key = at if step == "hour" else at.date()
        point = points.setdefault(key, DepthPoint(key))
        for name in sums:
            setattr(point, name, max(getattr(point, name), row[name]))
        point.oldest_s = max(point.oldest_s, (row["oldest"] or 0) / 1e6)
    return list(points.values())


def depth_queues(*, since: dt.datetime, most: int) -> list[str]:
    """Return the queues with snapshots since a time, up to a number."""
    rows = QueueDepth.objects.filter(taken_at__gte=since).order_by("queue")
    return list(rows.values_list("queue", flat=True).distinct()[:most])


def lake_tables() -> list[LakeFigures]:
    """Return the figures of each table of the lake, the largest first, as of the last publishing."""
    sums = {name: Sum(name) for name in ("rows", "files", "size_bytes")}
    about = {"days": Count("day"), "first_day": Min("day"), "last_day": Max("day"), **sums}
    tables: Iterable[Any] = LakeDay.objects.order_by().values("table").annotate(**about)
    return sorted((LakeFigures(**row) for row in tables), key=lambda one: (-one.size_bytes, one.table))


def lake_days(*, table: str, since: dt.date | None = None) -> list[LakeDay]:
    """Return the days of a table of the lake, newest first, as of the last publishing."""
    rows = LakeDay.objects.filter(table=table)
    return list(rows.filter(day__gte=since) if since else rows)


def lake_state() -> LakeState | None:
    """Return the place of the lake and its newest event, or None before the first publishing."""
    return LakeState.objects.first()


def pipeline_runs(*, limit: int = 50) -> list[PipelineRun]:
    """Return the recorded runs, newest first."""
    return list(PipelineRun.objects.all()[:limit])


def freshness() -> Freshness:
    """Return the age of the history and the number of lost events, which every page should show."""
    return Freshness(
        newest_hour=TaskHour.objects.aggregate(newest=Max("hour"))["newest"],
        last_run=PipelineRun.objects.filter(error="").first(),
        last_error=PipelineRun.objects.exclude(error="").first(),
        lost=PipelineRun.objects.aggregate(lost=Sum("lost"))["lost"] or 0,
    )


def _hours(
    queue: str | None, task: str | None, since: dt.datetime | None, until: dt.datetime | None
) -> QuerySet[TaskHour]:
    rows = TaskHour.objects.order_by("hour")
    rows = rows.filter(queue=queue) if queue else rows
    rows = rows.filter(task=task) if task else rows
    rows = rows.filter(hour__gte=since) if since else rows
    return rows.filter(hour__lt=until) if until else rows


def _days(
    queue: str | None, task: str | None, since: dt.datetime | None, until: dt.datetime | None
) -> QuerySet[TaskDay]:
    """Return rows of days: sums of all tasks unless one is wanted."""
    rows = TaskDay.objects.filter(days=1).order_by("day")
    rows = rows.filter(task=task).exclude(queue=ALL) if task else rows.filter(task=ALL, queue=queue or ALL)
    rows = rows.filter(queue=queue) if queue else rows
    rows = rows.filter(day__gte=_utc_day(since)) if since else rows
    return rows.filter(day__lt=_utc_day(until)) if until else rows


def _longest(
    queue: str | None, task: str | None, since: dt.datetime | None, until: dt.datetime | None
) -> QuerySet[TaskDay]:
    """Return the fewest rows of tasks that cover a range: days, weeks and four weeks."""
    rows = TaskDay.objects.exclude(task=ALL)
    rows = rows.filter(queue=queue) if queue else rows
    rows = rows.filter(task=task) if task else rows
    ends = rows.filter(days=1).aggregate(first=Min("day"), last=Max("day"))
    if ends["first"] is None:
        return rows.none()
    begin = begin_of(ends["first"], LENGTHS[-1])
    begin = max(begin, _utc_day(since)) if since else begin
    after_last = begin_of(ends["last"], LENGTHS[-1]) + dt.timedelta(days=LENGTHS[-1])
    end = min(after_last, _utc_day(until)) if until else after_last
    chosen: dict[int, list[dt.date]] = {}
    for days, day in cover(begin, end):
        chosen.setdefault(days, []).append(day)
    wanted = Q(pk__in=())
    for days, begins in chosen.items():
        wanted |= Q(days=days, day__in=begins)
    return rows.filter(wanted).order_by()


def _utc_day(when: dt.datetime) -> dt.date:
    return utc(when).date()


def _values(rows: QuerySet[Any], *names: str) -> Iterator[Any]:
    """Yield columns of rows, then their counts and the texts of their histograms."""
    texts = [ExpressionWrapper(F(name), output_field=TextField()) for name in TEXTS]
    return rows.values_list(*names, *COUNTED, *texts).iterator(chunk_size=1000)


def add_up(rows: Iterable[tuple[K, dt.datetime | dt.date, Sequence[Any]]]) -> dict[K, Point]:
    """Return the sums of rows by key."""
    sums: dict[K, tuple[Point, list[int], list[int]]] = {}
    for key, at, (attempts, succeeded, retried, dead, lost, busy_us, *texts) in rows:
        if key not in sums:
            sums[key] = (Point(at), [0] * (LAST_BUCKET + 1), [0] * (LAST_BUCKET + 1))
        point, *histograms = sums[key]
        point.attempts += attempts
        point.succeeded += succeeded
        point.retried += retried
        point.dead += dead
        point.lost += lost
        point.busy_s += busy_us / 1e6
        for total, text in zip(histograms, texts, strict=True):
            first, counts = numbers_of(text)
            end = first + len(counts)
            total[first:end] = map(add, total[first:end], counts)
    for point, wait, run in sums.values():
        point.wait.counts.update((bucket, count) for bucket, count in enumerate(wait) if count)
        point.run.counts.update((bucket, count) for bucket, count in enumerate(run) if count)
    return {key: point for key, (point, _, _) in sums.items()}


def _milliseconds(value_us: float | None) -> float | None:
    return None if value_us is None else value_us / 1000


def _summary(days: Sequence[FailureGroup]) -> FailureSummary:
    newest = max(days, key=lambda row: row.last_at)
    return FailureSummary(
        fingerprint=newest.fingerprint,
        task=newest.task,
        error_type=newest.error_type,
        n=_total(row.n for row in days),
        retried=_total(row.retried for row in days),
        dead=_total(row.dead for row in days),
        first_at=min(row.first_at for row in days),
        last_at=newest.last_at,
        sample=newest.sample,
        sample_task_id=newest.sample_task_id,
        queues=sorted({queue for row in days for queue in row.queues}),
        by_day={row.day: row.n for row in days},
    )


def _total(counts: Iterable[int]) -> int:
    return sum(counts)
