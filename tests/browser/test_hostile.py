"""Names and bodies of other programs stay text in a real browser: nothing runs, nothing overflows."""

import json

import pytest

from rsmq_django.core import Queue
from tests.browser.chromium import Visitor
from tests.redis_server import PrivateServer

pytestmark = pytest.mark.browser

EVIL = [
    "<script>document.body.id = 'hacked'</script>",
    '"><img src=/nowhere onerror="document.body.id = \'hacked\'">',
    "{{7*7}}{% debug %}${7*7}",
    "\u202eevil\u2066 x\x00y\x1b[31m",
    "long " + "w" * 100_000,
]


@pytest.mark.parametrize("evil", EVIL, ids=["script", "handler", "template", "signs", "long"])
def test_bodies_and_failures_stay_text(root: Visitor, dead: Queue, server: PrivateServer, evil: str):
    dead.set_attributes(max_size_bytes=-1)
    dead.send(evil.encode())
    body = json.dumps({"task": evil[:400], "id": "t", "args": [evil], "kwargs": {evil: evil}}).encode()
    died = dead.send(body)
    record = {"reason": evil, "queue": evil, "task": evil, "error": evil, "message": evil, "traceback": evil}
    server.redis.hset("rsmq::dead:mail-dead", died, json.dumps(record))

    for path in ("message/?queue=mail-dead", "queue/mail-dead/failures/"):
        root.open(f"/admin/rsmq/{path}")
        check(root)
    for index in range(2):
        root.open("/admin/rsmq/message/?queue=mail-dead")
        root.follow(root.page.locator("#result_list tbody th a").nth(index))
        check(root)


def test_names_of_queues_stay_text(root: Visitor, mail: Queue, server: PrivateServer):
    for name in EVIL[:4]:
        server.redis.sadd("rsmq:QUEUES", name)
        fields = {"vt": 30, "delay": 0, "maxsize": 65536, "totalrecv": 0, "totalsent": 1, "created": 1, "modified": 1}
        server.redis.hset(f"rsmq:{name}:Q", mapping=fields)

    root.open("/admin/rsmq/queue/")
    check(root)
    assert "%7B%7B7%2A7%7D%7D" in root.text()
    links = root.page.locator("#result_list tbody th a").evaluate_all("links => links.map(link => link.href)")
    assert len(links) == 5
    for link in links:
        root.open(link)
        check(root)


def check(visitor: Visitor) -> None:
    """Fail when something ran, was hidden, or pushed the page out of its window."""
    assert visitor.page.evaluate("document.body.id") != "hacked"
    assert "49{%" not in visitor.page.content() and "$49" not in visitor.page.content()
    assert not set("\x00\x1b\u202e\u2066") & set(visitor.text())
    assert visitor.page.locator("img[src='/nowhere']").count() == 0
    too_wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert visitor.page.evaluate(too_wide) <= 0, f"{visitor.page.url} is wider than its window"
