"""The pages of reliable queues: ready, pending and dead messages, and settling them."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client as Browser

from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.queues import get_client
from tests.admin.pages import bytes_read_by, rows_of, text_of, told
from tests.redis_server import PrivateServer

QUEUES = "/admin/rsmq/reliablequeue/"
PAGE, SETTLE = f"{QUEUES}orders/change/", f"{QUEUES}orders/settle/"


@pytest.fixture
def orders(server: PrivateServer) -> ReliableQueue:
    """A queue with two waiting, one delayed, two pending and one dead message."""
    queue = ReliableQueue("orders", get_client("default"), consumer="shop-1")
    queue.push(*(f"order {number}" for number in range(1, 6)))
    queue.push("later", delay_s=600)
    first, *_ = queue.pop_messages(3)
    queue.bury(first, reason="no such customer")
    return queue


def numbers(queue: ReliableQueue) -> tuple[int, ...]:
    depth = queue.statistics().depth
    return depth.ready, depth.delayed or 0, depth.in_flight or 0, depth.dead


def receipts(queue: ReliableQueue, kind: Any) -> list[str]:
    return [f"{each.id}:{each.deliveries}" if kind == "delivered" else each.id for each in queue.messages(kind)]


def test_the_list_shows_both_ends_and_the_dead(browser: Browser, orders: ReliableQueue):
    [row] = rows_of(browser.get(QUEUES))

    assert (row.name, row.waiting, row.delayed, row.pending, row.dead) == ("orders", 2, 1, 2, 1)
    assert rows_of(browser.get(QUEUES, {"q": "other"})) == []


def test_the_page_shows_messages_of_each_kind(browser: Browser, orders: ReliableQueue):
    page = browser.get(PAGE)

    assert [(section.kind, len(section.rows)) for section in page.context["sections"]] == [
        ("delivered", 2), ("dead", 1), ("undelivered", 2), ("delayed", 1),
    ]  # fmt: skip
    text = text_of(page)
    assert "shop-1 (2)" in text and "no such customer" in text and "order 4" in text


@pytest.mark.parametrize(
    ("action", "kind", "after", "logged"),
    [
        ("give_back", "delivered", (4, 1, 0, 1), "Released 2 messages"),
        ("bury", "delivered", (2, 1, 0, 3), "Moved to dead letters: 2 messages"),
        ("ack", "delivered", (2, 1, 0, 1), "Acknowledged 2 messages"),
        ("redrive", "dead", (3, 1, 2, 0), "Retried: 1 message:"),
        ("discard", "dead", (2, 1, 2, 0), "Discarded 1 message:"),
    ],
)
def test_chosen_messages_are_settled(
    browser: Browser, orders: ReliableQueue, action: str, kind: str, after: tuple[int, ...], logged: str
):
    chosen = {"action": action, "receipt": receipts(orders, kind)}
    if action in ("ack", "discard"):
        assert "for good" in text_of(browser.post(SETTLE, chosen))
        assert numbers(orders) == (2, 1, 2, 1), "asked first"

    browser.post(SETTLE, {**chosen, "post": "yes"})

    assert numbers(orders) == after
    assert LogEntry.objects.get().change_message.startswith(logged)


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        ("undelivered", (0, 1, 2, 1)),
        ("delayed", (2, 0, 2, 1)),
        ("delivered", (2, 1, 0, 1)),
        ("dead", (2, 1, 2, 0)),
    ],
)
def test_chosen_messages_are_moved_to_another_queue(
    browser: Browser, orders: ReliableQueue, kind: str, after: tuple[int, ...]
):
    returns = ReliableQueue("returns", orders.client)
    returns.push("first")
    seen = receipts(orders, kind)
    chosen = {"action": f"move_{kind}", "receipt": seen}

    assert "Target queue" in text_of(browser.post(SETTLE, chosen))
    refused = browser.post(SETTLE, {**chosen, "post": "yes", "target": "retruns"})
    assert "This queue does not exist" in text_of(refused)
    answer = browser.post(SETTLE, {**chosen, "post": "yes", "target": "returns"}, follow=True)

    assert told(answer) == [f"Move to another queue · orders: {len(seen)} of {len(seen)} done."]
    assert numbers(orders) == after
    assert numbers(returns) == (1 + len(seen), 0, 0, 0)
    assert LogEntry.objects.get().change_message.startswith(f"Moved {len(seen)} message")


def test_a_message_that_was_delivered_again_since_is_left_alone(browser: Browser, orders: ReliableQueue):
    seen = receipts(orders, "delivered")
    orders.recover(1, 0)

    answer = browser.post(SETTLE, {"action": "bury", "receipt": seen}, follow=True)

    assert told(answer) == ["Move to dead letters · orders: 1 of 2 done; the other messages have changed meanwhile."]
    assert numbers(orders) == (2, 1, 1, 2)


@pytest.mark.parametrize("action", ["redrive", "discard", "move_dead"])
def test_a_message_that_has_died_again_since_is_left_alone(browser: Browser, orders: ReliableQueue, action: str):
    ReliableQueue("returns", orders.client).push("first")
    (dead,) = next(section.rows for section in browser.get(PAGE).context["sections"] if section.kind == "dead")
    orders.redrive(dead.id)
    orders.bury(*orders.pop_messages(10))

    answer = browser.post(
        SETTLE, {"action": action, "receipt": dead.receipt, "post": "yes", "target": "returns"}, follow=True
    )

    assert "0 of 1 done; the other messages have changed meanwhile." in told(answer)[0]


def test_nothing_chosen_or_nonsense_changes_nothing(browser: Browser, orders: ReliableQueue):
    assert told(browser.post(SETTLE, {"action": "ack", "post": "yes"}, follow=True)) == ["No message was selected."]
    browser.post(SETTLE, {"action": "ack", "post": "yes", "receipt": ["x", "1-1", "1-1:x", "<script>", "\x00"]})
    assert browser.post(SETTLE, {"action": "drop", "receipt": "1-1"}).status_code == 403
    assert browser.get(SETTLE).status_code == 405

    assert numbers(orders) == (2, 1, 2, 1)
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    ("action", "codename"),
    [
        ("ack", "settle_reliablequeue"),
        ("move_dead", "move_reliablequeue"),
        ("redrive", "redrive_reliablequeue"),
        ("discard", "discard_reliablequeue"),
    ],
)
def test_each_action_has_its_permission(
    browser_of: Callable[..., Browser], orders: ReliableQueue, action: str, codename: str
):
    codenames = {f"{word}_reliablequeue" for word in ("settle", "move", "redrive", "discard")}
    without = browser_of("view_reliablequeue", *sorted(codenames - {codename}))

    assert without.post(SETTLE, {"action": action, "receipt": "1-1", "post": "yes"}).status_code == 403
    assert f'value="{action}"' not in without.get(PAGE).content.decode()
    assert f'value="{action}"' in browser_of("view_reliablequeue", codename).get(PAGE).content.decode()


def test_bodies_are_shown_only_to_users_who_may_see_them(browser_of: Callable[..., Browser], orders: ReliableQueue):
    page = browser_of("view_reliablequeue").get(PAGE)

    assert b"order 4" not in page.content and "You may not see bodies" in text_of(page)


def test_the_page_reads_no_more_of_bodies_than_it_shows(
    browser: Browser, browser_of: Callable[..., Browser], orders: ReliableQueue, server: PrivateServer
):
    orders.push(*(b"begin" + b"x" * 500_000 for _ in range(18)))
    viewer = browser_of("view_reliablequeue")

    page, read_bytes = bytes_read_by(server, lambda: browser.get(PAGE))
    quiet_page, quietly_read_bytes = bytes_read_by(server, lambda: viewer.get(PAGE))

    assert [row.cell.size for row in page.context["sections"][2].rows][2:] == ["488 KiB"] * 18
    assert page.content.count(b"beginxxx") == 36, "on the line and in the opened body"
    assert read_bytes < 1_000_000
    assert [row.cell.size for row in quiet_page.context["sections"][2].rows][2:] == ["488 KiB"] * 18
    assert quietly_read_bytes < 20_000


def test_a_body_too_large_for_the_page_is_left_on_the_server(
    browser: Browser, orders: ReliableQueue, server: PrivateServer
):
    orders.push(b"x" * 4_000_000)

    page, read_bytes = bytes_read_by(server, lambda: browser.get(PAGE))

    assert "3.8 MiB Too large for this page." in text_of(page)
    assert read_bytes < 20_000


def test_long_lists_are_paged(browser: Browser, orders: ReliableQueue):
    orders.push(*[b"x"] * 50)

    page = browser.get(PAGE, {"undelivered": "40"})
    section = page.context["sections"][2]

    assert (len(section.rows), section.older, section.newer) == (12, 20, None)
    assert browser.get(PAGE, {"undelivered": "-1", "dead": "9" * 99}).status_code == 200


def test_hostile_bodies_stay_text(browser: Browser, orders: ReliableQueue):
    orders.push("<script>alert(1)</script>", b"\xff\x00\x1b", "{{7*7}}\u202e")

    content = browser.get(PAGE).content.decode()

    assert "<script>alert" not in content and "\u202e" not in content and "\x00" not in content


def test_reading_changes_nothing(browser: Browser, orders: ReliableQueue, server: PrivateServer):
    before = {key: server.redis.dump(key) for key in server.redis.keys()}

    for url in (QUEUES, PAGE, f"{QUEUES}orders/history/"):
        assert browser.get(url).status_code == 200

    assert {key: server.redis.dump(key) for key in server.redis.keys()} == before
    assert browser.get(f"{QUEUES}nothing/change/").status_code == 302
