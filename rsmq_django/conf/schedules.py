"""A schedule entry: its task, times and arguments, and the handling of missed ticks.

The options are the same in `settings.RSMQ["SCHEDULES"]`, in a decorator, in a call at run time, and as JSON in Redis,
so they are read and checked by the same code. It does not check that the task exists, and does no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any

from ..core.limits import YEAR_S
from .options import QUEUE_NAME, TEXT, OptionReader, Problem, Rule, one_of, seconds, shown, whole
from .problem_ids import NO_TIME, UNKNOWN_OPTION, WRONG_NAME, WRONG_VALUE
from .timetable import Cron, Every, Timetable, is_cron, is_zone

MAX_NAME_CHARACTERS = 200

MISSED = ("skip", "once", "all")
#: Key of the signature in a stored definition: proof that a process with the queue's keys wrote it.
SIGNATURE = "SIGNATURE"


def is_name(value: Any) -> bool:
    """Return whether a name is valid for an entry."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARACTERS and value.isprintable()


def _is_json(value: Any, kind: type) -> bool:
    try:
        return isinstance(value, kind) and bool(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    except (TypeError, ValueError, RecursionError):
        return False


CRON = Rule("a cron expression of five fields such as '30 3 * * MON-FRI', or of six with seconds first", is_cron)
ZONE = Rule("the name of a time zone, such as 'Europe/Berlin'", is_zone)
ARGS = Rule("a list that JSON can hold", lambda value: _is_json(value, list) or _is_json(value, tuple))
KWARGS = Rule("a dictionary that JSON can hold", lambda value: _is_json(value, dict) and all(map(is_name, value)))


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """An entry. Exactly one of every_s and cron is set."""

    name: str
    #: Dotted path of the task.
    task: Annotated[str, TEXT]
    #: Interval in seconds; ticks are its multiples, counted in UTC.
    every_s: Annotated[float | None, seconds(least=1, most=YEAR_S)] = None
    cron: Annotated[str | None, CRON] = None
    #: Time zone of the cron expression; default: the project's TIME_ZONE.
    time_zone: Annotated[str, ZONE] = "UTC"
    args: Annotated[tuple[Any, ...], ARGS] = ()
    kwargs: Annotated[Mapping[str, Any] | None, KWARGS] = None
    #: None: the task's queue.
    queue: Annotated[str | None, QUEUE_NAME] = None
    #: Maximum random delay of a tick's message, so that tasks do not all start at the full minute.
    jitter_s: Annotated[float, seconds(least=0, most=86_400)] = 0.0
    #: A tick that fires later than this counts as missed; `missed` says how it is handled.
    missed_after_s: Annotated[float, seconds(least=1, most=YEAR_S)] = 60.0
    #: "once": one run, the latest, replaces all missed ticks. Most tasks process all outstanding work in one run.
    missed: Annotated[str, one_of(*MISSED)] = "once"
    #: Maximum number of missed ticks that "all" runs, the latest ones, to avoid a flood after an outage.
    missed_limit: Annotated[int, whole("ticks", least=1, most=900)] = 100

    @cached_property
    def timetable(self) -> Timetable:
        """Return the timetable of the entry."""
        if self.cron is not None:
            return Cron(self.cron, self.time_zone)
        return Every(round((self.every_s or 0) * 1000))

    @property
    def missed_fire(self) -> int:
        """Return how many missed ticks run late."""
        return {"skip": 0, "once": 1, "all": self.missed_limit}[self.missed]

    def as_json(self, *, signature: str = "") -> str:
        """Return the stored definition: the options that differ from the defaults, in order."""
        options = {}
        for field in fields(self):
            value = getattr(self, field.name)
            is_needed = self.cron is not None if field.name == "time_zone" else value != field.default
            if field.name != "name" and is_needed:
                options[field.name] = value
        if signature:
            options[SIGNATURE] = signature
        return json.dumps(options)


def from_options(
    name: object, options: object, *, time_zone: str, where: str = ""
) -> tuple[Schedule | None, list[Problem]]:
    """Return an entry from options such as {"TASK": ..., "EVERY_S": 60}; None after noting problems."""
    reader = OptionReader(unknown_id=UNKNOWN_OPTION, wrong_id=WRONG_VALUE)
    where = where or f"schedule {shown(name)}"
    if not is_name(name):
        said = f"{where} has an invalid name"
        reader.note(WRONG_NAME, said, f"It must be 1 to {MAX_NAME_CHARACTERS} printable characters.")
        return None, reader.problems
    if isinstance(options, Mapping) and "TASK" not in options:
        reader.note(NO_TIME, f"{where} has no TASK", "Give the dotted path of a task.")
        return None, reader.problems
    entry = reader.options(Schedule, options, where, name=name, task="", time_zone=time_zone)
    if not reader.problems and (entry.every_s is None) == (entry.cron is None):
        said = "both EVERY_S and CRON" if entry.cron is not None else "neither EVERY_S nor CRON"
        reader.note(NO_TIME, f"{where} has {said}", "Give exactly one of them.")
    return (None if reader.problems else entry), reader.problems


def checked(name: object, options: Mapping[str, Any], *, time_zone: str) -> Schedule:
    """Return an entry from keyword arguments such as task=..., every_s=60. Raises ValueError with all mistakes."""
    given = {key.upper(): value for key, value in options.items() if value is not None}
    entry, problems = from_options(name, given, time_zone=time_zone)
    if entry is None:
        raise ValueError("; ".join(f"{problem.message}: {problem.hint}" for problem in problems))
    return entry


def from_json(name: str, text: str) -> Schedule:
    """Return the entry of a stored definition. Raises ValueError for invalid text."""
    options = _stored_options(name, text)
    options.pop(SIGNATURE, None)
    return checked(name, options, time_zone="UTC")


def signature_in(name: str, text: str) -> str:
    """Return the signature of a stored definition; "" without one. Raises ValueError for invalid text."""
    signature = _stored_options(name, text).get(SIGNATURE)
    return signature if isinstance(signature, str) else ""


def _stored_options(name: str, text: str) -> dict[str, Any]:
    try:
        options = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the stored definition of schedule {name!r} is not valid JSON: {error}") from error
    if not isinstance(options, dict) or not all(isinstance(key, str) for key in options):
        raise ValueError(f"the stored definition of schedule {name!r} is not a JSON object")
    return options
