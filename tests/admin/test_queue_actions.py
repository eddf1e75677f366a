"""Several queues at once: paused, resumed and purged after a confirmation that lists them, with history."""

import html
import json
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client as Browser

from rsmq_django.admin.queue_actions import OPERATIONS
from rsmq_django.core import Queue
from rsmq_django.core.errors import OutcomeUnknown, RedisFailure
from rsmq_django.models import Queue as Row
from tests.admin.conftest import QUEUES
from tests.admin.pages import text_of, told
from tests.admin.test_without_redis import NOWHERE
from tests.redis_server import PrivateServer

BULK = f"{QUEUES}bulk/"


@pytest.fixture
def three(mail: Queue) -> list[Queue]:
    queues = [mail, Queue("orders", mail.client), Queue("receipts", mail.client)]
    for queue in queues[1:]:
        queue.create()
    for queue in queues:
        queue.send_many([b"x"] * 2)
    return queues


def ask(browser: Browser, action: str, *names: str) -> Any:
    return browser.post(QUEUES, {"action": f"{action}_selected", "_selected_action": names})


def confirm(browser: Browser, page: Any, **more: str) -> Any:
    content = page.content.decode()
    fields = dict(re.findall(r'<input type="hidden" name="(action|queues)" value="([^"]*)">', content))
    return browser.post(BULK, {name: html.unescape(value) for name, value in fields.items()} | more, follow=True)


def test_the_question_names_the_queues_and_their_counts(browser: Browser, three: list[Queue], server: PrivateServer):
    text = text_of(ask(browser, "pause", "mail", "orders"))

    assert "Pause 2 queues: mail, orders" in text
    assert "mail running 2 2" in text and "receipts" not in text
    assert not server.redis.exists("rsmq::paused")


def test_queues_are_paused_and_resumed_together(browser: Browser, three: list[Queue], server: PrivateServer):
    done = confirm(browser, ask(browser, "pause", "mail", "orders", "receipts"))
    assert server.redis.smembers("rsmq::paused") == {b"mail", b"orders", b"receipts"}
    assert told(done) == ["3 queues are paused: mail, orders, receipts"]

    done = confirm(browser, ask(browser, "resume", "mail", "orders"))

    assert server.redis.smembers("rsmq::paused") == {b"receipts"}
    assert told(done) == ["2 queues are resumed: mail, orders"]
    lines = sorted(LogEntry.objects.values_list("object_id", "change_message"))
    assert lines[:3] == [("mail", "Paused"), ("mail", "Resumed"), ("orders", "Paused")] and len(lines) == 5


def test_one_script_pauses_all_queues_of_a_connection(browser: Browser, three: list[Queue], server: PrivateServer):
    page = ask(browser, "pause", "mail", "orders", "receipts")
    before = server.redis.info("commandstats").get("cmdstat_sadd", {"calls": 0})["calls"]

    confirm(browser, page)

    assert server.redis.info("commandstats")["cmdstat_sadd"]["calls"] == before + 1


def test_queues_are_purged_after_the_word_was_typed(browser: Browser, three: list[Queue]):
    page = ask(browser, "purge", "mail", "orders")
    assert "This removes all 4 messages" in text_of(page)

    refused = confirm(browser, page, word="yes")
    assert "Type “purge”" in text_of(refused) and three[0].attributes().messages == 2

    done = confirm(browser, page, word="purge")

    assert [queue.attributes().messages for queue in three] == [0, 0, 2]
    assert told(done) == ["4 messages were removed: mail, orders"]
    assert set(LogEntry.objects.values_list("object_id", "change_message")) == {
        ("mail", "Purged 2 messages"),
        ("orders", "Purged 2 messages"),
    }


def test_a_queue_that_was_sent_to_since_the_question_is_not_purged(browser: Browser, three: list[Queue]):
    page = ask(browser, "purge", "mail", "orders")
    three[0].send(b"late")

    done = confirm(browser, page, word="purge")

    assert [queue.attributes().messages for queue in three[:2]] == [3, 0]
    assert "Not changed, because messages were sent after this page was shown: mail" in told(done)
    assert LogEntry.objects.count() == 1


def test_a_question_that_is_asked_again_keeps_the_order_of_its_queues(browser: Browser, three: list[Queue]):
    chosen = {"action": "purge_selected", "_selected_action": ["mail", "orders", "receipts"]}
    page = browser.post(f"{QUEUES}?o=-1", chosen)
    assert "Purge 3 queues: receipts, orders, mail" in text_of(page)

    again = confirm(browser, page, word="yes")

    assert "Purge 3 queues: receipts, orders, mail" in text_of(again)


def test_each_operation_on_queues_needs_its_permission(
    browser_of: Callable[..., Browser], three: list[Queue], server: PrivateServer
):
    queues = json.dumps({"mail": 2})
    looker, pauser = browser_of("view_queue"), browser_of("view_queue", "pause_queue")

    assert looker.post(BULK, {"action": "pause", "queues": queues}).status_code == 403
    assert pauser.post(BULK, {"action": "purge", "queues": queues, "word": "purge"}).status_code == 403
    assert (
        browser_of("purge_queue").post(BULK, {"action": "purge", "queues": queues, "word": "purge"}).status_code == 403
    )
    options = re.findall(r'<option value="(\w+)"', pauser.get(QUEUES).content.decode())

    assert options == ["pause_selected", "resume_selected"]
    assert not server.redis.exists("rsmq::paused") and three[0].attributes().messages == 2


@pytest.mark.parametrize("queues", ["", "[]", '{"mail": "2"}', '{"mail": null}', "{"])
def test_a_question_that_was_changed_does_nothing(browser: Browser, three: list[Queue], queues: str):
    page = browser.post(BULK, {"action": "purge", "queues": queues, "word": "purge"})

    assert page.status_code == 200 and three[0].attributes().messages == 2


def test_a_priority_band_is_paused_with_its_whole_queue(browser: Browser, mail: Queue, server: PrivateServer):
    band = Queue("mail-p5", mail.client, realtime=True)
    band.create()

    page = ask(browser, "pause", "mail-p5")
    done = confirm(browser, page)

    assert "Pause 1 queue: mail" in text_of(page)
    assert server.redis.smembers("rsmq::paused") == {b"mail"}
    assert told(done) == ["1 queue is paused: mail"]
    assert LogEntry.objects.get().object_id == "mail"


def test_paused_queues_are_remembered_during_an_outage(rf: Any, mail: Queue, settings: Any):
    settings.RSMQ = {
        **settings.RSMQ,
        "CONNECTIONS": {**settings.RSMQ["CONNECTIONS"], "billing": {"URL": NOWHERE, "TIMEOUT_S": 0.5}},
    }
    rows = [Row(key=key, is_paused=False) for key in ("mail", "billing/bills")]
    request: Any = rf.post(BULK)
    request.user = User.objects.create_superuser("root")
    told: list[str] = []
    admin: Any = SimpleNamespace(tell=lambda request, text, **more: told.append(text))

    with pytest.raises(RedisFailure):
        OPERATIONS["pause"].carry_out(admin, request, rows, {})

    assert told == ["1 queue is paused: mail"]
    assert [entry.object_id for entry in LogEntry.objects.all()] == ["mail"]


def test_no_removal_is_reported_where_the_outcome_is_unknown(browser: Browser, three: list[Queue], monkeypatch: Any):
    def lost(*args: Any) -> None:
        raise OutcomeUnknown("the answer was lost")

    page = ask(browser, "purge", "mail")
    monkeypatch.setattr("rsmq_django.core.queue.moves.purge_as_seen", lost)

    done = confirm(browser, page, word="purge")

    assert done.status_code == 503 and "Check whether the change was made" in text_of(done)
    assert told(browser.get(QUEUES)) == []
