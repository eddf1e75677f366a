"""Operations on all messages that match a filter: one confirmation, slices, one entry in the history."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client as Browser

from rsmq_django.admin import bulk, bulk_pages
from rsmq_django.admin.bulk import claim
from rsmq_django.core import Queue
from rsmq_django.core.queue import moves
from tests.admin.conftest import MESSAGES, QUEUES
from tests.admin.pages import lost_after, text_of, told
from tests.redis_server import PrivateServer

BULK = MESSAGES + "bulk/"


def ask_for_all(browser: Browser, action: str, query: str) -> Any:
    """Tick "select all" in a list and choose an action."""
    page = browser.get(MESSAGES + query)
    first = page.context["cl"].result_list[0].key
    return browser.post(MESSAGES + query, {"action": action, "select_across": "1", "_selected_action": [first]})


def token_in(page: Any) -> str:
    return re.search(r'name="token" value="([^"]+)"', page.content.decode())[1]


def carry_out(browser: Browser, asked: Any, **params: Any) -> tuple[Any, int]:
    """Say yes, and click "go on" until it is done; return the last page and how many clicks it took."""
    clicks, page = 1, browser.post(BULK, {"token": token_in(asked), **params})
    while page.status_code == 200:
        clicks, page = clicks + 1, browser.post(BULK, {"token": token_in(page)})
    return browser.get(page["location"]), clicks


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """One slice a request."""
    monkeypatch.setattr(bulk_pages, "SLICE_S", 0.0)


def test_all_messages_of_a_queue_are_done_in_slices(browser: Browser, mail: Queue, hasty: None):
    mail.send_many([b"x"] * 2500, delay_s=600)

    asked = ask_for_all(browser, "run_now", "?queue=mail")
    assert "This checks 2,500 messages of queue mail" in text_of(asked)
    assert mail.attributes().ready_messages == 0
    done, clicks = carry_out(browser, asked)

    assert told(done) == ["Run now · mail: 2,500 of 2,500 done"]
    assert clicks == 4, "a thousand messages a slice, and a look behind the last one"
    assert mail.attributes().ready_messages == 2500


def test_progress_is_shown_on_the_way(browser: Browser, mail: Queue, hasty: None):
    mail.send_many([b"x"] * 2500)

    page = browser.post(BULK, {"token": token_in(ask_for_all(browser, "delete_selected", "?queue=mail"))})

    assert "1,000 of 1,000 done. 1,000 of 2,500 messages checked" in text_of(page)
    assert mail.attributes().messages == 1500, "what was done stays done when nobody goes on"


def test_the_filter_of_the_list_is_the_filter_of_the_job(browser: Browser, mail: Queue):
    mail.send_many([b"late"] * 3, delay_s=60)
    mail.send_many([b"dark-red"] * 4 + [b"blue"] * 5)

    carry_out(browser, ask_for_all(browser, "delete_selected", "?queue=mail&state__exact=ready&q=K-RED"))

    assert mail.attributes().messages == 8 and mail.attributes().hidden_messages == 3


def test_messages_sent_after_the_confirmation_page_are_left_alone(browser: Browser, mail: Queue):
    mail.send_many([b"before"] * 5)
    asked = ask_for_all(browser, "delete_selected", "?queue=mail")
    mail.send_many([b"after"] * 5)

    carry_out(browser, asked)

    assert mail.receive().body == b"after"
    assert mail.attributes().messages == 5


def test_messages_behind_newer_ones_are_done(browser: Browser, mail: Queue):
    mail.send_many([b"before"] * 3, delay_s=600)
    asked = ask_for_all(browser, "delete_selected", "?queue=mail")
    mail.send_many([b"after"] * 3)

    done, _ = carry_out(browser, asked)

    assert told(done) == ["Delete · mail: 3 of 3 done"]
    assert (mail.attributes().ready_messages, mail.attributes().hidden_messages) == (3, 0)


@pytest.mark.parametrize(("action", "params"), [("run_now", {}), ("delay", {"seconds": "60"})])
def test_messages_behind_those_of_an_earlier_slice_are_done(
    browser: Browser, mail: Queue, server: PrivateServer, monkeypatch: pytest.MonkeyPatch, action: str, params: Any
):
    mail.send_many([b"x"] * 4)
    mail.send_many([b"x"] * 4, delay_s=600)
    monkeypatch.setattr(bulk, "MAX_BATCH", 2)

    done, _ = carry_out(browser, ask_for_all(browser, action, "?queue=mail"), **params)

    assert told(done)[0].endswith("mail: 8 of 8 done"), "each once"
    latest_ms = server.redis.zrange("rsmq:mail", -1, -1, withscores=True)[0][1]
    assert latest_ms < 1000 * (time.time() + 120)


def test_a_message_delivered_for_the_first_time_after_the_confirmation_page_is_left_alone(
    browser: Browser, mail: Queue
):
    mail.send_many([b"x"] * 2)
    asked = ask_for_all(browser, "delete_selected", "?queue=mail")
    running = mail.receive()

    carry_out(browser, asked)

    assert mail.attributes().messages == 1 and mail.delete(running)


def test_a_dead_letter_that_died_after_the_confirmation_page_is_left_alone(
    browser: Browser, mail: Queue, dead: Queue, server: PrivateServer
):
    ids = dead.send_many([b"x"] * 3)
    record = {"reason": "gave_up", "queue": "mail", "task": "a.b", "error": "E", "died_ms": 1.7e12}
    server.redis.hset("rsmq::dead:mail-dead", mapping=dict.fromkeys(ids, json.dumps(record)))
    asked = ask_for_all(browser, "delete_selected", "?queue=mail-dead")
    later_ms = 1000 * time.time() + 50
    server.redis.zadd("rsmq:mail-dead", {ids[2]: later_ms})
    server.redis.hset("rsmq::dead:mail-dead", ids[2], json.dumps(record | {"died_ms": later_ms}))

    done, _ = carry_out(browser, asked)

    assert told(done) == ["Delete · mail-dead: 2 of 2 done"]
    assert dead.attributes().messages == 1


def test_when_the_connection_is_lost_the_page_and_the_history_say_what_was_done(
    browser: Browser, mail: Queue, monkeypatch: pytest.MonkeyPatch
):
    mail.send_many([b"x"] * 600)
    asked = ask_for_all(browser, "delete_selected", "?queue=mail")
    monkeypatch.setattr(moves, "remove", lost_after(2, moves.remove))

    page = browser.post(BULK, {"token": token_in(asked)})

    assert page.status_code == 503 and mail.attributes().messages == 100
    assert told(page) == ["Delete · mail: 500 of 500 done"]
    assert LogEntry.objects.get().change_message == "Deleted (of queue mail): 500 of 500 done"


def test_parameters_are_asked_for(browser: Browser, mail: Queue, dead: Queue):
    mail.send_many([b"x"] * 5)
    asked = ask_for_all(browser, "move", "?queue=mail")

    assert "This field is required" in text_of(browser.post(BULK, {"token": token_in(asked)}))
    carry_out(browser, asked, target="mail-dead")

    assert (mail.attributes().messages, dead.attributes().messages) == (0, 5)


def test_dead_letters_go_back_to_their_original_queues(browser: Browser, mail: Queue, dead: Queue, server):
    ids = dead.send_many([b"x"] * 300)
    record = json.dumps({"reason": "gave_up", "queue": "mail", "task": "a.b", "error": "E"})
    server.redis.hset("rsmq::dead:mail-dead", mapping=dict.fromkeys(ids[:200], record))

    done, _ = carry_out(browser, ask_for_all(browser, "redrive", "?queue=mail-dead"))

    assert told(done) == ["Retry · mail-dead: 200 of 300 done, 100 have no record of their original queue"]
    assert mail.attributes().messages == 200


def test_one_line_of_the_log_has_user_operation_and_progress(browser: Browser, mail: Queue, hasty: None):
    mail.send_many([b"secret word"] * 1500)

    asked = ask_for_all(browser, "delete_selected", "?queue=mail&q=secret")
    browser.post(BULK, {"token": token_in(asked)})

    (entry,) = LogEntry.objects.all()
    assert entry.object_id == "mail" and entry.user.username == "root"
    assert entry.change_message == "Deleted (of queue mail, matching 1 search words): 1,000 of 1,000 done"


def test_a_list_of_several_queues_is_not_taken_at_once(browser: Browser, mail: Queue, dead: Queue):
    mail.send(b"x")
    dead.send(b"x")

    page = browser.get(MESSAGES)
    first = page.context["cl"].result_list[0].key
    done = browser.post(MESSAGES, {"action": "run_now", "select_across": "1", "_selected_action": [first]}, follow=True)

    assert "Choose a queue first" in told(done)[0]


def test_a_job_is_bound_to_its_user_and_their_permission(
    browser: Browser, browser_of: Callable[..., Browser], mail: Queue
):
    mail.send(b"x")
    token = token_in(ask_for_all(browser, "delete_selected", "?queue=mail"))

    assert browser_of("view_message").post(BULK, {"token": token}).status_code == 403
    assert browser_of("view_message", "delete_message").post(BULK, {"token": token}).status_code == 403
    assert mail.attributes().messages == 1


def test_a_changed_job_is_refused(browser: Browser, mail: Queue):
    mail.send(b"x")
    token = token_in(ask_for_all(browser, "delete_selected", "?queue=mail"))

    for broken in ("", "x", token[:-1], token.replace(":", "x", 1), "a" + token):
        done = browser.post(BULK, {"token": broken}, follow=True)
        assert "Start again" in told(done)[0]
    assert browser.get(BULK).status_code == 405
    assert mail.attributes().messages == 1


# -- Pages that are sent again ----------------------------------------------------------------------------------------


def test_a_page_of_a_job_is_valid_for_one_step(browser: Browser, mail: Queue, hasty: None):
    mail.send_many([b"x"] * 3500, delay_s=600)
    first = token_in(ask_for_all(browser, "delete_selected", "?queue=mail"))
    second = token_in(browser.post(BULK, {"token": first}))
    browser.post(BULK, {"token": second})

    for used in (first, second):
        again = browser.post(BULK, {"token": used}, follow=True)
        assert told(again) == ["This page was already submitted. Check the remaining messages and start again."]

    assert mail.attributes().messages == 1500
    (entry,) = LogEntry.objects.all()
    assert entry.change_message == "Deleted (of queue mail): 2,000 of 2,000 done", "what was written is never lowered"


def test_the_limit_of_a_job_applies_when_its_pages_are_sent_again(browser: Browser, mail: Queue, dead: Queue, server):
    ids = dead.send_many([b"x"] * 300)
    record = json.dumps({"reason": "gave_up", "queue": "mail", "task": "a.b", "error": "E"})
    server.redis.hset("rsmq::dead:mail-dead", mapping=dict.fromkeys(ids, record))
    token = token_in(browser.post(f"{QUEUES}mail-dead/redrive/", {"limit": "10"}))

    for _ in range(3):
        browser.post(BULK, {"token": token})

    assert mail.attributes().messages == 10
    assert len(LogEntry.objects.all()) == 1


def test_of_two_requests_with_one_page_one_does_its_step(
    browser: Browser, mail: Queue, hasty: None, monkeypatch: pytest.MonkeyPatch
):
    mail.send_many([b"x"] * 2500)
    token = token_in(ask_for_all(browser, "delete_selected", "?queue=mail"))
    pages: list[Any] = []

    def claim_twice(job: Any) -> bool:
        """Play the second request at the moment at which the first one is about to begin."""
        monkeypatch.setattr(bulk_pages, "claim", claim)
        pages.append(browser.post(BULK, {"token": token}))
        return claim(job)

    monkeypatch.setattr(bulk_pages, "claim", claim_twice)
    pages.append(browser.post(BULK, {"token": token}))

    assert [page.status_code for page in pages] == [200, 302]
    assert mail.attributes().messages == 1500 and len(LogEntry.objects.all()) == 1


def test_a_page_with_a_mistake_can_be_sent_again(browser: Browser, mail: Queue, dead: Queue):
    mail.send_many([b"x"] * 5)
    token = token_in(ask_for_all(browser, "move", "?queue=mail"))

    assert "This field is required" in text_of(browser.post(BULK, {"token": token}))
    browser.post(BULK, {"token": token, "target": "mail-dead"})

    assert dead.attributes().messages == 5
