"""The list of queues keeps itself up to date, and leaves alone what somebody has selected."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from rsmq_django.core import Queue
from tests.browser.chromium import Visitor

pytestmark = pytest.mark.browser

READY = "#result_list td.field-ready_messages"


def test_the_list_of_queues_follows_by_itself(visitor: Callable[..., Visitor], mail: Queue):
    root = visitor().log_in(User.objects.create_superuser("root"))
    root.open("/admin/rsmq/queue/")
    assert root.page.inner_text(READY) == "0"

    mail.send_many([b"x"] * 7)

    root.page.locator(READY, has_text="7").wait_for()


def test_what_was_selected_stays_as_it_was(visitor: Callable[..., Visitor], mail: Queue):
    root = visitor().log_in(User.objects.create_superuser("root"))
    root.open("/admin/rsmq/queue/")
    root.page.check("input.action-select")

    mail.send_many([b"x"] * 7)
    # The next look would be after five seconds; by then nothing may have been asked for.
    with pytest.raises(Exception, match="Timeout"):
        root.page.locator(READY, has_text="7").wait_for(timeout=7000)

    root.page.uncheck("input.action-select")
    root.page.locator(READY, has_text="7").wait_for()
