"""Converters between Python values and JSON, each for one annotation: `date`, `list[UUID]`, `Order | None`.

A converter is made once for each function. It never reads the name of a class from JSON: the annotation alone says
which class a value becomes. There is no converter for what JSON has anyway (`int`, `list[str]`), nor for an annotation
that leaves open what a text becomes (`date | str`): such values travel as they are.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ClassVar, NewType, Protocol, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from django.db.models import Model
from django.utils.dateparse import parse_duration
from django.utils.duration import duration_iso_string

from .canonical import decimal_text, moment_text, number_as
from .model_instances import InstanceConverter, has_instances
from .validated import Validated
from .wrong_value import WrongValue


class Converter(Protocol):
    """Turns values of one annotation into JSON and back."""

    @property
    def uses_database(self) -> bool:
        """Whether read() asks the database."""

    def write(self, value: Any) -> Any:
        """Return the JSON of a value; a value that is this JSON already is checked and returned. Raises WrongValue."""

    def read(self, value: Any) -> Any:
        """Return the value of JSON. Raises WrongValue."""

    def canonical(self, value: Any) -> Any:
        """Return the one JSON of all JSON whose values are equal; never asks the database. Raises WrongValue."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A class whose values are written as a text, or as a number."""

    kind: type
    expected: str
    to_json: Callable[[Any], Any]
    parse: Callable[[Any], Any]
    #: The types of JSON that are read.
    accepts: tuple[type, ...] = (str,)
    #: Default: to_json, for values that are equal only if their JSON is.
    to_canonical: Callable[[Any], Any] | None = None
    uses_database: ClassVar[bool] = False

    def write(self, value: Any) -> Any:
        """See Converter."""
        if isinstance(value, self.kind) and not (self.kind is date and isinstance(value, datetime)):
            return self.to_json(value)
        self.read(value)
        return value

    def read(self, value: Any) -> Any:
        """See Converter."""
        if type(value) in self.accepts:
            try:
                found = self.parse(value)
            except (ValueError, ArithmeticError, KeyError, TypeError) as error:
                raise WrongValue.text(f"must be {self.expected}, and this one is not") from error
            if found is not None:
                return found
        raise WrongValue(f"must be {self.expected}", value)

    def canonical(self, value: Any) -> Any:
        """See Converter."""
        return (self.to_canonical or self.to_json)(self.read(value))


def _duration(value: str | float) -> timedelta | None:
    return parse_duration(value) if isinstance(value, str) else timedelta(seconds=value)


def _finite(value: str | float) -> Decimal | None:
    number = Decimal(str(value))
    if not number.is_finite():
        raise ValueError(value)
    return number


def _finite_text(value: Decimal) -> str:
    if not value.is_finite():
        raise WrongValue.text("must be a finite number")
    return str(value)


_NUMBERS = (str, int, float)
#: Their dataclasses are what workers pass to functions: contexts, messages, failures of a workflow.
_LIBRARIES = ("rsmq_django.", "django.", "django_tasks.")
SCALAR_CONVERTERS: Mapping[type, Converter] = {
    each.kind: each
    for each in (
        Scalar(
            datetime,
            "a datetime or its ISO text",
            datetime.isoformat,
            datetime.fromisoformat,
            to_canonical=moment_text,
        ),
        Scalar(date, "a date or its ISO text", date.isoformat, date.fromisoformat),
        Scalar(time, "a time or its ISO text", time.isoformat, time.fromisoformat),
        Scalar(timedelta, "a timedelta, its ISO text or seconds", duration_iso_string, _duration, _NUMBERS),
        Scalar(UUID, "a UUID or its text", str, UUID),
        Scalar(Decimal, "a Decimal, its text or a number", _finite_text, _finite, _NUMBERS, decimal_text),
    )
}


@dataclass(frozen=True, slots=True)
class Number:
    """A number that JSON has. It travels as it is, so only keys of calls need this converter."""

    kind: type
    uses_database: ClassVar[bool] = False

    def write(self, value: Any) -> Any:
        """See Converter."""
        return value

    def read(self, value: Any) -> Any:
        """See Converter."""
        return value

    def canonical(self, value: Any) -> Any:
        """See Converter."""
        return number_as(self.kind, value)


#: For keys of calls.
CANONICAL_SCALARS: Mapping[type, Converter] = {
    **SCALAR_CONVERTERS,
    **{kind: Number(kind) for kind in (int, float, bool)},
}


_JSON_SCALARS = frozenset({bool, float, int, str})
_JSON_TYPES = (*_JSON_SCALARS, list, dict, types.NoneType)


def _of_enum(kind: type[Enum]) -> Converter | None:
    values = [member.value for member in kind]
    if not values or not _JSON_SCALARS.issuperset(map(type, values)):
        return None
    return Scalar(
        kind, f"a member of {kind.__name__} or its value", lambda member: member.value, kind, tuple(map(type, values))
    )


@dataclass(frozen=True, slots=True)
class Nullable:
    """A value or None."""

    inner: Converter

    @property
    def uses_database(self) -> bool:
        """See Converter."""
        return self.inner.uses_database

    def write(self, value: Any) -> Any:
        """See Converter."""
        return None if value is None else self.inner.write(value)

    def read(self, value: Any) -> Any:
        """See Converter."""
        return None if value is None else self.inner.read(value)

    def canonical(self, value: Any) -> Any:
        """See Converter."""
        return None if value is None else self.inner.canonical(value)


@dataclass(frozen=True, slots=True)
class Items:
    """A list, or a tuple of any length, of values with one annotation."""

    make: Callable[[Iterable[Any]], Any]
    #: None: the items are JSON.
    inner: Converter | None

    @property
    def uses_database(self) -> bool:
        """See Converter."""
        return self.inner is not None and self.inner.uses_database

    def write(self, value: Any) -> Any:
        """See Converter."""
        if self.inner is None:
            return list(self._checked(value))
        return [_at(f"[{n}]", self.inner.write, each) for n, each in enumerate(self._checked(value))]

    def read(self, value: Any) -> Any:
        """See Converter."""
        if self.inner is None:
            return self.make(self._checked(value))
        if isinstance(self.inner, InstanceConverter):
            return self.make(self.inner.read_all(self._checked(value)))
        return self.make(_at(f"[{n}]", self.inner.read, each) for n, each in enumerate(self._checked(value)))

    def canonical(self, value: Any) -> Any:
        """See Converter."""
        return [each if self.inner is None else self.inner.canonical(each) for each in self._checked(value)]

    @staticmethod
    def _checked(value: Any) -> Sequence[Any]:
        if not isinstance(value, (list, tuple)):
            raise WrongValue("must be a list or tuple", value)
        return value


@dataclass(frozen=True, slots=True)
class FixedTuple:
    """A tuple with an annotation for each item."""

    inner: Sequence[Converter | None]

    @property
    def uses_database(self) -> bool:
        """See Converter."""
        return any(each.uses_database for each in self.inner if each is not None)

    def write(self, value: Any) -> Any:
        """See Converter."""
        return self._converted(value, "write")

    def read(self, value: Any) -> Any:
        """See Converter."""
        return tuple(self._converted(value, "read"))

    def canonical(self, value: Any) -> Any:
        """See Converter."""
        return self._converted(value, "canonical")

    def _converted(self, value: Any, way: str) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise WrongValue("must be a list or tuple", value)
        if len(value) != len(self.inner):
            raise WrongValue.text(f"must have {len(self.inner)} items, and this one has {len(value)}")
        pairs = enumerate(zip(self.inner, value, strict=True))
        return [each if of is None else _at(f"[{n}]", getattr(of, way), each) for n, (of, each) in pairs]


@dataclass(frozen=True, slots=True)
class Values:
    """A dictionary whose keys are texts."""

    inner: Converter

    @property
    def uses_database(self) -> bool:
        """See Converter."""
        return self.inner.uses_database

    def write(self, value: Any) -> Any:
        """See Converter."""
        return {key: _at(f"[{key!r}]", self.inner.write, each) for key, each in self._checked(value).items()}

    def read(self, value: Any) -> Any:
        """See Converter."""
        return {key: _at(f"[{key!r}]", self.inner.read, each) for key, each in self._checked(value).items()}

    def canonical(self, value: Any) -> Any:
        """See Converter."""
        return {key: self.inner.canonical(each) for key, each in self._checked(value).items()}

    @staticmethod
    def _checked(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise WrongValue("must be a dictionary", value)
        return value


@dataclass(slots=True)
class Fields:
    """A dataclass, written as an object of its fields. Unknown fields of JSON are ignored: a newer sender has them."""

    kind: type
    #: By name; None for fields that are JSON.
    inner: dict[str, Converter | None] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    uses_database: bool = False

    def write(self, value: Any) -> Any:
        """See Converter."""
        if type(value) is self.kind:  # what a subclass has in addition would be lost
            found = {name: getattr(value, name) for name in self.inner}
            self._check_again(value, found)
            value = found
        return self._converted(value, "write")

    def read(self, value: Any) -> Any:
        """See Converter."""
        return self._made(self._converted(value, "read"))

    def canonical(self, value: Any) -> Any:
        """See Converter."""
        found = self._converted(value, "canonical")
        return dict(self._left_out(found)) | found

    def _left_out(self, found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield the fields that an object of JSON leaves out, with the canonical JSON of their defaults."""
        for each in dataclasses.fields(self.kind):
            if each.name not in self.inner or each.name in found:
                continue
            default = each.default if each.default_factory is MISSING else each.default_factory()
            if each.default_factory is not MISSING and default != each.default_factory():
                continue  # a new value each time, such as an id
            of = self.inner[each.name]
            if of is None and isinstance(default, _JSON_TYPES):
                yield each.name, default
            with suppress(WrongValue):  # a default that is no value of its annotation
                if of is not None:
                    yield each.name, of.canonical(of.write(default))

    def _made(self, found: dict[str, Any]) -> Any:
        try:
            return self.kind(**found)
        except (TypeError, ValueError) as error:  # of its __post_init__
            raise WrongValue.text(f"is refused by {self.kind.__name__} ({type(error).__name__})") from error

    def _check_again(self, value: Any, found: dict[str, Any]) -> None:
        """Refuse a value whose fields another object, made as the worker makes it, would not have."""
        again = self._made(found)
        for name in [each.name for each in dataclasses.fields(self.kind) if each.compare]:
            sent, read = getattr(value, name, MISSING), getattr(again, name, MISSING)
            if not (sent is read or sent == read):
                raise WrongValue.text(f"would arrive with another value of {self.kind.__name__}.{name}")

    def _converted(self, value: Any, way: str) -> dict[str, Any]:
        name = self.kind.__name__
        if not isinstance(value, dict):
            raise WrongValue(f"must be {name} or an object of its fields", value)
        missing = self.required - value.keys()
        if missing:
            raise WrongValue.text(f"lacks the field {min(missing)!r} of {name}")
        return {
            key: value[key] if of is None else _at(f".{key}", getattr(of, way), value[key])
            for key, of in self.inner.items()
            if key in value
        }


def _at(place: str, convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return convert(value)
    except WrongValue as error:
        raise error.inside(place) from error.__cause__


# -- From annotations --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Known:
    """The converters that exist while that of an annotation is made."""

    scalars: Mapping[type, Converter]
    #: The dataclasses around it, which may contain themselves.
    dataclasses: dict[type, Fields] = field(default_factory=dict)


def converter_of(hint: Any, scalars: Mapping[type, Converter] = SCALAR_CONVERTERS) -> Converter | None:
    """Return the converter of an annotation; None where values travel as they are."""
    return _converter_of(hint, _Known(scalars))


def _converter_of(hint: Any, known: _Known) -> Converter | None:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated or isinstance(hint, NewType):
        return _converter_of(arguments[0] if arguments else hint.__supertype__, known)
    if hasattr(hint, "__value__") and type(hint).__name__ == "TypeAliasType":  # `type Day = date`, Python 3.12
        return _converter_of(hint.__value__, known)
    if origin in (Union, types.UnionType):
        others = [each for each in arguments if each is not type(None)]
        inner = _converter_of(others[0], known) if len(others) == 1 else None
        return None if inner is None else Nullable(inner)
    if hint is tuple or origin is tuple:
        return _of_tuple(arguments, known)
    if isinstance(origin, type) and len(arguments) in (1, 2):
        return _of_container(origin, arguments, known)
    return _of_class(hint, known) if isinstance(hint, type) else None


def _of_tuple(arguments: Sequence[Any], known: _Known) -> Converter:
    if not arguments:
        return Items(tuple, None)
    if len(arguments) == 2 and arguments[1] is ...:
        return Items(tuple, _converter_of(arguments[0], known))
    return FixedTuple([_converter_of(each, known) for each in arguments])


def _of_container(origin: type, arguments: Sequence[Any], known: _Known) -> Converter | None:
    inner = _converter_of(arguments[-1], known)
    if inner is None or origin.__module__ not in ("builtins", "collections.abc"):  # a project's own class
        return None
    if len(arguments) == 2:
        return Values(inner) if issubclass(dict, origin) and arguments[0] is str else None
    return Items(list, inner) if issubclass(list, origin) else None


def _of_class(kind: type, known: _Known) -> Converter | None:
    if kind in known.scalars:
        return known.scalars[kind]
    if issubclass(kind, Enum):
        return _of_enum(kind)
    if issubclass(kind, Model):
        return InstanceConverter(kind) if has_instances(kind) else None
    if kind.__module__.startswith(_LIBRARIES):
        return None
    if dataclasses.is_dataclass(kind):
        return known.dataclasses[kind] if kind in known.dataclasses else _of_dataclass(kind, known)
    if callable(getattr(kind, "model_validate", None)) and callable(getattr(kind, "model_dump", None)):
        return Validated(kind)
    return None


def _of_dataclass(kind: type, known: _Known) -> Converter | None:
    found = known.dataclasses[kind] = Fields(kind)
    try:
        hints = get_type_hints(kind)
    except Exception:  # a name that exists only for type checkers
        hints = {}
    own = [each for each in dataclasses.fields(kind) if each.init]
    found.inner = {each.name: _converter_of(hints.get(each.name), known) for each in own}
    found.required = frozenset(each.name for each in own if each.default is MISSING is each.default_factory)
    found.uses_database = any(each.uses_database for each in found.inner.values() if each is not None)
    return found
