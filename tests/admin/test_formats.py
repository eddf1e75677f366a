"""The form of numbers and times on pages: separators, seconds, zone and age."""

import datetime as dt
import re
from typing import Any

import pytest
from django.contrib import admin
from django.db import models
from django.template import Context, Template
from django.test import Client as Browser
from django.utils import timezone, translation

from rsmq_django import schedules
from rsmq_django.admin import formats
from rsmq_django.core import Queue
from rsmq_django.core.topic import Topic
from rsmq_django.live.times import as_datetime
from tests.admin.conftest import MESSAGES, QUEUES
from tests.admin.pages import text_of
from tests.redis_server import PrivateServer
from tests.worker.site.tasks import write

OURS = ("rsmq", "rsmq_pipeline")
#: As Django writes a time without seconds or zone: "Nov. 22, 2026, 8:51 p.m.".
DJANGOS_TIME = re.compile(r"\d{4}, (noon|midnight|\d+(:\d+)? [ap]\.m\.)")
MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z+][A-Z0-9+]{1,4} (in )?[\d.]+ (s|min|h|d)( ago)?")
TITLES = re.compile(r"<summary>\s*(.*?)\s*</summary>")


def test_a_time_has_seconds_a_zone_and_its_distance(settings: Any):
    settings.TIME_ZONE = "Europe/Berlin"
    when = dt.datetime(2026, 11, 22, 20, 51, 8, tzinfo=dt.UTC)
    now_ms = 1000 * (when.timestamp() + 180)

    shown = formats.as_moment(when, now_ms)

    assert formats.as_time(when) == "2026-11-22 21:51:08 CET"
    assert re.sub("<[^>]*>", "", shown) == "2026-11-22 21:51:08 CET 3 min ago"
    assert f'data-rsmq-at="{round(1000 * when.timestamp())}"' in shown
    assert formats.as_moment(None) == formats.as_time(None) == "-"


def test_a_naive_time_is_one_of_the_zone_of_the_project(settings: Any):
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"

    assert formats.as_time(dt.datetime.fromisoformat("2026-07-01 12:00:05")) == "2026-07-01 12:00:05 CEST"


@pytest.mark.parametrize(("language", "shown"), [("en", "1,234,567"), ("de", "1.234.567")])
def test_a_number_has_the_separators_of_the_language(language: str, shown: str):
    with translation.override(language):
        assert formats.as_number(1_234_567) == shown
        assert formats.as_number(None) == "-"


def test_every_time_and_number_of_a_list_is_written_by_the_formats_module(rf: Any, admin_user: Any):
    request = rf.get("/")
    request.user = admin_user
    plain = []
    for model, model_admin in admin.site._registry.items():
        if model._meta.app_label in OURS:
            for column in model_admin.get_list_display(request):
                fields = {field.name: field for field in model._meta.get_fields()}
                field = None if not isinstance(column, str) or hasattr(model_admin, column) else fields.get(column)
                if isinstance(field, (models.DateTimeField, models.IntegerField, models.FloatField)):
                    plain.append((model.__name__, column))

    assert not plain


def test_pages_show_times_with_seconds_and_zone(browser: Browser, mail: Queue, server: PrivateServer):
    message = mail.send(b"{}")
    schedules.add("nightly", write, cron="0 4 * * *", args=["x"])
    record = {"status": "FAILED", "queue": "mail", "enqueued_ms": 1_790_000_000_000}
    server.redis.hset("rsmq::result:t7", mapping=record)
    pages = (
        f"{QUEUES}mail/change/",
        f"{MESSAGES}mail_2F{message}/change/",
        "/admin/rsmq/schedule/",
        "/admin/rsmq/schedule/nightly/change/",
        "/admin/rsmq/result/t7/change/",
    )
    for path in pages:
        text = text_of(browser.get(path))

        assert not DJANGOS_TIME.search(text), path
        if "result" not in path:
            assert MOMENT.search(text), path


def test_pages_show_numbers_with_separators(browser: Browser, mail: Queue):
    for _ in range(2):
        mail.send_many([b"x"] * 1000)

    assert "2,000" in text_of(browser.get(QUEUES))
    assert "2,000" in text_of(browser.get(f"{QUEUES}mail/change/"))


def test_filters_are_named_after_the_filtered_field(browser: Browser, mail: Queue):
    expected = {
        "queue": ["Problem", "In settings", "Paused"],
        "message": ["Queue", "State", "Task", "Error", "Tag", "Age"],
        "worker": ["State"],
        "schedule": ["Paused", "Declared in code"],
        "registeredtask": ["Registered"],
        "workflow": ["State", "Kind"],
    }
    for name, titles in expected.items():
        content = browser.get(f"/admin/rsmq/{name}/").content.decode()
        assert [title for title in TITLES.findall(content) if title in titles] == titles, name


def test_no_filter_of_any_list_begins_with_by(browser: Browser, mail: Queue):
    for model in admin.site._registry:
        if model._meta.app_label in OURS:
            content = browser.get(f"/admin/{model._meta.app_label}/{model._meta.model_name}/").content.decode()
            assert not re.search(r"<summary>\s*By ", content), model


def test_cells_of_a_table_name_their_columns_for_narrow_windows():
    page = Template(
        "{% load rsmq_admin %}{% stacked %}<table>"
        "<thead><tr><th>Task</th><th class='x'>Body &amp; \"size\"</th></tr></thead>"
        "<tbody>{% for word in words %}<tr><th scope='row'>{{ word }}</th><td><b>7</b></td></tr>{% endfor %}</tbody>"
        "</table>{% endstacked %}"
    )

    shown = page.render(Context({"words": ["<a>", "b"]}))

    assert shown.count('<th data-label="Task" scope=') == 2
    assert shown.count('<td data-label="Body &amp; &quot;size&quot;"><b>7</b>') == 2
    assert "&lt;a&gt;" in shown and shown.count("data-label") == 4


def test_without_time_zones_a_time_is_shown_in_the_zone_of_the_user(settings: Any):
    settings.USE_TZ, settings.TIME_ZONE = False, "UTC"

    with timezone.override("Asia/Tokyo"):
        assert formats.as_time(as_datetime(0)) == "1970-01-01 09:00:00 JST"


def test_numbers_that_programs_read_have_no_separators(
    browser: Browser, mail: Queue, server: PrivateServer, settings: Any
):
    settings.USE_THOUSAND_SEPARATOR = True
    message_id = mail.send(b"x")
    server.redis.hset("rsmq:mail:Q", f"{message_id}:rc", 1234)
    topic = Topic("orders", mail.client)
    for _ in range(2):
        topic.publish(*(["x"] * 1000))
    group = topic.group("billing")
    group.read(1)
    group.leave()
    seek = browser.post("/admin/rsmq/topic/orders/groups/billing/seek/", {"to": "index", "value": "1500"})
    pages = [
        seek,
        browser.get("/admin/rsmq/topic/orders/change/", {"from": 1500}),
        browser.get(f"{MESSAGES}mail_2F{message_id}/change/"),
    ]

    for page in pages:
        content = page.content.decode()
        assert page.status_code == 200
        assert not re.findall(r'(?:value|href|data-[a-z-]+)="[^"]*\d,\d{3}[^"]*"', content)
    assert 'name="after" value="1500"' in seek.content.decode()
    assert "?from=1" in pages[1].content.decode() and f'value="1234 mail/{message_id}"' in pages[2].content.decode()
