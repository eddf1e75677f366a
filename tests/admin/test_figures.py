"""The form of numbers, shares, statuses and long names on pages."""

import re
from typing import Any

from django.test import Client as Browser
from django.utils import timezone, translation

from rsmq_django.admin.charts import Chart, Series
from rsmq_django.admin.formats import as_duration, as_rate, as_run_time, as_size, breakable
from rsmq_django.admin.past_charts import show_number
from rsmq_django.core import Queue
from rsmq_django.pipeline.models import Anomaly, TaskHour
from tests.admin.conftest import MESSAGES, QUEUES
from tests.admin.pages import text_of
from tests.browser.scenery import PAY, run_a_day
from tests.redis_server import PrivateServer


def test_counts_of_rows_have_separators(browser: Browser, mail: Queue):
    mail.send_many([b"x"] * 1_234)

    page = browser.get(MESSAGES)

    assert "1,234 results" in text_of(page) and "1,234 messages" in text_of(page)
    assert "1234" not in text_of(page)


def test_axes_of_charts_have_separators():
    series = [Series("sent", "a", [1_500.0, 900.0])]

    assert "2,000</text>" in str(Chart("x", "Messages", ["1", "2"], series, show_number).svg())
    assert [show_number(value) for value in (0.0, 0.25, 40_000.0, 12_500_000.0)] == ["0", "0.25", "40,000", "12.5 M"]


def test_german_decimals_have_a_comma():
    with translation.override("de"):
        shown = [as_size(1536), as_duration(2.5), as_rate(0.34), show_number(0.25), as_rate(4_512.0)]
        run_times = [as_run_time(seconds) for seconds in (0.0000025, 0.0025, 1.25, 150.0)]

    assert shown == ["1,5 KiB", "2,5 s", "0,3", "0,25", "4.512"]
    assert run_times == ["2,5 µs", "2,5 ms", "1,25 s", "2 min 30 s"]


def test_run_times_have_three_digits_and_the_unit_that_fits():
    run_times = {
        None: "-",
        0: "0 s",
        0.00042: "420 µs",
        0.0123: "12.3 ms",
        0.9996: "1 s",
        0.00099996: "1 ms",
        12.5: "12.5 s",
    }

    assert {seconds: as_run_time(seconds) for seconds in run_times} == run_times


def test_pages_of_tasks_and_of_the_history_have_german_decimals(browser: Browser, mail: Queue, settings: Any):
    run_a_day(mail, also="default")
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    TaskHour.objects.create(
        day=now.date(), hour=now, queue="mail", task=PAY, run_s_squared=1, wait_hist={"500": 3}, run_hist={"600": 3},
        first_attempts=3, succeeded=3, retried=0, dead=0, attempts=3, released=0, lost=0, cancelled=0,
        busy_us=10**8, body_bytes=9, workers=2,
    )  # fmt: skip
    Anomaly.objects.create(
        day=now.date(), hour=now, queue="mail", task=PAY, metric="failure_rate", value=0.125, median=0.0125,
        mad=0.01, z=3.5, n=9,
    )  # fmt: skip
    settings.LANGUAGE_CODE = "de"

    pages = [
        browser.get(address)
        for address in (QUEUES, "/admin/rsmq/registeredtask/", "/admin/rsmq_pipeline/taskhour/?span=2d")
    ]

    for page in pages:
        assert not re.findall(r"\b\d+\.\d{1,2} (?:µs|ms|s|%)", text_of(page)), page.request["PATH_INFO"]
    assert "12,5 %" in text_of(pages[2])


def test_status_of_a_task_is_shown_in_words(browser: Browser, mail: Queue, server: PrivateServer):
    server.redis.hset("rsmq::result:t7", mapping={"status": "FAILED", "queue": "mail"})

    pages = [browser.get("/admin/rsmq/result/", {"q": "t7"}), browser.get("/admin/rsmq/result/t7/change/")]

    assert all("Failed" in text_of(page) and "FAILED" not in text_of(page) for page in pages)


def test_long_names_break_between_words():
    assert breakable("shop.tasks.send_receipt<b>") == "shop.<wbr>tasks.<wbr>send_<wbr>receipt&lt;b&gt;"
