"""The admin and the command line with exactly the rights of docs/how-to/acl.md: viewer and operator."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client as Browser

from rsmq_django import schedules
from rsmq_django.cli.app import main
from rsmq_django.core import Queue
from rsmq_django.core.errors import PermissionDenied
from rsmq_django.core.topic import Topic
from rsmq_django.queues import get_client, get_queue, pause_queue, resume_queue
from rsmq_django.tasks import cancel
from tests.acl_users import TOPICS, UserOf, user_of, user_with_role
from tests.admin.test_every_address import addresses, things
from tests.redis_server import PrivateServer
from tests.worker.site.tasks import write

__all__ = ["things", "user_with_role"]


def connect_as(settings: Any, url: str) -> None:
    """Let the project use another address of the server."""
    connections = {"default": {"URL": url, "TIMEOUT_S": 15}}
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": connections}


def test_viewer_sees_every_page(
    browser: Browser, things: dict[str, str], settings: Any, user_with_role: UserOf, capsys: pytest.CaptureFixture[str]
):
    connect_as(settings, user_with_role("viewer", topics=TOPICS))

    statuses = {url: browser.get(url).status_code for url in addresses(things)}
    call_command("rsmq_stats")
    with contextlib.suppress(SystemExit, Exception):  # what it finds is its exit code
        call_command("rsmq_doctor")

    assert not {url: status for url, status in statuses.items() if status not in (200, 302, 403, 405)}
    assert sum(status == 200 for status in statuses.values()) > 40
    assert "may not" not in capsys.readouterr().out


def test_viewer_changes_nothing_and_reads_which_page_has_the_rules(
    things: dict[str, str], settings: Any, server: PrivateServer
):
    with user_of(server, "viewer", without="hello") as url:  # it is refused what it tries here
        connect_as(settings, url)
        for change in (lambda: get_queue("mail").send(b"x"), lambda: pause_queue("mail")):
            with pytest.raises(PermissionDenied, match=r"docs/how-to/acl\.md"):
                change()


def test_operator_does_everything_of_the_admin_and_the_command_line(
    browser: Browser, dead: Queue, things: dict[str, str], settings: Any, user_with_role: UserOf, server: PrivateServer
):
    dead.send_many([b'{"task": "tests.worker.site.tasks.write", "id": "d1", "args": ["x"], "kwargs": {}}'] * 3)
    url = user_with_role("operator", topics=TOPICS)
    connect_as(settings, url)

    statuses = {each: browser.get(each).status_code for each in addresses(things)}
    assert not {each: status for each, status in statuses.items() if status not in (200, 302, 403, 405)}

    assert pause_queue("mail") and resume_queue("mail")
    schedules.pause("nightly")
    schedules.resume("nightly")
    schedules.run_now("nightly")
    schedules.remove("nightly")
    cancel("t7")
    write.enqueue("y")
    call_command("rsmq_redrive", "mail-dead", limit=1, to="mail")
    Topic("orders", get_client()).group("billing").seek(1, force=True)
    for words in (
        ["queue", "create", "-n", "new"],
        ["queue", "set", "-n", "new", "-t", "5"],
        ["message", "send", "-n", "new", "-m", "a"],
        ["message", "receive", "-n", "new"],
        ["message", "list", "-n", "mail-dead"],
        ["queue", "purge", "-n", "new", "--yes"],
        ["queue", "delete", "-n", "new"],
        ["reliable", "list"],
        ["topic", "list"],
        ["doctor"],
    ):
        assert main(["-r", url, *words]) in (0, 1), words
