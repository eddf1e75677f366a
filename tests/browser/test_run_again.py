"""An operator runs failed calls again, with a real browser."""

import json
import re
from typing import Any

import pytest

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


def test_the_failed_call_for_order_7_is_found_and_run_again_in_four_clicks(
    root: Visitor, start_worker: StartWorker, server: PrivateServer
):
    for order in (6, 7, 8):
        tasks.toil.enqueue(f"order {order}", "long")  # type: ignore[arg-type]  # which is what kills it
    start_worker("--no-startup-delay", queues=SITE_QUEUES)
    wait_until(lambda: server.redis.hlen("rsmq::dead:default-dead") == 3)
    waiting = ensure_queue("default")
    clicks, page = Clicks(root), root.page

    root.open("/admin/rsmq/")
    clicks.on(page.get_by_role("link", name="Messages", exact=True).first)
    page.locator("#searchbar").fill('"order 7"')
    clicks.on(page.locator("#changelist-search input[type=submit]"))
    assert page.locator("#result_list tbody tr").count() == 1
    clicks.on(page.locator("#result_list tbody th a").first)
    clicks.on(page.get_by_role("button", name="Run again"))

    assert clicks.count <= 4
    root.wait_for_text("was enqueued")
    task_id = re.search(r"Task (\S+) was enqueued", root.text())[1]  # type: ignore[index]
    root.follow(page.get_by_role("link", name=task_id))
    assert "order 7" in root.text()
    wait_until(lambda: server.redis.hlen("rsmq::dead:default-dead") == 4)
    assert waiting.attributes().messages == 0


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
        return "SUCCESSFUL" in root.text()

    wait_until(is_done)
    assert json.loads(server.redis.hget(f"rsmq::result:{root.page.url.split('/')[-3]}", "body"))["kwargs"] == {
        "name": "order 7",
        "for_s": 0.01,
    }
