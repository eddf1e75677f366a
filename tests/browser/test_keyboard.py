"""Without a mouse: everything is reachable with the Tab key, has a visible focus, and works with Enter."""

import json
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from rsmq_django.core import Queue
from tests.browser.chromium import Visitor

pytestmark = pytest.mark.browser

MOST_KEYS = 300
#: What a mouse can use in the page's own part and the Tab key cannot reach.
UNREACHABLE = """() => [...document.querySelectorAll("#content *")]
    .filter((each) => getComputedStyle(each).cursor === "pointer" && each.checkVisibility())
    .filter((each) => {
        const usable = each.closest("a[href], button, input, select, textarea, summary, label, [tabindex]");
        return !usable || usable.tabIndex < 0 && usable.tagName !== "LABEL";
    })
    .map((each) => each.outerHTML.slice(0, 120))"""
FOCUSED = """() => {
    const focused = document.activeElement;
    return focused.matches("input[type=submit]") ? focused.value : focused.textContent.trim();
}"""
FOCUS_IS_SEEN = """() => {
    const style = getComputedStyle(document.activeElement);
    return style.outlineStyle !== "none" || style.boxShadow !== "none";
}"""


def tab_to(visitor: Visitor, name: str) -> None:
    """Press Tab until what is focused has this name."""
    for _ in range(MOST_KEYS):
        visitor.page.keyboard.press("Tab")
        if visitor.page.evaluate(FOCUSED) == name:
            assert visitor.page.evaluate(FOCUS_IS_SEEN), f"one cannot see that {name!r} is focused"
            return
    raise AssertionError(f"Tab does not lead to {name!r} on {visitor.page.url}")


def press(visitor: Visitor, name: str) -> None:
    """Go to a link or button with the keyboard, and use it."""
    tab_to(visitor, name)
    with visitor.page.expect_navigation():
        visitor.page.keyboard.press("Enter")


def test_a_queue_is_found_paused_and_purged_without_a_mouse(root: Visitor, mail: Queue):
    mail.send_many([b"x"] * 5)

    root.open("/admin/rsmq/queue/")
    press(root, "mail no worker")
    press(root, "Pause")
    root.wait_for_text("paused: no messages are received")
    press(root, "Purge")
    root.page.keyboard.press("Tab")
    while root.page.evaluate("() => document.activeElement.type") != "text":
        root.page.keyboard.press("Tab")
    root.page.keyboard.type("mail")
    with root.page.expect_navigation():
        root.page.keyboard.press("Enter")

    assert mail.attributes().messages == 0


def test_all_controls_are_reachable_with_the_tab_key(visitor: Callable[..., Visitor], mail: Queue, dead: Queue):
    root = visitor().log_in(User.objects.create_superuser("root"))
    message = mail.send(json.dumps({"letter": 1}).encode())
    dead.send(b"died")

    pages = [
        "queue/",
        "queue/mail/change/",
        "message/",
        f"message/mail_2F{message}/change/",
        "queue/mail-dead/failures/",
    ]
    for page in [*pages, "worker/", "registeredtask/", "topic/", "reliablequeue/", "workflow/", "result/", "schedule/"]:
        assert root.open(f"/admin/rsmq/{page}").status == 200
        assert root.page.evaluate(UNREACHABLE) == [], page
