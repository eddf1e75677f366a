"""Checks that the arguments of a call fit the function: where the call is sent, and again in the worker.

A quick check decides for nearly all calls, by numbers and names that are prepared once for each function. Only the
remaining calls cost the few microseconds of `Signature.bind()`. Values are not checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

Function = Callable[..., Any]

_TAKES_ANYTHING = inspect.signature(lambda *args, **kwargs: None)


class Called(Protocol):
    """A task, as far as its arguments depend on it."""

    @property
    def func(self) -> Function:
        """Function of the task."""

    @property
    def module_path(self) -> str:
        """Dotted path of the function."""

    @property
    def takes_context(self) -> bool:
        """Whether the worker puts a context in front of the arguments."""

    @property
    def batch(self) -> int | None:
        """Maximum number of calls that the function gets at once; None: it gets one call."""


def check_arguments(
    task: Called, args: Sequence[Any], kwargs: Mapping[str, Any], *, is_given_result: bool = False
) -> None:
    """Raise TypeError, with the task and the missing or surplus arguments, when they do not fit.

    `is_given_result`: the workflow will put the previous result in front of them. A function that takes batches gets
    the calls as they are.
    """
    given = task.takes_context + is_given_result
    if task.batch is None and not surely_fit(task.func, len(args) + given, kwargs):
        text = misfit(task.func, args, kwargs, given=given)
        if text:
            raise TypeError(f"{task.module_path}{text}")


def surely_fit(function: Function, positional: int, kwargs: Mapping[str, Any]) -> bool:
    """Return whether this number of positional arguments and these others certainly fit; False: check further."""
    takes = _takes(function)
    if not kwargs:
        return positional in takes.positional
    if positional >= len(takes.by_keyword):
        return False
    required, allowed = takes.by_keyword[positional]
    return required <= kwargs.keys() <= allowed


def positional_counts(function: Function) -> range:
    """Return the numbers of positional arguments that certainly fit when there are no others."""
    return _takes(function).positional


def misfit(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], *, given: int) -> str:
    """Return the function's signature and why the arguments do not fit it; nothing when they do.

    `given` arguments are put in front of them, which the sender does not pass.
    """
    signature = _signature(function)
    try:
        # In JSON, every name is a text.
        signature.bind(*[None] * given, *args, **{str(name): value for name, value in kwargs.items()})
    except TypeError as error:
        parameters = signature.parameters.values()
        unknown = [name for name in kwargs if name not in signature.parameters]
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        more = "" if takes_any or not unknown or repr(unknown[0]) in str(error) else f"; it takes no {unknown[0]!r}"
        return f"{_as_called(signature, given)}: {error}{more}"
    return ""


@dataclass(frozen=True, slots=True)
class _Takes:
    """The parameters of a function, for a quick check."""

    #: Numbers of positional arguments that always fit without keyword arguments.
    positional: range
    #: For each number of positional arguments, the names that must be given by keyword, and the names that may be.
    by_keyword: Sequence[tuple[frozenset[str], frozenset[str]]]


@cache
def _takes(function: Function) -> _Takes:
    parameters = list(_signature(function).parameters.values())
    by_position = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    by_keyword_only = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    if len(by_position) + len(by_keyword_only) < len(parameters):  # *args, **kwargs or positional-only ones
        return _Takes(range(0), ())
    least = sum(p.default is p.empty for p in by_position)
    needs_keyword = any(p.default is p.empty for p in by_keyword_only)
    return _Takes(
        range(0) if needs_keyword else range(least, len(by_position) + 1),
        [_names([*by_position[count:], *by_keyword_only]) for count in range(len(by_position) + 1)],
    )


def _names(parameters: Sequence[inspect.Parameter]) -> tuple[frozenset[str], frozenset[str]]:
    required = frozenset(p.name for p in parameters if p.default is p.empty)
    return required, frozenset(p.name for p in parameters)


@cache
def signature_of(function: Function) -> inspect.Signature:
    """Return the signature of a task's function: to find it takes several times as long as to bind arguments to it.

    Raises ValueError for a function written in C without a signature.
    """
    return inspect.signature(function)


def _signature(function: Function) -> inspect.Signature:
    try:
        return signature_of(function)
    except ValueError:
        return _TAKES_ANYTHING


def positional_names(function: Function, *, given: int) -> list[str]:
    """Return the names of the parameters that take positional arguments, without the first `given` ones."""
    try:
        parameters = list(signature_of(function).parameters.values())[given:]
    except ValueError:  # written in C
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _as_called(signature: inspect.Signature, given: int) -> inspect.Signature:
    """Return the signature without what the sender does not see."""
    parameters = list(signature.parameters.values())
    seen = parameters[:given]
    if len(seen) < given or any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in seen):
        given = 0
    return signature.replace(parameters=[_without_text(parameter) for parameter in parameters[given:]])


class _Dots:
    """The text of a default that is not shown."""

    def __repr__(self) -> str:
        return "..."


_DOTS = _Dots()


def _without_text(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter whose default is "..." when it is a text, which may be a secret: errors are logged."""
    is_harmless = parameter.default is parameter.empty or isinstance(parameter.default, int | float | None)
    return parameter if is_harmless else parameter.replace(default=_DOTS)
