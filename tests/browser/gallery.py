"""Pictures of every page in every window, in light and dark, to look at.

Not a test that runs by itself:

    .venv/bin/python -m pytest -q -m browser tests/browser/gallery.py

The pictures are stored in `.screenshots/gallery-<version of Django>/<page>-<width>-<scheme>.png`.
RSMQ_GALLERY=queues,run limits the pages.
"""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django
import pytest
from django.contrib.auth.models import User

from rsmq_django.core import Queue
from rsmq_django.queues import ensure_queue
from tests import redis_server
from tests.browser.chromium import Visitor
from tests.browser.pages import PAGES, fill_pages
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.site.tasks import toil, write

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("mid_minute"), pytest.mark.deadline(1800)]

WIDTHS = (390, 768, 1280, 1920)
PICTURES = Path(__file__).parents[2] / ".screenshots" / "gallery-{}.{}".format(*django.VERSION)
QUEUES: dict[str, dict[str, object]] = {
    "default": {},
    "mail": {},
    **{f"shop-{n:02}": {} for n in range(38)},
    "reports-of-the-accounting-department-monthly": {},
}
ERRORS = (
    ("builtins.ConnectionError", "api.weather.gov timed out after {} ms"),
    ("shop.errors.CardRefused", "card {} was refused: insufficient funds"),
    ("builtins.KeyError", "'order_{}'"),
    ("django.db.utils.OperationalError", "database is locked ({} retries)"),
    ("builtins.ValueError", "no such order: {}"),
    ("shop.integrations.parcel_service.client.errors.AddressCannotBeDelivered", "line {} of the address is missing"),
)


def test_pictures_of_every_page(
    visitor: Callable[..., Visitor],
    mail: Queue,
    dead: Queue,
    server: PrivateServer,
    start_worker: Callable[..., Any],
    settings: Any,
):
    settings.RSMQ = settings.RSMQ | {"QUEUES": QUEUES, "CONNECTIONS": {"default": {"URL": redis_server.URL}}}
    names = fill_pages(mail, dead, server)
    fill_shops(server)
    work(server, start_worker)
    root = visitor().log_in(User.objects.create_superuser("root"))
    PICTURES.mkdir(parents=True, exist_ok=True)
    chosen = os.environ.get("RSMQ_GALLERY", "")
    for name in chosen.split(",") if chosen else PAGES:
        root.open(PAGES[name].format(**names))
        for scheme in ("light", "dark"):
            root.page.emulate_media(color_scheme=scheme)
            for width in WIDTHS:
                root.page.set_viewport_size({"width": width, "height": 900})
                root.page.evaluate("() => document.getAnimations().forEach((each) => each.finish())")
                root.page.screenshot(path=PICTURES / f"{name}-{width}-{scheme}.png", full_page=True)


def fill_shops(server: PrivateServer) -> None:
    """Have some forty queues, large numbers, and dead letters of six kinds."""
    rng = random.Random(7)
    for number, name in enumerate(each for each in QUEUES if each != "default"):
        queue = ensure_queue(name)
        queue.send_many([b'{"order": %d}' % n for n in range(rng.choice((0, 3, 40, 1234)))], delay_s=60 * (number % 2))
    dead = ensure_queue("shop-01-dead")
    for number in range(120):
        error, text = ERRORS[number % 6]
        body = {"task": f"shop.tasks.step_{number % 4}", "id": f"d{number}", "args": [number, "EUR"], "kwargs": {}}
        body["tags"] = [f"customer-{number % 9}"]
        record: dict[str, object] = {
            "reason": "attempts_used_up",
            "queue": "shop-01",
            "task": body["task"],
            "task_id": body["id"],
        }
        record |= {
            "error": error,
            "message": text.format(number),
            "traceback": f"Traceback\n  {error}",
            "at": time.time(),
        }
        server.redis.hset("rsmq::dead:shop-01-dead", dead.send(json.dumps(body).encode()), json.dumps(record))


def work(server: PrivateServer, start_worker: Callable[..., Any]) -> None:
    """Have a worker that has done something and runs two tasks."""
    for number in range(5):
        write.enqueue(f"letter {number}")
    for number in range(2):
        toil.enqueue(f"letter number {number} to all customers", 1500.0)
    worker = start_worker("--queues", "default", "--threads", "4")
    redis = server.redis
    wait_until(
        lambda: (
            worker.process.poll() is not None or redis.zcount("rsmq:default", f"({1000 * time.time():.0f}", "+inf") >= 2
        ),
        60,
    )
    assert worker.process.poll() is None, worker.output
