"""Queues with problems, found among all, and the consumers on the page of a queue."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client as Browser

from rsmq_django.core import Queue
from rsmq_django.core.queue.pause import pause
from rsmq_django.queues import ensure_queue
from tests.admin.conftest import QUEUES
from tests.admin.pages import rows_of, text_of
from tests.admin.test_overview import a_worker, count
from tests.redis_server import PrivateServer

pytestmark = pytest.mark.usefixtures("mid_minute")


def troubled(browser: Browser, kind: str) -> list[str]:
    return [row.name for row in rows_of(browser.get(QUEUES, {"trouble": kind}))]


def test_queues_in_trouble_are_found(browser: Browser, mail: Queue, dead: Queue, server: PrivateServer):
    default = ensure_queue("default")
    a_worker(mail.client, "w1", "default")
    message_id = mail.send(b"x")
    server.redis.zincrby("rsmq:mail", -61_000, message_id)
    default.send(b"x")
    dead.send(b"x")

    assert troubled(browser, "stuck") == ["mail"]
    assert troubled(browser, "unserved") == ["mail"]
    assert troubled(browser, "dead") == ["mail"]
    assert set(troubled(browser, "")) == set(troubled(browser, "nonsense")) == {"default", "mail"}


def test_the_target_of_all_other_queues_applies_to_queues_without_one(
    browser: Browser, mail: Queue, server: PrivateServer, settings: Any
):
    targets = {"default": 3600, "*": 120}
    settings.RSMQ = {**settings.RSMQ, "PIPELINE": {"WAIT_TARGETS_S": targets}}
    for queue in (mail, ensure_queue("default")):
        a_worker(mail.client, f"w-{queue.name}", queue.name)
        server.redis.zincrby(f"rsmq:{queue.name}", -61_000, queue.send(b"x"))
    assert troubled(browser, "stuck") == []

    server.redis.zincrby("rsmq:mail", -60_000, server.redis.zrange("rsmq:mail", 0, 0)[0])

    assert troubled(browser, "stuck") == ["mail"]


def test_a_paused_queue_with_a_backlog_is_a_separate_problem(browser: Browser, mail: Queue):
    mail.send(b"x")
    assert (troubled(browser, "unserved"), troubled(browser, "paused")) == (["mail"], [])

    mail.client.run(pause("rsmq", "mail"))

    assert (troubled(browser, "unserved"), troubled(browser, "paused")) == ([], ["mail"])


def test_failing_queues_are_found(browser: Browser, mail: Queue):
    count(mail.client, "mail", at_s=time.time(), succeeded__a=30, retried__a=9)
    assert troubled(browser, "failing") == []

    count(mail.client, "mail", at_s=time.time(), retried__a=1, dead__a=1)

    assert troubled(browser, "failing") == ["mail"]


@pytest.fixture
def crowd(settings: Any, mail: Queue, server: PrivateServer) -> None:
    """Queues whose names are in the reverse of the order in which they need attention."""
    names = ("f-unserved", "e-late", "d-failing", "c-dead", "b-paused", "a-calm")
    settings.RSMQ = {**settings.RSMQ, "QUEUES": dict.fromkeys((*names, "mail"), {})}
    for name in names:
        ensure_queue(name)
    a_worker(mail.client, "w1", "e-late")
    ensure_queue("f-unserved").send(b"x")
    server.redis.zincrby("rsmq:e-late", -61_000, ensure_queue("e-late").send(b"x"))
    count(mail.client, "d-failing", at_s=time.time(), retried__a=10)
    ensure_queue("c-dead-dead").send(b"x")
    ensure_queue("b-paused").send(b"x")
    mail.client.run(pause("rsmq", "b-paused"))
    Queue("0-of-others", mail.client).create()


@pytest.mark.usefixtures("crowd")
def test_queues_that_need_attention_come_first_then_those_of_the_settings(browser: Browser):
    order = ["f-unserved", "e-late", "d-failing", "c-dead", "b-paused", "a-calm", "mail", "0-of-others"]

    page = browser.get(QUEUES)
    assert [row.name for row in rows_of(page)] == order
    assert not page.context["cl"].get_ordering_field_columns(), "no column says that it is sorted"
    assert [row.name for row in rows_of(browser.get(QUEUES, {"q": "ed"}))] == ["f-unserved", "b-paused"]
    configured = browser.get(QUEUES, {"is_configured__exact": "1"})
    assert [row.name for row in rows_of(configured)] == order[:-1]
    assert [row.name for row in rows_of(browser.get(QUEUES, {"is_paused__exact": "1"}))] == ["b-paused"]


@pytest.mark.usefixtures("crowd")
def test_other_orders_of_the_list_of_queues_still_work(browser: Browser):
    by_name = [row.name for row in rows_of(browser.get(QUEUES, {"o": "1"}))]

    assert by_name == sorted(by_name)
    assert [row.name for row in rows_of(browser.get(QUEUES, {"o": "-1"}))] == by_name[::-1]


@pytest.mark.usefixtures("crowd")
def test_the_names_of_queues_that_need_attention_say_why(browser: Browser):
    page = text_of(browser.get(QUEUES))

    assert "f-unserved no worker" in page and "e-late older than its target" in page and "d-failing failing" in page


def test_pages_of_a_long_list_begin_with_the_queues_that_need_attention(browser: Browser, mail: Queue):
    for number in range(30):
        Queue(f"a-{number:02}", mail.client).create()
    mail.send(b"x")

    assert rows_of(browser.get(QUEUES))[0].name == "mail"
    assert [row.name for row in rows_of(browser.get(QUEUES, {"p": "2"}))][-1] == "a-29"


def test_the_list_offers_the_kinds_of_trouble_and_keeps_the_rest_of_its_address(browser: Browser, mail: Queue):
    page = browser.get(QUEUES, {"trouble": "dead", "span": "24h", "q": "ma", "p": "2"})

    links = {query: is_chosen for _label, query, is_chosen in page.context["cl"].troubles}
    assert links["?span=24h&q=ma&trouble=dead"] and not links["?span=24h&q=ma"] and len(links) == 6


def test_the_page_of_a_queue_shows_its_workers(browser: Browser, mail: Queue):
    mail.send(b"x")
    alone = text_of(browser.get(f"{QUEUES}mail/change/"))
    a_worker(mail.client, "w1", "mail", "default")
    a_worker(mail.client, "w2", "mail", state="quiet")
    served = browser.get(f"{QUEUES}mail/change/")

    assert "No worker consumes this queue , start one: manage.py rsmq_worker --queue-name mail" in alone
    assert "1 worker process consumes this queue" in text_of(served)
    assert "/admin/rsmq/worker/?q=mail" in served.content.decode()


def test_the_page_of_a_queue_has_charts_and_leads_to_its_dead_letters(
    browser: Browser, browser_of: Callable[..., Browser], mail: Queue, dead: Queue
):
    dead.send(b"x")

    page, narrow = browser.get(f"{QUEUES}mail/change/?span=7d"), browser_of("view_queue").get(f"{QUEUES}mail/change/")

    assert [chart.name for chart in page.context["charts"]] == ["throughput", "outcomes", "wait", "run"]
    assert len(page.context["charts"][0].times) >= 168
    assert f"{QUEUES}mail-dead/failures/" in page.content.decode()
    assert f"{QUEUES}mail-dead/failures/" not in narrow.content.decode() and narrow.status_code == 200
