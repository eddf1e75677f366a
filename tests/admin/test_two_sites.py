"""A project with two admin sites: links stay on the current site."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.test import Client as Browser

from rsmq_django.core import Queue
from rsmq_django.tasks import call, group
from tests.redis_server import PrivateServer
from tests.worker.site.tasks import write

PAGES = (
    "rsmq/queue/",
    "rsmq/queue/mail/change/",
    "rsmq/queue/mail/send/",
    "rsmq/queue/mail/enqueue/",
    "rsmq/queue/mail/purge/",
    "rsmq/queue/mail-dead/change/",
    "rsmq/queue/mail-dead/failures/",
    "rsmq/queue/mail-dead/redrive/",
    "rsmq/queue/mail-dead/history/",
    "rsmq/message/",
    "rsmq/message/{message}/change/",
    "rsmq/message/{message}/history/",
    "rsmq/worker/",
    "rsmq/schedule/",
    "rsmq/registeredtask/",
    "rsmq/registeredtask/{task}/change/",
    "rsmq/result/t7/change/",
    "rsmq/topic/",
    "rsmq/workflow/",
    "rsmq/workflow/{workflow}/change/",
    "rsmq/reliablequeue/",
    "rsmq_pipeline/taskhour/",
    "rsmq_pipeline/failuregroup/",
    "rsmq_pipeline/sloburn/",
)


@pytest.fixture
def names(settings: Any, mail: Queue, dead: Queue, server: PrivateServer) -> dict[str, str]:
    settings.ROOT_URLCONF = "tests.admin.two_sites"
    mail.send(b'{"task": "tests.worker.site.tasks.write", "id": "t6", "args": ["a"], "kwargs": {}}')
    died = dead.send(b'{"task": "tests.worker.site.tasks.write", "id": "t7", "args": ["a"], "kwargs": {}}')
    record = {"reason": "gave_up", "queue": "mail", "task": write.name, "error": "builtins.ValueError"}
    server.redis.hset("rsmq::dead:mail-dead", died, json.dumps(record))
    server.redis.hset("rsmq::result:t7", mapping={"status": "FAILED", "queue": "mail", "message": died})
    workflow = group([call(write, "a")], name="letters").enqueue()
    return {
        "message": quote(f"mail-dead/{died}"),
        "task": quote("tests.worker.site.tasks.write"),
        "workflow": quote(f"default/{workflow.id}"),
    }


@pytest.mark.parametrize("path", PAGES)
def test_no_page_of_a_second_site_leads_to_the_first(browser: Browser, names: dict[str, str], path: str):
    page = browser.get(f"/ops/{path.format(**names)}", follow=True)

    assert page.status_code == 200
    addresses = re.findall(r'(?:href|action)="(/(?:admin|ops)/[^"]*)"', page.content.decode())
    assert addresses and not [address for address in addresses if address.startswith("/admin/")]


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("queue/mail/send/", {"body": "x", "delay_s": "0"}),
        ("queue/mail/pause/", {"action": "pause"}),
        ("message/{message}/operate/", {"action": "redrive", "seen": "0 {message}"}),
        ("message/bulk/", {"token": "too old"}),
    ],
)
def test_actions_on_a_second_site_end_there(browser: Browser, names: dict[str, str], path: str, data: dict[str, str]):
    answer = browser.post(
        f"/ops/rsmq/{path.format(**names)}", {name: value.format(**names) for name, value in data.items()}
    )

    assert answer.status_code in (200, 302)
    assert answer.get("Location", "/ops/").startswith("/ops/")


def test_the_first_site_stays_on_itself(browser: Browser, names: dict[str, str]):
    page = browser.get("/admin/rsmq/queue/mail/change/")

    assert "/ops/" not in page.content.decode()
