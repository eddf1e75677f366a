"""Schedules at run time: list, add, change, remove, pause, resume and run them.

    from rsmq_django import schedules

    schedules.add("remind-kitchen", "shop.tasks.remind", every_s=900, kwargs={"room": "kitchen"})
    schedules.pause("remind-kitchen")

Entries declared in code can be paused, resumed and run; their options are changed in the code. Workers notice a change
within a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .conf.schedules import Schedule, checked, from_json
from .conf.settings import get_settings, project_zone
from .core import Client
from .core.errors import ScheduleConflict, ScheduleNotFound
from .core.tasks.schedules import Listing, StoredEntry, list_entries, pause_entry, plan_entry, put_entry, remove_entry
from .core.transport.call import Call
from .queues import get_client
from .tasks.compat import TaskResult
from .tasks.schedule import check_origin, connection_of, declared_schedules, definition_of, task_of
from .tasks.schedule_listing import ListedSchedule, all_entries
from .tasks.task import Task

__all__ = [
    "ListedSchedule",
    "aadd",
    "achange",
    "add",
    "aentries",
    "aget",
    "apause",
    "aremove",
    "aresume",
    "arun_now",
    "change",
    "entries",
    "get",
    "pause",
    "remove",
    "resume",
    "run_now",
]


@dataclass(frozen=True, slots=True)
class _Found:
    client: Client
    alias: str
    now_ms: int
    stored: StoredEntry

    @property
    def schedule(self) -> Schedule:
        """Return the entry for its times only: its task may be forged."""
        return from_json(self.stored.name, self.stored.definition)

    @property
    def trusted_schedule(self) -> Schedule:
        """Return the entry. Raises UnsignedSchedule if it must not send to its queue."""
        entry = self.schedule
        check_origin(entry, self.stored.definition)
        return entry


# -- Reading ----------------------------------------------------------------------------------------------------------


def entries() -> list[ListedSchedule]:
    """Return all schedules by name, including declared ones that no worker has stored yet."""
    return all_entries([(alias, client.run(list_entries(client.namespace))) for alias, client in _clients()])


async def aentries() -> list[ListedSchedule]:
    """Return the same as entries()."""
    return all_entries([(alias, await client.arun(list_entries(client.namespace))) for alias, client in _clients()])


def get(name: str) -> ListedSchedule:
    """Return one schedule. Raises ScheduleNotFound."""
    return _named(name, entries())


async def aget(name: str) -> ListedSchedule:
    """See get()."""
    return _named(name, await aentries())


# -- Changing ---------------------------------------------------------------------------------------------------------


def add(name: str, task: Task[..., Any] | str, **options: Any) -> ListedSchedule:
    """Add a schedule; the options are those of RSMQ["SCHEDULES"] in lower case: every_s or cron, args, kwargs, ...

    Raises ValueError for invalid options, UnusableSchedule for an unknown task, and ScheduleConflict if the name is in
    use. For a signed or encrypted queue the entry is signed with its key.
    """
    entry = _new_entry(name, task, options)
    found = {alias: client.run(list_entries(client.namespace)) for alias, client in _clients()}
    client, now_ms = _place_for(entry, found)
    _check_put(name, client.run(_put(client, entry, seen="", next_ms=entry.timetable.after(now_ms))))
    return get(name)


async def aadd(name: str, task: Task[..., Any] | str, **options: Any) -> ListedSchedule:
    """See add()."""
    entry = _new_entry(name, task, options)
    found = {alias: await client.arun(list_entries(client.namespace)) for alias, client in _clients()}
    client, now_ms = _place_for(entry, found)
    _check_put(name, await client.arun(_put(client, entry, seen="", next_ms=entry.timetable.after(now_ms))))
    return await aget(name)


def change(name: str, **options: Any) -> ListedSchedule:
    """Change options of a schedule that was added at run time; None resets an option to its default.

    Raises ScheduleConflict for a schedule declared in code, UnsignedSchedule as run_now() does. For a signed or
    encrypted queue the entry is signed again with the first key, even if no option is given.
    """
    found = _find(name)
    _check_put(name, found.client.run(_change_call(found, options)))
    return get(name)


async def achange(name: str, **options: Any) -> ListedSchedule:
    """See change()."""
    found = await _afind(name)
    _check_put(name, await found.client.arun(_change_call(found, options)))
    return await aget(name)


def change_seen(name: str, seen: Schedule, options: dict[str, Any]) -> None:
    """Change a schedule as change() does if it still is what the caller saw; otherwise raise ScheduleConflict.

    One script compares and changes: no change of another user gets lost in between.
    """
    found = _find(name)
    if found.stored.definition != definition_of(seen) and found.trusted_schedule != seen:
        raise ScheduleConflict(f"schedule {name!r} was changed by another user just now; look again")
    _check_put(name, found.client.run(_change_call(found, options)))


def remove(name: str) -> None:
    """Remove a schedule that was added at run time. Raises ScheduleConflict for one declared in code."""
    found = _find(name)
    _check_changed(name, found.client.run(_removal_call(found)))


async def aremove(name: str) -> None:
    """See remove()."""
    found = await _afind(name)
    _check_changed(name, await found.client.arun(_removal_call(found)))


def pause(name: str) -> None:
    """Pause a schedule: no tick fires until it is resumed, also after a restart or a deployment."""
    found = _find(name)
    _check_changed(name, found.client.run(pause_entry(found.client.namespace, name)))


async def apause(name: str) -> None:
    """See pause()."""
    found = await _afind(name)
    _check_changed(name, await found.client.arun(pause_entry(found.client.namespace, name)))


def resume(name: str) -> None:
    """Resume a schedule with its next tick; ticks that passed during the pause are skipped."""
    found = _find(name)
    if found.stored.is_paused:
        _check_changed(name, found.client.run(_resumption_call(found)))


async def aresume(name: str) -> None:
    """See resume()."""
    found = await _afind(name)
    if found.stored.is_paused:
        _check_changed(name, await found.client.arun(_resumption_call(found)))


def run_now(name: str) -> TaskResult[..., Any]:
    """Enqueue the schedule's task now, even if it is paused. Its ticks do not change.

    Raises UnsignedSchedule for an entry that another program wrote for a signed or encrypted queue.
    """
    entry = _find(name).trusted_schedule
    return task_of(entry).enqueue(*entry.args, **(entry.kwargs or {}))


async def arun_now(name: str) -> TaskResult[..., Any]:
    """See run_now()."""
    entry = (await _afind(name)).trusted_schedule
    return await task_of(entry).aenqueue(*entry.args, **(entry.kwargs or {}))


# -- Shared by both forms --------------------------------------------------------------------------------------------


def _clients() -> list[tuple[str, Client]]:
    return [(alias, get_client(alias)) for alias in get_settings().own_connections]


def _find(name: str) -> _Found:
    for alias, client in _clients():
        listing = client.run(list_entries(client.namespace))
        if name in listing.entries:
            return _Found(client, alias, listing.now_ms, listing.entries[name])
    raise _not_found(name)


async def _afind(name: str) -> _Found:
    for alias, client in _clients():
        listing = await client.arun(list_entries(client.namespace))
        if name in listing.entries:
            return _Found(client, alias, listing.now_ms, listing.entries[name])
    raise _not_found(name)


def _not_found(name: str) -> ScheduleNotFound:
    if name in declared_schedules():
        return ScheduleNotFound(f"schedule {name!r} is declared, but no worker has stored it yet; start a worker")
    return ScheduleNotFound(f"there is no schedule {name!r}; `manage.py rsmq_schedule list` shows all")


def _new_entry(name: str, task: Task[..., Any] | str, options: dict[str, Any]) -> Schedule:
    path = task if isinstance(task, str) else task.module_path
    entry = checked(name, {**options, "task": path}, time_zone=project_zone())
    if name in declared_schedules():
        raise ScheduleConflict(f"schedule {name!r} is declared in code; choose another name")
    task_of(entry)
    return entry


def _place_for(entry: Schedule, found: Mapping[str, Listing]) -> tuple[Client, int]:
    """Return the client and the server's time for a new entry. Raises ScheduleConflict for a name in use elsewhere."""
    own = connection_of(entry)
    for alias, listing in found.items():
        if alias != own and entry.name in listing.entries:
            raise ScheduleConflict(f"schedule {entry.name!r} already exists, on the connection {alias!r}")
    return get_client(own), found[own].now_ms


def _change_call(found: _Found, options: dict[str, Any]) -> Call[int]:
    _refuse_declared(found.stored, "change it in the code")
    before = found.trusted_schedule
    given = {key: getattr(before, key) for key in before.__dataclass_fields__ if key != "name"} | options
    if "cron" in options or "every_s" in options:  # a new interval replaces a cron expression, and vice versa
        given["every_s" if options.get("cron") else "cron"] = None
    after = checked(before.name, given, time_zone=project_zone())
    if connection_of(after) != found.alias:
        raise ScheduleConflict(
            f"schedule {after.name!r} would move to another connection; remove it and add it again there"
        )
    task_of(after)
    return _put(
        found.client,
        after,
        seen=found.stored.definition,
        next_ms=after.timetable.after(found.now_ms),
        earlier_stays=after.timetable == before.timetable,
    )


def _put(client: Client, entry: Schedule, *, seen: str, next_ms: int, earlier_stays: bool = False) -> Call[int]:
    return put_entry(
        client.namespace,
        entry.name,
        definition_of(entry),
        seen=seen,
        owner="",
        next_ms=next_ms,
        earlier_stays=earlier_stays,
    )


def _removal_call(found: _Found) -> Call[int]:
    _refuse_declared(found.stored, "pause it, or remove it from the code")
    return remove_entry(found.client.namespace, found.stored.name, seen=found.stored.definition)


def _resumption_call(found: _Found) -> Call[int]:
    return plan_entry(found.client.namespace, found.stored, found.schedule.timetable.after(found.now_ms))


def _refuse_declared(stored: StoredEntry, advice: str) -> None:
    if stored.owner and stored.name in declared_schedules():
        raise ScheduleConflict(f"schedule {stored.name!r} is declared in the code of {stored.owner!r}; {advice}")


def _check_put(name: str, answer: int) -> None:
    if answer == -1:
        raise ScheduleConflict(f"cannot add schedule {name!r}: a namespace has at most 1,000 schedules")
    if answer == 0:
        raise ScheduleConflict(f"schedule {name!r} already exists, or was changed at the same time")


def _check_changed(name: str, answer: int) -> None:
    if answer == 0:
        raise ScheduleConflict(f"schedule {name!r} was changed at the same time; read it again")


def _named(name: str, every: Iterable[ListedSchedule]) -> ListedSchedule:
    for entry in every:
        if entry.name == name:
            return entry
    raise _not_found(name)
