"""The list of messages: a stock list over messages in Redis."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from rsmq_django.admin.message_list import visible_from
from rsmq_django.core import Queue
from rsmq_django.core.queue.moves import change_visibility
from tests.admin.conftest import MESSAGES
from tests.admin.pages import rows_of, text_of, told


def test_the_list_shows_a_page_of_messages_without_sql_on_them(browser: Browser, mail: Queue):
    mail.send_many([b"%d" % n for n in range(55)])

    with CaptureQueriesContext(connection) as captured:
        page = browser.get(MESSAGES)

    assert len(rows_of(page)) == 20
    assert page.context["cl"].result_count == 55
    assert not [query for query in captured.captured_queries if "rsmq_" in query["sql"]]


def test_pages_follow_each_other(browser: Browser, mail: Queue):
    ids = mail.send_many([b"%d" % n for n in range(45)])

    shown = [row.message_id for n in (1, 2, 3) for row in rows_of(browser.get(MESSAGES, {"p": n}))]

    assert shown == ids


def test_pages_continue_across_queues(browser: Browser, mail: Queue, dead: Queue):
    ids = mail.send_many([b"%d" % n for n in range(15)])
    more = dead.send_many([b"%d" % n for n in range(15)])

    shown = [row.message_id for n in (1, 2) for row in rows_of(browser.get(MESSAGES, {"p": n}))]

    assert shown == ids + more


@pytest.mark.parametrize("size", [100, 5000])
def test_a_binary_body_has_its_whole_size(browser: Browser, mail: Queue, size: int):
    mail.send(b"\xff" * size)

    assert f"{size} bytes of binary data" in text_of(browser.get(MESSAGES))


def test_one_queue_can_be_chosen(browser: Browser, mail: Queue, dead: Queue):
    mail.send_many([b"x"] * 3)
    dead.send(b"y")

    assert len(rows_of(browser.get(MESSAGES, {"queue": "mail-dead"}))) == 1


def test_states_are_distinguished(browser: Browser, mail: Queue, dead: Queue):
    flying = mail.send(b"in flight")
    mail.receive()
    ready, delayed, gone = mail.send(b"ready"), mail.send(b"delayed", delay_s=60), dead.send(b"dead")

    for state, message_id in {"ready": ready, "delayed": delayed, "in_flight": flying, "dead": gone}.items():
        (row,) = rows_of(browser.get(MESSAGES, {"state__exact": state}))
        assert (row.message_id, row.state) == (message_id, state)
    assert len(rows_of(browser.get(MESSAGES))) == 4


def test_search_finds_words_of_bodies_and_ids(browser: Browser, mail: Queue):
    ids = mail.send_many([b"flight UA1545 to Houston", b"flight UA15"])

    assert len(rows_of(browser.get(MESSAGES, {"q": "flight"}))) == 2
    assert [row.message_id for row in rows_of(browser.get(MESSAGES, {"q": "ua1545 houston"}))] == ids[:1]
    assert [row.message_id for row in rows_of(browser.get(MESSAGES, {"q": ids[1]}))] == ids[1:]


def test_search_finds_a_number_as_a_whole(browser: Browser, mail: Queue):
    bodies = [b'{"task": "shop.pay", "id": "b7b", "args": [%d]}' % number for number in (7, 17, 70)]
    ids = mail.send_many([*bodies, b'{"task": "shop.pay", "id": "7cc", "kwargs": {"order": "order_7"}}'])

    assert [row.message_id for row in rows_of(browser.get(MESSAGES, {"q": "7"}))] == [ids[0], ids[3]]
    assert [row.message_id for row in rows_of(browser.get(MESSAGES, {"q": "pay 17"}))] == [ids[1]]


def test_users_without_permission_cannot_search_bodies(browser_of: Callable[..., Browser], mail: Queue):
    mail.send(b'{"task": "shop.tasks.pay", "args": ["hunter2"]}')
    browser = browser_of("view_message")

    page = browser.get(MESSAGES)
    assert len(rows_of(page)) == 1 and b"hunter2" not in page.content
    assert rows_of(browser.get(MESSAGES, {"q": "hunter2"})) == []
    assert len(rows_of(browser.get(MESSAGES, {"q": "tasks.pay"}))) == 1


def test_a_search_reports_which_messages_it_has_not_read(browser: Browser, mail: Queue, settings):
    settings.RSMQ = {**settings.RSMQ, "ADMIN": {"SEARCH_LIMIT": 100}}
    mail.send_many([b"x"] * 150)

    assert "Searched messages 1 to 100 of 150. Continue" in text_of(browser.get(MESSAGES, {"q": "x"}))
    assert "Only the first" not in text_of(browser.get(MESSAGES))


def test_the_order_of_one_queue_can_be_reversed(browser: Browser, mail: Queue):
    ids = mail.send_many([b"%d" % n for n in range(30)])
    column = "-" + str(browser.get(MESSAGES).context["cl"].list_display.index(visible_from))

    page = browser.get(MESSAGES, {"queue": "mail", "o": column, "p": 2})

    assert [row.message_id for row in rows_of(page)] == ids[::-1][20:]


@pytest.mark.parametrize(
    "query",
    [
        {"receive_count": "many"},
        {"receive_count__in": "1,many"},
        {"visible_at__gt": "2026-99-99"},
        {"size_bytes__exact": ""},
    ],
    ids=str,
)
def test_value_that_its_field_cannot_have_leads_back_to_the_list(browser: Browser, mail: Queue, query: dict[str, str]):
    mail.send(b"x")

    assert browser.get(MESSAGES, query).headers.get("location", "").endswith("?e=1")


def test_odd_addresses_lead_back_to_the_list(browser: Browser, mail: Queue):
    mail.send_many([b"x"] * 45)
    for query in ({"bogus": "1"}, {"p": "99"}, {"p": "-1"}, {"p": 10**12}, {"state__regex": "x"}, {"queue__x": "y"}):
        assert browser.get(MESSAGES, query).headers.get("location", "").endswith("?e=1")
    assert rows_of(browser.get(MESSAGES, {"queue": "no/such/queue"})) == []
    assert rows_of(browser.get(MESSAGES, {"queue": "../../etc"})) == []


# -- Actions ----------------------------------------------------------------------------------------------------------


def selection(page, *numbers: int) -> dict[str, list[str]]:
    """Return what a browser sends for the rows of a list that are ticked."""
    rows = rows_of(page)
    return {
        "_selected_action": [rows[number].key for number in numbers],
        "seen": [f"{row.receive_count} {row.key}" for row in rows],
    }


def test_selected_messages_run_now(browser: Browser, mail: Queue):
    mail.send_many([b"1", b"2", b"3"], delay_s=60)
    page = browser.get(MESSAGES)

    done = browser.post(MESSAGES, {"action": "run_now", **selection(page, 0, 1)}, follow=True)

    assert told(done) == ["Run now · mail: 2 of 2 done"]
    assert mail.attributes().ready_messages == 2
    assert LogEntry.objects.filter(change_message="Made visible at once").count() == 2


def test_all_rows_of_a_page_of_any_length_can_be_selected(browser: Browser, mail: Queue, settings: Any):
    settings.RSMQ = settings.RSMQ | {"ADMIN": {"PAGE_SIZE": 30}}
    settings.DATA_UPLOAD_MAX_NUMBER_FIELDS = 60
    mail.send_many([b"x"] * 30, delay_s=60)
    page = browser.get(MESSAGES, {"all": ""})
    numbers = range(len(rows_of(page)))

    browser.post(MESSAGES, {"action": "run_now", "select_across": "0", "index": "0", **selection(page, *numbers)})

    assert len(numbers) == mail.attributes().ready_messages == 20


def test_messages_changed_since_the_page_was_shown_are_left_alone(browser: Browser, mail: Queue):
    mail.send_many([b"%d" % n for n in range(5)])
    page = browser.get(MESSAGES)
    mail.receive_many(2)
    mail.pop()

    asked = {"action": "delete_selected", "post": "yes", **selection(page, 0, 1, 2, 3, 4)}
    done = browser.post(MESSAGES, asked, follow=True)

    assert told(done) == ["Delete · mail: 2 of 5 done, 2 have changed meanwhile, 1 no longer exists"]
    assert mail.attributes().messages == 2
    assert LogEntry.objects.count() == 2, "only what was done is written down"


def test_messages_of_a_queue_that_was_deleted_meanwhile_are_counted(browser: Browser, mail: Queue, dead: Queue):
    mail.send_many([b"1", b"2"])
    dead.send_many([b"3", b"4", b"5"])
    chosen = selection(browser.get(MESSAGES), 0, 1, 2, 3, 4)
    dead.delete_queue()

    done = browser.post(MESSAGES, {"action": "delete_selected", "post": "yes", **chosen}, follow=True)

    assert "queue not found: 'mail-dead'" in told(done)[0]
    assert told(done)[1] == "Delete · mail: 2 of 5 done"


def test_deleting_needs_a_confirmation(browser: Browser, mail: Queue):
    mail.send_many([b"1", b"2"])
    chosen = selection(browser.get(MESSAGES), 0)

    asked = browser.post(MESSAGES, {"action": "delete_selected", **chosen})

    assert "Are you sure?" in text_of(asked)
    assert b'class="rsmq-dangerous"' in asked.content
    assert chosen["seen"][0].encode() in asked.content, "the page remembers what was seen"
    assert mail.attributes().messages == 2


def test_no_question_is_asked_about_messages_that_have_all_changed(browser: Browser, mail: Queue):
    message_id = mail.send(b"x", delay_s=60)
    delayed = f"{MESSAGES}?queue=mail&state__exact=delayed"
    chosen = selection(browser.get(delayed), 0)
    mail.client.run(change_visibility("rsmq", "mail", message_id, 0))

    asked = browser.post(delayed, {"action": "delete_selected", **chosen}, follow=True)

    assert told(asked) == ["Delete: 0 of 1 done, 1 has changed meanwhile"]
    assert mail.receive().id == message_id


def test_moving_needs_a_target(browser: Browser, mail: Queue, dead: Queue):
    mail.send(b"x")
    chosen = {"action": "move", **selection(browser.get(MESSAGES), 0)}

    assert "Target queue" in text_of(browser.post(MESSAGES, chosen))
    browser.post(MESSAGES, {**chosen, "post": "yes", "target": "mail-dead"}, follow=True)

    assert dead.attributes().messages == 1


def test_a_target_that_does_not_exist_is_reported(browser: Browser, mail: Queue):
    mail.send(b"x")
    chosen = {"action": "move", **selection(browser.get(MESSAGES), 0)}

    done = browser.post(MESSAGES, {**chosen, "post": "yes", "target": "nowhere"}, follow=True)

    assert "queue not found: 'nowhere'" in told(done)[0]
    assert mail.attributes().messages == 1


# -- Permissions ------------------------------------------------------------------------------------------------------


def test_staff_without_permission_see_nothing(browser_of: Callable[..., Browser], mail: Queue):
    browser = browser_of()

    assert browser.get(MESSAGES).status_code == 403
    assert "RSMQ" not in text_of(browser.get("/admin/"))


def test_actions_are_offered_and_done_by_permission(browser_of: Callable[..., Browser], mail: Queue):
    mail.send(b"x", delay_s=60)
    looking, moving = browser_of("view_message"), browser_of("view_message", "move_message")

    assert b'value="run_now"' not in looking.get(MESSAGES).content
    page = moving.get(MESSAGES)
    assert b'value="run_now"' in page.content and b'value="delete_selected"' not in page.content

    chosen = {"action": "run_now", **selection(page, 0)}
    looking.post(MESSAGES, chosen)
    assert mail.attributes().ready_messages == 0
    moving.post(MESSAGES, {**chosen, "action": "delete_selected", "post": "yes"})
    assert mail.attributes().messages == 1
    moving.post(MESSAGES, chosen)
    assert mail.attributes().ready_messages == 1


def test_actions_want_a_csrf_token(mail: Queue, admin_user):
    mail.send(b"x")
    browser = Browser(enforce_csrf_checks=True)
    browser.force_login(admin_user)

    chosen = {"action": "delete_selected", "post": "yes", **selection(browser.get(MESSAGES), 0)}

    assert browser.post(MESSAGES, chosen).status_code == 403
    assert mail.attributes().messages == 1
