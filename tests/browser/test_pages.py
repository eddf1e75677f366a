"""Every page of ours, in light and dark and on a telephone: no complaint in the console, and it fits its window.

RSMQ_SCREENSHOTS=directory keeps pictures of them.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User

from rsmq_django import schedules
from rsmq_django.core import Queue
from tests.browser.chromium import Visitor
from tests.browser.scenery import PAY, run_a_day
from tests.redis_server import PrivateServer
from tests.worker.site.tasks import write

pytestmark = pytest.mark.browser

WINDOWS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 800}, "has_touch": True},
}
PAGES = {
    "index": "/admin/rsmq/",
    "queues": "/admin/rsmq/queue/",
    "queue": "/admin/rsmq/queue/mail/change/",
    "queue-history": "/admin/rsmq/queue/mail/history/",
    "queue-delete": "/admin/rsmq/queue/mail/delete/",
    "queue-send": "/admin/rsmq/queue/mail/send/",
    "queue-enqueue": "/admin/rsmq/queue/mail/enqueue/",
    "queue-purge": "/admin/rsmq/queue/mail/purge/",
    "queue-failures": "/admin/rsmq/queue/mail-dead/failures/",
    "queue-redrive": "/admin/rsmq/queue/mail-dead/redrive/",
    "messages": "/admin/rsmq/message/",
    "messages-of-a-queue": "/admin/rsmq/message/?queue=mail",
    "message": "/admin/rsmq/message/{message}/change/",
    "queues-day": "/admin/rsmq/queue/?span=24h",
    "workers": "/admin/rsmq/worker/",
    "worker": "/admin/rsmq/worker/{worker}/change/",
    "schedules": "/admin/rsmq/schedule/",
    "schedule": "/admin/rsmq/schedule/remind-gate/change/",
    "tasks": "/admin/rsmq/registeredtask/",
    "task": "/admin/rsmq/registeredtask/{task}/change/",
    "results": "/admin/rsmq/result/?q=t7",
    "result": "/admin/rsmq/result/t7/change/",
}


@pytest.fixture
def things_to_see(mail: Queue, dead: Queue, server: PrivateServer) -> dict[str, str]:
    """Something on every page."""
    mail.send_many([json.dumps({"letter": number, "to": "ada@example.org"}).encode() for number in range(30)])
    held = mail.receive(visibility_timeout_s=600)
    assert held is not None
    record = {"reason": "gave_up", "queue": "mail", "task": "shop.tasks.pay", "error": "builtins.ValueError"}
    died = dead.send(b'{"task": "shop.tasks.pay", "id": "t7", "args": [7], "kwargs": {"currency": "EUR"}}')
    server.redis.hset("rsmq::dead:mail-dead", died, json.dumps(record | {"message": "no such card", "traceback": "T"}))
    server.redis.hset(
        "rsmq::result:t7", mapping={"status": "FAILED", "queue": "mail", "message": died, "worker:1": "w"}
    )
    worker_id = run_a_day(mail, also="default", held={held.id: 12_400})
    server.redis.hset(f"rsmq::worker:{worker_id}", "1 mail", f"\n{held.id} 1")
    schedules.add("remind-gate", write, cron="*/15 * * * *", args=["Gate 7"])
    return {"message": quote(f"mail-dead/{died}"), "worker": quote(f"default/{worker_id}"), "task": quote(PAY)}


@pytest.mark.parametrize("window", WINDOWS)
def test_every_page_is_clean(visitor: Callable[..., Visitor], things_to_see: dict[str, str], window: str):
    root = visitor(**WINDOWS[window]).log_in(User.objects.create_superuser("root"))

    for name, path in PAGES.items():
        answer = root.open(path.format(**things_to_see))
        assert answer.status == 200, f"{name}: {answer.status}"
        keep_picture(root, f"{name}-{window}")
        assert root.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, f"{name} is too wide"


def keep_picture(visitor: Visitor, name: str) -> None:
    directory = os.environ.get("RSMQ_SCREENSHOTS")
    if directory:
        visitor.page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)
