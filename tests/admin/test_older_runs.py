"""The list of attempts beyond the event log: they are read from a real lake."""

import datetime as dt
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.test import Client as Browser
from django.utils import timezone

from rsmq_django.core import Queue
from rsmq_django.pipeline.models import Anomaly, TaskHour
from rsmq_django.spark import files
from rsmq_django.spark.events import SCHEMA
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.schemas import EVENTS
from tests.admin.pages import rows_of, text_of
from tests.admin.test_history import TASKS, history  # noqa: F401
from tests.admin.test_runs import BEGIN_MS, RUNS, at, ids, write
from tests.redis_server import PrivateServer

DAY_S = 86_400
NOTE = "Older runs are from the lake, which has neither tags nor arguments."


def event(number: int, *, seconds: int, **values: Any) -> dict[str, Any]:
    """Return a row of the lake: an attempt, `seconds` after the first one of the log."""
    ms = BEGIN_MS + 1000 * seconds
    row = {
        "shard": "rsmq::events",
        "entry_id": f"{ms}-{number}",
        "event_at": dt.datetime.fromtimestamp(ms / 1000, dt.UTC),
    }
    row |= {"event": "succeeded", "queue": "mail", "task": "shop.send", "task_id": f"a{number}", "attempt": 1}
    row |= {"message_id": f"m{number}", "wait_us": 1500, "run_us": 2_500_000, "worker": "web1-7", "body_bytes": 47}
    return row | values


@pytest.fixture
def lake(settings: Any, tmp_path: Path) -> Lake:
    settings.RSMQ = {**settings.RSMQ, "PIPELINE": {"LAKE": str(tmp_path / "lake")}}
    return Lake.at(tmp_path / "lake")


def archive(lake: Lake, *rows: dict[str, Any]) -> None:
    empty = dict.fromkeys(column.name for column in SCHEMA)
    for day in {row["event_at"].date() for row in rows}:
        lake.append(EVENTS, day, [empty | row for row in rows if row["event_at"].date() == day])


@pytest.fixture
def ran(mail: Queue, server: PrivateServer, lake: Lake) -> None:
    """Three runs in the log, which the lake has, too, and thirty older ones of two days in the lake only."""
    for number in range(3):
        write(server, number)
    archive(lake, *(event(number, seconds=-60 * number) for number in range(1, 16)))
    archive(lake, *(event(number, seconds=-DAY_S - 60 * number, task="shop.pay") for number in range(16, 31)))
    archive(
        lake,
        *(event(number, seconds=0, entry_id=f"{BEGIN_MS + number}-0", task_id=f"t{number}") for number in range(3)),
    )


def test_range_that_begins_before_the_log_is_continued_in_the_lake(browser: Browser, ran: None):
    first = browser.get(RUNS, {"since": at(-2 * DAY_S)})
    second = browser.get(RUNS + first.context["cl"].older_url)

    assert ids(first) == ["t2", "t1", "t0", *(f"a{number}" for number in range(1, 18))]
    assert ids(second) == [f"a{number}" for number in range(18, 31)]
    assert second.context["cl"].older_url == ""
    for page in (first, second):
        text = text_of(page)
        assert NOTE in text and "The event log begins at" in text
        assert "Auto-refresh" not in text, "an open page does not read the lake again"


def test_hour_before_the_log_is_read_from_the_lake(browser: Browser, ran: None):
    page = browser.get(RUNS, {"since": at(-600), "until": at(-300)})

    assert ids(page) == ["a6", "a7", "a8", "a9", "a10"]
    assert NOTE in text_of(page)


def test_range_within_the_log_reads_no_lake(browser: Browser, ran: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rsmq_django.spark.attempts.find_attempts", None)

    assert ids(browser.get(RUNS)) == ["t2", "t1", "t0"]
    assert ids(browser.get(RUNS, {"since": at(0)})) == ["t2", "t1", "t0"]


def test_older_runs_of_the_whole_list_are_in_the_lake(browser: Browser, ran: None):
    first = browser.get(RUNS)
    second = browser.get(RUNS + first.context["cl"].older_url)

    assert ids(first) == ["t2", "t1", "t0"]
    assert ids(second) == [f"a{number}" for number in range(1, 21)]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"task": "shop.pay"}, ["a90", "a91"]),
        ({"queue": "zoo"}, ["a92", "a93"]),
        ({"queue": "zoo-p5"}, ["a93"]),
        ({"outcome": "failed"}, ["a91", "a92"]),
        ({"worker": "web2"}, ["a94"]),
        ({"q": "NO card"}, ["a91", "a95"]),
        ({"q": "card 47"}, ["a95"]),
        ({"q": "card 4"}, []),
        ({"group": "f" * 32}, ["a91"]),
        ({"tag": "tour"}, []),
        ({"connection": "default", "task": "shop.pay"}, ["a90", "a91"]),
    ],
)
def test_filters_are_those_of_the_log(
    browser: Browser, mail: Queue, lake: Lake, asked: dict[str, str], expected: list[str]
):
    failed = {"error_type": "builtins.ValueError", "error": "no card", "fingerprint": "f" * 32}
    archive(
        lake,
        event(90, seconds=-90, task="shop.pay"),
        event(91, seconds=-91, task="shop.pay", event="dead", **failed),
        event(92, seconds=-92, queue="zoo", event="retried"),
        event(93, seconds=-93, queue="zoo-p5"),
        event(94, seconds=-94, worker="web2"),
        event(95, seconds=-95, error_type="builtins.KeyError", error="no card 47", fingerprint="e" * 32),
        event(96, seconds=-96, queue="zoology"),
        event(97, seconds=-97, shard="other#rsmq::events", task="shop.pay"),
    )

    assert ids(browser.get(RUNS, {"since": at(-DAY_S), **asked})) == expected


def test_pages_of_attempts_of_the_same_moment_are_complete(browser: Browser, mail: Queue, lake: Lake):
    archive(lake, *(event(number, seconds=-60) for number in range(100, 150)))
    archive(lake, *(event(number, seconds=-60) for number in range(150, 170)))
    url, found = f"?since={at(-DAY_S)}", list[str]()

    while url:
        page = browser.get(RUNS + url)
        found += ids(page)
        url = page.context["cl"].older_url

    assert found == [f"a{number}" for number in reversed(range(100, 170))]


@pytest.mark.parametrize("most_rows", [1, 3000])
def test_search_of_the_lake_is_bounded_and_continues(
    browser: Browser, ran: None, monkeypatch: pytest.MonkeyPatch, most_rows: int
):
    monkeypatch.setattr("rsmq_django.live.older_runs.MOST_ROWS", most_rows)
    url, found, pages = f"?since={at(-3 * DAY_S)}&q=a30", list[str](), 0

    while url:
        page = browser.get(RUNS + url)
        found, url, pages = found + ids(page), page.context["cl"].older_url, pages + 1

    assert found == ["a30"] and pages > 1


def test_run_of_the_lake_has_a_page(browser: Browser, browser_of: Callable[..., Browser], mail: Queue, lake: Lake):
    archive(
        lake, event(7, seconds=-60, event="dead", error_type="builtins.ValueError", error="order 7 password=hunter2")
    )
    (row,) = rows_of(browser.get(RUNS, {"since": at(-600)}))
    url = f"{RUNS}{quote(row.pk)}/change/"

    text = text_of(browser.get(url))
    looker = browser_of("view_run")

    assert "order 7" in text and "Dead letter" in text and "hunter2" not in text
    assert "order 7" not in text_of(looker.get(url)), "users who may not see bodies"
    listed = looker.get(RUNS, {"since": at(-600), "q": "order"})
    assert listed.status_code == 200 and ids(listed) == [], "nor search in errors"
    assert browser_of().get(RUNS, {"since": at(-600)}).status_code == 403


def test_page_without_a_lake_says_so(browser: Browser, mail: Queue, server: PrivateServer, lake: Lake):
    empty = text_of(browser.get(RUNS, {"since": at(-DAY_S)}))
    write(server, 1)

    assert "The event log is empty. There is no lake with older runs." in empty
    assert "begins at" in (text := text_of(browser.get(RUNS, {"since": at(-DAY_S)})))
    assert "There is no lake with older runs." in text
    assert "lake" not in text_of(browser.get(RUNS)).partition("Search ids")[2], "where nothing older was asked for"


def test_site_without_the_extra_says_what_it_needs(browser: Browser, ran: None, monkeypatch: pytest.MonkeyPatch):
    for name in ("deltalake", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)  # an import raises ModuleNotFoundError

    page = browser.get(RUNS, {"since": at(-DAY_S)})

    assert ids(page) == ["t2", "t1", "t0"]
    assert "this site needs rsmq-django[spark]" in text_of(page)


def test_damaged_lake_is_reported(browser: Browser, ran: None, lake: Lake, caplog: pytest.LogCaptureFixture):
    for path in lake.root.glob("events/dt=*/*.parquet"):
        path.write_bytes(b"no parquet")

    page = browser.get(RUNS, {"since": at(-DAY_S)})

    assert ids(page) == ["t2", "t1", "t0"]
    assert "The lake with older runs cannot be read" in text_of(page)
    assert "could not be read" in caplog.text and str(lake.root) not in text_of(page)


def test_page_does_not_wait_minutes_for_an_object_store_that_is_silent(
    browser: Browser, mail: Queue, server: PrivateServer, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    write(server, 0)
    monkeypatch.setitem(files.SOON, "timeout", "300ms")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            monkeypatch.setenv(name, "x")
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        settings.RSMQ = {**settings.RSMQ, "PIPELINE": {"LAKE": "s3://bucket/lake"}}

        page = browser.get(RUNS, {"since": at(-2 * DAY_S)})

        silent.settimeout(0.1)
        requests = 0
        with suppress(TimeoutError):
            while True:
                silent.accept()[0].close()
                requests += 1

    assert ids(page) == ["t0"] and "The lake with older runs cannot be read" in text_of(page)
    assert requests == 2, "one, and one more"


# -- Links of the history ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("mid_minute", "history")
def test_hours_of_charts_and_anomalies_lead_to_their_runs(browser: Browser, settings: Any):
    settings.TIME_ZONE = "Asia/Kolkata"
    hour = timezone.localtime(Anomaly.objects.get().hour)
    about = {"queue": ["mail"], "task": ["shop.pay"], "connection": ["default"]}
    about |= {"since": [hour.isoformat()], "until": [(hour + dt.timedelta(hours=1)).isoformat()]}

    page = browser.get(TASKS, {"span": "2d", "queue": "mail", "task": "shop.pay"})

    chart = page.context["charts"][0]
    assert len(chart.urls) == len(chart.times) == 48
    (_odd, url, *_shown) = page.context["anomalies"][0]
    for each in (url, chart.urls[-1]):
        assert (urlsplit(each).path, parse_qs(urlsplit(each).query)) == (RUNS, about)
    shown = browser.get(url).content.decode()
    assert f'value="{hour:%Y-%m-%dT%H:%M:%S}"' in shown and 'value="shop.pay"' in shown


@pytest.mark.usefixtures("mid_minute", "history")
def test_days_of_charts_lead_to_their_hours(browser: Browser):
    page = browser.get(TASKS, {"span": "2w", "task": "shop.pay"})

    hours = browser.get(TASKS + page.context["charts"][0].urls[-1])

    chart = hours.context["charts"][0]
    assert chart.title == "Attempts per hour" and sum(sum(series.values) for series in chart.series) == 100
    assert hours.context["task"] == "shop.pay"
    assert browser.get(TASKS, {"span": "52w"}).context["charts"][0].urls == [], "there are no hours of a year"


@pytest.mark.usefixtures("mid_minute", "history")
def test_links_are_for_users_who_may_see_runs(browser_of: Callable[..., Browser]):
    looker = browser_of("view_topic")
    User.objects.get(username="view_topic").user_permissions.add(Permission.objects.get(codename="view_taskhour"))

    page = looker.get(TASKS, {"span": "2d"})

    assert page.status_code == 200 and RUNS not in page.content.decode().replace("/admin/rsmq/", "", 1)


@pytest.mark.usefixtures("mid_minute", "history")
def test_hours_of_all_queues_lead_to_the_connection_of_their_busiest_queue(browser: Browser, settings: Any):
    media = {**settings.RSMQ["CONNECTIONS"]["default"], "NAMESPACE": "media"}
    connections = {**settings.RSMQ["CONNECTIONS"], "media": media}
    settings.RSMQ = {
        **settings.RSMQ,
        "CONNECTIONS": connections,
        "QUEUES": {"mail": {}, "films": {"CONNECTION": "media"}},
    }
    row = TaskHour.objects.filter(task="shop.pay").latest("hour")
    row.pk, row.queue, row.attempts = None, "films", 1000
    row.save()

    for asked in ({}, {"task": "shop.pay"}):
        urls = browser.get(TASKS, {"span": "2d", **asked}).context["charts"][0].urls
        found = [parse_qs(urlsplit(each).query).get("connection") for each in urls[-3:]]
        assert found == [["default"], ["default"], ["media"]], asked
