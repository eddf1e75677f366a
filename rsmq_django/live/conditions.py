"""Filters of a QuerySet without a database: the supported lookups, the check of a row, and the part for a source.

A condition is Django's `Q`. Most conditions of the admin are equalities joined by AND; those are passed to the
source, which can turn them into keys. The rest is checked row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import FieldError
from django.db import models
from django.db.models import Q

from .narrowing import NO_NARROWING, Narrowing

LOOKUPS: dict[str, Callable[[Any, Any], bool]] = {
    "exact": lambda a, b: a == b,
    "iexact": lambda a, b: str(a).lower() == str(b).lower(),
    "contains": lambda a, b: str(b) in str(a),
    "icontains": lambda a, b: str(b).lower() in str(a).lower(),
    "startswith": lambda a, b: str(a).startswith(str(b)),
    "istartswith": lambda a, b: str(a).lower().startswith(str(b).lower()),
    "in": lambda a, b: a in b,
    "gt": lambda a, b: a is not None and a > b,
    "gte": lambda a, b: a is not None and a >= b,
    "lt": lambda a, b: a is not None and a < b,
    "lte": lambda a, b: a is not None and a <= b,
    "isnull": lambda a, b: (a is None) is bool(b),
}
#: The value comes from a URL, as text, and is converted to the type of the field.
TYPED = {"exact", "gt", "gte", "lt", "lte"}

Model = type[models.Model]


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that a queryset selects, as far as a source can use the conditions."""

    #: Field -> its allowed values. All fields must match.
    equal: Mapping[str, frozenset[Any]]
    #: Whether there are no other conditions; else the queryset checks each row of a scan.
    is_exact: bool
    #: Words that must all occur in the searched texts of the row.
    words: tuple[str, ...]
    #: Whether words are also searched in texts that need a permission.
    searches_bodies: bool
    #: Names of fields, with "-" for descending.
    order_by: tuple[str, ...]
    #: Further conditions, for rows that are messages.
    narrowing: Narrowing = NO_NARROWING
    #: Where a scan begins: the end of an earlier scan, "" for the first row.
    begin: str = ""

    def values(self, field: str) -> frozenset[Any] | None:
        """Return the allowed values of a field; None for any value."""
        return self.equal.get(field)


def checked(model: Model, condition: Q) -> Q:
    """Return the condition. Raises FieldDoesNotExist, FieldError or ValidationError if rows cannot be compared."""
    for child in condition.children:
        if isinstance(child, Q):
            checked(model, child)
        elif isinstance(child, tuple):
            _converted(*_lookup(model, child[0]), child[1])
        else:
            raise FieldError(f"{model._meta.label} lives in Redis and cannot be filtered with {child!r}")
    return condition


def fits(row: models.Model, condition: Q) -> bool:
    """Return whether a row fulfils a condition."""
    answers = [fits(row, child) if isinstance(child, Q) else _is_true(row, child) for child in condition.children]
    if condition.connector == Q.AND:
        answer = all(answers)
    elif condition.connector == Q.OR:
        answer = any(answers) or not answers
    else:
        answer = sum(answers) % 2 == 1
    return answer is not condition.negated


def equalities(model: Model, conditions: Sequence[Q]) -> tuple[dict[str, frozenset[Any]], bool]:
    """Return the equalities that all rows must fulfil, and whether there are no other conditions."""
    equal: dict[str, frozenset[Any]] = {}
    is_exact = True
    for condition in conditions:
        if condition.negated or (condition.connector != Q.AND and len(condition.children) > 1):
            is_exact = False
            continue
        for child in condition.children:
            if isinstance(child, Q):
                inner, inner_is_exact = equalities(model, [child])
                is_exact = is_exact and inner_is_exact
            else:
                inner = _equality(model, child)
                is_exact = is_exact and bool(inner)
            for name, values in inner.items():
                equal[name] = equal[name] & values if name in equal else values
    return equal, is_exact


def _equality(model: Model, child: Any) -> dict[str, frozenset[Any]]:
    path, value = child
    field, lookup = _lookup(model, path)
    converted = _converted(field, lookup, value)
    if lookup in ("exact", "in"):
        return {field.name: frozenset(converted if lookup == "in" else [converted])}
    return {}


def _is_true(row: models.Model, child: Any) -> bool:
    path, value = child
    field, lookup = _lookup(type(row), path)
    return LOOKUPS[lookup](getattr(row, field.attname), _converted(field, lookup, value))


def _converted(field: models.Field[Any, Any], lookup: str, value: Any) -> Any:
    """Return the value of a condition in the type of the field. Raises ValidationError if it has no such value."""
    if lookup == "in":
        return [field.to_python(each) for each in value]
    return field.to_python(value) if lookup in TYPED else value


def _lookup(model: Model, path: str) -> tuple[models.Field[Any, Any], str]:
    name, _, lookup = path.partition("__")
    # get_field() raises FieldDoesNotExist for an unknown name, which the admin answers with ?e=1.
    field = field_named(model, name)
    if (lookup or "exact") not in LOOKUPS:
        raise FieldError(f"Unsupported lookup {path!r}: {model._meta.label} lives in Redis")
    return field, lookup or "exact"


def field_named(model: Model, name: str) -> models.Field[Any, Any]:
    """Return a field of the model; "pk" is its primary key."""
    pk = model._meta.pk
    field = pk if name == "pk" else model._meta.get_field(name)
    if not isinstance(field, models.Field):
        raise FieldError(f"{name!r} is not a plain field of {model._meta.label}")
    return field
