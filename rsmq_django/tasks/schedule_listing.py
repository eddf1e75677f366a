"""The list of schedules, stored or declared, with the reasons why entries do not fire."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.core.exceptions import ImproperlyConfigured

from ..conf.schedules import Schedule, from_json
from ..core.tasks.schedules import Listing, StoredEntry
from .results import as_time
from .schedule import UnsignedSchedule, UnusableSchedule, check_origin, connection_of, declared_schedules, task_of


@dataclass(frozen=True, slots=True)
class ListedSchedule:
    """The state of a schedule."""

    name: str
    #: Alias of the connection on which it is stored.
    connection: str
    #: Dotted path and queue of the task; "" if unknown.
    task: str
    queue_name: str
    #: In words: "every 5 min", "30 3 * * * (Europe/Berlin)".
    when: str
    #: Declared in code; otherwise added at run time.
    is_declared: bool
    is_paused: bool
    next_at: datetime | None
    #: Planned and actual time of the last tick that fired.
    last_planned_at: datetime | None
    last_fired_at: datetime | None
    last_task_id: str
    #: Number of ticks that fired, and number of missed ticks that were skipped.
    fired: int
    skipped: int
    #: Why it does not fire, as far as this process can tell; "" if it does.
    problem: str
    #: Its options; None if the stored definition is invalid.
    schedule: Schedule | None
    #: It is for a signed or encrypted queue without a valid signature: it never fires.
    is_unsigned: bool = False


def all_entries(listings: Iterable[tuple[str, Listing]]) -> list[ListedSchedule]:
    """Return all schedules by name: stored ones, and declared ones that are not stored yet."""
    declared = declared_schedules()
    found = {
        stored.name: _entry(alias, stored, is_declared=stored.name in declared)
        for alias, listing in listings
        for stored in listing.entries.values()
    }
    missing = [_undelivered(entry) for name, entry in declared.items() if name not in found]
    return sorted([*found.values(), *missing], key=lambda entry: entry.name)


def _entry(alias: str, stored: StoredEntry, *, is_declared: bool) -> ListedSchedule:
    try:
        schedule, problem = from_json(stored.name, stored.definition), ""
    except ValueError as error:
        schedule, problem = None, str(error)
    queue_name, is_unsigned = "", False
    if schedule is not None:
        queue_name, problem = _queue_and_problem(schedule)
        if not problem:
            problem = _why_unsigned(schedule, stored.definition)
            is_unsigned = bool(problem)
    return ListedSchedule(
        name=stored.name,
        connection=alias,
        task=schedule.task if schedule else "",
        queue_name=queue_name,
        when=str(schedule.timetable) if schedule else "",
        is_declared=is_declared or bool(stored.owner),
        is_paused=stored.is_paused,
        next_at=as_time(stored.next_ms),
        last_planned_at=as_time(stored.planned_ms),
        last_fired_at=as_time(stored.fired_ms),
        last_task_id=stored.task_id,
        fired=stored.fired,
        skipped=stored.skipped,
        problem=problem,
        schedule=schedule,
        is_unsigned=is_unsigned,
    )


def _undelivered(schedule: Schedule) -> ListedSchedule:
    """Return the state of a declared entry that is not stored."""
    try:
        alias = connection_of(schedule)
    except UnusableSchedule:
        alias = ""
    queue_name, problem = _queue_and_problem(schedule)
    return ListedSchedule(
        name=schedule.name,
        connection=alias,
        task=schedule.task,
        queue_name=queue_name,
        when=str(schedule.timetable),
        is_declared=True,
        is_paused=False,
        next_at=None,
        last_planned_at=None,
        last_fired_at=None,
        last_task_id="",
        fired=0,
        skipped=0,
        problem=problem or "no worker has stored it yet",
        schedule=schedule,
    )


def _queue_and_problem(schedule: Schedule) -> tuple[str, str]:
    try:
        return task_of(schedule).queue_name, ""
    except (UnusableSchedule, ImproperlyConfigured) as error:
        return schedule.queue or "", str(error)


def _why_unsigned(schedule: Schedule, definition: str) -> str:
    try:
        check_origin(schedule, definition)
    except UnsignedSchedule as error:
        return str(error)
    return ""
