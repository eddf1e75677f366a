"""The pages of the pipeline's history: weeks of tasks, failures to be redriven, objectives, runs."""

import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client as Browser
from django.utils import timezone

from rsmq_django.core import Queue
from rsmq_django.core.stats.fingerprint import fingerprint
from rsmq_django.pipeline.models import Anomaly, CapacityAdvice, FailureGroup, PipelineRun, SloBurn, TaskHour
from rsmq_django.spark.lake import Lake
from tests.admin.pages import rows_of, text_of, told
from tests.pipeline.conftest import add_up_days, write_events

pytestmark = pytest.mark.usefixtures("mid_minute")

ROOT = "/admin/rsmq_pipeline/"
TASKS, FAILURES, OBJECTIVES = f"{ROOT}taskhour/", f"{ROOT}failuregroup/", f"{ROOT}sloburn/"
NAMES = ("taskhour", "failuregroup", "sloburn", "capacityadvice", "anomaly", "queuedepth", "pipelinerun")
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


@pytest.mark.parametrize("span", ["2d", "2w", "12w", "52w", "<x>"])
def test_history_shows_every_task_of_a_span(browser: Browser, history: None, span: str):
    page = browser.get(TASKS, {"span": span})

    attempts = page.context["charts"][0]
    expected = 400 if span == "2d" else 600
    assert sum(sum(series.values) for series in attempts.series) == expected
    assert [row[1] for row in page.context["totals"]] == ["shop.pay", "shop.ship"] and "Latency p95" in text_of(page)
    assert "4 events were lost" in text_of(page) and "The last run failed: archive" in text_of(page)


def test_history_can_be_that_of_one_task(browser: Browser, history: None):
    page = browser.get(TASKS, {"queue": "mail", "task": "shop.pay"})

    assert sum(page.context["charts"][0].series[2].values) == 15, "dead letters"
    assert [row[1] for row in page.context["totals"]] == ["shop.pay"]


def test_all_times_are_utc_in_any_time_zone_of_the_site(browser: Browser, history: None, settings: Any):
    settings.TIME_ZONE = "Asia/Kolkata"  # half an hour off, so that no hour looks right by chance
    hour = TaskHour.objects.latest("hour").hour.astimezone(dt.UTC)

    for url in (TASKS, FAILURES, OBJECTIVES):
        assert f"Newest hour: {hour:%Y-%m-%d %H:%M} UTC" in text_of(browser.get(url)), url
    assert f"{hour:%Y-%m-%d %H}:00" in text_of(browser.get(f"{ROOT}anomaly/"))
    shown = timezone.localtime(hour)
    assert f"{shown:%Y-%m-%d %H:%M:%S %Z}" in text_of(browser.get(FAILURES)), "failures have the zone of the site"


def test_way_to_a_page_names_it_once(browser: Browser, history: None):
    way = browser.get(FAILURES).content.decode().partition('<ol class="breadcrumbs')[2].partition("</ol>")[0]

    assert way.count("Failures") == 1


def test_menu_has_the_names_of_the_pages(browser: Browser):
    text = text_of(browser.get("/admin/"))

    for name in ("Task history", "Failures", "Objectives and capacity", "Anomalies", "Pipeline runs"):
        assert name in text, name


def test_pages_without_a_history_say_so(browser: Browser):
    for url in (TASKS, FAILURES, OBJECTIVES):
        assert "No data yet" in text_of(browser.get(url)), url


def test_objectives_show_burn_rates_and_recommended_concurrency(browser: Browser, history: None):
    text = text_of(browser.get(OBJECTIVES))

    assert "50.0 · too fast" in text and "Recommended concurrency" in text
    at = timezone.localtime(SloBurn.objects.latest("at").at)
    assert f"{at:%Y-%m-%d %H:%M:%S}" in text and "As of" in text, "they may be old"


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

    assert "Lag of the archive 2 h" in text and "1 events" in text and "Lost events 4" in text
    (step,) = page.context["steps"]
    assert (step[0].step, "no connection to" in step[1], "hunter2" in text) == ("archive", True, False)
    assert "3 h ago" in text, "the last success"


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
