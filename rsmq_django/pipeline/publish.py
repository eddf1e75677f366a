"""Publishing from the lake to the database: changed days, one transaction each. Needs deltalake, not Spark or Java.

Existing rows are updated and rows that are no longer in the files are deleted, so publishing is idempotent, and a page
never shows half a day.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from django.db import IntegrityError, connections, models, router, transaction

from ..spark.delta import Table
from ..spark.demand import newest
from ..spark.errors import PipelineError
from ..spark.files import is_local
from ..spark.lake import Lake
from ..spark.runs import StepRun, runs_of
from ..spark.schemas import ANOMALIES, CAPACITY, DEPTH, EVENTS, FAILURES, HOURLY, RUNS, SLO, LakeTable
from .days import KEEP_HOURS_DAYS, write_day
from .models import (
    PATH_LENGTH,
    Anomaly,
    CapacityAdvice,
    FailureGroup,
    LakeDay,
    LakeState,
    PipelineRun,
    PublishedDay,
    QueueDepth,
    SloBurn,
    TaskHour,
)

__all__ = ["Published", "publish", "refuse_vanished"]

T = TypeVar("T")

BATCH_ROWS = 500
#: Number of attempts to publish a day, of which another process publishes rows of the same week.
ATTEMPTS = 5

#: Table of the lake -> model, and the columns that identify a row.
PUBLISHED: dict[str, tuple[LakeTable, type[models.Model], tuple[str, ...]]] = {
    "hourly": (HOURLY, TaskHour, ("hour", "queue", "task")),
    "failures": (FAILURES, FailureGroup, ("day", "fingerprint")),
    "slo": (SLO, SloBurn, ("at", "queue", "objective", "window")),
    "capacity": (CAPACITY, CapacityAdvice, ("day", "queue")),
    "anomalies": (ANOMALIES, Anomaly, ("hour", "queue", "task", "metric")),
    "depth": (DEPTH, QueueDepth, ("taken_at", "queue")),
}


@dataclass(frozen=True, slots=True)
class Published:
    """The result of publishing."""

    days: int
    rows: int
    #: Days removed from the lake and therefore from the database.
    removed: int


def publish(
    lake: Lake,
    *,
    since: dt.date | None = None,
    dry_run: bool = False,
    on_progress: Callable[[int], None] = lambda days: None,
) -> Published:
    """Update the database from the lake: changed days, or all days from `since` on. Several may run at once.

    Raises PipelineError for a lake that is gone, see refuse_vanished(), unless `since` is given.
    """
    if since is None:
        refuse_vanished(lake)
    days = rows = removed = 0
    for table, model, unique in PUBLISHED.values():
        known = dict(PublishedDay.objects.filter(table=table.name).values_list("day", "signature"))
        opened = lake.open(table)
        in_lake = opened.days
        for day in in_lake:
            signature = _signature(opened, day)
            if (since is not None and day >= since) or known.get(day) != signature:
                rows += 0 if dry_run else _patiently(partial(_publish_day, opened, model, unique, day, signature))
                days += 1
                on_progress(days)
        gone = sorted(set(known) - set(in_lake))
        removed += len(gone)
        if not dry_run:
            _patiently(partial(_remove_days, table, model, gone))
    if not dry_run:
        _publish_runs(lake)
        _publish_lake(lake)
    return Published(days, rows, removed)


def refuse_vanished(lake: Lake) -> None:
    """Raise PipelineError for a lake without events from which some were published: the place may not be mounted.

    Otherwise its history would be deleted, and new events would be archived below the mount point.
    """
    if lake.open(EVENTS).version >= 0:
        return
    place = without_credentials(lake.uri)
    state = LakeState.objects.filter(place=place, newest_event_at__isnull=False).first()
    if state is not None:
        raise PipelineError(
            f"the lake {place} has no table of events, but events up to {state.newest_event_at:%Y-%m-%d %H:%M} UTC "
            "were published: is its storage mounted? Nothing was changed. If it was deleted on purpose, this deletes "
            "its history, too: rsmq_pipeline publish --since 1970-01-01"
        )


def _patiently(change: Callable[[], T]) -> T:
    """Return the result of a transaction that is made again when another one has inserted the same rows meanwhile."""
    for left in reversed(range(ATTEMPTS)):
        try:
            return change()
        except IntegrityError:
            if not left:
                raise
    raise AssertionError("the last attempt returns or raises")


def _publish_day(table: Table, model: type[models.Model], unique: tuple[str, ...], day: dt.date, signature: str) -> int:
    # To a list first: errors in a file are raised before the database is changed.
    found = list({_key(row, unique): row for row in _rows(table, model, day)}.values())
    hours = found
    if model is TaskHour and day < _oldest_kept(table):
        found = []  # the sums of the day are enough
    database = router.db_for_write(model)
    manager = model._default_manager.using(database)
    with transaction.atomic(using=database):
        before = {_key(row, unique): row["pk"] for row in manager.filter(day=day).values("pk", *unique)}
        now = {_key(row, unique) for row in found}
        if connections[database].features.supports_update_conflicts_with_target:
            fields = [field.name for field in model._meta.concrete_fields if not field.primary_key]
            manager.bulk_create(
                [model(**row) for row in found],
                batch_size=BATCH_ROWS,
                update_conflicts=True,
                unique_fields=unique,
                update_fields=[name for name in fields if name not in unique],
            )
            gone = [pk for key, pk in before.items() if key not in now]
        else:  # MySQL does not support conflict targets
            manager.filter(pk__in=list(before.values())).delete()
            manager.bulk_create([model(**row) for row in found], batch_size=BATCH_ROWS)
            gone = []
        if model is TaskHour:
            write_day(database, day, hours)
            manager.filter(day__lt=_oldest_kept(table)).delete()
        for at in range(0, len(gone), BATCH_ROWS):
            manager.filter(pk__in=gone[at : at + BATCH_ROWS]).delete()
        note = {"signature": signature, "rows": len(hours)}
        PublishedDay.objects.using(database).update_or_create(table=table.definition.name, day=day, defaults=note)
    return len(hours)


def _remove_days(table: LakeTable, model: type[models.Model], days: list[dt.date]) -> None:
    database = router.db_for_write(model)
    for day in days:
        with transaction.atomic(using=database):
            model._default_manager.using(database).filter(day=day).delete()
            if model is TaskHour:
                write_day(database, day, [])
            PublishedDay.objects.using(database).filter(table=table.name, day=day).delete()


def _oldest_kept(table: Table) -> dt.date:
    """Return the oldest day whose hours are kept in the database. A clock that was ahead made days of the future."""
    return min(table.days[-1], dt.datetime.now(dt.UTC).date()) - dt.timedelta(days=KEEP_HOURS_DAYS)


def _publish_runs(lake: Lake) -> None:
    """Update the runs of days that changed, and remove those of days that have expired in the lake."""
    table = lake.open(RUNS)
    notes = PublishedDay.objects.filter(table=RUNS.name)
    known = dict(notes.values_list("day", "signature"))
    for day in table.days:
        if known.get(day) != (signature := _signature(table, day)):
            count = _publish_runs_of(table, day)
            defaults = {"signature": signature, "rows": count}
            PublishedDay.objects.update_or_create(table=RUNS.name, day=day, defaults=defaults)
    if gone := set(known) - set(table.days):
        end = dt.datetime.combine(max(gone) + dt.timedelta(days=1), dt.time(), dt.UTC)
        PipelineRun.objects.filter(started_at__lt=end).delete()
        notes.filter(day__in=gone).delete()


def _publish_runs_of(table: Table, day: dt.date) -> int:
    runs = runs_of(table, {day})
    known = dict(PipelineRun.objects.filter(run_id__in=[run.id for run in runs]).values_list("run_id", "seconds"))
    fresh = [PipelineRun(run_id=run.id, **_run_values(run)) for run in runs if run.id not in known]
    PipelineRun.objects.bulk_create(fresh, batch_size=BATCH_ROWS, ignore_conflicts=True)
    for run in runs:
        if known.get(run.id, run.seconds) != run.seconds:  # it had not ended
            PipelineRun.objects.filter(run_id=run.id).update(**_run_values(run))
    return len(runs)


def _run_values(run: StepRun) -> dict[str, Any]:
    values = asdict(run)
    del values["id"], values["whole_error"]
    started_at = dt.datetime.fromisoformat(run.started_at)
    return values | {"started_at": started_at, "error": _database_value("error", run.error)}


# -- Lake -------------------------------------------------------------------------------------------------------------


def _publish_lake(lake: Lake) -> None:
    """Write the files of each day, the place of the lake and its newest event."""
    figures: dict[tuple[str, dt.date], tuple[int, int, int]] = {}
    for table in lake.all_tables():
        for file in lake.open(table).files:
            key = _short(table.name, PATH_LENGTH), file.day
            rows, files, size = figures.get(key, (0, 0, 0))
            figures[key] = rows + file.rows, files + 1, size + file.size
    _patiently(partial(_write_figures, figures))
    newest_event_at, now = newest(lake.open(EVENTS)), dt.datetime.now(dt.UTC)
    state = {"place": without_credentials(lake.uri), "newest_event_at": newest_event_at, "published_at": now}
    LakeState.objects.update_or_create(pk=1, defaults=state)


def _write_figures(figures: Mapping[tuple[str, dt.date], tuple[int, int, int]]) -> None:
    database = router.db_for_write(LakeDay)
    with transaction.atomic(using=database):
        days = LakeDay.objects.using(database)
        known = {(row.table, row.day): row for row in days.all()}
        same = {key for key, row in known.items() if (row.rows, row.files, row.size_bytes) == figures.get(key)}
        gone = [row.pk for key, row in known.items() if key not in same]
        for at in range(0, len(gone), BATCH_ROWS):
            days.filter(pk__in=gone[at : at + BATCH_ROWS]).delete()
        fresh = [
            LakeDay(table=table, day=day, rows=rows, files=files, size_bytes=size)
            for (table, day), (rows, files, size) in figures.items()
            if (table, day) not in same
        ]
        days.bulk_create(fresh, batch_size=BATCH_ROWS)


def without_credentials(place: str) -> str:
    """Return the path or address of a lake without a password and without the query of its address."""
    if is_local(place):
        return place
    scheme, _, rest = place.partition("://")
    host, slash, path = re.split("[?#]", rest, maxsplit=1)[0].partition("/")
    user, at, host = host.rpartition("@")
    return f"{scheme}://{'' if ':' in user else user + at}{host}{slash}{path}"


# -- Rows -------------------------------------------------------------------------------------------------------------


def _rows(table: Table, model: type[models.Model], day: dt.date) -> Iterator[dict[str, Any]]:
    limits = {
        field.name: field.max_length for field in model._meta.concrete_fields if isinstance(field, models.CharField)
    }
    fields = {field.name for field in model._meta.concrete_fields}
    names = [column.name for column in table.definition.columns if column.name in fields]
    for row in table.read({day}, names=names).to_pylist():
        values = {name: _database_value(name, value) for name, value in row.items()}
        for name, limit in limits.items():
            values[name] = _short(values[name] or "", limit)
        yield {"day": day, **values}


def _short(text: str, limit: int | None) -> str:
    """Return a text that a column has room for. Two texts with the same beginning stay different."""
    if limit is None or len(text) <= limit:
        return text
    return f"{text[: limit - 9]}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _database_value(name: str, value: Any) -> Any:
    if name.endswith("_hist"):
        return dict(value or ())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")  # PostgreSQL stores no zero bytes
    if name == "queues":
        return [_database_value("queue", queue) for queue in value or ()]
    return "" if name == "sample" and value is None else value


def _key(row: Mapping[str, Any], unique: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(row[name] for name in unique)


def _signature(table: Table, day: dt.date) -> str:
    """Return a text that changes with the files of a day."""
    paths = [file.path for file in table.files_of({day})]
    return hashlib.sha256("\n".join(paths).encode()).hexdigest()
