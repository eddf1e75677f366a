"""Retrying dead letters of one failure: a probe, then the rest at a rate, with progress and cancelling."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client as Browser

from rsmq_django.admin import retry_page
from rsmq_django.core import Queue
from rsmq_django.core.queue.browse import page
from rsmq_django.core.queue.retry_plans import RetryPlan, begin, plans_of, return_part
from rsmq_django.core.stats.fingerprint import fingerprint
from tests.admin.pages import lost_after, text_of, told
from tests.redis_server import PrivateServer

RETRIES = "/admin/rsmq/queue/mail-dead/retries/"
FAILURE = fingerprint("shop.pay", "builtins.ConnectionError", "no answer")
URL = f"{RETRIES}?failure={FAILURE}"


@pytest.fixture
def letters(mail: Queue, dead: Queue, server: PrivateServer) -> list[str]:
    """Five dead letters of one failure, and one of another."""
    ids = dead.send_many([b'{"task": "shop.pay", "id": "t%d"}' % number for number in range(6)])
    for number, died in enumerate(ids):
        record = {"reason": "gave_up", "queue": "mail", "task": "shop.pay", "task_id": f"t{number}"}
        record |= {"error": "builtins.ConnectionError" if number < 5 else "builtins.ValueError", "message": "no answer"}
        server.redis.hset("rsmq::dead:mail-dead", died, json.dumps(record))
    return ids


def the_plan(dead: Queue) -> RetryPlan:
    (plan, *_) = plans_of(dead.client, "mail-dead")
    return plan


def test_a_rate_has_a_german_comma(browser: Browser, letters: list[str], settings: Any):
    settings.LANGUAGE_CODE = "de"

    browser.post(URL, {"action": "start", "rate": "0.01"})

    assert "Wiederholung mit 0,01 pro Sekunde" in text_of(browser.get(URL))


def bodies_in(queue: Queue) -> list[bytes]:
    return [message.body for message in queue.client.run(page("rsmq", queue.name, body_bytes=100)).messages]


def test_a_group_leads_to_its_retries(browser: Browser, letters: list[str]):
    assert URL.partition("/admin")[2] in browser.get("/admin/rsmq/queue/mail-dead/failures/").content.decode()

    shown = text_of(browser.get(URL))

    assert "shop.pay, ConnectionError" in shown and "5 dead letters of this failure." in shown
    assert "Nothing has been retried" in shown


def test_the_page_shows_the_outcome_of_a_probe(
    browser: Browser, mail: Queue, dead: Queue, letters: list[str], server: PrivateServer
):
    browser.post(URL, {"action": "probe"})

    assert bodies_in(mail) == [b'{"task": "shop.pay", "id": "t0"}'] and dead.attributes().messages == 5
    shown = browser.get(URL)
    assert "Probe: one dead letter · running" in text_of(shown) and "Ready or running 1" in text_of(shown)
    assert "4 dead letters of this failure." in text_of(shown)
    server.redis.hset("rsmq::result:t0", mapping={"status": "SUCCESSFUL", "message": mail.receive().id})  # type: ignore[union-attr]
    mail.delete(bytes.decode(server.redis.zrange("rsmq:mail", 0, 0)[0]))

    shown = browser.get(URL)
    assert "Probe: one dead letter · finished" in text_of(shown) and "Succeeded 1 · Task result" in text_of(shown)
    assert b'href="/admin/rsmq/result/t0/change/"' in shown.content
    assert LogEntry.objects.get().change_message == "Probed one dead letter: shop.pay, ConnectionError"


def test_a_probe_that_fails_again_leads_to_its_dead_letter(
    browser: Browser, mail: Queue, dead: Queue, letters: list[str], server: PrivateServer
):
    browser.post(URL, {"action": "probe"})
    again = mail.pop()
    assert again is not None
    server.redis.zadd("rsmq:mail-dead", {again.id: 1})
    server.redis.hset("rsmq:mail-dead:Q", again.id, again.body)
    server.redis.hset("rsmq::dead:mail-dead", again.id, json.dumps({"error": "builtins.TimeoutError"}))

    shown = browser.get(URL)

    assert "Failed again 1 · builtins.TimeoutError" in text_of(shown)
    assert f"/admin/rsmq/message/mail-dead_2F{again.id}/change/" in shown.content.decode()


def test_the_rest_is_retried_at_a_rate_and_shows_its_progress(
    browser: Browser, mail: Queue, dead: Queue, letters: list[str]
):
    browser.post(URL, {"action": "start", "rate": "0.01"})

    assert len(bodies_in(mail)) == 5 and mail.attributes().ready_messages == 1
    assert dead.attributes().messages == 1, "the one of another failure stays"
    plan = the_plan(dead)
    assert (plan.state, plan.rate, plan.sent, plan.later) == ("sent", 0.01, 5, 4)
    shown = text_of(browser.get(URL))
    assert "Retry at 0.01 per second · running" in shown and "Not due 4 · the last one in 6 min" in shown
    assert "Retry at 0.01 per second" in text_of(browser.get(RETRIES)), "also without the failure"
    assert LogEntry.objects.get().change_message == "Retried at 0.01 per second: shop.pay, ConnectionError"


def test_cancelling_a_retry_restores_the_dead_letters_that_are_not_due(
    browser: Browser, mail: Queue, dead: Queue, letters: list[str]
):
    browser.post(URL, {"action": "start", "rate": "0.01"})

    done = browser.post(URL, {"action": "cancel", "plan": the_plan(dead).id}, follow=True)

    assert told(done) == ["Retry cancelled; 4 messages are dead letters again"]
    assert len(bodies_in(mail)) == 1 and dead.attributes().messages == 5
    assert "4 dead letters of this failure." in text_of(done) and "· cancelled" in text_of(done)


def test_a_cancellation_is_in_the_history_when_the_connection_is_lost(
    browser: Browser, mail: Queue, dead: Queue, letters: list[str], monkeypatch: pytest.MonkeyPatch
):
    browser.post(URL, {"action": "start", "rate": "0.01"})

    monkeypatch.setattr(retry_page, "return_part", lost_after(0, return_part))

    page = browser.post(URL, {"action": "cancel", "plan": the_plan(dead).id})

    assert page.status_code == 503 and the_plan(dead).state == "cancelled"
    said = "Retry cancelled; 0 messages are dead letters again"
    assert told(page) == [said] and LogEntry.objects.latest("pk").change_message == said


def test_sending_goes_on_from_any_page_when_the_browser_was_closed(
    browser: Browser, mail: Queue, dead: Queue, letters: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.admin.retry_page.go_on", lambda *args: iter(()))
    browser.post(URL, {"action": "start", "rate": "10"})
    monkeypatch.undo()
    assert "being sent" in text_of(browser.get(URL)) and not bodies_in(mail)

    browser.post(URL, {"action": "continue", "plan": the_plan(dead).id})

    assert len(bodies_in(mail)) == 5 and the_plan(dead).state == "sent"


def test_a_retry_that_is_started_twice_keeps_its_rate(
    browser: Browser, mail: Queue, dead: Queue, letters: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.admin.retry_page.go_on", lambda *args: iter(()))
    browser.post(URL, {"action": "start", "rate": "10"})
    monkeypatch.undo()

    again = browser.post(URL, {"action": "start", "rate": "10"}, follow=True)

    assert told(again) == ["This page was already submitted. Check the remaining messages and start again."]
    assert the_plan(dead).rate == 10 and LogEntry.objects.count() == 1


def test_a_page_does_not_continue_a_retry_with_an_unknown_filter(
    browser: Browser, mail: Queue, dead: Queue, letters: list[str]
):
    plan_id = begin(dead.client, "mail-dead", rate=1, to_look_at=6)

    assert b"data-rsmq-goes-on" not in browser.get(RETRIES).content
    browser.post(RETRIES, {"action": "continue", "plan": plan_id})

    assert the_plan(dead).state == "sending" and not bodies_in(mail)
    browser.post(RETRIES, {"action": "cancel", "plan": plan_id})
    assert the_plan(dead).state == "cancelled"


@pytest.mark.parametrize("rate", ["", "0", "x", "1e9"])
def test_a_wrong_rate_is_reported_next_to_its_field(
    browser: Browser, mail: Queue, dead: Queue, letters: list[str], rate: str
):
    refused = browser.post(URL, {"action": "start", "rate": rate})

    assert refused.status_code == 200 and refused.context["form"].errors["rate"]
    assert not bodies_in(mail) and plans_of(dead.client, "mail-dead") == []


def test_missing_messages_are_reported(browser: Browser, mail: Queue, dead: Queue, letters: list[str]):
    gone = browser.post(f"{RETRIES}?failure=none", {"action": "probe"}, follow=True)
    assert told(gone) == ["This failure has no dead letters left."]
    assert told(browser.post(URL, {"action": "cancel", "plan": "x"}, follow=True)) == ["This retry no longer exists."]


def test_viewing_and_retrying_have_separate_permissions(
    browser_of: Callable[..., Browser], mail: Queue, dead: Queue, letters: list[str]
):
    viewer = browser_of("view_queue", "view_message")

    assert b"Retry one as a probe" not in viewer.get(URL).content
    assert viewer.post(URL, {"action": "probe"}).status_code == 403
    assert browser_of("view_queue", "redrive_message").get(URL).status_code == 403
    assert not bodies_in(mail)
    assert browser_of("view_queue", "view_message", "redrive_message").post(URL, {"action": "probe"}).status_code == 302
    assert len(bodies_in(mail)) == 1


def test_texts_of_errors_are_shown_only_to_users_who_may_see_bodies(browser_of: Callable[..., Browser], letters: Any):
    assert b"no answer" not in browser_of("view_queue", "view_message", "redrive_message").get(URL).content
