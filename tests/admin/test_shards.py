"""Each shard of a queue is a row of its connection, with the pages and actions of a queue."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client as Browser

from rsmq_django.core import Queue
from rsmq_django.queues import ensure_queue
from tests.admin.conftest import QUEUES
from tests.admin.pages import text_of
from tests.admin.test_queue_actions import ask, confirm
from tests.redis_server import PrivateServer


@pytest.fixture
def sharded(settings: Any, mail: Queue) -> None:
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"mail": {"SHARDS": 3}}}
    for shard in range(3):
        ensure_queue("mail", shard=shard).send_many([b"x"] * (shard + 1))


def test_list_has_a_row_for_each_shard_and_a_page_behind_it(browser: Browser, sharded: None):
    page = browser.get(QUEUES)
    rows = [
        f"{name} no worker {ready} 0 0" for ready, name in enumerate(("mail", "default.1/mail", "default.2/mail"), 1)
    ]

    assert all(row in text_of(page) for row in rows)
    links = set(re.findall(rf'href="({QUEUES}[^"]+/change/)"', page.content.decode()))
    assert len(links) == 3 and all(browser.get(link).status_code == 200 for link in links)


def test_selected_shards_are_paused_and_resumed(browser: Browser, sharded: None, server: PrivateServer):
    confirm(browser, ask(browser, "pause", "mail", "default.1/mail"))
    assert server.redis.smembers("rsmq::paused") == {b"mail"} == server.redis.smembers("rsmq-1::paused")
    assert not server.redis.exists("rsmq-2::paused")

    confirm(browser, ask(browser, "resume", "mail", "default.1/mail"))
    assert not server.redis.exists("rsmq::paused") and not server.redis.exists("rsmq-1::paused")
