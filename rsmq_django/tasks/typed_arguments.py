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
from .converters import CANONICAL_SCALARS, SCALAR_CONVERTERS, Converter, Nullable, converter_of
from .wrong_value import WrongValue

Function = Callable[..., Any]
#: A function written in C; a name that exists only for type checkers, Python 3.14.
_NO_SIGNATURE = (ValueError, NameError)
Converted = tuple[list[Any], dict[str, Any]]
#: Of the name of an argument, its converter and its value.
Convert = Callable[[str, Converter | None, Any], Any]


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
        return self._converted(args, kwargs, given, _written)

    def read(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, given: int) -> Converted:
        """Return the arguments for the function; the first `given` ones of it are not among them.

        Raises WrongValue, which names the argument, and MissingObject.
        """
        return self._converted(args, kwargs, given, _read)

    async def aread(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, given: int) -> Converted:
        """See read(); asks the database in the thread that async code has for it."""
        if self.uses_database:
            return await sync_to_async(self.read)(args, kwargs, given=given)
        return self.read(args, kwargs, given=given)

    def canonical(self, args: Sequence[Any], kwargs: Mapping[str, Any], *, given: int) -> Converted:
        """Return the JSON of a call in the form that is the same for equal values.

        Values that do not fit their annotation are returned as they are: the call will fail where it runs.
        """
        return self._converted(args, kwargs, given, _canonical)

    def canonical_default(self, name: str, value: Any) -> Any:
        """Return the canonical JSON of a parameter's default."""
        converter = self.by_name.get(name) or dict(self.by_position).get(name)
        with suppress(WrongValue):
            return value if converter is None else converter.canonical(converter.write(value))
        return value

    def _converted(self, args: Sequence[Any], kwargs: Mapping[str, Any], given: int, convert: Convert) -> Converted:
        places, known = self.by_position[given:], len(self.by_position) - given
        found = [convert(name, of, each) for (name, of), each in zip(places, args, strict=False)]
        found += [convert(str(known + n + 1), self.rest, each) for n, each in enumerate(args[max(known, 0) :])]
        named = {name: convert(name, self.by_name.get(name, self.others), each) for name, each in kwargs.items()}
        return found, named


def _written(name: str, converter: Converter | None, value: Any) -> Any:
    return value if converter is None else _named(name, converter.write, value)


def _read(name: str, converter: Converter | None, value: Any) -> Any:
    return value if converter is None else _named(name, converter.read, value)


def _canonical(_name: str, converter: Converter | None, value: Any) -> Any:
    with suppress(WrongValue, RecursionError):
        return value if converter is None else converter.canonical(value)
    return value


def _named(name: str, convert: Callable[[Any], Any], value: Any) -> Any:
    """Return a value converted. Raises WrongValue, which names the argument."""
    try:
        return convert(value)
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
        arguments = _arguments_of(function, SCALAR_CONVERTERS)
    except _NO_SIGNATURE:
        return Types()
    returned = converter_of(_hints(function).get("return"))
    if returned is not None and returned.uses_database:
        returned = None  # a result can be read without the database
    return Types(arguments, returned)


@cache
def types_in_keys(function: Function) -> TypedArguments | None:
    """Return the converters of a function's arguments for keys of its calls, in which numbers have one, too."""
    try:
        return _arguments_of(function, CANONICAL_SCALARS)
    except _NO_SIGNATURE:
        return None


def _arguments_of(function: Function, scalars: Mapping[type, Converter]) -> TypedArguments | None:
    parameters, hints = signature_of(function).parameters.values(), _hints(function)
    made = {p.name: _of_parameter(p, hints.get(p.name), scalars) for p in parameters}
    if not any(made.values()):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    variable = {p.kind: made[p.name] for p in parameters if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    return TypedArguments(
        [(p.name, made[p.name]) for p in parameters if p.kind in positional],
        {p.name: made[p.name] for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)},
        variable.get(inspect.Parameter.VAR_POSITIONAL),
        variable.get(inspect.Parameter.VAR_KEYWORD),
    )


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


def _of_parameter(parameter: inspect.Parameter, hint: Any, scalars: Mapping[type, Converter]) -> Converter | None:
    found = converter_of(hint, scalars)
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
