"""Changing a message by its address needs the right to see messages, too: an answer tells whether there is one."""

from collections.abc import Callable

import pytest
from django.test import Client as Browser

from rsmq_django.core import Queue
from tests.admin.conftest import MESSAGES


@pytest.mark.parametrize(
    ("codenames", "status"),
    [(("delete_message",), 403), (("view_message",), 403), (("view_message", "delete_message"), 302)],
)
def test_a_message_is_deleted_only_by_users_who_may_see_messages(
    browser_of: Callable[..., Browser], mail: Queue, codenames: tuple[str, ...], status: int
):
    browser, key = browser_of(*codenames), f"mail_2F{mail.send(b'x')}"

    assert browser.get(f"{MESSAGES}{key}/delete/").status_code == (200 if status == 302 else status)
    for address, choices in (("delete", {"post": "yes"}), ("operate", {"action": "delete_selected", "post": "yes"})):
        assert browser.post(f"{MESSAGES}{key}/{address}/", choices).status_code == status
        assert browser.post(f"{MESSAGES}mail_2Fnone/{address}/", choices).status_code == status

    assert mail.attributes().messages == (0 if status == 302 else 1)
