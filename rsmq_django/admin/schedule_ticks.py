"""The next and the last ticks of a schedule, with the outcomes of the last ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from django.core.exceptions import ImproperlyConfigured

from ..conf.schedules import Schedule
from ..conf.timetable import Cron, zone_of
from ..core import RsmqError
from ..core.errors import RedisFailure
from ..core.numbers import read_epoch_ms
from ..live.times import as_datetime
from ..queues import get_client
from ..tasks.results import read_record
from ..tasks.schedule import UnusableSchedule, tick_ids
from ..tasks.schedule_listing import ListedSchedule
from .formats import as_duration
from .workflow_graph import OF_STATUS, STATES

#: How many ticks a page shows in each direction.
SHOWN_TICKS = 10


@dataclass(frozen=True, slots=True)
class Tick:
    """One planned time."""

    at: datetime | None
    #: On the clock of the schedule's zone: "Mon 2026-11-23 03:30:00 CET"; "" for a schedule without a zone.
    on_its_clock: str
    task_id: str = ""
    state: str = ""
    run_time: str = ""


def next_ticks(entry: ListedSchedule) -> list[Tick]:
    """Return the ticks to come; none for what cannot fire."""
    schedule = entry.schedule
    if schedule is None:
        return []
    after_ms = entry.next_at.timestamp() * 1000 - 1 if entry.next_at is not None else time.time() * 1000
    try:
        return [_tick(schedule, planned_ms) for planned_ms in islice(_following(schedule, after_ms), SHOWN_TICKS)]
    except ValueError:  # no time in the next fifty years, or cronsim is not installed
        return []


def _following(schedule: Schedule, after_ms: float) -> Iterator[int]:
    while True:
        tick = schedule.timetable.after(after_ms)
        yield tick
        after_ms = tick


def last_ticks(entry: ListedSchedule) -> list[Tick]:
    """Return those of the last ticks whose result is kept, the latest first."""
    schedule = entry.schedule
    if schedule is None or entry.last_planned_at is None:
        return []
    client = get_client(entry.connection)
    try:
        planned_ms = round(entry.last_planned_at.timestamp() * 1000)
        ticks = list(islice(schedule.timetable.back_from(planned_ms), SHOWN_TICKS))
        ids = tick_ids(schedule, client.namespace, ticks)
    except (ValueError, UnusableSchedule, ImproperlyConfigured):
        return []
    found = []
    for tick, task_id, record in zip(
        ticks, ids, client.run_many([read_record(client.namespace, task_id) for task_id in ids]), strict=True
    ):
        if isinstance(record, RedisFailure):
            raise record
        if not isinstance(record, RsmqError) and record:
            found.append(_tick(schedule, tick, task_id, record))
    return found


def _tick(schedule: Schedule, planned_ms: int, task_id: str = "", record: dict[str, str] | None = None) -> Tick:
    words = record or {}
    state = OF_STATUS.get(words.get("status", ""), "")
    return Tick(
        as_datetime(planned_ms),
        _on_its_clock(schedule, planned_ms),
        task_id,
        str(STATES[state]) if state else "",
        _run_time(words),
    )


def _run_time(record: dict[str, str]) -> str:
    begun, ended = read_epoch_ms(record.get("attempted_ms")), read_epoch_ms(record.get("finished_ms"))
    return "" if begun is None or ended is None else as_duration(max(0.0, ended - begun) / 1000)


def _on_its_clock(schedule: Schedule, planned_ms: int) -> str:
    timetable = schedule.timetable
    if not isinstance(timetable, Cron):
        return ""
    return datetime.fromtimestamp(planned_ms / 1000, zone_of(timetable.zone)).strftime("%Y-%m-%d %H:%M:%S %Z")
