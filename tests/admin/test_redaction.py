"""Secrets are hidden by their names, and other JSON is shown unchanged."""

import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rsmq_django.admin.bodies import preview, shown
from rsmq_django.admin.json_text import is_json, pieces
from rsmq_django.admin.redaction import redact

CANARY = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2", "password = 'hunter2'", 'db_password: "hunter2", x', "{'api_key': 'hunter2'}",
        "PASSWORD=hunter2&x=1", "Authorization: Bearer hunter2", "authorization: Basic hunter2,",
        "redis://user:hunter2@host:6379/0", "connect(host, secret_token='hunter2')", 'x-api-key => "hunter2"',
        "card-number: hunter2", '"{\\"password\\": \\"hunter2\\"}"', "Set-Cookie: hunter2",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2\nhunter2\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nhunter2",
        "{'password': ['hunter2']}", "{'password': {'old': ('x', 'hunter2')}, 'user': 'ada'}", "password=b'hunter2'",
        "Authorization: ApiKey hunter2", "INFO sent Authorization: ApiKey x hunter2", "password: correct hunter2",
        "Cookie: theme=dark; sessionid=hunter2", "curl -H 'Cookie: a=b; sessionid=hunter2' http://host/",
        r"b'GET / HTTP/1.1\r\nCookie: a=b; c=hunter2\r\nHost: x\r\n'", "[('Authorization', 'ApiKey hunter2')]",
        "headers = [(b'cookie', b'a=b; c=hunter2')]", "token=SecretStr(value='hunter2')", "token=<Token: x hunter2>",
        "0 password: hunter2=\n", "the password: hunter2= again", "login(user, password: str = 'hunter2')",
        "login(password: str | None = b'hunter2')",
        "d['password'] = 'hunter2'", "assert password == 'hunter2'", "<password>hunter2</password>",
        "mysql --password hunter2 -u ada", "{'password': ['a', \"it's\", 'hunter2'", 'password="""a\nhunter2"""',
        "password=hun,hunter2", r'{\"password\": [\"a\", \"hunter2\"]}', "got bearer abcdefgh-hunter2",
        "password=f(x, 'hunter2')", "password='a' 'hunter2'", "Cookie: \"a\"; b=hunter2", "export KEY='it'hunter2",
    ],
)  # fmt: skip
def test_values_with_secret_names_are_hidden(text: str):
    assert CANARY not in redact(text) and "•••" in redact(text)


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("{'password': ['x'], 'user': 'ada'}", "{'password': •••, 'user': 'ada'}"),
        ("login(password=b'x', user='ada')", "login(password=•••, user='ada')"),
        ("curl -H 'Authorization: ApiKey x' http://host/", "curl -H 'Authorization: •••' http://host/"),
        ("Cookie: a=b; c=d\nHost: x", "Cookie: •••\nHost: x"),
        ("token=SecretStr('x') user=ada", "token=••• user=ada"),
        ("[('Cookie', 'x'), ('Host', 'y')]", "[('Cookie', •••), ('Host', 'y')]"),
        ("<token>x</token><user>ada</user>", "<token>•••</token><user>ada</user>"),
        (r'{"a": "{\"token\": \"x\", \"b\": 1}"}', r'{"a": "{\"token\": •••, \"b\": 1}"}'),
    ],
)
def test_only_the_value_is_hidden(text: str, redacted: str):
    assert redact(text) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'gate'",
        "no such key",
        "the password is wrong",
        "http://host:8000/a@b",
        "a = 1",
        "for key, value in x:",
    ],
)
def test_other_text_is_left_alone(text: str):
    assert redact(text) == text


def test_long_text_is_redacted_quickly():
    began = time.monotonic()
    texts = [
        "key" * 40_000, "a-" * 60_000, "password" * 15_000, "key='" + "\\" * 100_000, ":// :" * 20_000,
        "key=" + "[" * 100_000, "key=('" * 20_000, "key: " * 30_000, "token=a," * 20_000, "('key', " * 20_000,
        "key='a'" + " 'a'" * 20_000, "key=" + "<" * 100_000, "key:" + "\\n" * 50_000,
    ]  # fmt: skip
    for text in texts:
        redact(text)
    assert time.monotonic() - began < 20, "a pattern that tries everything would take hours"


@pytest.mark.parametrize(
    "body",
    [
        b'{"password": "hunter2"}', b'{"a": {"API_Key": ["hunter2", {"b": "hunter2"}], "c": 1}}',
        b'{"pass\\u0077ord": "hunter2"}', b'{"password": "hunter2', b'{"password": {"a": [1, "hunter2"',
        b'{"a": "{\\"password\\": \\"hunter2\\"}"}', b'{"url": "redis://u:hunter2@h"}', b'[{"token":"hunter2"}]',
        b'{"password":hunter2}', b'{"a":1,"secret":[["hunter2"],"hunter2"],"b":2}',
    ],
)  # fmt: skip
def test_secrets_in_json_are_hidden_however_it_is_written_or_cut(body: bytes):
    assert CANARY not in shown(body).text
    assert CANARY not in preview(body, "", size_bytes=len(body) + 1)


def test_text_after_a_hidden_value_is_shown():
    text = shown(b'{"secret": [1, [2, {"a": 3}]], "b": [{"token": {}, "c": 4}, 5], "d": 6}').text

    assert json.loads(text.replace("•••", "0")) == {"secret": 0, "b": [{"token": 0, "c": 4}, 5], "d": 6}


def test_the_words_are_a_setting(settings):
    settings.RSMQ = {**settings.RSMQ, "ADMIN": {"REDACT": ["gate"]}}

    assert redact("gate=C3 password=x") == "gate=••• password=x"
    settings.RSMQ = {**settings.RSMQ, "ADMIN": {"REDACT": []}}
    assert redact("gate=C3 password=x") == "gate=C3 password=x"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(json_values.filter(lambda value: isinstance(value, dict | list)), st.booleans())
def test_json_is_the_same_value_in_new_lines(value: object, ascii_only: bool):
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert is_json(text)
    again = "".join(part for _, part in pieces(text))

    if "•••" not in again:
        assert json.loads(again) == value


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=300) | st.text(alphabet='{}[]:,"\\ab1 \x00ü', max_size=100).map(str.encode))
def test_any_bytes_can_be_shown(body: bytes):
    for longest in (None, 10, 1000):
        assert isinstance(shown(body, longest=longest).text, str)
    assert "\n" not in preview(body, "", size_bytes=len(body))
