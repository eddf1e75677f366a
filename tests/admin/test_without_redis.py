"""When a server is unreachable, pages report it without its address, and show the data of other servers."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client as Browser

from rsmq_django import schedules
from rsmq_django.core import Connection, Queue
from rsmq_django.core.errors import SentinelDenied
from rsmq_django.queues import ensure_queue
from rsmq_django.tasks.compat import InvalidTask
from tests import redis_server
from tests.acl_users import user_of
from tests.admin.conftest import MESSAGES, QUEUES
from tests.admin.pages import rows_of, text_of
from tests.admin.test_message_page import bury
from tests.redis_server import PrivateServer
from tests.worker.site.tasks import write

NOWHERE = "redis://:hunter2@127.0.0.1:1/0"
URLS = [
    QUEUES, f"{QUEUES}mail/change/", f"{QUEUES}mail/purge/", f"{QUEUES}mail/failures/", MESSAGES,
    f"{MESSAGES}?queue=mail&q=x", f"{MESSAGES}mail_2Fx/change/", f"{MESSAGES}mail_2Fx/body/", "/admin/rsmq/worker/",
    "/admin/rsmq/result/?q=x", "/admin/rsmq/result/x/change/",
]  # fmt: skip


@pytest.fixture
def nowhere(settings: Any) -> Iterator[None]:
    """The project's only server is one that nobody listens on."""
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": NOWHERE, "TIMEOUT_S": 0.5}}}
    yield


@pytest.mark.parametrize("url", URLS)
def test_pages_report_that_redis_is_unreachable(browser: Browser, nowhere: None, url: str):
    page = browser.get(url)

    assert page.status_code == 503
    assert "No connection to the Redis server" in text_of(page)
    assert b"hunter2" not in page.content and b"127.0.0.1" not in page.content
    assert "Log out" in text_of(page), "it is a page of the admin"
    assert "Try again" in text_of(page)


@pytest.mark.parametrize(
    ("url", "data"),
    [
        (MESSAGES, {"action": "run_now", "_selected_action": ["mail/x"], "seen": "0 mail/x"}),
        (f"{MESSAGES}mail_2Fx/operate/", {"action": "run_now", "seen": "0 mail/x"}),
        (f"{QUEUES}mail/pause/", {"action": "pause"}),
        (f"{QUEUES}mail/change/", {"delay_s": 1}),
    ],
)
def test_changes_fail_with_a_page(browser: Browser, nowhere: None, url: str, data: dict[str, Any]):
    page = browser.post(url, data)

    assert page.status_code == 503
    assert "Try again" not in text_of(page), "a link cannot repeat a change, and some addresses answer it with 405"


def test_page_about_an_error_has_the_style_sheet_of_all_pages(browser: Browser, nowhere: None):
    assert "rsmq/admin.css" in browser.get(QUEUES).content.decode()


def test_the_index_needs_no_redis(browser: Browser, nowhere: None):
    assert "Queues" in text_of(browser.get("/admin/"))


def test_unreachable_server_hides_no_other_server(browser: Browser, settings: Any, server: PrivateServer):
    settings.RSMQ = {
        "CONNECTIONS": {
            "default": {"URL": redis_server.URL, "TIMEOUT_S": 15},
            "billing": {"URL": NOWHERE, "TIMEOUT_S": 0.5},
        },
        "QUEUES": {"mail": {}, "invoices": {"CONNECTION": "billing"}},
    }
    ensure_queue("mail").send(b"x")

    page = browser.get(QUEUES)

    assert [row.name for row in rows_of(page)] == ["mail"]
    assert "The connection “billing” cannot be reached" in text_of(page)
    assert len(rows_of(browser.get(MESSAGES))) == 1
    assert browser.get(f"{QUEUES}invoices/change/").status_code == 503
    assert browser.get(f"{QUEUES}mail/change/").status_code == 200


def test_list_of_schedules_shows_those_of_the_servers_that_answer(browser: Browser, settings: Any, mail: Queue):
    schedules.add("nightly", write, every_s=900, args=["x"])
    settings.RSMQ = {
        "CONNECTIONS": {**settings.RSMQ["CONNECTIONS"], "billing": {"URL": NOWHERE, "TIMEOUT_S": 0.5}},
        "QUEUES": {"default": {}, "invoices": {"CONNECTION": "billing"}},
        "SCHEDULES": {"remind": {"TASK": write.module_path, "EVERY_S": 30, "QUEUE": "invoices", "ARGS": ["x"]}},
    }

    page = browser.get("/admin/rsmq/schedule/")

    assert [row.name for row in rows_of(page)] == ["nightly"], "whether the other one is stored is not known"
    assert "The connection “billing” cannot be reached" in text_of(page)
    assert browser.get("/admin/rsmq/schedule/remind/change/").status_code == 503


def test_queues_of_two_servers_are_kept_apart(browser: Browser, settings: Any, server: PrivateServer):
    settings.RSMQ = {
        "CONNECTIONS": {
            "default": {"URL": redis_server.URL, "TIMEOUT_S": 15},
            "billing": {"URL": redis_server.URL, "TIMEOUT_S": 15, "NAMESPACE": "billing"},
        },
        "QUEUES": {"mail": {}, "invoices": {"CONNECTION": "billing"}},
    }
    from rsmq_django.queues import get_client

    ensure_queue("mail").send(b"here")
    other = Queue("mail", get_client("billing"))
    other.create()
    other.send_many([b"there"] * 2)
    ensure_queue("invoices")

    assert [row.key for row in rows_of(browser.get(QUEUES))] == ["mail", "invoices", "billing/mail"]
    assert len(rows_of(browser.get(MESSAGES, {"queue": "billing/mail"}))) == 2
    (row,) = rows_of(browser.get(MESSAGES, {"queue": "mail"}))
    moved = {"action": "move", "_selected_action": [row.key], "post": "yes", "target": "invoices"}
    assert "within one server only" in text_of(browser.post(MESSAGES, moved, follow=True))


def test_a_server_that_refuses_is_reported(browser: Browser, settings: Any, server: PrivateServer):
    server.redis.execute_command("ACL", "SETUSER", "looker", "on", ">p", "~*", "&*", "+@all", "-zcard")
    ensure_queue("mail")
    url = redis_server.URL.replace("unix://", "unix://looker:p@")
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": url, "TIMEOUT_S": 15}}}
    try:
        assert "has no permission for this command" in text_of(browser.get(f"{QUEUES}mail/failures/"))
    finally:
        server.redis.execute_command("ACL", "DELUSER", "looker")


def test_wrong_password_of_the_sentinels_is_not_explained_by_the_rights_at_the_server(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
):
    def deny(*_: object, **__: object) -> None:
        raise SentinelDenied("cannot find the primary of 'mymaster' for redis+sentinel://10.0.0.1/mymaster/0")

    monkeypatch.setattr(Connection, "exchange", deny)
    text = text_of(browser.get(QUEUES))

    assert "Redis denies access" in text
    assert "Correct sentinel_username and sentinel_password" in text and "ACL" not in text and "10.0.0.1" not in text

    index = text_of(browser.get("/admin/"))
    assert "the sentinels of the connection “default” deny access" in index and "has no permission" not in index


def test_lists_name_the_connection_whose_sentinels_deny_access(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, settings: Any
):
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": redis_server.URL, "TIMEOUT_S": 15}, "billing": {"URL": NOWHERE}},
        "QUEUES": {"mail": {}, "invoices": {"CONNECTION": "billing"}},
    }
    exchange = Connection.exchange

    def deny(self: Connection, *args: Any, **options: Any) -> Any:
        if self.url == NOWHERE:
            raise SentinelDenied("cannot find the primary of 'mymaster' for redis+sentinel://10.0.0.1/mymaster/0")
        return exchange(self, *args, **options)

    monkeypatch.setattr(Connection, "exchange", deny)
    text = text_of(browser.get(QUEUES))

    assert "The sentinels of the connection “billing” deny access." in text and "no permission" not in text


# -- A user of the server without rights ------------------------------------------------------------------------------


@pytest.fixture
def as_sender(settings: Any, server: PrivateServer, mail: Queue, dead: Queue) -> Iterator[None]:
    """The project connects as a user with the role of a sender, who may not read what the pages show."""
    with user_of(server, "sender", without="hello") as url:
        settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": url, "TIMEOUT_S": 15}}}
        yield


def test_page_without_a_right_names_the_reply_and_the_command_for_the_rules(browser: Browser, as_sender: None):
    page = browser.get("/admin/rsmq/worker/")

    text = text_of(page)
    assert page.status_code == 503 and "Redis denies access" in text and "Redis does not answer" not in text
    assert "has no permission for this command (" in text and "rsmqctl acl viewer" in text
    assert "run" in text.partition("for this command (")[2].partition(")")[0]
    assert "@user_script" not in text, "the place in the script tells an operator nothing"


def test_index_says_that_the_user_has_no_permission(browser: Browser, as_sender: None):
    text = text_of(browser.get("/admin/"))

    assert "the Redis user of the connection “default” has no permission" in text and "does not answer" not in text


def test_retry_without_a_right_shows_the_error_and_no_outcome(
    browser: Browser, dead: Queue, settings: Any, server: PrivateServer
):
    message_id = bury(server, dead)
    with user_of(server, "viewer", without="hello") as url:
        settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": url, "TIMEOUT_S": 15}}}
        data = {"action": "redrive", "_selected_action": [f"mail-dead/{message_id}"], "post": "yes"}
        text = text_of(browser.post(f"{MESSAGES}?queue=mail-dead", data, follow=True))

    assert "has no permission for this command" in text
    assert "0 of 0 done" not in text


# -- Tasks that cannot be imported ------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["/admin/rsmq/run/", "/admin/rsmq/registeredtask/"])
def test_page_that_needs_the_tasks_names_the_error_when_they_cannot_be_imported(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, url: str
):
    def fail(*_names: str) -> None:
        raise InvalidTask("Queue 'mial' is not in RSMQ['QUEUES'].")

    monkeypatch.setattr("rsmq_django.tasks.catalogue.autodiscover_modules", fail)

    page = browser.get(url)

    assert page.status_code == 503
    assert "Queue 'mial' is not in RSMQ['QUEUES']." in text_of(page) and "Log out" in text_of(page)
