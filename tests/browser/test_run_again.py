"""An operator runs failed calls again, with a real browser."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from rsmq_django.core.stats.events import FIELDS
from rsmq_django.queues import ensure_queue
from tests.browser.chromium import Visitor
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks

pytestmark = pytest.mark.browser
SITE_QUEUES: dict[str, dict[str, object]] = {"default": {}, "mail": {}}


class Clicks:
    """A visitor whose clicks are counted."""

    def __init__(self, visitor: Visitor) -> None:
        self.visitor, self.count = visitor, 0

    def on(self, locator: Any) -> None:
        self.count += 1
        self.visitor.follow(locator)


DAY_MS = 86_400_000


def fail_yesterday(server: PrivateServer, orders: range) -> None:
    """Have calls that failed for good yesterday, with dead letters, results and runs, and others today."""
    dead = ensure_queue("default-dead")
    now_ms = server.redis.time()[0] * 1000
    for order in orders:
        for ago_ms, age in ((DAY_MS, "old"), (60_000, "new")):
            task_id, task = f"{age}{order}", "tests.worker.site.tasks.write"
            body = {"task": task, "id": task_id, "args": [f"order {order}"], "kwargs": {}}
            died = dead.send(json.dumps(body).encode())
            record = {"reason": "gave_up", "queue": "default", "task": task, "task_id": task_id, "error": "x.Down"}
            server.redis.hset("rsmq::dead:default-dead", died, json.dumps(record | {"died_ms": now_ms - ago_ms}))
            result = {"status": "FAILED", "queue": "default", "message": died, "body": json.dumps(body)}
            server.redis.hset(f"rsmq::result:{task_id}", mapping=result)
    for age, ago_ms in (("old", DAY_MS), ("new", 60_000)):
        for order in orders:
            fields = dict.fromkeys(FIELDS, "") | {"e": "dead", "q": "default", "t": task, "i": f"{age}{order}"}
            fields |= {"m": f"m{order}", "a": "1", "x": "x.Down", "s": str(now_ms - ago_ms - 10), "y": "no answer"}
            server.redis.xadd("rsmq::events", {"v": "\n".join(fields.values())}, id=f"{now_ms - ago_ms + order}-0")


def test_yesterdays_failed_call_for_order_7_is_found_and_run_again_in_four_clicks(
    root: Visitor, start_worker: StartWorker, server: PrivateServer
):
    fail_yesterday(server, range(1, 9))
    waiting = ensure_queue("default")
    clicks, page = Clicks(root), root.page
    today = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)

    root.open("/admin/rsmq/")
    clicks.on(page.get_by_role("link", name="Runs", exact=True).first)
    page.get_by_label("Search").fill("order 7")
    page.get_by_label("Outcome").select_option(label="Any failure")
    page.get_by_label("From").fill((today - timedelta(days=1)).isoformat())
    page.get_by_label("Until").fill(today.isoformat())
    clicks.on(page.get_by_role("button", name="Filter"))
    clicks.on(page.locator("#result_list tbody th a").last)
    assert "order 7" in root.text() and "old7" in root.text()
    clicks.on(page.get_by_role("button", name="Run again"))

    assert clicks.count <= 4
    root.wait_for_text("was enqueued")
    task_id = re.search(r"Task (\S+) was enqueued", root.text())[1]  # type: ignore[index]
    start_worker("--batch", "--no-startup-delay", queues=SITE_QUEUES).wait()
    root.follow(page.get_by_role("link", name=task_id))
    assert "Succeeded" in root.text() and '"order 7"' in root.text()
    assert waiting.attributes().messages == 0 and server.redis.hlen("rsmq::dead:default-dead") == 16


def test_dead_letters_are_probed_then_retried_at_a_rate_by_another_browser(
    visitor: Callable[..., Visitor], root: Visitor, start_worker: StartWorker, server: PrivateServer
):
    fail_yesterday(server, range(1, 9))
    ensure_queue("default")
    start_worker("--no-startup-delay", queues=SITE_QUEUES)

    root.open("/admin/rsmq/queue/default-dead/failures/")
    root.follow(root.page.get_by_role("link", name="Retry at a rate…"))
    root.click("Retry one as a probe")
    wait_until(lambda: server.redis.hlen("rsmq::dead:default-dead") == 15)
    root.page.get_by_text("Probe: one dead letter · finished").wait_for()  # the page refreshes itself
    assert re.search(r"Succeeded\s+1", root.text())
    root.page.get_by_label("Messages per second").fill("100")
    root.click("Retry all")
    address = root.page.url
    root.page.close()

    other = visitor().log_in(User.objects.get(username="root"))
    other.open(address)
    other.page.get_by_text("Retry at 100 per second · finished").wait_for()
    assert re.search(r"Succeeded\s+15", other.text())
    assert server.redis.hlen("rsmq::dead:default-dead") == 0


def test_a_call_is_corrected_and_run(root: Visitor, start_worker: StartWorker, server: PrivateServer):
    tasks.toil.enqueue("order 7", "long")  # type: ignore[arg-type]
    start_worker("--no-startup-delay", queues=SITE_QUEUES)
    wait_until(lambda: server.redis.hlen("rsmq::dead:default-dead") == 1)

    root.open("/admin/rsmq/message/?state__exact=dead")
    root.follow(root.page.locator("#result_list tbody th a").first)
    root.click("Edit and run…", role="link")
    assert root.page.get_by_label("name").input_value() == "order 7"
    root.page.get_by_label("for_s").fill("0.01")
    root.click("Run")
    root.wait_for_text("was enqueued")
    root.follow(root.page.locator(".messagelist a"))

    def is_done() -> bool:
        root.page.reload()
        return "Succeeded" in root.text()

    wait_until(is_done)
    assert json.loads(server.redis.hget(f"rsmq::result:{root.page.url.split('/')[-3]}", "body"))["kwargs"] == {
        "name": "order 7",
        "for_s": 0.01,
    }
