"""Explanations for arguments that JSON cannot represent, and what to pass instead: the texts of an error."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any
from uuid import UUID

from django.db.models import Model
from django.utils.functional import Promise

#: Limits of the search, because arguments may refer to themselves.
MAX_DEPTH, MAX_VALUES = 50, 100_000
OTHERWISE = "ids, numbers, text, lists, dicts"


def blamed_argument(args: Sequence[Any], kwargs: Mapping[str, Any], *, names: Sequence[str]) -> str:
    """Return an explanation for the first argument that JSON cannot represent; "" when none is found.

    `names` are those of the first positional arguments; the others are called by their numbers.
    """
    shown = [*map(repr, names[: len(args)]), *(str(number + 1) for number in range(len(names), len(args)))]
    values = [*zip(shown, args, strict=True), *((repr(name), kwargs[name]) for name in kwargs)]
    return _first(said for where, value in values for said in _problems(value, f"argument {where}", 0))


def blamed_value(value: Any, where: str) -> str:
    """Return an explanation for the first part of a value that JSON cannot represent, or ""."""
    return _first(_problems(value, where, 0))


def _first(looks: Iterable[str]) -> str:
    return next(filter(None, islice(looks, MAX_VALUES)), "")


def _problems(value: Any, where: str, depth: int) -> Iterator[str]:
    """Yield a text for each checked value, "" for a value that JSON can represent."""
    yield ""
    if depth > MAX_DEPTH or value is None or isinstance(value, (bool, int, str)):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            yield f"{where} is {value!r}, which JSON lacks; pass None or a text instead"
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from _problems(each, f"{where}[{number}]", depth + 1)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key is not None and not isinstance(key, (str, int, float, bool)):
                yield f"{where} has the key {key!r}, which JSON lacks; keys are texts"
            yield from _problems(each, f"{where}[{key!r}]", depth + 1)
    else:
        name = type(value).__name__
        article = "an" if name[0] in "aeioAEIO" else "a"
        # Django's own error for it begins with the same words.
        said = f"Unsupported type: {where} is {article} {name}, which JSON lacks; pass {_instead(value)}"
        is_typed = where.startswith("argument ") and _has_annotation(value)
        yield f"{said}; or annotate the parameter with its type" if is_typed else said


def _has_annotation(value: Any) -> bool:
    """Return whether an argument of this type can be sent when the parameter has an annotation."""
    if isinstance(value, type):
        return False
    kinds = (date, time, timedelta, Decimal, Enum, Model, UUID)
    return isinstance(value, kinds) or is_dataclass(value) or hasattr(value, "model_dump")


def _instead(value: Any) -> str:
    if isinstance(value, type) or inspect.isroutine(value):
        return "its name, and look it up in the task"
    if isinstance(value, Promise):  # of gettext_lazy()
        return "its text (str(value))"
    if hasattr(value, "values_list"):
        return "the primary keys (list(queryset.values_list('pk', flat=True)))"
    if hasattr(value, "pk"):
        return "its primary key (.pk), and read the row in the task"
    if hasattr(value, "isoformat"):
        return "its text (.isoformat()), and read it with fromisoformat() in the task"
    if isinstance(value, timedelta):
        return "its seconds (.total_seconds())"
    if isinstance(value, Enum):
        return "its value (.value)"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "text, or store it and pass its id"
    if isinstance(value, Iterable):
        return "a list (list(value))"
    has_text = any("__str__" in vars(kind) for kind in type(value).__mro__[:-1])  # the last one is object
    return "its text (str(value))" if has_text else OTHERWISE
