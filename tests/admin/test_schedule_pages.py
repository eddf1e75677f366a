"""The list of schedules, the page of one; running, pausing and resuming them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.test import Client as Browser

from rsmq_django import schedules
from rsmq_django.core import Queue
from rsmq_django.tasks import task
from rsmq_django.tasks.task import _tasks
from tests.admin.pages import rows_of, text_of, told
from tests.redis_server import PrivateServer

pytestmark = pytest.mark.usefixtures("mid_minute")

SCHEDULES = "/admin/rsmq/schedule/"
PAGE = f"{SCHEDULES}remind/"


def remind_kitchen(room: str = "kitchen") -> None: ...


@pytest.fixture
def remind(mail: Queue) -> Iterator[Any]:
    """A task, and a schedule of it that was added at run time."""
    declared = task(queue_name="mail")(remind_kitchen)
    schedules.add("remind", declared, every_s=900)
    yield declared
    _tasks.pop(declared.module_path)


def test_the_list_shows_when_schedules_fire(browser: Browser, remind: Any):
    (row,) = rows_of(browser.get(SCHEDULES))

    assert (row.name, row.queue, row.is_paused, row.fired) == ("remind", "mail", False, 0)
    assert row.next_at is not None and "every 15 min" in text_of(browser.get(SCHEDULES))


def test_the_runs_of_a_schedule_are_those_of_its_connection(browser: Browser, remind: Any, settings: Any):
    assert browser.get(f"{PAGE}change/").context["runs_url"] == f"/admin/rsmq/run/?task={remind.module_path}"

    media = {**settings.RSMQ["CONNECTIONS"]["default"], "NAMESPACE": "media"}
    connections = {**settings.RSMQ["CONNECTIONS"], "media": media}
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": connections, "QUEUES": {"mail": {"CONNECTION": "media"}}}
    schedules.add("again", remind, every_s=900)

    assert "&connection=media" in browser.get(f"{SCHEDULES}again/change/").context["runs_url"]


def test_a_schedule_is_run_now(
    browser: Browser, remind: Any, mail: Queue, django_capture_on_commit_callbacks: Callable[..., Any]
):
    with django_capture_on_commit_callbacks(execute=True):
        page = browser.post(f"{PAGE}operate/", {"action": "run"}, follow=True)

    assert mail.attributes().messages == 1
    assert told(page) == ["Run now: remind"]
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, entry.change_message) == ("remind", "Run by hand")


def test_schedules_are_paused_and_resumed(browser: Browser, remind: Any):
    browser.post(SCHEDULES, {"action": "pause", "_selected_action": ["remind"]})
    assert schedules.get("remind").is_paused
    assert b'value="resume"' in browser.get(f"{PAGE}change/").content

    browser.post(f"{PAGE}operate/", {"action": "resume"})

    assert not schedules.get("remind").is_paused
    assert LogEntry.objects.count() == 2


def test_call_that_cannot_run_is_reported_and_not_logged(browser: Browser, remind: Any, server: PrivateServer):
    _tasks.pop(remind.module_path)
    try:
        page = browser.post(f"{PAGE}operate/", {"action": "run"}, follow=True)
    finally:
        _tasks[remind.module_path] = remind

    assert "remind:" in told(page)[0] and not LogEntry.objects.exists()


def test_each_right_is_one_of_its_own(browser_of: Callable[..., Browser], remind: Any, mail: Queue):
    viewer = browser_of("view_schedule")
    runner = browser_of("view_schedule", "run_schedule")

    assert viewer.get(f"{PAGE}change/").context["operations"] == []
    assert viewer.post(f"{PAGE}operate/", {"action": "run"}).status_code == 403
    viewer.post(SCHEDULES, {"action": "pause", "_selected_action": ["remind"]})
    assert runner.post(f"{PAGE}operate/", {"action": "pause"}).status_code == 403
    assert runner.get(f"{PAGE}operate/").status_code == 405
    assert mail.attributes().messages == 0 and not schedules.get("remind").is_paused
    assert runner.post(f"{PAGE}operate/", {"action": "run"}).status_code == 302


def test_text_of_another_program_stays_text(browser: Browser, remind: Any, server: PrivateServer):
    name = "<script>alert(1)</script>"
    server.redis.hset("rsmq::schedule:entries", name, "{nonsense")

    assert b"<script>alert" not in browser.get(SCHEDULES).content
    assert len(rows_of(browser.get(SCHEDULES))) == 2


def test_a_name_that_is_no_text_hides_no_other_schedule(browser: Browser, remind: Any, server: PrivateServer):
    server.redis.hset("rsmq::schedule:entries", b"bad\xff", "{nonsense")

    bad, good = sorted(rows_of(browser.get(SCHEDULES)), key=lambda row: str(row.name))
    assert (bad.name, good.name) == ("bad\\udcff", "remind")
    address = f"{SCHEDULES}{quote(bad.name)}/"
    browser.post(f"{address}operate/", {"action": "pause"})
    assert browser.get(f"{address}change/").context["original"].is_paused
    browser.post(f"{address}delete/", {"post": "yes"})

    assert [row.name for row in rows_of(browser.get(SCHEDULES))] == ["remind"]
