"""Signed and encrypted bodies: only bodies written with a key of the queue are read."""

from __future__ import annotations

import hmac
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

from rsmq_django.conf.settings import QueueSettings, read_settings
from rsmq_django.tasks import sealing
from rsmq_django.tasks.envelope import Unreadable

OLD, NEW, FOREIGN = "o" * 32, "n" * 32, "f" * 32
OLD_FERNET, NEW_FERNET = Fernet.generate_key().decode(), Fernet.generate_key().decode()
PLAIN = QueueSettings(name="mail", max_attempts=5, dead_letter="mail-dead")
SIGNED = replace(PLAIN, signing_keys=(NEW, OLD))
ENCRYPTED = replace(PLAIN, encryption_keys=(NEW_FERNET, OLD_FERNET))
BODY = '{"task": "shop.tasks.ship", "kwargs": {"to": "Łódź \\ud83e"}}'.encode()


def seal(body: bytes, queue: QueueSettings, *, name: str, namespace: str = "rsmq") -> bytes:
    return sealing.seal(body, queue, name=name, namespace=namespace)


def unseal(body: bytes, queue: QueueSettings, *, name: str, namespace: str = "rsmq") -> bytes:
    return sealing.unseal(body, queue, name=name, namespace=namespace)


def reason(body: bytes, queue: QueueSettings, name: str = "mail") -> str:
    with pytest.raises(Unreadable) as caught:
        unseal(body, queue, name=name)
    return caught.value.reason


@pytest.mark.parametrize("queue", [PLAIN, SIGNED, ENCRYPTED], ids=["plain", "signed", "encrypted"])
def test_sealed_body_is_read_again(queue: QueueSettings):
    assert unseal(seal(BODY, queue, name="mail"), queue, name="mail") == BODY


def test_a_queue_without_keys_leaves_bodies_alone():
    assert seal(BODY, PLAIN, name="mail") == BODY


def test_a_signed_body_can_be_read_and_checked_by_any_language():
    wrapper = json.loads(seal(b"caf\xc3\xa9", SIGNED, name="mail"))

    assert wrapper["signed"] == "café"
    assert len(bytes.fromhex(wrapper["signature_v2"])) == 32


def test_an_encrypted_body_is_not_shown():
    assert b"shop.tasks" not in seal(BODY, ENCRYPTED, name="mail")


def test_keys_are_rotated_by_adding_a_new_one_in_front():
    before = replace(PLAIN, signing_keys=(OLD,)), replace(PLAIN, encryption_keys=(OLD_FERNET,))
    after = replace(PLAIN, signing_keys=(NEW,)), replace(PLAIN, encryption_keys=(NEW_FERNET,))

    for old, both, new, word in zip(
        before, (SIGNED, ENCRYPTED), after, ("bad_signature", "not_decrypted"), strict=True
    ):
        written_before = seal(BODY, old, name="mail")
        assert unseal(written_before, both, name="mail") == BODY
        assert unseal(seal(BODY, both, name="mail"), new, name="mail") == BODY
        assert reason(written_before, new) == word


@pytest.mark.parametrize(("queue", "word"), [(SIGNED, "bad_signature"), (ENCRYPTED, "not_decrypted")])
def test_a_message_of_another_queue_is_refused(queue: QueueSettings, word: str):
    assert reason(seal(BODY, queue, name="reports"), queue) == word


# -- Signatures name the namespace ---------------------------------------------------------------------------------


def as_before(queue: QueueSettings) -> bytes:
    """Return the body as the release before sealed it: without the namespace."""
    if queue.encryption_keys:
        token = Fernet(queue.encryption_keys[0]).encrypt(b"rsmq:mail\0" + BODY)
        return json.dumps({"encrypted": token.decode()}).encode()
    signature = hmac.new(queue.signing_keys[0].encode(), b"rsmq:mail\0" + BODY, "sha256").hexdigest()
    return json.dumps({"signed": BODY.decode(), "signature": signature}).encode()


def read_as_before(body: bytes, queue: QueueSettings) -> bytes | None:
    """Return what a worker of the release before reads; None when it refuses the body."""
    wrapper = json.loads(body)
    if queue.encryption_keys:
        return Fernet(queue.encryption_keys[0]).decrypt(wrapper["encrypted"]).removeprefix(b"rsmq:mail\0")
    signed = wrapper["signed"].encode()
    expected = hmac.new(queue.signing_keys[0].encode(), b"rsmq:mail\0" + signed, "sha256").hexdigest()
    return signed if wrapper.get("signature") == expected else None


SEALED = pytest.mark.parametrize(
    ("queue", "word"), [(SIGNED, "bad_signature"), (ENCRYPTED, "not_decrypted")], ids=["signed", "encrypted"]
)


@SEALED
def test_a_message_of_another_namespace_is_refused_although_the_keys_are_the_same(queue: QueueSettings, word: str):
    with pytest.raises(Unreadable) as caught:
        unseal(seal(BODY, queue, name="mail", namespace="staging"), queue, name="mail", namespace="production")

    assert caught.value.reason == word


@SEALED
def test_a_signature_without_namespace_is_refused_and_the_reason_names_the_setting(queue: QueueSettings, word: str):
    with pytest.raises(Unreadable, match="OLD_SIGNATURES_UNTIL") as caught:
        unseal(as_before(queue), queue, name="mail")

    assert caught.value.reason == word


@SEALED
def test_until_the_day_of_the_setting_messages_of_the_release_before_run(queue: QueueSettings, word: str):
    today = datetime.now(UTC).date()
    open_queue = replace(queue, old_signatures_until=(today + timedelta(days=1)).isoformat())
    closed = replace(queue, old_signatures_until=(today - timedelta(days=1)).isoformat())

    assert unseal(as_before(queue), open_queue, name="mail") == BODY
    assert reason(as_before(queue), closed) == word


@SEALED
def test_until_that_day_workers_of_the_release_before_read_new_messages(queue: QueueSettings, word: str):
    until = replace(queue, old_signatures_until=(datetime.now(UTC).date() + timedelta(days=1)).isoformat())

    assert read_as_before(seal(BODY, until, name="mail"), queue) == BODY
    assert unseal(seal(BODY, until, name="mail"), queue, name="mail") == BODY


def test_without_the_setting_a_message_carries_no_old_signature():
    assert set(json.loads(seal(BODY, SIGNED, name="mail"))) == {"signed", "signature_v2"}


@pytest.mark.parametrize("day", ["tomorrow", "2027-1-1", 20270101, ""])
def test_a_day_that_is_not_a_date_is_a_problem_of_the_settings(day: object):
    queues = {"mail": {"OLD_SIGNATURES_UNTIL": day}}
    _, problems = read_settings({"CONNECTIONS": {"default": {"URL": "redis://h"}}, "QUEUES": queues})

    assert ["OLD_SIGNATURES_UNTIL" in problem.message for problem in problems] == [True]


# -- What is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        BODY,
        b"",
        b"\xff",
        b"[]",
        b"null",
        b'{"signed": 1, "signature_v2": "x"}',
        b'{"signed": "x", "signature_v2": 1}',
        b"[" * 100_000,
    ],
)
def test_unsealed_message_is_refused(body: bytes):
    assert reason(body, SIGNED) == "unsigned"
    assert reason(body, ENCRYPTED) == "not_decrypted"


@pytest.mark.parametrize("signature", ["", "é", "\ud83e", "0" * 64])
def test_a_wrong_signature_of_any_form_is_refused(signature: str):
    assert reason(json.dumps({"signed": "x", "signature_v2": signature}).encode(), SIGNED) == "bad_signature"


@given(st.data())
def test_one_changed_character_is_noticed(data: st.DataObject):
    wrapper = json.loads(seal(BODY, SIGNED, name="mail"))
    field = data.draw(st.sampled_from(["signed", "signature_v2"]))
    at = data.draw(st.integers(0, len(wrapper[field]) - 1))
    wrapper[field] = wrapper[field][:at] + ("0" if wrapper[field][at] != "0" else "1") + wrapper[field][at + 1 :]

    assert reason(json.dumps(wrapper).encode(), SIGNED) == "bad_signature"


def test_a_signed_body_must_be_text():
    with pytest.raises(ValueError, match="send base64"):
        seal(b"\xff\xfe", SIGNED, name="mail")

    assert unseal(seal(b"\xff\xfe", ENCRYPTED, name="mail"), ENCRYPTED, name="mail") == b"\xff\xfe"


@pytest.mark.parametrize(
    "options",
    [
        {"SIGNING_KEYS": "x" * 32},
        {"SIGNING_KEYS": ["too short"]},
        {"ENCRYPTION_KEYS": ["x" * 32]},
        {"SIGNING_KEYS": [NEW], "ENCRYPTION_KEYS": [NEW_FERNET]},
    ],
    ids=["no list", "short", "no Fernet key", "both"],
)
def test_unusable_keys_are_problems_that_do_not_show_them(options: dict[str, object]):
    _, problems = read_settings({"CONNECTIONS": {"default": {"URL": "redis://h"}}, "QUEUES": {"mail": options}})

    (problem,) = problems
    assert "KEYS" in problem.message + problem.hint
    assert not any(str(key) in problem.message for keys in options.values() for key in keys)  # type: ignore[attr-defined]


def test_keys_are_in_no_repr():
    assert NEW not in repr(SIGNED)
    assert NEW_FERNET not in repr(ENCRYPTED)
