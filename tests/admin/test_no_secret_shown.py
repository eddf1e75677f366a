"""A planted secret of any form is on no page, in no download and in no record."""

import json
from typing import Any

import pytest
from django.test import Client as Browser
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rsmq_django.admin.bodies import preview, shown
from rsmq_django.admin.redaction import redact, redacted_value
from rsmq_django.core import Queue
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.topic import NewMessage, Topic
from rsmq_django.queues import get_client
from rsmq_django.tasks.envelope import encode
from tests.admin.conftest import MESSAGES
from tests.admin.secret_tasks import login
from tests.redis_server import PrivateServer

CANARY = "hunter2"
WORDS = ("password", "Passwd", "SECRET", "token", "Authorization", "Cookie", "card", "api_key")

names = st.builds(
    lambda before, word, behind: f"{before}{word}{behind}",
    st.sampled_from(["", "db_", "x-", "my."]),
    st.sampled_from(WORDS),
    st.sampled_from(["", "_2", "-id", "s"]),
)
#: A secret of letters that need no quotes, around the canary.
secrets = st.builds(
    lambda before, behind: f"{before}{CANARY}{behind}",
    st.text("abcXYZ019._+/-", max_size=6),
    st.text("abcXYZ019._+/=-", max_size=6),
)
noise = st.text(" abcdefg0123.", max_size=12)
#: How a value may be written; the name is put in front of it.
values: st.SearchStrategy[str] = secrets.flatmap(
    lambda secret: st.sampled_from(
        [
            f"={secret}", f" = '{secret}'", f"=b'{secret}'", f'="{secret}"', f": {secret}", f"=['x', '{secret}']",
            f"={{'a': ('{secret}',)}}", f"=Secret('{secret}')", f"=<Secret {secret}>", f": str = '{secret}'",
            f"=[[1, 2], [\"it's\", '{secret}'", f"=('''x\n{secret}''')", f" == '{secret}'", f" => {secret}",
        ]
    )
)  # fmt: skip
quoted_names = st.tuples(names, secrets, st.sampled_from(["'", '"'])).map(
    lambda found: f"{{{found[2]}{found[0]}{found[2]}: [{found[2]}x{found[2]}, {found[2]}{found[1]}{found[2]}]}}"
)
headers = st.tuples(
    st.sampled_from(["Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie"]),
    st.sampled_from(["", "Basic ", "ApiKey ", "a=b; c=", "AWS4 Credential=x, Signature="]),
    secrets,
).map(lambda found: f"{found[0]}: {found[1]}{found[2]}")
texts = st.tuples(
    noise,
    st.one_of(st.tuples(names, values).map("".join), quoted_names, headers),
    st.sampled_from(["\n", "\nx = 1\n", ""]),
).map(lambda parts: f"{parts[0]} {parts[1]}{parts[2]}")

plain = st.none() | st.integers() | noise
json_values = st.recursive(
    st.one_of(plain, texts, st.dictionaries(names, secrets | st.lists(secrets, max_size=3), max_size=2)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(noise, inner, max_size=3),
    max_leaves=6,
)
FUNCTION_FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=400, deadline=None)
@given(texts)
def test_no_secret_in_free_text(text: str):
    assert CANARY not in redact(text)
    assert CANARY not in redact(json.dumps({"note": text})) and CANARY not in redact(repr({"note": text}))


@settings(max_examples=200, deadline=None)
@given(json_values, st.data())
def test_no_secret_in_json_whole_or_cut(value: Any, data: st.DataObject):
    body = json.dumps({"a": value, "inside": json.dumps(value)}).encode()
    length = data.draw(st.integers(1, len(body)))

    assert CANARY not in json.dumps(redacted_value(value))
    assert CANARY not in shown(body).text and CANARY not in shown(body, longest=length).text
    assert CANARY not in preview(body[:length], "", size_bytes=len(body))


@pytest.mark.usefixtures("project")
@settings(max_examples=12, deadline=None, suppress_health_check=FUNCTION_FIXTURES)
@given(json_values, texts, secrets, st.booleans())
def test_no_secret_on_any_page(
    browser: Browser, mail: Queue, dead: Queue, server: PrivateServer,
    value: Any, text: str, secret: str, is_signed: bool,
):  # fmt: skip
    body = encode(login.module_path, "t1", ["ada", secret, value], {"other": secret, "note": value}, None)
    if is_signed:
        body = json.dumps({"signed": body.decode(), "signature": "00"}).encode()
    plant(server, dead, body, text)
    addresses = [
        f"{MESSAGES}mail-dead_2F{plant_message(dead, server, body, text)}/{page}/" for page in ("change", "body")
    ]
    addresses += [MESSAGES, "/admin/rsmq/queue/mail-dead/failures/"]
    addresses += [f"/admin/rsmq/{page}/change/" for page in ("result/t1", "reliablequeue/orders", "topic/events")]

    for address in addresses:
        response = browser.get(address)
        assert response.status_code == 200 and CANARY.encode() not in response.content, address


def plant(server: PrivateServer, dead: Queue, body: bytes, text: str) -> None:
    """Put a call and a text into everything that has a page."""
    record = {"status": "FAILED", "body": body, "value": body, "error:1": json.dumps(["a.Error", text])}
    server.redis.hset("rsmq::result:t1", mapping=record)
    client = get_client("default")
    ReliableQueue("orders", client).push(body, text)
    Topic("events", client).publish(NewMessage(body, headers={"Authorization": text, "note": text}), text)


def plant_message(dead: Queue, server: PrivateServer, body: bytes, text: str) -> str:
    """Send a dead letter that died of a text; return its id."""
    message_id = dead.send(body)
    record = dict.fromkeys(("message", "traceback"), text) | {"reason": "gave_up", "task": login.module_path}
    server.redis.hset("rsmq::dead:mail-dead", message_id, json.dumps({**record, "error": "a.Error", "queue": "mail"}))
    return message_id
