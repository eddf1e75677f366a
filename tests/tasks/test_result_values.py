"""Return values as JSON: the short way of single values writes what json.dumps() writes."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest

from rsmq_django.tasks import envelope, results
from rsmq_django.tasks.results import encode_value


class Colour(IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


STORABLE = [
    *(None, True, False, 0, -7, 2**70, 0.1, -1e300, "", "a", "\u00fc\U0001f600", 'say "yes"\n', "\ud800"),
    *(Colour.RED, Text("text")),
    *([], {}, [1, [2, None]], (1, "b"), {"a": {"b": [True]}}, {2: 2, None: 3, True: 4}, OrderedDict(b=1, a=2)),
]
NOT_STORABLE = [
    math.nan,
    math.inf,
    -math.inf,
    [math.nan],
    object(),
    {1, 2},
    b"bytes",
    Decimal(1),
    {"a": object()},
    {(1,): 2},
]


@pytest.fixture(autouse=True, params=["private", "public"])
def encoder_of_json(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with json's encoder in C, and without it."""
    if request.param == "public":
        make_encoder = envelope.tried(None)
        monkeypatch.setattr(results, "make_encoder", make_encoder)
        monkeypatch.setattr(results, "_encode", make_encoder(None, *results._OPTIONS))


@pytest.mark.parametrize("value", STORABLE, ids=repr)
def test_value_is_stored_as_json_dumps_writes_it(value: Any):
    assert encode_value(value) == json.dumps(value, allow_nan=False)


@pytest.mark.parametrize("value", NOT_STORABLE, ids=lambda value: type(value).__name__)
def test_value_that_json_lacks_is_refused_with_the_same_error(value: Any):
    with pytest.raises((TypeError, ValueError)) as expected:
        json.dumps(value, allow_nan=False)

    with pytest.raises(expected.type) as refusal:
        encode_value(value)

    assert str(refusal.value) == str(expected.value)


def test_value_that_contains_itself_is_refused():
    value: list[Any] = []
    value.append(value)

    with pytest.raises(ValueError, match="Circular reference"):
        encode_value(value)
