"""Queues in trouble, found among all; and what the page of one says about who takes from it."""

from collections.abc import Callable

import pytest
from django.test import Client as Browser

from rsmq_django.core import Queue
from rsmq_django.core.pause import pause
from rsmq_django.queues import ensure_queue
from tests.admin.conftest import QUEUES
from tests.admin.pages import rows_of, text_of
from tests.admin.test_overview import a_worker
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


def test_nobody_takes_from_a_paused_queue(browser: Browser, mail: Queue):
    a_worker(mail.client, "w1", "mail")
    mail.send(b"x")
    assert troubled(browser, "unserved") == []

    mail.client.run(pause("rsmq", "mail"))

    assert troubled(browser, "unserved") == ["mail"]


def test_the_list_offers_the_kinds_of_trouble_and_keeps_the_rest_of_its_address(browser: Browser, mail: Queue):
    page = browser.get(QUEUES, {"trouble": "dead", "span": "24h", "q": "ma", "p": "2"})

    links = {query: is_chosen for _label, query, is_chosen in page.context["cl"].troubles}
    assert links["?span=24h&q=ma&trouble=dead"] and not links["?span=24h&q=ma"] and len(links) == 4


def test_the_page_of_a_queue_tells_who_takes_from_it(browser: Browser, mail: Queue):
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
