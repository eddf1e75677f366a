"""The pages of workflows: progress, reasons of failures, and cancelling."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.test import Client as Browser

from rsmq_django.admin import workflows
from rsmq_django.core import Queue
from rsmq_django.core.tasks.workflow_records import read_statuses
from rsmq_django.queues import ensure_queue, get_client
from rsmq_django.tasks import Workflow, call, group
from rsmq_django.tasks.cancellation import cancel_only_on
from tests import redis_server
from tests.admin.pages import lost_after, rows_of, text_of, told
from tests.redis_server import PrivateServer
from tests.worker.site import tasks

LIST = "/admin/rsmq/workflow/"


def page_of(workflow: Workflow, page: str = "change") -> str:
    return f"{LIST}{quote(f'default/{workflow.id}')}/{page}/"


@pytest.fixture
def letters(project: None, django_capture_on_commit_callbacks: Any) -> Workflow:
    """A group of three tasks that nobody has begun."""
    ensure_queue("default")
    with django_capture_on_commit_callbacks(execute=True):
        return group([call(tasks.write, f"letter {n}") for n in range(3)], name="letters").enqueue()


def test_the_list_shows_the_newest_first_and_how_far_they_are(browser: Browser, letters: Workflow):
    [row] = rows_of(browser.get(LIST))

    assert (row.name, row.kind, row.state, row.total, row.waiting) == ("letters", "group", "running", 3, 3)
    assert rows_of(browser.get(LIST, {"state__exact": "failed"})) == []
    assert [row.name for row in rows_of(browser.get(LIST, {"q": "LETT"}))] == ["letters"]


def test_the_page_shows_members(browser: Browser, letters: Workflow):
    page = browser.get(page_of(letters))

    assert [(row.number, row.state) for row in page.context["members"]] == [
        (0, "pending"),
        (1, "pending"),
        (2, "pending"),
    ]
    assert "3: 3 pending, 0 failed" in text_of(page)


def test_results_and_failures_are_shown(browser: Browser, letters: Workflow, server: PrivateServer):
    state = f"rsmq::workflow:{letters.id}"
    server.redis.hdel(f"{state}:members", 0, 1)
    server.redis.hset(f"{state}:results", 0, '"well written"')
    failure = '{"reason": "gave_up", "task": "shop.pay", "error": "builtins.ValueError", "message": "password=abc"}'
    server.redis.hset(f"{state}:failures", 1, "t1 " + failure)
    server.redis.hset(state, mapping={"succeeded": 1, "calls_done": 1, "failed": 1})

    text = text_of(browser.get(page_of(letters)))

    assert "well written" in text and "builtins.ValueError" in text and "shop.pay" in text
    assert "abc" not in text, "secrets are hidden"


def test_bodies_are_shown_only_to_users_who_may_see_them(
    browser_of: Callable[..., Browser], letters: Workflow, server: PrivateServer
):
    server.redis.hset(f"rsmq::workflow:{letters.id}:results", 0, '"between us"')

    page = browser_of("view_workflow").get(page_of(letters))

    assert "between us" not in text_of(page) and "You may not see bodies" in text_of(page)
    assert b"rsmq-dangerous" not in page.content, "nothing to cancel for this one"


def test_a_workflow_is_cancelled_after_a_question(browser: Browser, letters: Workflow):
    asked = browser.post(page_of(letters, "cancel"))
    assert "cancels the 3 members of letters" in text_of(asked)
    assert letters.status().state == "running"

    done = browser.post(page_of(letters, "cancel"), {"post": "yes"}, follow=True)

    assert told(done) == ["Workflow letters was cancelled with 3 tasks. No further step or callback will run."]
    assert letters.status().state == "cancelled"
    assert ensure_queue("default").attributes().messages == 0
    assert LogEntry.objects.get().change_message == "Cancelled 3 tasks"


def test_a_workflow_that_ends_while_it_is_cancelled_is_not_called_cancelled(
    browser: Browser, letters: Workflow, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    real = workflows._can_be_cancelled

    def end_in_between(workflow: Any) -> bool:
        found = real(workflow)
        server.redis.hset(f"rsmq::workflow:{letters.id}", "status", "succeeded")
        return found

    monkeypatch.setattr(workflows, "_can_be_cancelled", end_in_between)
    done = browser.post(page_of(letters, "cancel"), {"post": "yes"}, follow=True)

    assert told(done) == ["The workflow has already ended."]
    assert not LogEntry.objects.exists()


def test_when_the_connection_is_lost_the_page_and_the_history_say_what_was_cancelled(
    browser: Browser, letters: Workflow, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(workflows, "cancel_only_on", lost_after(1, cancel_only_on))

    page = browser.post(page_of(letters, "cancel"), {"post": "yes"})

    assert page.status_code == 503 and letters.status().state == "cancelled"
    assert told(page) == ["Workflow letters: 1 tasks were cancelled, others are left. Cancel again."]
    assert LogEntry.objects.get().change_message == "Cancelled 1 tasks"


@pytest.mark.parametrize("with_records", [True, False])
def test_the_workflow_of_the_page_is_cancelled_and_not_a_copy_on_another_connection(
    browser: Browser, letters: Workflow, server: PrivateServer, settings: Any, with_records: bool
):
    copy = {"URL": f"{redis_server.URL}?db=1"}
    settings.RSMQ = {
        **settings.RSMQ,
        "CONNECTIONS": {**settings.RSMQ["CONNECTIONS"], "copy": copy},
        "QUEUES": {"default": {}, "mail": {}, "copied": {"CONNECTION": "copy"}},
    }
    for key in server.redis.keys():
        if with_records or not key.startswith(b"rsmq::result:"):
            server.redis.copy(key, key, destination_db=1)

    page = browser.post(f"{LIST}{quote(f'copy/{letters.id}')}/cancel/", {"post": "yes"}, follow=True)

    assert told(page) == ["Workflow letters was cancelled with 3 tasks. No further step or callback will run."]
    assert Queue("default", get_client("copy")).attributes().messages == 0
    assert Queue("default", get_client("default")).attributes().messages == 3


def test_users_with_view_permission_cannot_cancel(browser_of: Callable[..., Browser], letters: Workflow):
    looker = browser_of("view_workflow")

    assert looker.post(page_of(letters, "cancel"), {"post": "yes"}).status_code == 403
    assert browser_of("cancel_workflow").post(page_of(letters, "cancel"), {"post": "yes"}).status_code == 403
    assert letters.status().state == "running"


def test_odd_addresses_are_no_errors(browser: Browser, letters: Workflow, client: Any):
    for number in ("-1", "9" * 30, "x", "2"):
        assert browser.get(page_of(letters), {"from": number}).status_code == 200
    assert browser.get(f"{LIST}nothing/change/").status_code == 302
    assert browser.get(f"{LIST}nowhere_2Fx/change/").status_code == 302
    assert browser.get(page_of(letters, "cancel")).status_code == 405
    assert get_client().run(read_statuses("rsmq", ["x"])) == [None]
