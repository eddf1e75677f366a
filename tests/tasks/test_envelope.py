"""The message body: accepted forms from any language, and bodies that no attempt can run."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
