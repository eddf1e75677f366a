"""Refreshing a page: its content without the frame, 304 without changes, and only with permission."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client as Browser

from rsmq_django import schedules
from rsmq_django.admin.fragments import conditional
from rsmq_django.core import Queue
from rsmq_django.tasks import call, group
from tests.admin.conftest import MESSAGES, QUEUES
from tests.admin.pages import told
from tests.redis_server import PrivateServer
from tests.worker.site.tasks import write

FRAGMENT = {"HTTP_RSMQ_FRAGMENT": "1"}


@pytest.fixture
def addresses(mail: Queue, server: PrivateServer, django_capture_on_commit_callbacks: Any) -> dict[str, str]:
    message = mail.send(b'{"task": "shop.tasks.pay", "id": "t7", "args": [7], "kwargs": {}}')
    server.redis.hset("rsmq::result:t7", mapping={"status": "FAILED", "queue": "mail", "message": message})
    schedules.add("nightly", write, cron="0 4 1 1 *", args=["x"])
    with django_capture_on_commit_callbacks(execute=True):
        letters = group([call(write, "a")], name="letters").enqueue()
    return {
        "queues": QUEUES,
        "queue": f"{QUEUES}mail/change/",
        "messages": MESSAGES,
        "message": f"{MESSAGES}mail_2F{message}/change/",
        "workers": "/admin/rsmq/worker/",
        "schedules": "/admin/rsmq/schedule/",
        "schedule": "/admin/rsmq/schedule/nightly/change/",
        "tasks": "/admin/rsmq/registeredtask/",
        "task": f"/admin/rsmq/registeredtask/{write.func.__module__}.{write.func.__qualname__}/change/".replace(
            "_", "_5F"
        ),
        "results": "/admin/rsmq/result/?q=t7",
        "result": "/admin/rsmq/result/t7/change/",
        "workflows": "/admin/rsmq/workflow/",
        "workflow": f"/admin/rsmq/workflow/default_2F{letters.id}/change/",
        "topics": "/admin/rsmq/topic/",
        "reliable queues": "/admin/rsmq/reliablequeue/",
    }


def test_a_refresh_is_the_content_of_the_page_without_its_frame(browser: Browser, addresses: dict[str, str]):
    for name, address in addresses.items():
        whole, part = browser.get(address), browser.get(address, **FRAGMENT)

        assert (whole.status_code, part.status_code) == (200, 200), name
        assert b"<html" not in part.content and b"<script" not in part.content, name
        assert len(part.content) < len(whole.content) - 5000, name
        parts = re.findall(rb' id="([\w-]+)" data-rsmq-live', whole.content)
        assert parts == re.findall(rb' id="([\w-]+)" data-rsmq-live', part.content) and parts, name
        cells = re.compile(rb'<t[dh][^>]* class="[^"]*field-\w+')
        assert cells.findall(part.content) == cells.findall(whole.content), name


def test_a_refresh_that_would_show_the_same_is_answered_without_content(
    browser: Browser, addresses: dict[str, str], mail: Queue, mid_minute: None
):
    for name in ("queue", "messages", "message", "schedules", "schedule", "workflows", "result"):
        etag = browser.get(addresses[name], **FRAGMENT).headers["ETag"]

        again = browser.get(addresses[name], HTTP_IF_NONE_MATCH=etag, **FRAGMENT)

        assert (again.status_code, again.content) == (304, b""), name


def test_a_refresh_announces_the_changes(browser: Browser, addresses: dict[str, str], mail: Queue):
    etag = browser.get(MESSAGES, **FRAGMENT).headers["ETag"]
    mail.send(b"more")

    again = browser.get(MESSAGES, HTTP_IF_NONE_MATCH=etag, **FRAGMENT)

    assert again.status_code == 200 and b"3 messages" in again.content


def test_only_how_long_ago_something_is_does_not_count_as_a_change(rf: Any):
    from django.http import HttpResponse

    request = rf.get("/", **FRAGMENT)

    def etag_of(text: str) -> str:
        return str(conditional(request, HttpResponse(text)).headers["ETag"])

    now = etag_of('<b>7</b> <span class="rsmq-ago" data-rsmq-at="1000">3 s ago</span>')
    assert etag_of('<b>7</b> <span class="rsmq-ago" data-rsmq-at="1000">9 s ago</span>') == now
    assert etag_of('<b>7</b> <span class="rsmq-ago" data-rsmq-at="2000">9 s ago</span>') != now
    assert etag_of('<b>8</b> <span class="rsmq-ago" data-rsmq-at="1000">3 s ago</span>') != now


def test_a_page_that_is_opened_is_never_answered_with_304(browser: Browser, mail: Queue):
    etag = browser.get(MESSAGES, **FRAGMENT).headers["ETag"]

    whole = browser.get(MESSAGES, HTTP_IF_NONE_MATCH=etag)

    assert whole.status_code == 200 and "ETag" not in whole.headers


def test_users_who_may_not_see_a_page_may_not_refresh_it(
    browser_of: Callable[..., Browser], addresses: dict[str, str], mail: Queue
):
    nobody, stranger = browser_of(), Browser()
    for name, address in addresses.items():
        assert nobody.get(address, **FRAGMENT).status_code == 403, name
        assert stranger.get(address, **FRAGMENT).status_code == 302, name


def test_a_refresh_hides_bodies_from_users_who_may_not_see_them(browser_of: Callable[..., Browser], mail: Queue):
    mail.send(b'{"word": "between us"}')
    looker = browser_of("view_message")

    assert b"between us" not in looker.get(MESSAGES, **FRAGMENT).content


def test_a_refresh_with_a_wrong_filter_is_refused(browser: Browser, mail: Queue):
    assert browser.get(MESSAGES, {"nothing": "1"}, **FRAGMENT).status_code == 400


def test_a_page_of_a_deleted_row_leaves_no_messages_for_other_pages(browser: Browser, mail: Queue):
    message = mail.send(b"x")
    address = f"{MESSAGES}mail_2F{message}/change/"
    assert browser.get(address, **FRAGMENT).status_code == 200
    mail.delete(message)

    answers = [browser.get(address, **FRAGMENT).status_code for _ in range(3)]

    assert answers == [404, 404, 404] and told(browser.get(QUEUES)) == []
    assert browser.get(address).status_code == 302


def test_a_refresh_removes_no_notices_from_their_page(browser: Browser, mail: Queue, dead: Queue):
    browser.post(f"{QUEUES}mail/pause/", {"action": "pause"})

    browser.get(f"{QUEUES}mail-dead/retries/", **FRAGMENT)

    assert told(browser.get(QUEUES)) == ["Queue mail is paused."]
