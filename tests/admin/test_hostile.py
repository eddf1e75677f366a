"""Values that other programs have written into Redis stay text on every page."""

import json
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.test import Client as Browser

from rsmq_django.core import Queue
from tests.admin.conftest import MESSAGES, QUEUES
from tests.admin.pages import rows_of
from tests.redis_server import PrivateServer

EVIL = [
    "<script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "</pre></script><img src=x onerror=alert(1)>",
    "{{7*7}}{% load x %}",
    "javascript:alert(1)",
    "\u202eevil\u2066",
    "x\x00y\x1b[31m\x7f",
    "' onmouseover='alert(1)",
    "%3Cscript%3E",
    "../../..",
]


class Tags(HTMLParser):
    """Collects what a page consists of, apart from its text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))
        self.handlers += [name for name, value in attrs if name.startswith("on") or name == "style"]
        links = [value or "" for name, value in attrs if name in ("href", "src", "action", "formaction")]
        self.handlers += [link for link in links if link == "x" or link.startswith("javascript:")]


def check(page: Any, *, repeats_the_address: bool = False) -> None:
    """Fail when the page runs anything of its own, or holds a sign that cannot be seen."""
    content = page.content.decode()
    tags = Tags()
    tags.feed(content)
    inline = [tag for tag, names in tags.found if tag == "script" and "src" not in names]
    assert not inline and not tags.handlers
    # Django's search field repeats what its user has typed.
    assert repeats_the_address or not set("\x00\x1b\x7f\u202e\u2066") & set(content)


@pytest.mark.parametrize("evil", EVIL)
def test_bodies_errors_and_records_stay_text(
    browser: Browser, mail: Queue, dead: Queue, server: PrivateServer, evil: str
):
    bodies = [evil.encode(), json.dumps({"task": evil, "id": "t", "args": [evil], "kwargs": {evil: evil}}).encode()]
    record = dict.fromkeys(("reason", "queue", "task", "error", "message", "traceback", "worker"), evil)
    server.redis.hset("rsmq::result:t", mapping={"status": evil, "worker:1": evil, "error:1": json.dumps([evil, evil])})
    for body in bodies:
        message_id = dead.send(body)
        server.redis.hset("rsmq::dead:mail-dead", message_id, json.dumps({**record, "task_id": "t"}))
        for page in ("change", "delete", "history"):
            check(browser.get(f"{MESSAGES}{quote(f'mail-dead/{message_id}')}/{page}/"))
        server.redis.hset("rsmq::dead:mail-dead", message_id, evil)
        check(browser.get(f"{MESSAGES}{quote(f'mail-dead/{message_id}')}/change/"))

    check(browser.get(MESSAGES))
    check(browser.get(MESSAGES, {"q": evil}), repeats_the_address=True)
    check(browser.get(QUEUES + "mail-dead/failures/"))
    check(browser.get("/admin/rsmq/result/t/change/"))


@pytest.mark.parametrize("evil", EVIL)
def test_names_and_ids_stay_text(browser: Browser, server: PrivateServer, evil: str):
    server.redis.sadd("rsmq:QUEUES", evil)
    server.redis.hset(f"rsmq:{evil}:Q", mapping={"vt": 30, "delay": 0, "maxsize": -1, evil: "body"})
    server.redis.zadd(f"rsmq:{evil}", {evil: 1})
    server.redis.zadd("rsmq::workers", {evil: 1})

    (row,) = rows_of(browser.get(QUEUES))
    assert row.name == evil
    for page in ("change", "delete", "send", "enqueue", "purge", "failures", "redrive", "history"):
        check(browser.get(f"{QUEUES}{quote(row.key)}/{page}/"))
    (message,) = rows_of(browser.get(MESSAGES, {"queue": row.key}))
    for url in (QUEUES, MESSAGES, f"{MESSAGES}{quote(message.key)}/change/", "/admin/rsmq/worker/"):
        check(browser.get(url))
    asked = {"action": "delete_selected", "_selected_action": [message.key], "seen": f"0 {message.key}"}
    check(browser.post(MESSAGES, asked))


@pytest.mark.parametrize("evil", EVIL)
def test_text_in_the_address_stays_text(browser: Browser, mail: Queue, evil: str):
    mail.send(b"x")
    for query in ({"q": evil}, {"queue": evil}, {"state__exact": evil}, {"o": evil}, {"p": evil}, {evil: evil}):
        page = browser.get(MESSAGES, query, follow=True)
        assert page.status_code == 200
        check(page, repeats_the_address=True)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 15_000, b'{"a":' * 3_000, b'"' * 100, b'{"a":"' + b"\\" * 5001, b"[1" + b",1" * 8_000,
        b"\xff\xfe" * 10, b"{" + b" " * 60_000 + b"}", b'{"password":' * 2_000 + b"1", "😀".encode("utf-16"),
        '{"task": "ü"}'.encode()[:-3], b"NaN", b"nullx", b'{"\\ud800": "\\udc00"}', b"",
    ],
    ids=lambda body: repr(body[:12]),
)  # fmt: skip
def test_odd_bodies_make_pages_of_bearable_size(browser: Browser, mail: Queue, body: bytes):
    message_id = mail.send(body)

    page = browser.get(f"{MESSAGES}{quote(f'mail/{message_id}')}/change/")

    assert page.status_code == 200 and len(page.content) < 1024 * 1024
    check(page)
    assert browser.get(f"{MESSAGES}{quote(f'mail/{message_id}')}/body/").status_code == 200
    assert len(rows_of(browser.get(MESSAGES))) == 1
