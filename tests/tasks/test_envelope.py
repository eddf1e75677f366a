"""The message body: accepted forms from any language, and bodies that no attempt can run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rsmq_django.tasks import envelope
from rsmq_django.tasks.envelope import Envelope, Unreadable, decode, new_envelope

MESSAGE_ID = "hoc1234567AbCdEfGhIjKlMnOpQrStUv"


def written(**fields) -> bytes:
    return json.dumps(fields).encode()


def reason_of(body: bytes) -> str:
    with pytest.raises(Unreadable) as caught:
        decode(body, message_id=MESSAGE_ID)
    return caught.value.reason


def test_envelope_survives_its_own_encoding():
    envelope = new_envelope("shop.tasks.ship", "pLq0", (1, "dva"), {"express": True})

    assert decode(envelope.encode(), message_id=MESSAGE_ID) == envelope


def test_meta_travels_with_the_call_and_is_absent_when_nothing_needs_it():
    plain = new_envelope("shop.tasks.ship", "pLq0", (), {})
    tagged = new_envelope("shop.tasks.ship", "pLq0", (), {}, {"tags": ["gold"]})

    assert b"meta" not in plain.encode()
    assert decode(tagged.encode(), message_id=MESSAGE_ID).meta == {"tags": ["gold"]}


def test_argument_that_contains_itself_is_refused_before_the_stack_is_used_up():
    cycle: list[Any] = []
    cycle.append({"again": cycle})

    with pytest.raises(ValueError, match="arguments of shop.tasks.send cannot be sent as JSON: Circular reference"):
        new_envelope("shop.tasks.send", "t1", [cycle], {}).encode()


def test_only_the_task_is_required_and_the_message_id_replaces_the_id():
    assert decode(b'{"task": "shop.tasks.ship"}', message_id=MESSAGE_ID) == Envelope(
        "shop.tasks.ship", MESSAGE_ID, [], {}
    )


def test_unknown_fields_of_other_programs_are_unchanged():
    body = written(task="shop.tasks.ship", trace="00-abc", v=1, kwargs={"order": 7})

    assert decode(body, message_id=MESSAGE_ID).kwargs == {"order": 7}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"plain text",
        b"\xff\xfe\xfd",
        b'{"task": "cut off',
        b"[" * 200_000,
        b"1" * 5000,
        b"null",
        b"[]",
        b'"shop.tasks.ship"',
        written(args=[1]),
        written(task=7),
        written(task="t", args={"a": 1}),
        written(task="t", kwargs=[1]),
        written(task="t", id=7),
        written(task="t", meta=[1]),
        written(task="t", id=""),
        written(task="t", id="x" * 64),
        written(task="t", id="half a pair: \ud83e"),
        written(task="t", id="two\nlines"),
    ],
    ids=lambda body: body[:30].decode("ascii", "backslashreplace"),
)
def test_body_that_is_not_a_call_is_undecodable(body):
    assert reason_of(body) == "undecodable"


@pytest.mark.parametrize("version", [2, 0, "1", None, [1], True])
def test_other_version_is_refused_instead_of_guessed(version):
    assert reason_of(written(task="t", v=version)) == "unknown_version"


def refuses_positions(*, markers: Any) -> Any:
    """A C encoder of a Python that calls it otherwise."""


def adds_spaces(*_: Any) -> Any:
    """A C encoder of a Python in which the options have another order."""
    return lambda value, _: (json.dumps(value),)


@pytest.mark.parametrize("of_this_python", [None, refuses_positions, adds_spaces])
def test_messages_are_the_same_without_the_private_encoder_of_json(of_this_python: Any):
    arguments: list[Any] = ["ü\u2028", 1, 2.5, True, None, [1, {"a": []}], "\ud800"]

    make = envelope.tried(of_this_python)

    assert make is not of_this_python
    expected = envelope.make_encoder({}, *envelope._OPTIONS)(arguments, 0)
    assert "".join(make({}, *envelope._OPTIONS)(arguments, 0)) == "".join(expected)
    assert "".join(make(None, *envelope._OPTIONS)("ü", 0)) == '"ü"'


@pytest.mark.parametrize("value", [float("nan"), object(), "cycle"], ids=["nan", "object", "cycle"])
def test_arguments_that_are_not_json_are_refused_without_the_private_encoder(
    monkeypatch: pytest.MonkeyPatch, value: Any
):
    arguments = [value]
    if value == "cycle":
        arguments[0] = arguments
    monkeypatch.setattr(envelope, "make_encoder", envelope.tried(None))

    with pytest.raises((TypeError, ValueError), match="shop.tasks.pay cannot be sent as JSON"):
        envelope.encode("shop.tasks.pay", "1", arguments, {}, None)


def test_the_private_encoder_of_this_python_is_used():
    assert envelope.make_encoder is json.encoder.c_make_encoder  # type: ignore[attr-defined]
