"""Schedules declared by the code: `@every`, `@cron`, and the entries of `settings.RSMQ["SCHEDULES"]`.

    @cron("30 3 * * MON-FRI", time_zone="Europe/Berlin")
    @task(queue_name="reports")
    def write_report() -> None: ...

Finds the task, queue and connection of an entry in this process. `rsmq_django.worker.supervise.scheduler` fires
entries; `rsmq_django.schedules` changes them at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from ..conf.options import option_rules
from ..conf.schedules import Schedule, checked, signature_in
from ..conf.settings import get_settings, project_zone
from ..conf.timetable import can_read_cron
from ..core.errors import RedisFailure, RsmqError
from ..core.tasks.schedules import tick_id
from .arguments import check_arguments
from .envelope import encode
from .foreign_words import no_option
from .lanes import lane_of_call
from .middleware import firing
from .outgoing import Outgoing, prepare
from .proofs import keyring_of
from .shards import check_first_shard
from .task import Task, find_task
from .typed_arguments import as_sent
from .unknown_task import why_unknown

T = TypeVar("T")

_declared: dict[str, Schedule] = {}
#: The kind of the proof (proofs.py) that a definition carries.
_KIND = "schedule"


class UnusableSchedule(ValueError):
    """An entry that cannot fire in this process: its task, queue or arguments do not exist or do not fit."""


class UnsignedSchedule(UnusableSchedule):
    """A stored entry for a signed or encrypted queue that is neither declared here nor signed with the queue's key."""


def every(
    *without_unit: Any, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, **options: Any
) -> Callable[[T], T]:
    """Run a task at the multiples of a period, counted in UTC: `@every(hours=1)` means at each full hour.

    Stands above `@task`. Options as in RSMQ["SCHEDULES"], in lower case: name (default: the task's dotted path), args,
    kwargs, queue, jitter_s, missed, missed_after_s, missed_limit. Raises ValueError for wrong ones.
    """
    if without_unit:
        given = without_unit[0]
        if callable(given) or isinstance(given, Task):
            raise TypeError("every() has no period; write @every(minutes=5) above @task")
        raise TypeError(f"every({given!r}) has no unit; write @every(minutes={given!r}), or seconds=, hours= or days=")
    _check_options("every()", options, {"days", "hours", "minutes", "seconds"})
    period = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return _declare({**options, "every_s": period.total_seconds()})


def cron(expression: str, *, time_zone: str | None = None, **options: Any) -> Callable[[T], T]:
    """Run a task at the times of a cron expression; see every().

    The default of `time_zone` is the project's TIME_ZONE. Where clocks are put forward or back, a daily job runs once.
    """
    if not isinstance(expression, str):
        raise TypeError(f"cron({expression!r}) has no expression; write @cron('30 3 * * *') above @task")
    if not can_read_cron():  # otherwise it would fail in the worker at its first tick
        raise ValueError(f"@cron({expression!r}) needs the package cronsim: pip install 'rsmq-django[cron]'")
    _check_options("cron()", options, {"time_zone"})
    return _declare({**options, "cron": expression, "time_zone": time_zone})


def _check_options(owner: str, options: Mapping[str, Any], others: set[str]) -> None:
    known = {"name", *map(str.lower, option_rules(Schedule))} - {"task", "every_s", "cron", "time_zone"}
    for name in options:
        if name not in known:
            raise no_option(owner, name, known | others)


def _declare(options: dict[str, Any]) -> Callable[[T], T]:
    def declare(task: T) -> T:
        if not isinstance(task, Task):
            if hasattr(task, "module_path"):  # of another backend, for example in tests: it would not run here
                return task
            raise ValueError(f"{task!r} is not a task; write the schedule above @task, not below it")
        path = task.module_path
        rest = {key: value for key, value in options.items() if key != "name"}
        entry = checked(options.get("name", path), {**rest, "task": path}, time_zone=project_zone())
        known = _declared.get(entry.name)
        if known is not None and known.task != path:
            raise ValueError(f"schedule {entry.name!r} is declared for {known.task} already; give this one a name")
        _declared[entry.name] = entry
        return task

    return declare


def declared_schedules() -> dict[str, Schedule]:
    """Return the declared schedules by name. The settings override a decorator of the same name."""
    return {**_declared, **get_settings().schedules}


def owner() -> str:
    """Return the owner of entries declared here, so that projects can share a namespace: the settings' package."""
    return (getattr(django_settings, "SETTINGS_MODULE", None) or "").partition(".")[0] or "project"


def task_of(entry: Schedule) -> Task[..., Any]:
    """Return the task of an entry, on the entry's queue. Raises UnusableSchedule."""
    task = find_task(entry.task)
    if task is None:
        # A web process may not have imported it. Only modules named `tasks` are imported, never a path from an entry.
        autodiscover_modules("tasks")
        task = find_task(entry.task)
    if task is None:
        why = why_unknown(entry.task)
        raise UnusableSchedule(f"schedule {entry.name!r}: no task {entry.task!r} is declared here: {why}")
    if task.options.unique is not None:
        raise UnusableSchedule(
            f"schedule {entry.name!r}: {entry.task} is unique, and ticks do not check for duplicates; schedule a task "
            "that enqueues it"
        )
    try:
        check_arguments(task, entry.args, entry.kwargs or {})
        as_sent(task, entry.args, entry.kwargs or {})
    except Exception as error:  # TypeError, or any error of a class of the project
        said = str(error) if isinstance(error, TypeError) else f"{type(error).__name__}: {error}"
        raise UnusableSchedule(f"schedule {entry.name!r}: arguments do not fit {entry.task}: {said}") from error
    try:
        if entry.queue is not None and entry.queue != task.queue_name:
            get_settings().queue(entry.queue)
            task = task.using(queue_name=entry.queue)
        check_first_shard(task, "a schedule")
        _check_size(entry, task)
        return task
    except Exception as error:  # ImproperlyConfigured, ValueError, or InvalidTask of Django or its backport
        raise UnusableSchedule(f"schedule {entry.name!r}: {error}") from error


def _check_size(entry: Schedule, task: Task[..., Any]) -> None:
    """Raise ValueError for arguments that are too long for the queue, before what is added to a message."""
    args, kwargs = as_sent(task, entry.args, entry.kwargs or {})
    size_bytes = len(encode(entry.task, "", args, kwargs, None))
    limit = get_settings().queue(task.queue_name).max_size_bytes
    if 0 <= limit < size_bytes:
        raise ValueError(f"its call is {size_bytes} bytes, queue {task.queue_name!r} allows {limit}; pass ids instead")


def connection_of(entry: Schedule) -> str:
    """Return the alias of the connection that the entry's queue is on. Raises UnusableSchedule."""
    queue_name = entry.queue or task_of(entry).queue_name
    try:
        return get_settings().queue(queue_name).connection
    except ImproperlyConfigured as error:
        raise UnusableSchedule(f"schedule {entry.name!r}: {error}") from error


def definition_of(entry: Schedule) -> str:
    """Return the stored form of an entry: signed if its queue is signed or encrypted. Raises UnusableSchedule.

    The signature says that a process with the keys wanted this; never sign data from Redis before it has
    passed check_origin().
    """
    keys, text = keyring_of(task_of(entry).queue_name), entry.as_json()
    if keys is None:
        return text
    return entry.as_json(signature=keys.prove(_KIND, entry.name, content=text.encode()))


def check_origin(entry: Schedule, definition: str) -> None:
    """Raise UnsignedSchedule unless the stored entry may send to its queue; `definition` is what it was read from.

    To a queue without keys every entry may. To a sealed one, whose calls this process would sign or encrypt, only what
    the code declares, and what a process with a key of the queue has added.
    """
    keys, text = keyring_of(task_of(entry).queue_name), entry.as_json()
    if keys is None:
        return
    declared = declared_schedules().get(entry.name)
    if declared is not None and declared.as_json() == text:
        return
    if not keys.verifies(signature_in(entry.name, definition), _KIND, entry.name, content=text.encode()):
        raise UnsignedSchedule(
            f"schedule {entry.name!r}: queue {keys.queue_name!r} is signed or encrypted, and this entry is neither "
            "what the code declares nor signed with a key of the queue. If you know it, remove it and add it again; "
            "otherwise another program wrote it into Redis"
        )


def tick_ids(entry: Schedule, namespace: str, ticks: Sequence[int]) -> list[str]:
    """Return the task ids of ticks: the same in every process. For a sealed queue, its key is needed to know them."""
    keys = keyring_of(task_of(entry).queue_name)
    proofs = ["" if keys is None else keys.prove("tick", entry.name, str(tick)) for tick in ticks]
    return [tick_id(namespace, entry.name, tick, proof) for tick, proof in zip(ticks, proofs, strict=True)]


def prepare_ticks(entry: Schedule, ids: list[str]) -> Outgoing:
    """Encode one call of the entry's task for each id. Raises UnusableSchedule."""
    call, token = (entry.args, entry.kwargs or {}), firing.set(entry.name)
    try:
        task = task_of(entry)
        return prepare(task, [call] * len(ids), ids=ids, lane=lane_of_call(task, *call))
    except (UnusableSchedule, RedisFailure):
        raise
    except Exception as error:  # the project's middleware runs here; other schedules continue
        is_plain = isinstance(error, (TypeError, ValueError, RsmqError))
        said = str(error) if is_plain else f"{type(error).__name__}: {error}"
        raise UnusableSchedule(f"schedule {entry.name!r}: {said}") from error
    finally:
        firing.reset(token)
