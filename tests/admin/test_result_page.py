"""The page of a task's result."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client as Browser

from rsmq_django.core import Queue
from tests.admin.pages import rows_of, text_of
from tests.redis_server import PrivateServer

RESULTS = "/admin/rsmq/result/"


@pytest.fixture
def finished(server: PrivateServer) -> None:
    """A task that failed once and then returned something."""
    record = {
        "status": "SUCCESSFUL", "queue": "mail", "message": "m" * 32, "started_ms": "1795190076663",
        "worker:1": "web1", "error:1": json.dumps(["builtins.ValueError", "Traceback ... token=hunter2"]),
        "worker:2": "web2", "value": '{"sent": 7, "secret": "hunter2"}',
        "body": '{"task": "shop.tasks.pay", "args": [], "kwargs": {"password": "hunter2"}}',
    }  # fmt: skip
    server.redis.hset("rsmq::result:t7", mapping=record)


def test_a_result_is_found_by_its_id(browser: Browser, mail: Queue, finished: None):
    assert rows_of(browser.get(RESULTS)) == []
    found = browser.get(RESULTS, {"q": "t7"})
    assert [row.status for row in rows_of(found)] == ["SUCCESSFUL"]
    assert "1 result" in text_of(found) and "total" not in text_of(found), "nobody knows how many there are"


def test_its_page_shows_value_and_attempts_without_secrets(browser: Browser, mail: Queue, finished: None):
    page = browser.get(f"{RESULTS}t7/change/")

    text = text_of(page)
    assert '"sent": 7' in page.context["value"].text
    assert "Attempt 1 · on web1 · builtins.ValueError" in text and "shop.tasks.pay" in text
    assert b"hunter2" not in page.content


def test_value_and_errors_are_shown_only_to_users_who_may_see_bodies(
    browser_of: Callable[..., Browser], finished: None
):
    page = browser_of("view_result").get(f"{RESULTS}t7/change/")

    assert page.status_code == 200
    assert b"sent" not in page.content and b"ValueError" not in page.content


def test_a_damaged_record_is_shown(browser: Browser, server: PrivateServer):
    record = {"value": b"\xff", "started_ms": "soon", "finished_ms": "1e300", "message": b"\xfe", "error:1": "[[]"}
    server.redis.hset("rsmq::result:odd", mapping=record)

    assert browser.get(f"{RESULTS}odd/change/").status_code == 200
    assert browser.get(f"{RESULTS}{'x' * 2000}/change/").status_code == 302


def test_results_cannot_be_deleted(browser: Browser, finished: None):
    page = browser.get(RESULTS, {"q": "t7"})

    assert b"action-select" not in page.content, "there is nothing to do to a row"
    assert browser.post(f"{RESULTS}t7/delete/", {"post": "yes"}).status_code == 403


def test_its_page_shows_whether_a_result_of_a_signed_queue_is_authentic(
    browser: Browser, settings: Any, mail: Queue, finished: None
):
    assert "Authentic No" not in text_of(browser.get(f"{RESULTS}t7/change/"))
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {**settings.RSMQ["QUEUES"], "mail": {"SIGNING_KEYS": ["k" * 32]}}}

    assert "Authentic No: not signed with a key of this queue" in text_of(browser.get(f"{RESULTS}t7/change/"))
