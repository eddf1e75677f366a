"""OPTIONS of a backend in Django's `TASKS`: defaults for the options of its tasks, and what enqueueing waits for."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from ..conf.options import FLAG_OR_TEXT, nearest, shown
from .options import TaskOptions

#: Options of `@task` that have the same meaning for every task.
TASK_OPTIONS = (
    "max_attempts",
    "backoff",
    "retry_on",
    "give_up_on",
    "timeout_s",
    "hard_timeout_s",
    "result_ttl_s",
    "expires_in_s",
    "ack",
)
ENQUEUE_ON_COMMIT = "enqueue_on_commit"
KNOWN = (*TASK_OPTIONS, ENQUEUE_ON_COMMIT)
#: Functions and classes, which settings may name by their dotted paths.
_IMPORTED = ("backoff", "retry_on", "give_up_on")
_DEFAULTS = TaskOptions()


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """The OPTIONS of one backend."""

    #: Defaults for tasks, by the name of the option.
    task_defaults: Mapping[str, Any] = field(default_factory=dict)
    #: As RSMQ["TASKS"]["ENQUEUE_ON_COMMIT"], for calls sent by this backend; None: that one.
    enqueue_on_commit: bool | str | None = None
    #: Pairs of problem and hint. Options with a problem are not above.
    problems: tuple[tuple[str, str], ...] = ()


def read_backend_options(alias: str, given: Any) -> BackendOptions:
    """Return the OPTIONS of `TASKS[alias]`. Raises nothing: mistakes are in `problems`."""
    where = f"TASKS[{alias!r}]['OPTIONS']"
    if not isinstance(given, Mapping):
        return BackendOptions(problems=((f"{where} is {shown(given)}", "It must be a dictionary."),))
    valid: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    for name, value in given.items():
        if name not in KNOWN:
            problems.append((f"{where} has an unknown option {shown(name)}", nearest(str(name).lower(), KNOWN)))
            continue
        try:
            valid[name] = _checked(name, value)
        except ValueError as error:
            problems.append((f"{where}[{name!r}] cannot be used", f"{error}."))
    own = {name: value for name, value in valid.items() if name != ENQUEUE_ON_COMMIT}
    try:
        TaskOptions(**own)
    except ValueError as error:  # two options that do not go together
        problems.append((f"{where} cannot be used", f"{error}."))
        own = {}
    return BackendOptions(own, valid.get(ENQUEUE_ON_COMMIT), tuple(problems))


def _checked(name: str, value: Any) -> Any:
    if name == ENQUEUE_ON_COMMIT:
        if not FLAG_OR_TEXT.accepts(value) or (isinstance(value, str) and value not in settings.DATABASES):
            raise ValueError(f"{name} is {shown(value)}; it must be True, False or an alias in DATABASES")
        return value
    if name in _IMPORTED:
        value = _imported(value)
    TaskOptions(**{name: value})
    return value


def _imported(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return import_string(value)
        except Exception as error:  # no dotted path, or code of the project, which may raise anything
            said = f"{type(error).__name__}: {error}"
            raise ValueError(f"{shown(value)} is not the dotted path of a function or class: {said}") from error
    return tuple(map(_imported, value)) if isinstance(value, list | tuple) else value


def with_defaults(
    given: Mapping[str, Any], defaults: Mapping[str, Any], *, named: Container[str]
) -> Iterator[tuple[str, Any]]:
    """Yield the options of a task; options that are left out have the defaults of its backend.

    An option in `named` was written down, so that it counts also with its built-in value.
    """
    for name, value in given.items():
        is_left_out = name in defaults and name not in named and value is getattr(_DEFAULTS, name)
        yield name, defaults[name] if is_left_out else value
