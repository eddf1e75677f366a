"""Confirmations and results of the admin name tasks, errors and queues instead of ids and fingerprints."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client as Browser

from rsmq_django.core import Queue
from tests.admin.conftest import MESSAGES, QUEUES
from tests.admin.pages import text_of, told
from tests.redis_server import PrivateServer

FAILURES = f"{QUEUES}mail-dead/failures/"


@pytest.fixture
def letters(dead: Queue, server: PrivateServer) -> list[str]:
    """Dead letters: 84 of one kind and one of another; their ids."""
    ids = dead.send_many([b'{"task": "airport.tasks.fragile", "id": "t%d"}' % n for n in range(84)])
    record = {
        "reason": "gave_up",
        "queue": "mail",
        "task": "airport.tasks.fragile",
        "error": "r.ConnectionError",
    }
    texts = [f"api.weather.gov timed out after {n} ms" for n in range(84)]
    records = [json.dumps(record | {"message": text}) for text in texts]
    server.redis.hset("rsmq::dead:mail-dead", mapping=dict(zip(ids, records, strict=True)))
    other = dead.send(b"raw")
    return [*ids, other]


def fingerprint_on(page: Any) -> str:
    return re.search(r'name="failure" value="([^"]+)"', page.content.decode())[1]


def token_in(page: Any) -> str:
    return re.search(r'name="token" value="([^"]+)"', page.content.decode())[1]


def test_retry_of_a_kind_of_failure_names_task_and_error(browser: Browser, letters: list[str]):
    fingerprint = fingerprint_on(browser.get(FAILURES))

    asked = browser.post(FAILURES, {"action": "redrive", "failure": fingerprint})

    name = "airport.tasks.fragile, ConnectionError"
    assert f"Retry 84 dead letters: {name}: api.weather.gov timed out after # ms" in text_of(asked)
    assert fingerprint not in text_of(asked)
    done = browser.post(f"{MESSAGES}bulk/", {"token": token_in(asked)}, follow=True)
    assert told(done) == [f"Retry · {name}: 84 of 84 done"]
    assert LogEntry.objects.get().change_message == f"Retried (of queue mail-dead, of failure {name}): 84 of 84 done"


def test_a_question_about_a_kind_of_failure_leads_back_to_the_failures(browser: Browser, letters: list[str]):
    fingerprint = fingerprint_on(browser.get(FAILURES))

    asked = browser.post(FAILURES, {"action": "redrive", "failure": fingerprint})
    done = browser.post(f"{MESSAGES}bulk/", {"token": token_in(asked)})

    assert f'<a href="{FAILURES}" class="button' in asked.content.decode()
    assert done["location"] == FAILURES


def test_a_kind_of_failure_that_is_gone_is_reported_instead_of_a_question(
    browser: Browser, letters: list[str], dead: Queue
):
    fingerprint = fingerprint_on(browser.get(FAILURES))
    dead.delete_many(letters[:84])

    asked = browser.post(FAILURES, {"action": "delete_selected", "failure": fingerprint}, follow=True)

    assert told(asked) == ["This failure has no dead letters left."]
    assert "Are you sure" not in text_of(asked)


def test_texts_of_errors_are_shown_only_to_users_who_may_see_bodies(
    browser_of: Callable[..., Browser], letters: list[str]
):
    browser = browser_of("view_queue", "view_message", "redrive_message")

    asked = browser.post(FAILURES, {"action": "redrive", "failure": fingerprint_on(browser.get(FAILURES))})

    assert "Retry 84 dead letters: airport.tasks.fragile, ConnectionError" in text_of(asked)
    assert "api.weather.gov" not in text_of(asked)


def test_deletion_of_chosen_messages_names_their_tasks(browser: Browser, letters: list[str]):
    chosen = [f"mail-dead/{message_id}" for message_id in (letters[0], letters[-1])]

    asked = browser.post(f"{MESSAGES}?queue=mail-dead", {"action": "delete_selected", "_selected_action": chosen})
    text = text_of(asked)
    assert "Delete 2 messages: airport.tasks.fragile, ConnectionError, no task" in text
    assert "airport.tasks.fragile · r.ConnectionError" in text
    sure = {"action": "delete_selected", "_selected_action": chosen, "post": "yes"}
    done = browser.post(f"{MESSAGES}?queue=mail-dead", sure, follow=True)

    assert told(done) == ["Delete · airport.tasks.fragile, ConnectionError, no task: 2 of 2 done"]


def test_answers_about_a_queue_name_it(browser: Browser, mail: Queue):
    answers = [
        browser.post(f"{QUEUES}mail/pause/", {"action": "pause"}, follow=True),
        browser.post(f"{QUEUES}mail/pause/", {"action": "resume"}, follow=True),
        browser.post(f"{QUEUES}mail/send/", {"body": "x"}, follow=True),
    ]

    paused, resumed, sent = (told(answer)[0] for answer in answers)
    assert (paused, resumed) == ("Queue mail is paused.", "Queue mail is resumed.")
    assert sent.endswith(" was sent to queue mail.")
