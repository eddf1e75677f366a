"""Fires a schedule in a test: sends its call at once, as a tick would."""

from __future__ import annotations

from ..conf.options import nearest
from ..conf.schedules import Schedule
from ..core.ids import random_suffixes
from ..schedules import entries
from ..tasks.round_trips import send
from ..tasks.schedule import prepare_ticks
from ..tasks.task import find_task


def fire(name: str) -> str:
    """Send the call of a schedule, given by its name or the dotted path of its task; return the id of the call."""
    entry = _find(name)
    ids = random_suffixes(1)
    send(prepare_ticks(entry, ids))
    return ids[0]


def _find(name: str) -> Schedule:
    known = {entry.name: entry.schedule for entry in entries() if entry.schedule is not None}
    if name in known:
        return known[name]
    of_task = [entry for entry in known.values() if entry.task == name]
    if len(of_task) == 1:
        return of_task[0]
    if of_task:
        names = ", ".join(repr(entry.name) for entry in of_task)
        raise AssertionError(f"{name} has several schedules; fire one by its name: {names}")
    if find_task(name) is not None:
        raise AssertionError(f"{name} has no schedule; write @every(...) or @cron(...) above its @task")
    raise AssertionError(f"there is no schedule {name!r}. {nearest(name, known)}")
