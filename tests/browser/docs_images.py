"""The pictures of README and docs, from the pages of tests/browser/pages.py.

Not a test that runs by itself:

    .venv-other/bin/python -m pytest -q -m browser tests/browser/docs_images.py

Run it with the newest Django after a change of what the pages show, look at the pictures, and commit them.
"""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from rsmq_django import schedules
from rsmq_django.core import Queue
from rsmq_django.queues import ensure_queue
from rsmq_django.tasks import call, chain, group
from tests.browser.chromium import Visitor
from tests.browser.pages import PAGES, fill_pages
from tests.redis_server import PrivateServer
from tests.worker.site.tasks import ordinary, write

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("mid_minute"), pytest.mark.deadline(600)]

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTH = 1280
#: Name of the picture, page, and how much of its height is shown at most.
PICTURES = (
    ("admin-queues", "queues", 1200),
    ("admin-runs", "runs", 1000),
    ("admin-task", "task", 1000),
    ("admin-topic", "topic", 1000),
    ("admin-worker", "worker", 900),
    ("admin-schedule", "schedule", 1100),
    ("admin-failures", "queue-failures", 700),
    ("pipeline-history", "history", 1140),
    ("pipeline-objectives", "objectives", 1180),
)


def test_pictures_are_made(visitor: Callable[..., Visitor], mail: Queue, dead: Queue, server: PrivateServer):
    names = fill_pages(mail, dead, server)
    schedules.change("remind-gate", cron="30 3 * * MON-FRI", time_zone="Europe/Berlin")
    root = visitor(color_scheme="light").log_in(User.objects.create_superuser("ada"))

    for name, page, height in PICTURES:
        take(root, name, PAGES[page].format(**names), height)
    take(root, "admin-workflow", f"/admin/rsmq/workflow/default_2F{pictures_workflow(server)}/change/", 1200)

    assert all((IMAGES / f"{name}.webp").stat().st_size > 5000 for name, _page, _height in PICTURES)


@pytest.mark.urls("tests.browser.progress_pages")
def test_a_picture_of_bars_is_made(visitor: Callable[..., Visitor], server: PrivateServer):
    for number, (status, done) in enumerate([("READY", 0), ("RUNNING", 4), ("SUCCESSFUL", 10)]):
        said = json.dumps({"done": done, "total": 10, "note": f"page {done}" if done else ""})
        record = f"rsmq::result:t{number}"
        server.redis.hset(record, "status", status)
        if done:
            server.redis.hset(record, "progress", said)
    take(visitor(color_scheme="light"), "task-progress", "/imports/t0,t1,t2", 180, width=640)


def take(visitor: Visitor, name: str, address: str, height: int, *, width: int = WIDTH) -> None:
    """Save what a page shows in a window of this height, or all of it when that is less."""
    page = visitor.page
    page.set_viewport_size({"width": width, "height": 900})
    answer = visitor.open(address)
    assert answer.status == 200, address
    whole = page.evaluate("() => document.documentElement.scrollHeight")
    page.set_viewport_size({"width": width, "height": min(whole, height)})
    page.evaluate("() => document.getAnimations().forEach((each) => each.finish())")
    session = visitor.context.new_cdp_session(page)
    found = session.send("Page.captureScreenshot", {"format": "webp", "quality": 82})
    (IMAGES / f"{name}.webp").write_bytes(base64.b64decode(found["data"]))
    session.detach()


def pictures_workflow(server: PrivateServer) -> str:
    """Have a workflow with a member in each state, and return its id."""
    ensure_queue("default")
    members = [chain(call(write, f"order-{n}.pdf"), call(ordinary)) for n in (4711, 4712, 4713)]
    workflow = group(
        [*members, call(write, "terms.pdf")], then=call(ordinary), on_failure=call(ordinary), name="invoices"
    )
    workflow_id: str = workflow.enqueue().id
    state, redis = f"rsmq::workflow:{workflow_id}", server.redis
    shape = json.loads(redis.hget(state, "shape"))
    text = (
        json.dumps(shape)
        .replace(f"{write.module_path}", "shop.tasks.render")
        .replace(ordinary.module_path, "shop.tasks.send")
    )
    redis.hset(state, "shape", text)
    first, last = shape["ids"][0]
    redis.hset(f"rsmq::result:{first}", mapping={"status": "SUCCESSFUL", "attempted_ms": 1000, "finished_ms": 3400})
    redis.hset(f"rsmq::result:{last}", mapping={"status": "SUCCESSFUL", "attempted_ms": 4000, "finished_ms": 4300})
    redis.hdel(f"{state}:steps", "0.1", "1.1")
    redis.hdel(f"{state}:members", 0, 2)
    redis.hset(f"{state}:results", 0, '"sent to ada@example.org"')
    redis.hset(
        f"rsmq::result:{shape['ids'][1][0]}", mapping={"status": "SUCCESSFUL", "attempted_ms": 1, "finished_ms": 2100}
    )
    redis.hset(f"{state}:members", 1, shape["ids"][1][1])
    redis.hset(f"rsmq::result:{shape['ids'][1][1]}", mapping={"status": "RUNNING"})
    failure = {
        "reason": "gave_up",
        "task": "shop.tasks.render",
        "error": "builtins.ValueError",
        "message": "no such order",
    }
    redis.hset(f"{state}:failures", 2, f"{shape['ids'][2][0]} " + json.dumps(failure))
    redis.hset(
        f"rsmq::result:{shape['ids'][2][0]}", mapping={"status": "FAILED", "attempted_ms": 1, "finished_ms": 900}
    )
    redis.hset(state, mapping={"succeeded": 1, "calls_done": 3, "failed": 1})
    return workflow_id
