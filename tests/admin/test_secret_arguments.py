"""Positional arguments are hidden by the names of their parameters on every page that shows their call."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from django.test import Client as Browser

from rsmq_django.admin.bodies import preview, shown
from rsmq_django.admin.redaction import HIDDEN, redacted_call, redacted_value
from rsmq_django.core import Queue
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.topic import Topic
from rsmq_django.queues import get_client
from rsmq_django.tasks.envelope import Envelope, encode
from tests.admin.conftest import MESSAGES, QUEUES
from tests.admin.secret_tasks import login, rotate, store
from tests.redis_server import PrivateServer

CANARY, KEY = "hunter2", "a key of 32 characters, for tests only"
TAKES = {"workflow": {"id": "w", "member": 0, "step": 1, "takes": "result"}}


def body_of(task: Any, args: Sequence[Any], meta: Any = None, **kwargs: Any) -> bytes:
    return encode(task.module_path, "t1", args, kwargs, meta)


def signed(body: bytes) -> bytes:
    return json.dumps({"signed": body.decode(), "signature": "00" * 32}).encode()


CALLS = {
    "a positional argument": body_of(login, ["ada", CANARY]),
    "further arguments": body_of(login, ["ada", "x", "y", CANARY]),
    "further keywords": body_of(login, ["ada"], other=CANARY),
    "behind the context": body_of(rotate, [CANARY, "ada"]),
    "a step that takes a result": body_of(login, [CANARY], meta=TAKES),
    "a task that is named last": json.dumps({"args": ["ada", CANARY], "task": login.module_path}).encode(),
    "another task named inside": json.dumps(
        {"args": [{"task": store.module_path}, CANARY], "task": login.module_path}
    ).encode(),
    "a call in a text": json.dumps({"raw": body_of(login, ["ada", CANARY]).decode()}).encode(),
    "a broken call": body_of(login, ["ada", CANARY]) + b" and more",
}


@pytest.mark.parametrize("body", CALLS.values(), ids=CALLS)
def test_secret_arguments_are_hidden_however_they_travel(body: bytes):
    for sent in (body, signed(body), json.dumps({"signature": "00", "signed": body.decode()}).encode()):
        assert CANARY not in shown(sent).text and HIDDEN in shown(sent).text
        assert CANARY not in shown(sent, longest=None).text, "the download"
        assert CANARY not in preview(sent, "", size_bytes=len(sent))
        for length in range(1, len(sent)):
            assert CANARY not in shown(sent, longest=length).text
            assert CANARY not in preview(sent[:length], "", size_bytes=len(sent))


def test_other_arguments_are_shown():
    assert '"ada"' in shown(signed(body_of(login, ["ada", CANARY]))).text
    assert '"ada"' in shown(body_of(login, ["ada", CANARY])).text
    assert '"ada"' in shown(body_of(rotate, ["x", "ada"])).text
    assert '"x"' in shown(body_of(store, ["x"], meta=TAKES)).text
    assert shown(signed(body_of(store, ["x"]))).seal == "signed"
    assert shown(b'{"encrypted": "gAAA"}').seal == "encrypted"


def test_a_call_is_shown_with_the_names_of_its_parameters():
    call = redacted_call(Envelope(login.module_path, "t1", ["ada", CANARY, CANARY], {"a": CANARY}, None))
    step = redacted_call(Envelope(login.module_path, "t1", [CANARY], {"user": "ada"}, TAKES))
    unknown = redacted_call(Envelope("no.such.task", "t1", ["x"], {"password": CANARY, "b": {"token": CANARY}}, None))

    assert call.args == [("user", "ada"), ("password", HIDDEN), ("tokens", HIDDEN)] and call.kwargs == {"a": HIDDEN}
    assert step.args == [("password", HIDDEN)] and step.kwargs == {"user": "ada"}
    assert unknown.args == [("", "x")] and unknown.kwargs == {"password": HIDDEN, "b": {"token": HIDDEN}}


def test_a_value_is_shown_without_secrets_at_any_depth():
    deep: Any = CANARY
    for _ in range(500):
        deep = [deep]
    value = {"token": CANARY, "a": [{"password": [CANARY]}, f"api_key={CANARY}", 7, None], "b": deep}

    assert redacted_value(value)["a"] == [{"password": HIDDEN}, f"api_key={HIDDEN}", 7, None]
    assert CANARY not in str(redacted_value(value))


@pytest.fixture
def sealing(settings: Any) -> None:
    """The queue "mail" is signed."""
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"default": {}, "mail": {"SIGNING_KEYS": [KEY]}}}


@pytest.mark.parametrize("body", CALLS.values(), ids=CALLS)
def test_pages_of_messages_hide_them(browser: Browser, sealing: None, mail: Queue, body: bytes):
    for sent in (body, signed(body)):
        key = f"mail/{mail.send(sent)}"

        for page in (f"{key.replace('/', '_2F')}/change/", f"{key.replace('/', '_2F')}/body/", ""):
            assert CANARY.encode() not in browser.get(f"{MESSAGES}{page}").content


@pytest.mark.parametrize("body", CALLS.values(), ids=CALLS)
def test_pages_of_results_reliable_queues_and_topics_hide_them(browser: Browser, server: PrivateServer, body: bytes):
    for sent in (body, signed(body)):
        server.redis.hset("rsmq::result:t7", mapping={"status": "SUCCESSFUL", "body": sent, "value": sent})
        ReliableQueue("orders", get_client("default")).push(sent)
        headers = {"Authorization": f"ApiKey {CANARY}", "note": f"password={CANARY}"}
        Topic("events", get_client("default")).publish(sent, headers=headers)

        for page in ("result/t7/change/", "reliablequeue/orders/change/", "topic/events/change/"):
            response = browser.get(f"/admin/rsmq/{page}")
            assert response.status_code == 200 and CANARY.encode() not in response.content


def test_the_enqueue_form_hides_defaults(browser: Browser, mail: Queue):
    page = browser.get(f"{QUEUES}mail/enqueue/", {"task": login.module_path})
    other = browser.get(f"{QUEUES}mail/enqueue/", {"task": store.module_path})

    assert CANARY.encode() not in page.content and HIDDEN in page.content.decode()
    assert b"Empty = 7" in other.content
