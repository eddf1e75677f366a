"""A site with the admin under a strict policy, a real Chromium, and people who look at it.

Run by `make test-browser`, in a process of its own: while Playwright is at work an event loop runs in the main thread,
with which neither Django's ORM nor tests of coroutines agree.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import django
import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import Permission, User
from django.test import override_settings
from pytest_django.live_server_helper import LiveServer

from rsmq_django.core import Queue
from rsmq_django.queues import ensure_queue
from tests import redis_server
from tests.admin.conftest import PAGES_ANSWER_WITHIN
from tests.browser.chromium import Visitor, launch
from tests.redis_server import PrivateServer
from tests.worker.processes import journal, start_worker  # noqa: F401

HAS_PLAYWRIGHT = importlib.util.find_spec("playwright") is not None
collect_ignore_glob = [] if HAS_PLAYWRIGHT else ["test_*.py"]
#: Once is enough: their templates are the same with each version of Django.
collect_ignore = [] if django.VERSION >= (6, 1) else ["test_themes.py"]

CSP = "tests.browser.csp.strict_csp"
QUEUES: dict[str, dict[str, object]] = {"default": {}, "mail": {}}


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def live_server() -> Iterator[LiveServer]:
    """The site. Its middleware is chosen here, because it is loaded when the server starts."""
    with override_settings(MIDDLEWARE=[CSP, *django_settings.MIDDLEWARE]):
        site = LiveServer("localhost")
    yield site
    site.stop()


@pytest.fixture(autouse=True)
def project(server: PrivateServer, settings: Any, transactional_db: None) -> None:
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": redis_server.URL, "TIMEOUT_S": 15}},
        "QUEUES": QUEUES,
        "ADMIN": {"PAGE_SIZE": 20},
    }


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that take as long as they need: those of the project leave out what a busy machine does not get to."""
    for limit in PAGES_ANSWER_WITHIN:
        monkeypatch.setattr(limit, 60.0)


@pytest.fixture
def mail() -> Queue:
    return ensure_queue("mail")


@pytest.fixture
def dead(mail: Queue) -> Queue:
    """The dead letters of "mail"."""
    return ensure_queue("mail-dead")


@pytest.fixture
def visitor(chromium: Any, live_server: LiveServer) -> Iterator[Callable[..., Visitor]]:
    """Make visitors. At the end no page that they saw may have complained."""
    visitors: list[Visitor] = []
    forgiven: list[Visitor] = []

    def make(*, expects_refusals: bool = False, **window: Any) -> Visitor:
        one = Visitor(chromium, live_server.url, **window)
        visitors.append(one)
        if expects_refusals:
            forgiven.append(one)
        return one

    yield make
    complaints = [complaint for one in visitors if one not in forgiven for complaint in one.complaints]
    for one in visitors:
        one.context.close()
    # Open pages refresh themselves: answers under way still use the database of the test.
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(10)
    assert not complaints


@pytest.fixture
def root(visitor: Callable[..., Visitor]) -> Visitor:
    """Somebody who may do everything."""
    return visitor().log_in(User.objects.create_superuser("root"))


@pytest.fixture
def user_of() -> Callable[..., User]:
    """Make a staff user with some permissions of ours."""

    def make(*codenames: str) -> User:
        user = User.objects.create_user("-".join(codenames) or "nobody", is_staff=True)
        for codename in codenames:
            user.user_permissions.add(Permission.objects.get(codename=codename, content_type__app_label="rsmq"))
        return user

    return make
