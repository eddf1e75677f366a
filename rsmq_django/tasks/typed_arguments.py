"""Arguments and return values by the annotations of a task's function: JSON in the message, Python values in the task.

The table of a function is made once, before its first call is sent or run: all names in its annotations exist by then.
A function without annotations that need a converter has no table, and its calls pass nothing of this module.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any

from asgiref.sync import sync_to_async

from .arguments import Called, signature_of
from .converters import Converter, Nullable, converter_of
from .wrong_value import WrongValue

Function = Callable[..., Any]
Converted = tuple[list[Any], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TypedArguments:
    """The converters of a function's parameters."""

    #: Of the positional parameters, with their names; the context is one of them.
    by_position: Sequence[tuple[str, Converter | None]]
    by_name: Mapping[str, Converter | None]
    #: Of `*args` and `**kwargs`.
    rest: Converter | None
    others: Converter | None

    @property
    def uses_database(self) -> bool:
        """Return whether read() asks the database."""
        found = [*(each for _, each in self.by_position), *self.by_name.values(), self.rest, self.others]
        return any(each.uses_database for each in found if each is not None)

    def write(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, given: int) -> Converted:
        """Return the arguments of a call as JSON; `given` ones are put in front of them later.

        Raises WrongValue, which names the argument.
        """
        return self._converted(args, kwargs, given, "write")

    def read(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, given: int) -> Converted:
        """Return the arguments for the function; the first `given` ones of it are not among them.

        Raises WrongValue, which names the argument, and MissingObject.
        """
        return self._converted(args, kwargs, given, "read")

    async def aread(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, given: int) -> Converted:
        """See read(); asks the database in the thread that async code has for it."""
        if self.uses_database:
            return await sync_to_async(self.read)(args, kwargs, given=given)
        return self.read(args, kwargs, given=given)

    def _converted(self, args: Sequence[Any], kwargs: Mapping[str, Any], given: int, way: str) -> Converted:
        places, known = self.by_position[given:], len(self.by_position) - given
        found = [_converted(name, of, each, way) for (name, of), each in zip(places, args, strict=False)]
        found += [_converted(str(known + n + 1), self.rest, each, way) for n, each in enumerate(args[max(known, 0) :])]
        named = {
            name: _converted(name, self.by_name.get(name, self.others), each, way) for name, each in kwargs.items()
        }
        return found, named


def _converted(name: str, converter: Converter | None, value: Any, way: str) -> Any:
    if converter is None:
        return value
    try:
        return getattr(converter, way)(value)
    except WrongValue as error:
        shown = name if name.isdecimal() else repr(name)
        raise WrongValue.text(f"argument {shown}{error.place} {error}") from error.__cause__
    except RecursionError as error:
        raise WrongValue.text(f"argument {name!r} is too deep, or contains itself") from error


@dataclass(frozen=True, slots=True)
class Types:
    """What the annotations of a function say."""

    #: None for a function whose arguments all travel as they are.
    arguments: TypedArguments | None = None
    #: Of the return value; None if it travels as it is.
    returned: Converter | None = None


@cache
def types_of(function: Function) -> Types:
    """Return what the annotations of a function say."""
    try:
        parameters = signature_of(function).parameters.values()
    except (ValueError, NameError):  # written in C; a name that exists only for type checkers, Python 3.14
        return Types()
    hints = _hints(function)
    made = {p.name: _of_parameter(p, hints.get(p.name)) for p in parameters}
    returned = converter_of(hints.get("return"))
    if returned is not None and returned.uses_database:
        returned = None  # a result can be read without the database
    if not any(made.values()):
        return Types(None, returned)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    variable = {p.kind: made[p.name] for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    arguments = TypedArguments(
        [(p.name, made[p.name]) for p in parameters if p.kind in positional],
        {p.name: made[p.name] for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)},
        variable.get(inspect.Parameter.VAR_POSITIONAL),
        variable.get(inspect.Parameter.VAR_KEYWORD),
    )
    return Types(arguments, returned)


def types_of_task(task: Called) -> Types:
    """Return what the annotations of a task say; nothing for a function that gets batches of calls."""
    return types_of(task.func) if task.batch is None else Types()


def as_sent(
    task: Called, args: Sequence[Any], kwargs: Mapping[str, Any], *, is_given_result: bool = False
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of a call as the JSON to send. Raises TypeError with the task and the argument.

    JSON of an earlier call is checked and returned as it is.
    """
    types = types_of_task(task).arguments
    if types is None:
        return args, kwargs
    try:
        return types.write(args, kwargs, given=task.takes_context + is_given_result)
    except WrongValue as error:
        raise TypeError(f"{task.module_path}: {error}") from error


def as_json_if_fits(converter: Converter, value: Any) -> Any:
    """Return the JSON of a value; a value that does not fit its annotation as it is."""
    try:
        return converter.write(value)
    except WrongValue:
        return value


def as_returned(task: Called, value: Any) -> Any:
    """Return what a task returned, from the JSON of its result; JSON that does not fit the annotation as it is."""
    returned = types_of_task(task).returned
    if returned is None:
        return value
    try:
        return returned.read(value)
    except Exception:  # of an earlier release; or the project's class refuses it, with any error
        return value


def _of_parameter(parameter: inspect.Parameter, hint: Any) -> Converter | None:
    found = converter_of(hint)
    return Nullable(found) if found is not None and parameter.default is None else found


def _hints(function: Function) -> dict[str, Any]:
    """Return the annotations by name, without those that cannot be read: their values travel as they are."""
    inner = inspect.unwrap(function)
    found = dict[str, Any]()
    for name, hint in _annotations(inner).items():
        holder = FunctionType(_nothing.__code__, getattr(inner, "__globals__", {}))
        holder.__annotations__ = {name: hint}
        with suppress(Exception):  # for example a name that exists only for type checkers
            found |= typing.get_type_hints(holder)
    return found


def _nothing() -> None: ...


def _annotations(function: Function) -> dict[str, Any]:
    if "annotationlib" not in sys.stdlib_module_names:  # before Python 3.14
        return dict(getattr(function, "__annotations__", None) or {})
    module: Any = import_module("annotationlib")
    return dict(module.get_annotations(function, format=module.Format.FORWARDREF))
