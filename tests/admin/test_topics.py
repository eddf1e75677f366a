"""The pages of topics: the log, the groups, and moving a group."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client as Browser

from rsmq_django.core import Client
from rsmq_django.core.topic import NewMessage, Topic
from rsmq_django.core.topic.lag import note_lag_call
from rsmq_django.queues import get_client
from tests.admin.pages import bytes_read_by, rows_of, text_of, told
from tests.redis_server import PrivateServer

TOPICS = "/admin/rsmq/topic/"
PAGE = f"{TOPICS}orders/change/"
SEEK = f"{TOPICS}orders/groups/billing/seek/"


@pytest.fixture
def orders(server: PrivateServer) -> Topic:
    """A topic with 50 messages, of which the group "billing" has read 30."""
    topic = Topic("orders", get_client("default"))
    topic.publish(*(f'{{"order": {number}, "password": "hunter2"}}' for number in range(1, 51)))
    group = topic.group("billing")
    group.read(30)
    group.leave()
    return topic


def test_the_list_shows_topics_with_their_numbers(browser: Browser, orders: Topic):
    Topic("users", orders.client).publish("x")

    assert [(row.name, row.messages, row.groups) for row in rows_of(browser.get(TOPICS))] == [
        ("orders", 50, 1), ("users", 1, 0),
    ]  # fmt: skip
    assert [row.name for row in rows_of(browser.get(TOPICS, {"o": "-0"}))] == ["users", "orders"]
    assert [row.name for row in rows_of(browser.get(TOPICS, {"q": "use"}))] == ["users"]


def test_the_page_shows_groups_with_their_lag(browser: Browser, orders: Topic):
    page = browser.get(PAGE)

    [group] = page.context["groups"]
    assert (group.status.name, group.status.lag, group.status.position) == ("billing", 20, 30)
    assert (group.share_read, group.is_left_alone) == (60, True)
    assert "last seen" in text_of(page)
    assert "index 1 to 50" in text_of(page)


def test_the_list_shows_the_group_with_the_largest_lag_and_groups_without_readers(browser: Browser, orders: Topic):
    orders.group("shipping").read(45)
    Topic("users", orders.client).publish("x")

    orders_row, users_row = rows_of(browser.get(TOPICS))

    assert (orders_row.furthest_behind.name, orders_row.furthest_behind.lag) == ("billing", 20)
    assert users_row.furthest_behind is None
    assert '<span class="rsmq-bad">20 (billing)</span>' in browser.get(TOPICS).content.decode()


@pytest.mark.usefixtures("mid_minute")
def test_each_group_has_a_chart_of_its_lag(browser: Browser, orders: Topic):
    orders.group("shipping").read(45)
    orders.client.run(note_lag_call(orders, {"billing": 31}, at_s=time.time()))

    billing, shipping = browser.get(PAGE).context["charts"]

    assert (billing.title, billing.series[0].last, billing.rows[0][1]) == ("Lag of billing", 31, ["31"])
    assert shipping.is_empty and "No data. Lag is recorded" in text_of(browser.get(PAGE))
    for span in ("24h", "7d"):
        page = browser.get(PAGE, {"span": span, "from": "5"})
        assert page.context["charts"][0].series[0].last == 31
        assert f"?from=25&amp;span={span}#rsmq-log" in page.content.decode()


@pytest.mark.parametrize(
    ("asked", "indexes"),
    [
        ({}, range(31, 51)),
        ({"from": "5"}, range(5, 25)),
        ({"from": "0"}, range(1, 21)),
        ({"from": "999"}, range(50, 51)),
        ({"at": "2001-01-01 00:00"}, range(1, 21)),
        ({"at": "2999-01-01 00:00"}, range(0)),
        ({"from": "<x>"}, range(31, 51)),
        ({"at": "yesterday\x00"}, range(31, 51)),
    ],
)
def test_the_log_is_read_by_index_or_time(browser: Browser, orders: Topic, asked: dict[str, str], indexes: range):
    page = browser.get(PAGE, asked)

    assert [line.index for line in page.context["log"].lines] == list(indexes)
    assert b"hunter2" not in page.content
    wrong = asked.get("from") == "<x>" or "yesterday" in asked.get("at", "")
    assert ("neither an index nor a time" in text_of(page)) == wrong


def test_bodies_are_shown_only_to_users_who_may_see_them(browser_of: Callable[..., Browser], orders: Topic):
    page = browser_of("view_topic").get(PAGE)

    assert page.status_code == 200 and "You may not see bodies" in text_of(page)
    assert b"order&quot;" not in page.content and "Set…" not in text_of(page)


def test_a_binary_body_has_its_whole_size(browser: Browser, orders: Topic):
    orders.publish(b"\xff" * 5000)

    assert "5000 bytes of binary data" in text_of(browser.get(PAGE))


def test_keys_are_shown_only_to_users_who_may_see_bodies(
    browser: Browser, browser_of: Callable[..., Browser], orders: Topic
):
    orders.publish(NewMessage("x", key="alice@example.com"))

    assert b"alice@example.com" in browser.get(PAGE).content
    assert b"alice@example.com" not in browser_of("view_topic").get(PAGE).content


def test_the_page_reads_no_more_of_bodies_than_it_shows(
    browser: Browser, browser_of: Callable[..., Browser], orders: Topic, server: PrivateServer
):
    orders.publish(*(b"begin" + b"x" * 500_000 for _ in range(20)))
    viewer = browser_of("view_topic")

    page, read_bytes = bytes_read_by(server, lambda: browser.get(PAGE))
    quiet_page, quietly_read_bytes = bytes_read_by(server, lambda: viewer.get(PAGE))

    assert {line.cell.size for line in page.context["log"].lines} == {"488 KiB"}
    assert page.content.count(b"beginxxx") == 40, "on the line and in the opened body"
    assert read_bytes < 1_000_000
    assert {line.cell.size for line in quiet_page.context["log"].lines} == {"488 KiB"}
    assert quietly_read_bytes < 20_000


def plan(browser: Browser, **target: str) -> dict[str, Any]:
    """Return what the page that asks once more sends when somebody says yes."""
    shown = browser.post(SEEK, target).context["plan"]
    return {"confirmed": "yes", "before": shown.before, "after": shown.after}


@pytest.mark.parametrize(
    ("to", "value", "after", "effect"),
    [
        ("earliest", "", 1, "30 messages will be delivered again."),
        ("latest", "", 51, "20 messages will be skipped."),
        ("index", "10", 10, "21 messages will be delivered again."),
        ("shift", "-5", 26, "5 messages will be delivered again."),
        ("ago", "3600", 1, "30 messages will be delivered again."),
        ("time", "2001-01-01 00:00", 1, "30 messages will be delivered again."),
    ],
)
def test_a_group_is_moved_after_a_preview(
    browser: Browser, orders: Topic, to: str, value: str, after: int, effect: str
):
    asked = browser.post(SEEK, {"to": to, "value": value})
    assert effect in text_of(asked)
    assert orders.group("billing").status().position == 30, "only looked"

    done = browser.post(SEEK, plan(browser, to=to, value=value), follow=True)

    assert told(done) == [f"Group billing continues at index {after}."]
    assert orders.group("billing").status().position == after - 1
    assert LogEntry.objects.get().change_message == f"Moved group billing from 31 to {after}"


@pytest.mark.parametrize(("to", "value"), [("index", "x"), ("index", ""), ("time", "1"), ("ago", "nan"), ("evil", "")])
def test_an_invalid_target_is_refused(browser: Browser, orders: Topic, to: str, value: str):
    assert "plan" not in browser.post(SEEK, {"to": to, "value": value}).context


def test_a_group_that_moved_on_since_is_left_alone(browser: Browser, orders: Topic):
    confirmed = plan(browser, to="earliest", value="")
    orders.group("billing").read(1)
    orders.group("billing").leave()

    answer = browser.post(SEEK, confirmed)

    assert "position of the group has changed" in text_of(answer)
    assert orders.group("billing").status().position == 31
    assert not LogEntry.objects.exists()


def test_a_group_with_active_consumers_is_moved_only_with_force(browser: Browser, orders: Topic):
    orders.group("billing").read(1)
    confirmed = plan(browser, to="earliest", value="")

    assert "The group has active consumers" in text_of(browser.post(SEEK, confirmed))
    assert orders.group("billing").status().position == 31

    browser.post(SEEK, {**confirmed, "force": "on"})
    assert orders.group("billing").status().position == 0


def test_setting_has_its_permission(browser_of: Callable[..., Browser], orders: Topic):
    looker = browser_of("view_topic")

    assert looker.get(SEEK).status_code == 403
    assert looker.post(SEEK, {"confirmed": "yes", "before": 31, "after": 1}).status_code == 403
    assert browser_of("view_topic", "seek_topic").get(SEEK).status_code == 200
    assert browser_of("seek_topic").get(SEEK).status_code == 403
    assert orders.group("billing").status().position == 30


@pytest.mark.parametrize("path", ["nothing/change/", "orders/groups/nobody/seek/", "a:b/change/", "x_2Fy/change/"])
def test_missing_object_is_not_found(browser: Browser, orders: Topic, path: str):
    assert browser.get(TOPICS + path).status_code in (302, 404)


def test_reading_changes_nothing(browser: Browser, orders: Topic, server: PrivateServer):
    before = {key: server.redis.dump(key) for key in server.redis.keys()}

    for url in (TOPICS, PAGE, PAGE + "?at=2020-01-01", SEEK, f"{TOPICS}orders/history/"):
        assert browser.get(url).status_code == 200, url
    browser.post(SEEK, {"to": "latest"})

    assert {key: server.redis.dump(key) for key in server.redis.keys()} == before


def test_broken_and_hostile_ones_are_shown(browser: Browser, orders: Topic, server: PrivateServer):
    server.redis.set("broken:nextIndex", "seven")
    server.redis.sadd("rsmqt::topics", "broken", "no:topic", "<script>x", b"\xff")
    orders.publish("<script>alert(1)</script>", b"\xff\x00", key="\u202ekey", headers={"h": "<script>"})

    page = browser.get(TOPICS)

    assert "broken" in [row.name for row in rows_of(page) if row.is_broken]
    assert "entry is not a valid name" in text_of(page) or "entries are not valid names" in text_of(page)
    assert "cannot be read" in text_of(browser.get(f"{TOPICS}broken/change/"))
    content = browser.get(PAGE).content.decode()
    assert "<script>alert" not in content and "\u202e" not in content


def test_a_list_of_an_unreachable_server_reports_the_outage(browser: Browser, settings: Any):
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": "redis://127.0.0.1:1/0", "TIMEOUT_S": 0.5}}}

    assert browser.get(TOPICS).status_code == 503
    assert browser.get(PAGE).status_code == 503


def test_the_client_is_that_of_the_connection(client: Client, orders: Topic):
    assert Topic("orders", client).status().length == 50
