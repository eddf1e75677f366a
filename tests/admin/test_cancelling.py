"""Cancelling a task from the page of its message."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client as Browser

from rsmq_django.core import Queue
from rsmq_django.queues import ensure_queue, get_client
from rsmq_django.tasks import task
from rsmq_django.tasks.task import _tasks
from tests import redis_server
from tests.admin.conftest import MESSAGES
from tests.admin.pages import rows_of, told
from tests.redis_server import PrivateServer


def tidy_up() -> None: ...


@pytest.fixture
def waiting(mail: Queue, browser: Browser, django_capture_on_commit_callbacks: Callable[..., Any]) -> Iterator[str]:
    """The address of the page of a message whose task waits."""
    declared = task(queue_name="mail")(tidy_up)
    with django_capture_on_commit_callbacks(execute=True):
        declared.enqueue()
    (row,) = rows_of(browser.get(MESSAGES, {"queue": "mail"}))
    yield f"{MESSAGES}mail_2F{row.message_id}/"
    _tasks.pop(declared.module_path)


def test_a_task_is_cancelled_and_that_is_logged(browser: Browser, mail: Queue, waiting: str):
    assert b"Cancel the task" in browser.get(f"{waiting}change/").content

    page = browser.post(f"{waiting}cancel/", follow=True)

    assert told(page) == ["tests.admin.test_cancelling.tidy_up was cancelled."]
    assert mail.attributes().messages == 0
    assert [entry.change_message for entry in LogEntry.objects.all()] == ["Task cancelled"]


def test_cancelling_needs_its_permission_and_a_post(browser_of: Callable[..., Browser], mail: Queue, waiting: str):
    assert browser_of("view_message").post(f"{waiting}cancel/").status_code == 403
    assert browser_of("view_message", "delete_message").get(f"{waiting}cancel/").status_code == 405
    assert mail.attributes().messages == 1


def test_a_task_that_has_ended_since_the_page_was_shown_is_reported(browser: Browser, mail: Queue, waiting: str):
    message = mail.pop()
    assert message

    done = browser.post(f"{waiting}cancel/", follow=True)

    assert told(done) == [f"message with ID “mail/{message.id}” doesn’t exist. Perhaps it was deleted?"]
    assert done.redirect_chain == [(MESSAGES, 302)]


def test_a_message_that_is_not_a_task_cannot_be_cancelled(browser: Browser, mail: Queue, server: PrivateServer):
    url = f"{MESSAGES}mail_2F{mail.send(b'x')}/"

    assert b"Cancel the task" not in browser.get(f"{url}change/").content
    assert browser.post(f"{url}cancel/").status_code == 404


def test_a_message_with_the_task_id_of_another_one_does_not_cancel_that(
    browser: Browser, mail: Queue, waiting: str, server: PrivateServer, settings: Any
):
    """A program that may write one queue must not have an operator cancel a task of another one."""
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"default": {}, "mail": {}, "other": {}}}
    (row,) = rows_of(browser.get(MESSAGES, {"queue": "mail"}))
    (record,) = server.redis.keys("rsmq::result:*")
    other = ensure_queue("other")
    body = json.dumps({"task": "tests.admin.test_cancelling.tidy_up", "id": record.decode().rpartition(":")[2]})
    forged = f"{MESSAGES}other_2F{other.send(body.encode())}/"

    assert b"Cancel the task" not in browser.get(f"{forged}change/").content
    assert browser.post(f"{forged}cancel/").status_code == 404
    assert b"Cancel the task" in browser.get(f"{waiting}change/").content
    assert [each.message_id for each in rows_of(browser.get(MESSAGES, {"queue": "mail"}))] == [row.message_id]


def test_the_task_of_the_page_is_cancelled_and_not_one_of_the_same_id_on_another_connection(
    browser: Browser, mail: Queue, waiting: str, server: PrivateServer, settings: Any
):
    copy = {"URL": f"{redis_server.URL}?db=1"}
    settings.RSMQ = {
        **settings.RSMQ,
        "CONNECTIONS": {**settings.RSMQ["CONNECTIONS"], "copy": copy},
        "QUEUES": {"default": {}, "mail": {}, "copied": {"CONNECTION": "copy"}},
    }
    for key in server.redis.keys():
        server.redis.copy(key, key, destination_db=1)
    the_copy = f"{MESSAGES}copy_2F{waiting.removeprefix(MESSAGES)}"

    page = browser.post(f"{the_copy}cancel/", follow=True)

    assert told(page) == ["tests.admin.test_cancelling.tidy_up was cancelled."]
    assert Queue("mail", get_client("copy")).attributes().messages == 0
    assert mail.attributes().messages == 1
