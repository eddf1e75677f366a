"""Messages are found by task, error, tag and age; a page that has read enough continues on the next page."""

import html
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client as Browser

from rsmq_django.core import Queue
from tests.admin.conftest import MESSAGES
from tests.admin.pages import rows_of, text_of, told
from tests.redis_server import PrivateServer


def body(name: str, **kwargs: Any) -> bytes:
    return json.dumps({"task": name, "id": "t", "args": [7], "kwargs": kwargs}).encode()


def bury(dead: Queue, server: PrivateServer, error: str, text: str = "no such card") -> str:
    message_id = dead.send(body("shop.tasks.pay"))
    record = {"reason": "gave_up", "queue": "mail", "task": "shop.tasks.pay", "error": error, "message": text}
    server.redis.hset("rsmq::dead:mail-dead", message_id, json.dumps(record | {"traceback": "T"}))
    return message_id


def ids(browser: Browser, **query: str) -> list[str]:
    return [row.message_id for row in rows_of(browser.get(MESSAGES, query))]


def test_messages_of_a_task_are_found_by_a_part_of_its_path(browser: Browser, mail: Queue):
    paid, shipped = mail.send(body("shop.tasks.pay")), mail.send(body("shop.tasks.ship", note="pay"))

    assert ids(browser, queue="mail", task="PAY") == [paid]
    assert ids(browser, task="shop.tasks") == [paid, shipped]
    assert ids(browser, task="shop.tasks", q="note") == [shipped]
    assert ids(browser, task="tasks.pay.") == []


def test_dead_letters_are_found_by_their_error(browser: Browser, dead: Queue, server: PrivateServer):
    declined, late = bury(dead, server, "shop.errors.Declined"), bury(dead, server, "builtins.TimeoutError")

    assert ids(browser, error="declined") == [declined]
    assert ids(browser, error="Error") == [declined, late]
    assert ids(browser, error="declined", task="ship") == []


def test_calls_are_found_by_a_whole_tag(browser: Browser, browser_of: Callable[..., Browser], mail: Queue):
    call = json.loads(body("shop.tasks.pay", text="x" * 3000)) | {"meta": {"tags": ["customer-7", "invoice"]}}
    tagged = mail.send(json.dumps(call).encode())
    signed = mail.send(json.dumps({"signed": json.dumps(call), "key": "k"}).encode())
    mail.send(body("shop.tasks.pay", tags=["customer-7"]))

    assert ids(browser, tag="customer-7") == [tagged, signed]
    assert ids(browser, tag="customer") == []
    # Tags are in bodies, so only those who may see bodies can ask for them.
    assert browser_of("view_message").get(MESSAGES, {"tag": "customer-7"}).status_code == 302


def test_messages_are_found_by_their_age(browser: Browser, mail: Queue, server: PrivateServer):
    young = mail.send(b"young")
    two_hours_ago_us = int(young[:10], 36) - 7_200_000_000
    old = base36(two_hours_ago_us) + "x" * 22
    server.redis.zadd("rsmq:mail", {old: two_hours_ago_us // 1000})
    server.redis.hset("rsmq:mail:Q", old, "old")

    assert ids(browser, age="lt1m") == ids(browser, age="lt1h") == [young]
    assert ids(browser, age="gt1h") == [old] and ids(browser, age="gt1d") == []
    assert set(ids(browser)) == {young, old}


def base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
    return digits.rjust(10, "0")


@pytest.mark.parametrize("query", [{}, {"queue": "mail"}])
def test_a_page_shows_which_messages_it_has_searched_and_continues_there(
    browser: Browser, mail: Queue, dead: Queue, settings: Any, query: dict[str, str]
):
    settings.RSMQ = {**settings.RSMQ, "ADMIN": {"SEARCH_LIMIT": 100, "PAGE_SIZE": 20}}
    mail.send_many([body("shop.tasks.ship")] * 240)
    wanted, found, notes, address = mail.send(body("shop.tasks.pay")), [], [], MESSAGES + "?task=pay"
    address += "".join(f"&{name}={value}" for name, value in query.items())

    while address:
        page = browser.get(address)
        found += [row.message_id for row in rows_of(page)]
        notes += re.findall(r"Searched messages ([\d,]+ to [\d,]+ of [\d,]+)", text_of(page))
        link = re.search(r'<a href="([^"]*after=[^"]*)">Continue', page.content.decode())
        address = MESSAGES + html.unescape(link[1]) if link else ""

    assert found == [wanted]
    assert notes == ["1 to 100 of 241", "101 to 200 of 241", "201 to 241 of 241"]


@pytest.mark.parametrize("after", ["x", "1-zz-00-mail", "1-6e616e-00-mail", "1---", "9-2b696e66-7f-nowhere"])
def test_an_address_that_was_changed_begins_at_the_first_message(browser: Browser, mail: Queue, after: str):
    message = mail.send(body("shop.tasks.pay"))

    assert ids(browser, task="pay", after=after) == [message]


def test_a_job_on_all_messages_is_not_offered_for_filters_that_need_a_search(browser: Browser, mail: Queue):
    mail.send_many([body("shop.tasks.pay")] * 30)

    page = browser.post(
        f"{MESSAGES}?queue=mail&task=pay",
        {"action": "delete_selected", "select_across": "1", "_selected_action": ["x"]},
        follow=True,
    )

    assert "Clear the filters" in told(page)[0] and mail.attributes().messages == 30


def test_the_list_shows_calls_with_their_arguments_and_errors_with_their_texts(
    browser: Browser, browser_of: Callable[..., Browser], mail: Queue, dead: Queue, server: PrivateServer
):
    mail.send(body("shop.tasks.pay", currency="EUR", password="hunter2"))
    bury(dead, server, "shop.errors.Declined", "card 4711 was declined, token=abc")

    text = text_of(browser.get(MESSAGES))
    assert 'shop.tasks.pay 7, currency="EUR", password=•••' in text
    assert "shop.errors.Declined 7 card 4711 was declined, token=•••" in text
    assert "hunter2" not in text and "abc" not in text
    hidden = text_of(browser_of("view_message").get(MESSAGES))
    assert "shop.tasks.pay" in hidden and "EUR" not in hidden and "4711" not in hidden


def test_a_job_on_all_messages_of_a_later_page_of_a_search_is_not_offered(browser: Browser, mail: Queue, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "ADMIN": {"PAGE_SIZE": 20, "SEARCH_LIMIT": 100}}
    mail.send_many([body("shop.tasks.pay")] * 150)
    content = browser.get(f"{MESSAGES}?queue=mail&q=pay").content.decode()
    link = re.search(r'<a href="([^"]*after=[^"]*)">Continue', content)
    assert link

    selected = {"action": "delete_selected", "select_across": "1", "_selected_action": ["x"]}
    done = browser.post(MESSAGES + html.unescape(link[1]), selected, follow=True)

    assert "go to the first page of the search" in told(done)[0]
    assert mail.attributes().messages == 150
