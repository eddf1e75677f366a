"""Bars of tasks follow them in a real browser: by events under ASGI, by polling under WSGI."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.handlers.asgi import ASGIHandler
from django.test import override_settings
from pytest_django.live_server_helper import LiveServer

from rsmq_django import views
from tests.browser.asgi_server import serving
from tests.browser.chromium import Visitor
from tests.browser.conftest import CSP
from tests.browser.test_axe import axe, violations  # noqa: F401
from tests.redis_server import PrivateServer
from tests.support import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.urls("tests.browser.progress_pages")]

HAS_HTMX = importlib.util.find_spec("django_htmx") is not None
BAR = "rsmq-task-progress"


@pytest.fixture(params=["asgi", "wsgi"])
def site(request: pytest.FixtureRequest, live_server: LiveServer) -> Iterator[str]:
    """The address of the pages, on both kinds of servers."""
    if request.param == "wsgi":
        yield live_server.url
        return
    with override_settings(MIDDLEWARE=[CSP, *django_settings.MIDDLEWARE]):
        application = ASGIStaticFilesHandler(ASGIHandler())
    with serving(application) as address:
        yield address


@pytest.fixture
def looker(chromium: Any, site: str) -> Iterator[Visitor]:
    """Somebody with the page open, who complains at the end about anything that was refused."""
    one = Visitor(chromium, site)
    yield one
    one.page.goto("about:blank")
    one.context.close()
    assert not one.complaints


def tell(server: PrivateServer, task_id: str, status: str, done: int = 0, note: str = "") -> None:
    said = json.dumps({"done": done, "total": 10, "note": note})
    server.redis.hset(f"rsmq::result:{task_id}", mapping={"status": status, "progress": said})


def requests_of(visitor: Visitor) -> list[Any]:
    """Return the answers about progress, which are added as they come."""
    answers: list[Any] = []
    visitor.page.on("response", lambda one: answers.append(one) if "/progress/" in one.url else None)
    return answers


def test_a_bar_follows_its_task_to_the_end(looker: Visitor, server: PrivateServer, request: pytest.FixtureRequest):
    tell(server, "t1", "READY")
    answers = requests_of(looker)
    looker.open("/imports/t1")
    bar = looker.page.locator(f"{BAR} progress")
    tell(server, "t1", "RUNNING", 4, "page <4>")
    looker.page.get_by_text("4 of 10").wait_for()
    assert bar.evaluate("(bar) => bar.value") == 0.4
    assert looker.page.get_by_role("progressbar", name="Import").count() == 1
    assert looker.page.get_by_role("status").inner_text() == "Running"
    looker.wait_for_text("page <4>")

    tell(server, "t1", "SUCCESSFUL", 10)
    looker.page.get_by_role("status").get_by_text("Done").wait_for()
    assert bar.evaluate("(bar) => bar.value") == 1
    assert looker.page.title() == "Imports SUCCESSFUL"
    kinds = {one.headers["content-type"] for one in answers}
    assert kinds == {"text/event-stream" if "asgi" in request.node.name else "application/json"}


def test_more_bars_than_streams_follow_their_tasks(looker: Visitor, server: PrivateServer):
    ids = [f"t{number}" for number in range(8)]
    for task_id in ids:
        tell(server, task_id, "RUNNING", 1)
    looker.open(f"/imports/{','.join(ids)}")
    for task_id in reversed(ids):
        tell(server, task_id, "FAILED", 2)
    wait_until(lambda: looker.page.wait_for_timeout(50) or looker.text().count("Failed") == 8)
    assert looker.page.title() == "Imports" + " FAILED" * 8


def test_a_bar_that_is_put_into_the_page_later_begins_and_one_that_is_taken_out_ends(
    looker: Visitor, server: PrivateServer
):
    tell(server, "t1", "READY")
    tell(server, "t2", "READY")
    looker.open("/imports/t1")
    # What HTMX, Turbo and others do with an answer.
    swap = """async (path) => { const text = await (await fetch(path)).text();
        document.querySelector("main div").innerHTML = text; }"""
    looker.page.evaluate(swap, "/fragment/t2")
    tell(server, "t1", "SUCCESSFUL")
    tell(server, "t2", "RUNNING", 7)
    looker.page.get_by_text("7 of 10").wait_for()
    answers = requests_of(looker)
    tell(server, "t2", "SUCCESSFUL", 8)
    looker.page.get_by_text("8 of 10").wait_for()
    assert looker.page.title() == "Imports SUCCESSFUL"
    assert len({one.url for one in answers}) <= 1


@pytest.mark.skipif(not HAS_HTMX and not os.environ.get("CI"), reason="django-htmx, which has HTMX, is not installed")
def test_a_bar_comes_with_htmx_and_its_end_fetches_the_next_part(looker: Visitor, server: PrivateServer):
    tell(server, "t1", "READY")
    looker.open("/with-htmx")
    looker.page.get_by_role("button", name="Import").click()
    looker.page.get_by_role("progressbar", name="Import").wait_for()
    tell(server, "t1", "RUNNING", 4)
    looker.wait_for_text("4 of 10")
    assert "300 products" not in looker.text()
    tell(server, "t1", "SUCCESSFUL", 10)
    looker.wait_for_text("300 products")
    looker.wait_for_text("10 of 10")


def test_an_address_that_has_expired_is_told(looker: Visitor, server: PrivateServer, monkeypatch: pytest.MonkeyPatch):
    tell(server, "t1", "READY")
    monkeypatch.setattr(views, "LONGEST_STREAM_S", 0.1)
    looker.open("/imports/t1")
    monkeypatch.setattr("rsmq_django.views.time.time", lambda: 1e11)
    looker.wait_for_text("No news any more. Reload the page.")
    looker.complaints[:] = [each for each in looker.complaints if "410" not in each]


@pytest.mark.parametrize("site", ["wsgi"], indirect=True)
def test_people_who_use_no_mouse_or_another_theme_read_it(
    looker: Visitor,
    server: PrivateServer,
    axe: str,  # noqa: F811
    chromium: Any,
    site: str,
):
    for number, status in enumerate(["READY", "RUNNING", "SUCCESSFUL", "FAILED"]):
        tell(server, f"t{number}", status, 4, "page 4")
    other = Visitor(chromium, site, bypass_csp=True)
    other.open("/imports/t0,t1,t2,t3,t4")
    for scheme in ("light", "dark"):
        other.page.emulate_media(color_scheme=scheme)
        assert violations(other, axe) == []
    other.context.close()
