"""The pages of the pipeline's history: weeks of tasks, failures to be redriven, objectives, runs."""

import csv
import datetime as dt
import html
import io
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.templatetags.admin_list import date_hierarchy
from django.contrib.auth.models import Permission, User
from django.test import Client as Browser
from django.utils import timezone

from rsmq_django.core import Queue
from rsmq_django.core.stats.fingerprint import fingerprint
from rsmq_django.pipeline.models import (
    Anomaly,
    CapacityAdvice,
    FailureGroup,
    LakeDay,
    LakeState,
    PipelineRun,
    QueueDepth,
    SloAlarm,
    SloBurn,
    TaskDay,
    TaskHour,
)
from rsmq_django.pipeline.task_table import MOST_DAYS
from rsmq_django.spark.lake import Lake
from tests.admin.pages import rows_of, text_of, told
from tests.pipeline.conftest import add_up_days, write_events

pytestmark = pytest.mark.usefixtures("mid_minute")

ROOT = "/admin/rsmq_pipeline/"
TASKS, FAILURES, OBJECTIVES = f"{ROOT}taskhour/", f"{ROOT}failuregroup/", f"{ROOT}sloburn/"
LAKE, DEPTHS = f"{ROOT}lakeday/", f"{ROOT}queuedepth/"
NAMES = ("taskhour", "failuregroup", "sloburn", "capacityadvice", "anomaly", "queuedepth", "pipelinerun", "lakeday")
#: Whole hours, half hours, and half an hour of summer time.
ZONES = ("Asia/Tokyo", "Asia/Kolkata", "America/St_Johns", "Australia/Lord_Howe")
GROUP = fingerprint("shop.pay", "ValueError", "no row 7")


@pytest.fixture
def history(db: None) -> None:
    """A few days of two tasks, failures, an objective that burns, advice, and a run that failed."""
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    counts = {"first_attempts": 90, "released": 0, "cancelled": 0, "run_s_squared": 1.0, "body_bytes": 1, "workers": 1}
    for back in range(3):
        hour = now - dt.timedelta(days=back)
        for task, dead in (("shop.pay", 5), ("shop.ship", 0)):
            TaskHour.objects.create(
                day=hour.date(), hour=hour, queue="mail", task=task, attempts=100, succeeded=100 - dead, retried=0,
                dead=dead, lost=0, busy_us=10**6, wait_hist={"60": 100}, run_hist={"90": 100}, **counts,
            )  # fmt: skip
    add_up_days()
    FailureGroup.objects.create(
        day=now.date(), task="shop.pay", fingerprint=GROUP, error_type="ValueError", n=5, retried=0, dead=5,
        first_at=now, last_at=now, sample="no row 7, password=hunter2", queues=["mail"], workers=1,
    )  # fmt: skip
    SloBurn.objects.create(
        day=now.date(), at=now, queue="mail", objective="success", window="1h", total=100, bad=5, target=0.999,
        burn_rate=50, budget_left=-0.5,
    )  # fmt: skip
    CapacityAdvice.objects.create(
        day=now.date(), queue="mail", attempts=100, arrivals_per_s=1, mean_run_s=0.1, run_cv_squared=1, load=0.5,
        slots_seen=2, slots_needed=7, wait_target_s=1, quantile=0.95,
    )  # fmt: skip
    PipelineRun.objects.create(
        run_id="r1", step="archive", started_at=now, seconds=3, rows_in=1, rows_out=1, lost=4, exit_code=1,
        error="no connection to redis://:hunter2@db/0",
    )  # fmt: skip
    Anomaly.objects.create(
        day=now.date(), hour=now, queue="mail", task="shop.pay", metric="dead", value=5, median=0, mad=0, n=100
    )
    LakeState.objects.create(place="s3://bucket/lake", newest_event_at=now, published_at=now)
    for back in range(3):
        for table in ("events", "hourly"):
            day = now.date() - dt.timedelta(days=back)
            LakeDay.objects.create(table=table, day=day, rows=1000 + back, files=2, size_bytes=1_048_576)


def tasks_of(page: Any) -> list[str]:
    return [row[0][1] for row in page.context["totals"]]


def on_the_wall(time: dt.datetime) -> str:
    return f"{timezone.localtime(time):%Y-%m-%dT%H:%M}"


@pytest.mark.parametrize("span", ["2d", "2w", "12w", "52w", "<x>"])
def test_history_shows_every_task_of_a_span(browser: Browser, history: None, span: str):
    page = browser.get(TASKS, {"span": span})

    attempts = page.context["charts"][0]
    expected = 400 if span == "2d" else 600
    assert sum(sum(series.values) for series in attempts.series) == expected
    assert tasks_of(page) == ["shop.pay", "shop.ship"] and "Latency p95" in text_of(page)
    assert "4 events were lost" in text_of(page) and "The last run failed: archive" in text_of(page)


def test_history_can_be_that_of_one_task(browser: Browser, history: None):
    page = browser.get(TASKS, {"queue": "mail", "task": "shop.pay"})

    assert sum(page.context["charts"][0].series[2].values) == 15, "dead letters"
    assert tasks_of(page) == ["shop.pay"]
    assert [odd.task for odd, *_ in page.context["anomalies"]] == ["shop.pay"]
    assert browser.get(TASKS, {"queue": "mail", "task": "shop.ship"}).context["anomalies"] == []


def test_tasks_are_searched_and_sorted(browser: Browser, history: None):
    assert tasks_of(browser.get(TASKS, {"q": "MAIL ship"})) == ["shop.ship"]
    nothing = browser.get(TASKS, {"q": "zoo"})
    assert tasks_of(nothing) == [] and "No tasks found." in text_of(nothing)
    assert tasks_of(browser.get(TASKS, {"o": "-task"})) == ["shop.ship", "shop.pay"]
    assert tasks_of(browser.get(TASKS, {"o": "failure_rate"})) == ["shop.ship", "shop.pay"]
    assert tasks_of(browser.get(TASKS, {"o": "nonsense"})) == ["shop.pay", "shop.ship"]
    page = browser.get(TASKS, {"o": "-attempts", "q": "shop"})
    assert '<a href="?o=attempts&amp;q=shop">Attempts</a>\N{NO-BREAK SPACE}▾' in page.content.decode()
    assert "5 %" in text_of(page), "the failure rate"


def test_history_can_have_a_range_of_its_own(browser: Browser, history: None):
    newest = TaskHour.objects.latest("hour").hour

    # Taken from the clock of UTC, as days of 24 hours: the clock on the wall may have been put back in between.
    hours = browser.get(TASKS, {"since": on_the_wall(newest - dt.timedelta(days=1)), "until": on_the_wall(newest)})
    days = browser.get(TASKS, {"since": on_the_wall(newest - dt.timedelta(days=30))})

    attempts = hours.context["charts"][0]
    assert (attempts.title, len(attempts.times), sum(attempts.series[0].values)) == ("Attempts per hour", 24, 195)
    attempts = days.context["charts"][0]
    assert (attempts.title, len(attempts.times), sum(attempts.series[0].values)) == ("Attempts per day", 31, 585)
    assert not any(is_chosen for _, _, is_chosen in days.context["spans"])


def test_short_range_of_a_time_whose_hours_are_gone_is_one_of_days(browser: Browser, history: None):
    old = timezone.now() - dt.timedelta(days=200)
    row: Any = TaskDay.objects.filter(days=1, task="shop.pay").values().last()
    TaskDay.objects.create(**row | {"id": None, "day": old.date()})

    page = browser.get(TASKS, {"since": f"{old:%Y-%m-%dT00:00}", "until": f"{old:%Y-%m-%dT23:00}"})

    assert (page.context["charts"][0].title, tasks_of(page)) == ("Attempts per day", ["shop.pay"])


@pytest.mark.parametrize("until", [None, "9999-12-31T23:59"])
def test_range_of_a_mistyped_year_is_cut(browser: Browser, history: None, until: str | None):
    asked = {"since": "0026-11-28T00:00"} | ({"until": until} if until else {})

    assert len(browser.get(TASKS, asked).context["charts"][0].times) == MOST_DAYS + 1


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, settings: Any) -> ZoneInfo:
    """The time zone of the project."""
    settings.TIME_ZONE = request.param
    return ZoneInfo(request.param)


@pytest.fixture(params=[True, False], ids=["USE_TZ", "not USE_TZ"])
def uses_tz(request: pytest.FixtureRequest, settings: Any) -> None:
    settings.USE_TZ = request.param


def test_ranges_are_of_the_zone_of_the_site(browser: Browser, history: None, zone: ZoneInfo, uses_tz: None):
    newest = TaskHour.objects.latest("hour").hour.astimezone(zone)

    page = browser.get(TASKS, {"since": f"{newest:%Y-%m-%dT%H:%M}"})
    with_offset = browser.get(TASKS, {"since": newest.isoformat()})

    for each in (page, with_offset):
        chart = each.context["charts"][0]
        assert (chart.times, sum(sum(series.values) for series in chart.series)) == ([f"{newest:%a %H:%M}"], 200)
        assert chart.axis == f"Time ({zone})" and chart.axis in text_of(each)
        assert f'value="{newest:%Y-%m-%dT%H:%M}' in each.content.decode()


def test_range_that_begins_within_an_hour_has_all_of_it(browser: Browser, history: None, zone: ZoneInfo):
    hour = TaskHour.objects.latest("hour").hour.astimezone(zone) - dt.timedelta(days=1)

    page = browser.get(TASKS, {"since": f"{hour + dt.timedelta(minutes=20):%Y-%m-%dT%H:%M}"})

    assert sum(sum(series.values) for series in page.context["charts"][0].series) == 400
    assert sum(row[0][2].attempts for row in page.context["totals"]) == 400


def test_days_are_those_of_utc_and_say_so(browser: Browser, history: None, zone: ZoneInfo, uses_tz: None):
    day = TaskHour.objects.latest("hour").day

    page = browser.get(TASKS, {"span": "12w"})

    chart = page.context["charts"][0]
    assert chart.times[-1] == f"{day.day} {day:%b}" and sum(series.values[-1] for series in chart.series) == 200
    assert chart.axis == "Day (UTC)" and chart.axis in text_of(page)
    assert "Days are days in UTC." in text_of(page)


@pytest.mark.parametrize(
    ("name", "day", "hours"),
    [
        ("Europe/Berlin", "2026-10-25", ["Sun 01:00", "Sun 02:00 CEST", "Sun 02:00 CET", "Sun 03:00"]),
        ("America/St_Johns", "2026-11-01", ["Sun 00:30", "Sun 01:30 NDT", "Sun 01:30 NST", "Sun 02:30"]),
        ("Australia/Lord_Howe", "2026-10-04", ["Sun 00:30", "Sun 01:30", "Sun 03:00", "Sun 04:00"]),
        ("Asia/Kolkata", "2026-11-01", ["Sun 00:30", "Sun 01:30", "Sun 02:30", "Sun 03:30"]),
    ],
)
def test_hours_of_a_day_on_which_clocks_change_are_told_apart(
    browser: Browser, history: None, settings: Any, name: str, day: str, hours: list[str], monkeypatch: Any
):
    monkeypatch.setattr("rsmq_django.pipeline.task_table.KEEP_HOURS_DAYS", 10**5)
    settings.TIME_ZONE = name
    until = dt.date.fromisoformat(day) + dt.timedelta(days=1)

    times = browser.get(TASKS, {"since": f"{day}T00:00", "until": f"{until}T00:00"}).context["charts"][0].times

    begin = times.index(hours[0])
    assert times[begin : begin + 4] == hours
    assert len(set(times)) == len(times), "no two hours have the same label"


def test_zone_of_a_user_is_that_of_the_pages(browser: Browser, history: None, settings: Any):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.admin.test_history.in_kathmandu"]
    hour = TaskHour.objects.latest("hour").hour.astimezone(ZoneInfo("Asia/Kathmandu"))

    for url in (TASKS, f"{ROOT}anomaly/"):
        text = text_of(browser.get(url)).replace("\N{ZERO WIDTH SPACE}", "")
        assert f"{hour:%Y-%m-%d %H:%M}" in text and "Asia/Kathmandu" in text, url


def in_kathmandu(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def middleware(request: Any) -> Any:
        with timezone.override("Asia/Kathmandu"):
            return get_response(request)

    return middleware


@pytest.mark.parametrize(
    ("since", "until", "told"),
    [(9, None, "This is in the future."), (-2, -3, "This is after the end."), (None, -3, "A range needs a beginning.")],
)
def test_wrong_ranges_are_told_and_the_period_is_shown(
    browser: Browser, history: None, since: int | None, until: int | None, told: str
):
    asked = {
        name: f"{timezone.now() + dt.timedelta(days=days):%Y-%m-%dT%H:%M}"
        for name, days in (("since", since), ("until", until))
        if days is not None
    }

    page = browser.get(TASKS, asked)

    assert told in text_of(page)
    assert len(page.context["charts"][0].times) == 14
    assert sum(is_chosen for _, _, is_chosen in page.context["spans"]) == 1


def test_tasks_are_downloaded_as_they_are_shown(browser: Browser, history: None):
    TaskDay.objects.filter(task="shop.pay").update(task="=cmd()")

    as_csv = browser.get(TASKS, {"q": "cmd", "format": "csv"})
    as_json = browser.get(TASKS, {"o": "task", "format": "json"}).json()

    header, row = csv.reader(as_csv.content.decode().splitlines())
    values = dict(zip(header, row, strict=True))
    assert (values["queue"], values["task"], values["attempts"], values["failure_rate"]) == (
        "mail",
        "'=cmd()",
        "300",
        "0.05",
    )
    assert float(values["run_p99_ms"]) > 0
    assert as_csv["Content-Disposition"] == 'attachment; filename="tasks.csv"'
    assert [task["task"] for task in as_json["tasks"]] == ["=cmd()", "shop.ship"]


@pytest.mark.parametrize("first", [*"=+-@\t\r\n", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}"])
def test_no_cell_of_a_downloaded_table_is_a_formula(browser: Browser, history: None, first: str):
    TaskDay.objects.filter(task="shop.pay").update(task=f"{first}1+1,shop.pay")

    as_csv = browser.get(TASKS, {"q": "pay", "format": "csv"}).content.decode()

    header, row = csv.reader(io.StringIO(as_csv, newline=""))
    assert dict(zip(header, row, strict=True))["task"] == f"'{first}1+1,shop.pay"


def test_page_of_many_tasks_needs_few_queries(browser: Browser, history: None, django_assert_max_num_queries: Any):
    row: Any = TaskDay.objects.filter(days=28, task="shop.pay").values().last()
    TaskDay.objects.bulk_create(TaskDay(**row | {"id": None, "task": f"shop.task_{number}"}) for number in range(250))

    with django_assert_max_num_queries(30):
        page = browser.get(TASKS, {"span": "52w"})

    assert len(tasks_of(page)) == 200 and "52 more tasks are in the downloads." in text_of(page)


# -- Failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("language", "number"), [("en", "12,345"), ("de", "12.345")])
def test_number_in_the_title_of_a_group_has_separators(
    browser: Browser, history: None, settings: Any, language: str, number: str
):
    settings.LANGUAGE_CODE = language
    FailureGroup.objects.filter(task="shop.pay").update(n=12345)

    page = browser.get(f"{FAILURES}{FailureGroup.objects.get(task='shop.pay').pk}/change/")

    assert f"shop.pay: ValueError ({number})" in page.content.decode().split("</title>")[0]


@pytest.fixture
def older_failures(history: None) -> None:
    """A group that began ten days ago, and one of another queue."""
    now = timezone.now()
    for back, number in ((10, 3), (0, 9)):
        at = now - dt.timedelta(days=back)
        FailureGroup.objects.create(
            day=at.date(), task="shop.ship", fingerprint="old", error_type="shop.errors.Timeout", n=number, retried=1,
            dead=0, first_at=at, last_at=at, queues=["mail"], workers=1,
        )  # fmt: skip
    FailureGroup.objects.create(
        day=now.date(), task="shop.bill", fingerprint="zoo", error_type="KeyError", n=1, retried=1,
        dead=0, first_at=now, last_at=now, queues=["zoo"], workers=1,
    )  # fmt: skip


def groups_of(page: Any) -> list[str]:
    return [one["group"].fingerprint for one in page.context["groups"]]


def test_failures_are_filtered(browser: Browser, older_failures: None):
    since = timezone.now() - dt.timedelta(hours=30)
    for asked, expected in (
        ({}, ["old", GROUP, "zoo"]),
        ({"queue": "zoo"}, ["zoo"]),
        ({"task": "shop.pay"}, [GROUP]),
        ({"kind": "timeout"}, ["old"]),
        ({"new": "24h"}, [GROUP, "zoo"]),
        ({"new_since": f"{since:%Y-%m-%dT%H:%M}"}, [GROUP, "zoo"]),
        ({"new_since": "nonsense", "kind": "key"}, ["zoo"]),
    ):
        assert groups_of(browser.get(FAILURES, asked)) == expected, asked


@pytest.mark.parametrize(("span", "days"), [("2d", 2), ("2w", 14), ("12w", 84)])
def test_failures_are_those_of_as_many_days_as_the_period_has(browser: Browser, db: None, span: str, days: int):
    now = timezone.now()
    for back in range(days + 2):
        at = now - dt.timedelta(days=back)
        FailureGroup.objects.create(
            day=at.date(), task=f"task{back}", fingerprint="same", error_type="KeyError", n=1, retried=1,
            dead=0, first_at=at, last_at=at, queues=["mail"], workers=1,
        )  # fmt: skip

    page = browser.get(FAILURES, {"span": span})

    assert [one["group"].n for one in page.context["groups"]] == [days]
    assert len(page.context["tasks"]) == days


def test_failures_have_a_trend_and_lead_to_the_dead_letters_of_their_queue(
    browser: Browser, older_failures: None, django_assert_max_num_queries: Any
):
    with django_assert_max_num_queries(15):
        page = browser.get(FAILURES)

    content = page.content.decode()
    assert content.count("rsmq-spark") == 3 and "9 failures on the last day" in content
    assert 'href="/admin/rsmq/queue/mail-dead/failures/"' in content
    assert [name for name, url in page.context["groups"][2]["queues"] if not url] == ["zoo"], "not in the settings"


def test_muted_failures_are_hidden_until_they_are_asked_for(browser: Browser, older_failures: None):
    done = browser.post(f"{FAILURES}?span=12w", {"fingerprint": GROUP, "mute": "yes"}, follow=True)
    assert done.redirect_chain == [(f"{FAILURES}?span=12w", 302)]
    assert told(done) == ["Muted shop.pay, ValueError."]
    assert groups_of(done) == ["old", "zoo"] and "1 muted failure is not shown." in text_of(done)
    assert LogEntry.objects.get().change_message == "Muted shop.pay, ValueError"
    assert groups_of(browser.get(FAILURES, {"muted": "on"})) == ["old", GROUP, "zoo"]

    user = User.objects.create_user("looker", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_failuregroup"))
    looker = Browser()
    looker.force_login(user)
    assert "Mute" not in text_of(looker.get(FAILURES, {"muted": "on"})).replace("Show muted", "")
    assert looker.post(FAILURES, {"fingerprint": GROUP, "mute": "no"}).status_code == 403
    browser.post(FAILURES, {"fingerprint": GROUP, "mute": "no"})
    assert groups_of(browser.get(FAILURES)) == ["old", GROUP, "zoo"]
    assert told(browser.post(FAILURES, {"fingerprint": "x", "mute": "yes"}, follow=True)) == [
        "This failure group no longer exists."
    ]


# -- All pages --------------------------------------------------------------------------------------------------------


def test_numbers_and_times_of_a_row_are_written_as_in_its_list(browser: Browser, history: None):
    PipelineRun.objects.update(rows_in=90_000)
    TaskHour.objects.update(attempts=90_000)

    for model in (PipelineRun, TaskHour):
        row: Any = model.objects.first()
        text = text_of(browser.get(f"{ROOT}{model._meta.model_name}/{row.pk}/change/"))
        assert "90,000" in text and "90000" not in text


def test_anomalies_are_filtered_by_the_names_that_the_list_shows(browser: Browser, history: None):
    Anomaly.objects.update(metric="wait_p95")

    page = browser.get(f"{ROOT}anomaly/")

    assert "wait_p95" not in text_of(page)
    assert '<option value="wait_p95">latency p95</option>' in page.content.decode()
    assert len(rows_of(browser.get(f"{ROOT}anomaly/?metric=wait_p95"))) == 1


@pytest.mark.parametrize(
    ("name", "asked", "left"),
    [
        ("anomaly", {"metric": "dead", "queue": "mail", "q": "pay"}, 1),
        ("anomaly", {"metric": "run_p95", "queue": "mail", "o": "-1"}, 0),
        ("anomaly", {"metric": "<odd>", "queue": "films"}, 1),
        ("pipelinerun", {"step": "archive", "exit_code": "1"}, 1),
        ("pipelinerun", {"step": "archive", "exit_code": "0"}, 0),
        ("pipelinerun", {"exit_code": "odd"}, 2),
        ("capacityadvice", {"queue": "mail"}, 1),
        ("capacityadvice", {"queue": "zoo", "day__year": "2026"}, 0),
    ],
)
def test_lists_are_filtered_by_a_form_above_them(
    browser: Browser, history: None, name: str, asked: dict[str, str], left: int
):
    row = Anomaly.objects.get()
    row.pk, row.metric, row.queue = None, "run_p95", "films"
    row.save()
    PipelineRun.objects.create(
        run_id="r2", step="rollup", started_at=row.hour, seconds=1, rows_in=1, rows_out=1, lost=0, exit_code=0
    )

    page = browser.get(f"{ROOT}{name}/", asked)

    assert len(rows_of(page)) == left
    content = page.content.decode()
    form = content.partition('<form method="get" class="rsmq-filters"')[2].partition("</form>")[0]
    assert form and 'id="changelist-filter"' not in content, "above the list, and not below it"
    for kept in {*asked} - {"metric", "queue", "step", "exit_code"}:
        assert f'name="{kept}" value="{asked[kept]}"' in form
    assert ("<odd>" in content) is False and ("Select a valid choice" in content) == ("odd" in str(asked))


def test_cells_of_the_anomalies_have_the_names_of_their_columns_for_narrow_windows(browser: Browser, history: None):
    page = " ".join(browser.get(f"{ROOT}anomaly/").content.decode().split())

    body = page.partition('id="result_list"')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    names = [html.unescape(name) for name in re.findall(r'data-label="(.*?)"', body)]
    assert names[1:] == ["Queue", "Metric", "Value", "Usual value", "Z-score", "Task"]
    assert names[0].startswith("Hour (America/")


def test_failures_are_filtered_by_times_of_the_site(browser: Browser, history: None, zone: ZoneInfo, uses_tz: None):
    first_at = FailureGroup.objects.get().first_at.astimezone(zone)

    for minutes, expected in ((-1, [GROUP]), (1, [])):
        since = first_at + dt.timedelta(minutes=minutes)
        page = browser.get(FAILURES, {"new": "24h", "new_since": f"{since:%Y-%m-%dT%H:%M}"})
        assert groups_of(page) == expected


def test_all_times_are_those_of_the_zone_of_the_site(browser: Browser, history: None, zone: ZoneInfo, uses_tz: None):
    hour = TaskHour.objects.latest("hour").hour.astimezone(zone)
    QueueDepth.objects.create(
        day=hour.astimezone(dt.UTC).date(), taken_at=hour, queue="mail", waiting=1, delayed=0, in_flight=0,
        oldest_age_us=1, body_bytes=1, max_receive_count=1,
    )  # fmt: skip
    shown = f"{hour:%Y-%m-%d %H:%M}"

    for name in ("taskhour", "failuregroup", "sloburn", "queuedepth"):
        text = text_of(browser.get(f"{ROOT}{name}/"))
        assert f"Newest hour: {shown}" in text and f"Time zone: {zone}" in text, name
    for name in ("anomaly", "queuedepth", "pipelinerun"):
        text = text_of(browser.get(f"{ROOT}{name}/"))
        assert shown in text and f"({zone})" in text.replace("\N{ZERO WIDTH SPACE}", ""), name
    for url in (FAILURES, OBJECTIVES, LAKE, f"{ROOT}pipelinerun/"):
        assert f"{hour:%Y-%m-%d %H:%M:%S %Z}" in text_of(browser.get(url)), url
    row: Any = Anomaly.objects.get()
    text = text_of(browser.get(f"{ROOT}anomaly/{row.pk}/change/"))
    assert f"{hour:%Y-%m-%d %H:%M:%S %Z}" in text and f"Day (UTC): {row.day}" in text
    assert f"at {shown}" in str(row)


def test_downloads_have_times_with_their_offset(browser: Browser, history: None, zone: ZoneInfo):
    newest = TaskHour.objects.latest("hour").hour.astimezone(zone)

    found = browser.get(TASKS, {"since": f"{newest:%Y-%m-%dT%H:%M}", "format": "json"}).json()

    since = dt.datetime.fromisoformat(found["since"])
    assert since == newest and since.tzinfo is not None


def test_pages_are_shown_without_time_zones(browser: Browser, history: None, settings: Any):
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"

    assert {name: browser.get(f"{ROOT}{name}/").status_code for name in NAMES} == dict.fromkeys(NAMES, 200)
    assert sum(sum(series.values) for series in browser.get(TASKS, {"span": "2d"}).context["charts"][0].series) == 400


def test_way_to_a_page_names_it_once(browser: Browser, history: None):
    way = browser.get(FAILURES).content.decode().partition('<ol class="breadcrumbs')[2].partition("</ol>")[0]

    assert way.count("Failures") == 1


def test_menu_has_the_names_of_the_pages(browser: Browser):
    text = text_of(browser.get("/admin/"))

    for name in ("Task history", "Failures", "Objectives and capacity", "Anomalies", "Pipeline runs", "Lake"):
        assert name in text, name


def test_pages_without_a_history_say_so(browser: Browser):
    for url in (TASKS, FAILURES, OBJECTIVES):
        assert "No data yet" in text_of(browser.get(url)), url


def test_objectives_show_burn_rates_and_recommended_concurrency(browser: Browser, history: None):
    text = text_of(browser.get(OBJECTIVES))

    assert "50.0 · too fast" in text and "Recommended concurrency" in text
    at = timezone.localtime(SloBurn.objects.latest("at").at)
    assert f"{at:%Y-%m-%d %H:%M:%S}" in text and "As of" in text, "they may be old"


def test_objectives_have_charts_of_burn_rates_and_the_alarms_with_their_messages(
    browser: Browser, history: None, django_assert_max_num_queries: Any
):
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    about = {"queue": "mail", "objective": "success", "window": "1h", "burn_rate": 50, "budget_left": -0.5}
    SloAlarm.objects.create(
        severity="page", began_at=now, unsent="begin:webhook", error="HTTP Error 500, password=hunter2", **about
    )
    SloAlarm.objects.create(severity="ticket", began_at=now - dt.timedelta(days=1), ended_at=now, **about)

    with django_assert_max_num_queries(14):
        page = browser.get(OBJECTIVES, {"span": "2d"})
    text = text_of(page)

    (chart,) = page.context["charts"]
    assert [series.label for series in chart.series] == ["1h, limit 14.4", "6h, limit 6", "3d, limit 1"]
    assert chart.series[0].values[-1] == 50 and chart.series[1].last is None
    assert "Burn rate of success, mail" in text
    assert "not sent: begin:webhook HTTP Error 500" in text and "hunter2" not in text
    assert page.context["alarms"][1][0].ended_at == now


def test_failures_hide_secrets_and_are_shown_only_to_users_who_may_see_bodies(browser: Browser, history: None):
    assert "no row 7" in text_of(browser.get(FAILURES)) and b"hunter2" not in browser.get(FAILURES).content

    user = User.objects.create_user("looker", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_failuregroup"))
    looker = Browser()
    looker.force_login(user)
    row = FailureGroup.objects.get()
    assert b"no row" not in looker.get(f"{FAILURES}{row.pk}/change/").content
    page = looker.get(FAILURES)
    assert page.status_code == 200 and "no row 7" not in text_of(page) and "Retry" not in text_of(page)
    assert looker.post(FAILURES, {"fingerprint": GROUP, "post": "yes"}).status_code == 403


def test_a_group_of_failures_goes_back_to_work(
    browser: Browser, history: None, mail: Queue, dead: Queue, settings: Any, tmp_path: Path
):
    settings.RSMQ = {**settings.RSMQ, "PIPELINE": {"LAKE": str(tmp_path / "lake")}}
    ids = dead.send_many([b"1", b"2", b"3"])
    row: dict[str, Any] = {"shard": "rsmq::events", "event": "dead", "queue": "mail", "fingerprint": GROUP}
    row |= {"event_at": dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)}
    rows = [row | {"entry_id": f"{n}-1", "message_id": message_id} for n, message_id in enumerate(ids[:2])]
    write_events(Lake.at(tmp_path / "lake"), rows)

    asked = browser.post(FAILURES, {"fingerprint": GROUP})
    assert "mail: 2" in text_of(asked) and mail.attributes().messages == 0
    done = browser.post(FAILURES, {"fingerprint": GROUP, "post": "yes"}, follow=True)

    assert told(done) == ["shop.pay, ValueError: 2 dead letters were retried."]
    assert (mail.attributes().messages, dead.attributes().messages) == (2, 1)
    assert LogEntry.objects.get().change_message == "Retried 2 dead letters of shop.pay, ValueError"
    assert "no dead letters left" in text_of(browser.post(FAILURES, {"fingerprint": GROUP}))


def test_depths_of_queues_are_charted(browser: Browser, history: None, django_assert_max_num_queries: Any):
    nothing = text_of(browser.get(f"{ROOT}queuedepth/"))
    assert "No snapshots in this period." in nothing and "1 year" in nothing
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    for back in range(3):
        for queue, waiting in (("mail", 10 * back), ("zoo", 1)):
            at = now - dt.timedelta(hours=back)
            QueueDepth.objects.create(
                day=at.date(), taken_at=at, queue=queue, waiting=waiting, delayed=0, in_flight=2,
                oldest_age_us=10**6 * back, body_bytes=9, max_receive_count=1,
            )  # fmt: skip

    with django_assert_max_num_queries(20):
        everything = browser.get(f"{ROOT}queuedepth/?span=2d")
    mail = browser.get(f"{ROOT}queuedepth/?span=2d&queue=mail")

    depth, oldest = everything.context["charts"]
    assert depth.series[0].values[-3:] == [21, 11, 1] and depth.series[2].values[-1] == 4
    assert depth.series[0].values[0] is None, "no snapshot"
    assert oldest.series[0].values[-3:] == [2, 1, 0]
    assert mail.context["charts"][0].series[0].values[-3:] == [20, 10, 0]
    assert len(rows_of(mail)) == 3


def test_each_link_to_a_day_of_depths_has_its_snapshots(browser: Browser, db: None, zone: ZoneInfo, uses_tz: None):
    times = [dt.datetime(2026, 11, 10, 2, tzinfo=dt.UTC) + dt.timedelta(hours=9 * number) for number in range(8)]
    for at in [*times, times[0] - dt.timedelta(days=400)]:
        QueueDepth.objects.create(
            day=at.date(), taken_at=at, queue="mail", waiting=1, delayed=0, in_flight=0, oldest_age_us=0,
            body_bytes=9, max_receive_count=1,
        )  # fmt: skip

    def links(**asked: str) -> list[Any]:
        return date_hierarchy(browser.get(DEPTHS, asked).context["cl"])["choices"]

    days = links(taken_at__year="2026", taken_at__month="11")
    of_days = [[row.taken_at for row in rows_of(browser.get(DEPTHS + day["link"]))] for day in days]

    assert [day["title"] for day in days] == list(dict.fromkeys(f"{at.astimezone(zone):%B %-d}" for at in times))
    assert [at for of_day in of_days for at in sorted(of_day)] == times
    assert [each["title"] for each in links()] == ["2025", "2026"]
    assert [each["title"] for each in links(taken_at__year="2025")] == ["October 2025"]


def test_depths_are_filtered_by_a_form_above_the_list(browser: Browser, history: None):
    now = timezone.now()
    for queue in ("mail", "zoo"):
        QueueDepth.objects.create(
            day=now.date(), taken_at=now, queue=queue, waiting=1, delayed=0, in_flight=0, oldest_age_us=1,
            body_bytes=9, max_receive_count=1,
        )  # fmt: skip

    content = browser.get(f"{ROOT}queuedepth/?span=2d&queue=zoo").content.decode()

    form = content.partition('<form method="get" class="rsmq-filters"')[2].partition("</form>")[0]
    assert 'name="span" value="2d"' in form and 'value="zoo"' in form and '<option value="mail">' in form
    assert content.index("rsmq-filters") < content.index('id="result_list"')
    assert 'id="changelist-filter"' not in content, "not a second one below the list"


def test_lake_is_shown_with_the_days_of_a_table(
    browser: Browser, history: None, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
):
    for name in ("deltalake", "pyarrow", "pyspark"):
        monkeypatch.setitem(sys.modules, name, None)  # an import raises ModuleNotFoundError

    with django_assert_max_num_queries(8):
        page = browser.get(LAKE)
    text = text_of(page)

    assert "s3://bucket/lake" in text and "6.0 MiB · 12 files" in text and "3,003" in text
    assert "polars.scan_delta('s3://bucket/lake/events')" in text
    rows, size = page.context["charts"]
    assert rows.series[0].values[-4:] == [None, 1002, 1001, 1000] and set(size.series[0].values[-3:]) == {1}
    newest = timezone.now().date()
    assert [day.day for day, _size in page.context["days"]] == [newest - dt.timedelta(days=back) for back in range(3)]
    hourly = browser.get(LAKE, {"table": "hourly", "span": "12w"})
    assert "lake/hourly')" in text_of(hourly) and 'href="?table=events&amp;span=12w"' in hourly.content.decode()
    assert browser.get(LAKE, {"table": "<x>"}).context["chosen"] == "events"


def test_lake_before_the_first_publishing_is_reported(browser: Browser, db: None):
    assert "No data yet" in text_of(browser.get(LAKE))


def test_an_unknown_group_is_reported(browser: Browser, history: None):
    assert told(browser.post(FAILURES, {"fingerprint": "x"}, follow=True)) == ["This failure group no longer exists."]


def test_stock_lists_show_rows_and_no_secrets(browser: Browser, history: None):
    for name in ("capacityadvice", "anomaly", "pipelinerun"):
        page = browser.get(f"{ROOT}{name}/")
        (row,) = rows_of(page)
        one = browser.get(f"{ROOT}{name}/{row.pk}/change/")
        assert one.status_code == 200
        assert b"hunter2" not in page.content + one.content
        assert browser.post(f"{ROOT}{name}/{row.pk}/delete/", {"post": "yes"}).status_code == 403
        assert browser.post(f"{ROOT}{name}/add/", {}).status_code == 403


def test_health_of_the_pipeline_is_shown_above_its_runs(browser: Browser, history: None, mail: Queue):
    mail.client.connection.exchange([("XADD", "rsmq::events", f"{round(1000 * time.time()) - 7_230_000}-0", "v", "x")])
    PipelineRun.objects.create(
        run_id="r2", step="archive", started_at=timezone.now() - dt.timedelta(hours=4), seconds=3, rows_in=1,
        rows_out=1, lost=0, exit_code=0, offsets={"rsmq::events": {"lost": 4}},
    )  # fmt: skip

    page = browser.get(f"{ROOT}pipelinerun/")
    text = text_of(page)

    assert "Lag of the archive 2 h" in text and "1 event, 0" in text and "Lost events 4" in text
    (step,) = page.context["steps"]
    assert (step[0].step, "no connection to" in step[1], "hunter2" in text) == ("archive", True, False)
    assert "3 h ago" in text, "the last success"
    assert f"{timezone.localtime(page.context['steps'][0][0].succeeded_at):%H:%M:%S %Z}" in text


def test_health_is_shown_without_redis(browser: Browser, history: None, settings: Any):
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": "redis://127.0.0.1:1/0", "TIMEOUT_S": 0.5}}}

    assert "Redis does not answer" in text_of(browser.get(f"{ROOT}pipelinerun/"))


def test_it_is_not_shown_without_permission(browser_of: Callable[..., Browser], history: None):
    nobody = browser_of()

    for name in NAMES:
        assert nobody.get(f"{ROOT}{name}/").status_code == 403, name


def test_history_needs_no_redis(browser: Browser, history: None, settings: Any):
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": "redis://127.0.0.1:1/0", "TIMEOUT_S": 0.5}}}

    for name in NAMES:
        assert browser.get(f"{ROOT}{name}/").status_code == 200, name
