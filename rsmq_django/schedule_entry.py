"""One entry of a schedule: which task, when, with what, and what to do about ticks that nobody fired in time.

The same options whether they stand in `settings.RSMQ["SCHEDULES"]`, in a decorator, in a call at run time, or in Redis
as JSON, so there is one way to read and to check them. Refuses to know which tasks exist; does no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any

from .options import QUEUE_NAME, TEXT, OptionReader, Problem, Rule, one_of, seconds, shown, whole
from .problem_ids import NO_TIME, UNKNOWN_OPTION, WRONG_NAME, WRONG_VALUE
from .timetable import Cron, Every, Timetable, is_cron, is_zone

MAX_NAME_CHARACTERS = 200

MISSED = ("skip", "once", "all")
YEAR_S = 31_622_400
#: Beside the options in a stored definition: the proof that a process with the keys of the queue wrote it.
SIGNATURE = "SIGNATURE"


def is_name(value: Any) -> bool:
    """Say whether an entry may have this name."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARACTERS and value.isprintable()


def _is_json(value: Any, kind: type) -> bool:
    try:
        return isinstance(value, kind) and bool(json.dumps(value, allow_nan=False))
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
    #: Dotted path of a function declared with @task.
    task: Annotated[str, TEXT]
    #: Ticks at the multiples of so many seconds, counted in UTC.
    every_s: Annotated[float | None, seconds(least=1, most=YEAR_S)] = None
    cron: Annotated[str | None, CRON] = None
    #: In which zone a cron expression is read; the project's TIME_ZONE when left out.
    time_zone: Annotated[str, ZONE] = "UTC"
    args: Annotated[tuple[Any, ...], ARGS] = ()
    kwargs: Annotated[Mapping[str, Any] | None, KWARGS] = None
    #: None: the task's own.
    queue: Annotated[str | None, QUEUE_NAME] = None
    #: A tick's message becomes visible up to so much later, so that not everything begins at the full minute.
    jitter_s: Annotated[float, seconds(least=0, most=86_400)] = 0.0
    #: A tick that fires later than this was missed; what then happens to it says `missed`.
    missed_after_s: Annotated[float, seconds(least=1, most=YEAR_S)] = 60.0
    #: "once": all missed ticks are made up for by one, the latest. Most tasks look at what there is to do.
    missed: Annotated[str, one_of(*MISSED)] = "once"
    #: How many missed ticks "all" makes up for, the latest ones: an outage must not be followed by a flood.
    missed_limit: Annotated[int, whole("ticks", least=1, most=900)] = 100

    @cached_property
    def timetable(self) -> Timetable:
        """Return when it is due."""
        if self.cron is not None:
            return Cron(self.cron, self.time_zone)
        return Every(round((self.every_s or 0) * 1000))

    @property
    def missed_fire(self) -> int:
        """Return how many missed ticks are made up for."""
        return {"skip": 0, "once": 1, "all": self.missed_limit}[self.missed]

    def as_json(self, *, signature: str = "") -> str:
        """Return the definition as it is stored: the options that are not the defaults, in order."""
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
    """Read an entry from options such as {"TASK": ..., "EVERY_S": 60}; without an entry there are problems."""
    reader = OptionReader(unknown_id=UNKNOWN_OPTION, wrong_id=WRONG_VALUE)
    where = where or f"schedule {shown(name)}"
    if not is_name(name):
        said = f"{where} has an impossible name"
        reader.note(WRONG_NAME, said, f"It must be 1 to {MAX_NAME_CHARACTERS} printable characters.")
        return None, reader.problems
    if isinstance(options, Mapping) and "TASK" not in options:
        reader.note(NO_TIME, f"{where} has no TASK", "Give the dotted path of a function declared with @task.")
        return None, reader.problems
    entry = reader.options(Schedule, options, where, name=name, task="", time_zone=time_zone)
    if not reader.problems and (entry.every_s is None) == (entry.cron is None):
        said = "both EVERY_S and CRON" if entry.cron is not None else "neither EVERY_S nor CRON"
        reader.note(NO_TIME, f"{where} has {said}", "Give exactly one of them.")
    return (None if reader.problems else entry), reader.problems


def checked(name: object, options: Mapping[str, Any], *, time_zone: str) -> Schedule:
    """Read an entry from keyword arguments such as task=..., every_s=60. Raises ValueError that lists all mistakes."""
    given = {key.upper(): value for key, value in options.items() if value is not None}
    entry, problems = from_options(name, given, time_zone=time_zone)
    if entry is None:
        raise ValueError("; ".join(f"{problem.message}: {problem.hint}" for problem in problems))
    return entry


def from_json(name: str, text: str) -> Schedule:
    """Read a stored definition. Raises ValueError for anything else."""
    options = _stored_options(name, text)
    options.pop(SIGNATURE, None)
    return checked(name, options, time_zone="UTC")


def signature_in(name: str, text: str) -> str:
    """Return the signature of a stored definition; "" without one. Raises ValueError for what is no definition."""
    signature = _stored_options(name, text).get(SIGNATURE)
    return signature if isinstance(signature, str) else ""


def _stored_options(name: str, text: str) -> dict[str, Any]:
    try:
        options = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"schedule {name!r} is stored as what is no JSON: {error}") from error
    if not isinstance(options, dict) or not all(isinstance(key, str) for key in options):
        raise ValueError(f"schedule {name!r} is stored as what is no JSON object")
    return options
