"""The converter of Pydantic's classes, and of any other class with the two methods that it calls."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from .canonical import canonical_dump
from .wrong_value import WrongValue

#: Where an object of Pydantic has its values.
_STATE = ("__dict__", "__pydantic_extra__", "__pydantic_private__")


@dataclass(frozen=True, slots=True)
class Validated:
    """A class in the manner of Pydantic: `model_dump()` gives JSON, and `model_validate()` reads it."""

    kind: Any
    uses_database: ClassVar[bool] = False

    def write(self, value: Any) -> Any:
        """See Converter. Refuses a value that the worker would get as another one."""
        if type(value) is not self.kind:  # what a subclass has in addition would be lost
            self.read(value)
            return value
        return self._json_of(value)

    def canonical(self, value: Any) -> Any:
        """See Converter."""
        first, second = self._canonical(value), self._canonical(value)
        return first if first == second else value  # the class fills in a new value each time, such as an id

    def _canonical(self, value: Any) -> Any:
        found = self.read(value)
        written = self._json_of(found)
        with suppress(Exception):  # another class that has the same methods
            return canonical_dump(written, found.model_dump(mode="python", round_trip=True, warnings=False))
        return written

    def _json_of(self, value: Any) -> Any:
        try:
            return self._written(value, by_alias=True)
        except WrongValue:
            with suppress(WrongValue):  # aliases that are only for what is written
                return self._written(value, by_alias=False)
            raise

    def _written(self, value: Any, *, by_alias: bool) -> Any:
        name = self.kind.__name__
        try:
            # Pydantic's warnings contain the value.
            written = value.model_dump(mode="json", by_alias=by_alias, round_trip=True, warnings=False)
        except (TypeError, ValueError) as error:
            raise WrongValue.text(f"cannot be written by {name} as JSON ({type(error).__name__})") from None
        try:
            is_same = _equal(self.read(written), value)
        except WrongValue as error:
            raise WrongValue.text(f"does not come back from its JSON: it {error}") from None
        if not is_same:
            raise WrongValue.text(f"does not come back from its JSON as an equal {name}")
        return written

    def read(self, value: Any) -> Any:
        """See Converter."""
        if not isinstance(value, dict):
            raise WrongValue(f"must be {self.kind.__name__} or an object of its fields", value)
        try:
            return self.kind.model_validate(value)
        except ValueError as error:  # its text contains the value
            raise WrongValue.text(f"is refused by {self.kind.__name__} ({_fields_of(error)})") from None


def _equal(one: Any, other: Any) -> bool:
    """Compare as == does, but also in the hour that a time zone repeats: there == is false between any two zones."""
    if one == other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, datetime):
        return bool(one.isoformat() == other.isoformat())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(each, other[key]) for key, each in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_equal, one, other))
    if not hasattr(one, _STATE[-1]):
        return False
    return all(_equal(getattr(one, name, None), getattr(other, name, None)) for name in _STATE)


def _fields_of(error: Any) -> str:
    """Return the places and types of Pydantic's errors, without the values."""
    try:
        found = error.errors(include_input=False, include_url=False, include_context=False)
        return ", ".join(f"{'.'.join(map(str, each['loc'])) or 'object'}: {each['type']}" for each in found[:3])
    except Exception:  # another class that has the same methods
        return type(error).__name__
