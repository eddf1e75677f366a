"""Work of operators with topics, reliable queues, history and workflows, in a real browser."""

import datetime as dt

import pytest
from django.contrib.admin.models import LogEntry
from django.utils import timezone

from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.topic import Topic
from rsmq_django.pipeline.models import FailureGroup, TaskHour
from rsmq_django.queues import ensure_queue, get_client
from rsmq_django.tasks import call, group
from tests.browser.chromium import Visitor
from tests.pipeline.conftest import add_up_days
from tests.redis_server import PrivateServer
from tests.worker.site import tasks

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("mid_minute")]


def test_a_topic_is_replayed_after_a_preview(root: Visitor, server: PrivateServer):
    topic = Topic("orders", get_client())
    topic.publish(*(f"order {number}" for number in range(30)))
    billing = topic.group("billing")
    billing.read(20)

    root.open("/admin/rsmq/topic/")
    root.click("orders", role="link")
    assert "order 29" in root.text()
    root.click("Replay…", role="link")
    root.page.get_by_label("Continue at").select_option("earliest")
    root.click("Preview")
    root.wait_for_text("20 messages will be delivered again.")
    assert billing.status().lag == 10, "only shown"
    root.page.get_by_label("Force").check()
    root.click("Yes, I’m sure")

    root.wait_for_text("Group billing continues at index")
    assert billing.status().lag == 30
    assert LogEntry.objects.get().change_message.startswith("Moved group billing")


def test_a_stuck_message_of_a_reliable_queue_is_buried_and_moved(root: Visitor, server: PrivateServer):
    items = ReliableQueue("parcels", get_client(), consumer="shop-1")
    items.push("parcel 1", "parcel 2")
    items.pop_messages(1)
    ReliableQueue("returns", get_client()).push("a parcel of before")

    root.open("/admin/rsmq/reliablequeue/parcels/change/")
    root.page.locator("#rsmq-delivered ~ form input[name=receipt]").check()
    root.click("Move to dead letters")
    root.wait_for_text("1 of 1 done.")
    root.page.locator("#rsmq-dead ~ form input[name=receipt]").check()
    root.follow(root.page.locator("#rsmq-dead ~ form").get_by_role("button", name="Move to another queue…"))
    root.page.get_by_label("Target queue").fill("returns")
    root.click("Yes, I’m sure")

    root.wait_for_text("1 of 1 done.")
    assert [message.body for message in ReliableQueue("returns", get_client()).messages("undelivered")][
        1
    ] == b"parcel 1"
    assert items.statistics().depth.dead == 0


def test_history_leads_from_all_tasks_to_one_and_to_its_failures(root: Visitor, server: PrivateServer):
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    numbers = dict.fromkeys(("released", "lost", "cancelled", "busy_us", "body_bytes", "workers"), 0)
    for task in ("shop.tasks.pay", "shop.tasks.ship"):
        TaskHour.objects.create(
            day=now.date(), hour=now - dt.timedelta(hours=2), queue="mail", task=task, attempts=90, first_attempts=90,
            succeeded=80, retried=9, dead=1, run_s_squared=1, wait_hist={"500": 90}, run_hist={"600": 90}, **numbers,
        )  # fmt: skip
    add_up_days()
    FailureGroup.objects.create(
        day=now.date(), task="shop.tasks.pay", fingerprint="f1", error_type="builtins.ValueError", n=10, retried=9,
        dead=1, first_at=now, last_at=now, sample="no card 4711", queues=["mail"], workers=2,
    )  # fmt: skip

    root.open("/admin/rsmq_pipeline/taskhour/")
    assert "shop.tasks.ship" in root.text()
    root.click("shop.tasks.pay", role="link")
    assert "shop.tasks.ship" not in root.text() and root.page.locator("svg.rsmq-chart").count() == 4
    root.open("/admin/rsmq_pipeline/failuregroup/")

    assert "builtins.ValueError" in root.text() and "no card 4711" in root.text()


def test_an_hour_of_a_chart_leads_to_its_runs(root: Visitor, server: PrivateServer):
    hour = timezone.now().replace(minute=0, second=0, microsecond=0) - dt.timedelta(hours=3)
    numbers = dict.fromkeys(("released", "lost", "cancelled", "busy_us", "body_bytes", "workers"), 0)
    for at in (hour, hour + dt.timedelta(hours=2)):
        TaskHour.objects.create(
            day=at.date(), hour=at, queue="mail", task="shop.tasks.pay", attempts=90, first_attempts=90,
            succeeded=80, retried=9, dead=1, run_s_squared=1, wait_hist={"500": 90}, run_hist={"600": 90}, **numbers,
        )  # fmt: skip

    root.open("/admin/rsmq_pipeline/taskhour/?span=2d&queue=mail")
    root.follow(root.page.locator(".rsmq-figure").nth(1).locator(".rsmq-column").first)

    assert root.page.get_by_label("From").input_value().startswith(f"{timezone.localtime(hour):%Y-%m-%dT%H:%M}")
    assert root.page.get_by_label("Queue").input_value() == "mail"
    assert "The event log is empty." in root.text()


def test_a_workflow_is_viewed_and_cancelled(root: Visitor, server: PrivateServer):
    ensure_queue("default")
    letters = group([call(tasks.write, f"letter {n}") for n in range(4)], name="letters").enqueue()

    root.open("/admin/rsmq/workflow/")
    root.click("letters", role="link")
    assert "4: 4 pending, 0 failed" in root.text()
    root.click("Cancel…")
    root.wait_for_text("cancels the 4 members of letters")
    root.click("Yes, I’m sure")

    root.wait_for_text("No further step or callback will run.")
    assert letters.status().state == "cancelled"
    assert ensure_queue("default").attributes().messages == 0
