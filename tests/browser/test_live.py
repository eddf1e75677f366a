"""Open pages refresh with small requests, and do not change what their reader does."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from rsmq_django.core import Queue
from tests.browser.chromium import Visitor
from tests.support import wait_until

pytestmark = pytest.mark.browser

READY = "#result_list td.field-ready_messages"


def test_the_list_of_queues_refreshes_itself(visitor: Callable[..., Visitor], mail: Queue):
    root = visitor().log_in(User.objects.create_superuser("root"))
    root.open("/admin/rsmq/queue/")
    assert root.page.inner_text(READY) == "0"

    mail.send_many([b"x"] * 7)

    root.page.locator(READY, has_text="7").wait_for()


def test_selection_is_kept(visitor: Callable[..., Visitor], mail: Queue):
    root = visitor().log_in(User.objects.create_superuser("root"))
    root.open("/admin/rsmq/queue/")
    root.page.check("input.action-select")

    mail.send_many([b"x"] * 7)
    # The next look would be after five seconds; by then nothing may have been asked for.
    with pytest.raises(Exception, match="Timeout"):
        root.page.locator(READY, has_text="7").wait_for(timeout=7000)

    root.page.uncheck("input.action-select")
    root.page.locator(READY, has_text="7").wait_for()


def fragments_of(visitor: Visitor) -> list[Any]:
    """Return the answers to refreshes, which are added as they come."""
    answers: list[Any] = []
    visitor.page.on("response", lambda one: answers.append(one) if "rsmq-fragment" in one.request.headers else None)
    return answers


def test_the_list_of_messages_gets_new_rows_without_the_frame_of_the_page(root: Visitor, mail: Queue):
    mail.send(b"first")
    root.open("/admin/rsmq/message/?queue=mail")
    answers = fragments_of(root)

    mail.send_many([b"second", b"third"])

    root.page.locator("#result_list tbody tr").nth(2).wait_for()
    assert root.page.locator(".paginator", has_text="3 messages").count() == 1
    assert "<html" not in answers[-1].text()
    # Their check boxes are those of any other row.
    root.page.check("#action-toggle")
    assert root.page.locator("input.action-select:checked").count() == 3


def test_nothing_is_sent_again_when_nothing_has_changed(root: Visitor, mail: Queue):
    mail.send(b"first")
    root.open("/admin/rsmq/message/?queue=mail")
    answers = fragments_of(root)

    wait_until(lambda: root.page.wait_for_timeout(100) or len(answers) >= 2)

    assert [one.status for one in answers[:2]] == [200, 304]
    assert root.page.locator("#result_list .rsmq-ago").first.inner_text().endswith("ago")


def test_focus_open_details_and_their_scrolling_stay_while_a_page_is_refreshed(root: Visitor, mail: Queue):
    mail.send(b"first")
    root.open("/admin/rsmq/queue/mail/change/")
    link = root.page.locator("#rsmq-queue-now dd a").first
    link.focus()

    mail.send_many([b"x"] * 7)
    root.page.locator("#rsmq-queue-now dd a", has_text=re.compile(r"^\s*8\s*$")).first.wait_for()

    assert root.page.evaluate("document.activeElement.textContent.trim()") == "8"


def test_a_page_that_cannot_be_refreshed_shows_the_age_of_its_data(visitor: Callable[..., Visitor], mail: Queue):
    root = visitor(expects_refusals=True).log_in(User.objects.create_superuser("root"))
    root.open("/admin/rsmq/message/?queue=mail")
    root.page.route("**/admin/rsmq/message/**", lambda route: route.fulfill(status=503, body="away"))

    root.page.locator(".rsmq-stale [data-rsmq-said]", has_text="Not up to date since").wait_for()
    root.page.unroute("**/admin/rsmq/message/**")
    root.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    root.page.locator(".rsmq-live-bar:not(.rsmq-stale)").wait_for()
    assert "Not up to date" not in root.text()


def test_a_hidden_page_sends_no_requests(root: Visitor, mail: Queue):
    mail.send(b"first")
    root.page.clock.install()
    root.open("/admin/rsmq/message/?queue=mail")
    answers = fragments_of(root)
    hide = (
        "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )

    root.page.evaluate(hide % "true")
    root.page.clock.run_for(120_000)
    assert answers == []

    root.page.evaluate(hide % "false")
    wait_until(lambda: root.page.wait_for_timeout(50) or answers)


def test_the_index_refreshes_itself_and_requests_its_line_only(visitor: Callable[..., Visitor], mail: Queue):
    root = visitor().log_in(User.objects.create_superuser("root"))
    root.open("/admin/")
    assert root.page.inner_text("#rsmq-state").startswith("0 ready")
    asked: list[str] = []
    root.page.on("request", lambda request: asked.append(request.url.partition("/admin/")[2]))

    mail.send_many([b"x"] * 7)

    root.page.locator("#rsmq-state", has_text="7 ready").wait_for()
    assert {*asked} == {"rsmq/queue/state/"}
