"""Middleware: code of a project around every task, in the order of `RSMQ["MIDDLEWARE"]`.

A middleware is any object with some of these methods; there is no base class:

    sending(call)               adds values that are sent with a call: `call.context["tenant"] = ...`
    encoded(call)               the call has its body, of `call.body_bytes`, and is sent next
    around(run)                 a context manager around the function; the first one listed is the outermost
    before(run)                 what it raises counts as raised by the task (`Postpone` runs it later, say)
    after(run, outcome)         the attempt has ended, with any outcome
    on_retry(run, outcome)      ... it failed and runs again
    on_dead_letter(run, outcome)  ... it failed for good
    flush()                     a worker process ends or is replaced: send the collected data

`run` is the task that runs (`CurrentTask`, with `context` as it was sent); `outcome` one of the types of
`rsmq_django.worker.outcomes`. The last three must not fail: what they raise is logged. An entry of the list is
a dotted path of a class, a function that returns one, or an object. Projects without middleware pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from inspect import isasyncgenfunction, iscoroutinefunction, unwrap
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils import translation
from django.utils.module_loading import import_string

from ..conf.settings import get_settings
from ..core.log_lines import get_logger
from .running import CurrentTask

__all__ = ["Carried", "ErrorReport", "Language", "LogDuration", "SentCall"]

logger = get_logger(__name__)

HOOKS = ("sending", "encoded", "around", "before", "after", "on_retry", "on_dead_letter", "on_discard", "flush")
#: The name of the schedule whose ticks are being prepared.
firing: ContextVar[str | None] = ContextVar("rsmq_firing", default=None)


@dataclass(slots=True)
class SentCall:
    """A call that is about to be sent, or calls of one task that are sent together."""

    task_path: str
    queue_name: str
    #: Part of the message; values that JSON can represent. Not encrypted unless the queue is.
    context: dict[str, Any] = field(default_factory=dict)
    #: The name of the schedule that sends it; None for calls of the project.
    schedule: str | None = None
    #: The ids of the calls: `CurrentTask.id` where they run.
    ids: Sequence[str] = ()
    #: Size of the bodies of all calls together; 0 before `encoded`.
    body_bytes: int = 0
    #: What a middleware keeps from `sending` to `encoded`; not sent.
    notes: dict[str, Any] = field(default_factory=dict)


class MiddlewareChain:
    """All middleware of the project, by method."""

    def __init__(self, members: list[Any]) -> None:
        hooks: dict[str, list[Callable[..., Any]]] = {
            name: [getattr(member, name) for member in members if hasattr(member, name)] for name in HOOKS
        }
        self._sending, self._encoded = hooks["sending"], hooks["encoded"]
        self._around, self._before, self._flush = hooks["around"], hooks["before"], hooks["flush"]
        self._after, self._on = (
            hooks["after"],
            {name: hooks[name] for name in ("on_retry", "on_dead_letter", "on_discard")},
        )

    @property
    def adds_context(self) -> bool:
        """Return whether any middleware may add values to calls, or looks at them."""
        return bool(self._sending or self._encoded)

    def sending(self, task_path: str, queue_name: str, ids: Sequence[str]) -> SentCall:
        """Return the calls, with the context to send. An error is raised to the sender, and nothing is sent."""
        call = SentCall(task_path, queue_name, schedule=firing.get(), ids=ids)
        for sending in self._sending:
            sending(call)
        return call

    def encoded(self, call: SentCall, bodies: Sequence[bytes]) -> None:
        """Report the bodies of the calls. An error is raised to the sender, and nothing is sent."""
        call.body_bytes = sum(map(len, bodies))
        for encoded in self._encoded:
            encoded(call)

    @contextmanager
    def around(self, run: CurrentTask) -> Iterator[None]:
        """Surround the call of the function."""
        with ExitStack() as stack:
            for around in self._around:
                stack.enter_context(around(run))
            for before in self._before:
                before(run)
            yield

    def tell(self, run: CurrentTask, outcome: object, event: str | None) -> None:
        """Report the outcome of an attempt; `event` is on_retry, on_dead_letter, on_discard or None."""
        for tell in [*self._after, *(self._on[event] if event else ())]:
            try:
                tell(run, outcome)
            except Exception:  # the project's code; the outcome of the task is already decided
                logger.exception("middleware %r failed after %s; the task is not concerned", tell, run.path)

    def flush(self) -> None:
        """Let each middleware send what it has collected: the process ends."""
        for flush in self._flush:
            try:
                flush()
            except Exception:  # the project's code
                logger.exception("middleware %r failed at the end of a process", flush)


@cache
def chain() -> MiddlewareChain | None:
    """Return the project's middleware, created at the first call; None without any.

    Raises ImproperlyConfigured, which names the entry that cannot be used.
    """
    members = [_made(entry) for entry in get_settings().middleware]
    return MiddlewareChain(members) if members else None


def _made(entry: Any) -> Any:
    try:
        made = import_string(entry) if isinstance(entry, str) else entry
        member = made() if callable(made) else made
    except Exception as error:  # the project's code is imported and called here
        raise ImproperlyConfigured(f"RSMQ['MIDDLEWARE'] has {entry!r}, which cannot be used: {error}") from error
    hooks = [name for name in HOOKS if hasattr(member, name)]
    if not hooks:
        raise ImproperlyConfigured(f"RSMQ['MIDDLEWARE'] has {entry!r}, which has none of {', '.join(HOOKS)}")
    for name in hooks:
        if _is_async(getattr(member, name)):  # nobody would await it
            raise ImproperlyConfigured(
                f"RSMQ['MIDDLEWARE'] has {entry!r}, whose {name} is async; make it a plain function, which is called "
                "for async tasks, too"
            )
    return member


def _is_async(hook: Any) -> bool:
    """Return whether a hook is a coroutine function, or an asynchronous generator, perhaps as a context manager."""
    return iscoroutinefunction(hook) or isasyncgenfunction(unwrap(hook))


@receiver(setting_changed)
def _forget(*, setting: str, **_: object) -> None:
    if setting == "RSMQ":
        chain.cache_clear()


# -- Shipped ----------------------------------------------------------------------------------------------------------


class Language:
    """Run tasks in the language that was active where they were sent."""

    def sending(self, call: SentCall) -> None:
        """Store the language."""
        call.context["language"] = translation.get_language()

    def around(self, run: CurrentTask) -> AbstractContextManager[None]:
        """Activate the language if the settings have it, else the language that Django finds in its place."""
        return translation.override(_supported(run.context.get("language")))


def _supported(language: object) -> str | None:
    # Django keeps in memory every language that was ever activated, and a message may name any.
    if not isinstance(language, str):
        return None if language is None else settings.LANGUAGE_CODE
    if language == settings.LANGUAGE_CODE or language in dict(settings.LANGUAGES):
        return language
    try:
        return translation.get_supported_language_variant(language)
    except LookupError:
        return settings.LANGUAGE_CODE


class Carried:
    """Send the values of context variables with each call: `Carried("shop.tenants.current_tenant")`.

    Each is a dotted path of a `ContextVar` whose value JSON can represent. In a task that was sent without it, the
    variable has its default.
    """

    def __init__(self, *paths: str) -> None:
        self._variables = {path: import_string(path) for path in paths}

    def sending(self, call: SentCall) -> None:
        """Store the values."""
        values = {path: variable.get(None) for path, variable in self._variables.items()}
        call.context["carried"] = {path: value for path, value in values.items() if value is not None}

    @contextmanager
    def around(self, run: CurrentTask) -> Iterator[None]:
        """Set the values."""
        values: Mapping[str, Any] = run.context.get("carried", {})
        known = {path: self._variables[path] for path in values if path in self._variables}
        tokens = [(variable, variable.set(values[path])) for path, variable in known.items()]
        try:
            yield
        finally:
            for variable, token in tokens:
                variable.reset(token)


class ErrorReport:
    """Report what tasks raise to an error tracker, Sentry unless another function is given.

    `report(error)` is called for failures that are final, and with `retries=True` for retried failures, too.
    """

    def __init__(self, report: Callable[[BaseException], object] | None = None, *, retries: bool = False) -> None:
        self._report = report or import_module("sentry_sdk").capture_exception
        if retries:
            self.on_retry = self._tell

    def on_dead_letter(self, run: CurrentTask, outcome: Any) -> None:
        """Report a failure that is final."""
        self._tell(run, outcome)

    def on_discard(self, run: CurrentTask, outcome: Any) -> None:
        """See on_dead_letter()."""
        self._tell(run, outcome)

    def _tell(self, run: CurrentTask, outcome: Any) -> None:
        self._report(outcome.error)


class LogDuration:
    """Write a log line for each attempt: task, run time and outcome."""

    def after(self, run: CurrentTask, outcome: object) -> None:
        """Write the log line."""
        ended = type(outcome).__name__.lower()
        run.logger.info("%s %s on attempt %d after %.3f s", run.path, ended, run.attempt, run.ran_for_s or 0.0)
