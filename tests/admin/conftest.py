"""A private server, a project with a few queues on it, and users with different permissions."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client as Browser

from rsmq_django.core import Queue
from rsmq_django.queues import ensure_queue
from tests import redis_server
from tests.redis_server import PrivateServer

#: Where the times stand within which pages answer with what they have found by then.
PAGES_ANSWER_WITHIN = (
    "rsmq_django.live.messages.SCAN_S",
    "rsmq_django.admin.failures.LOOK_S",
    "rsmq_django.admin.workflows.CANCEL_S",
    "rsmq_django.admin.bulk_pages.SLICE_S",
    "rsmq_django.live.installation.WAIT_S",
    "rsmq_django.admin.queue_trouble.WAIT_S",
    "rsmq_django.live.history.WAIT_S",
)
MESSAGES, QUEUES = "/admin/rsmq/message/", "/admin/rsmq/queue/"


@pytest.fixture(autouse=True)
def project(server: PrivateServer, settings: Any, db: None) -> None:
    """Queues "mail" and "default" with dead letters, on the private server, with pages of 20 rows."""
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": redis_server.URL, "TIMEOUT_S": 15}},
        "QUEUES": {"default": {}, "mail": {}},
        "ADMIN": {"PAGE_SIZE": 20},
    }


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that take as long as they need: those of the project leave out what a busy machine does not get to."""
    for limit in PAGES_ANSWER_WITHIN:
        monkeypatch.setattr(limit, 60.0)
    monkeypatch.setattr("rsmq_django.live.installation.KEEP_FACTOR", 0.0)
    monkeypatch.setattr("rsmq_django.live.history.MAX_AWAITED", 10**9)


@pytest.fixture
def mail() -> Queue:
    return ensure_queue("mail")


@pytest.fixture
def dead(mail: Queue) -> Queue:
    """The dead letters of "mail"."""
    return ensure_queue("mail-dead")


@pytest.fixture
def browser() -> Browser:
    """Somebody who may do everything. CSRF tokens are demanded only where a test says so."""
    browser = Browser()
    browser.force_login(User.objects.create_superuser("root"))
    return browser


@pytest.fixture
def browser_of() -> Callable[..., Browser]:
    """Make a staff user with some permissions of ours, and their browser."""

    def make(*codenames: str) -> Browser:
        user = User.objects.create_user("-".join(codenames) or "nobody", is_staff=True)
        for codename in codenames:
            user.user_permissions.add(Permission.objects.get(codename=codename, content_type__app_label="rsmq"))
        browser = Browser()
        browser.force_login(user)
        return browser

    return make
