"""The form of numbers, shares, statuses and long names on pages."""

from django.test import Client as Browser
from django.utils import translation

from rsmq_django.admin.charts import Chart, Series
from rsmq_django.admin.formats import as_duration, as_rate, as_size, breakable
from rsmq_django.admin.past_charts import show_number
from rsmq_django.core import Queue
from tests.admin.conftest import MESSAGES
from tests.admin.pages import text_of
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

    assert shown == ["1,5 KiB", "2,5 s", "0,3", "0,25", "4.512"]


def test_status_of_a_task_is_shown_in_words(browser: Browser, mail: Queue, server: PrivateServer):
    server.redis.hset("rsmq::result:t7", mapping={"status": "FAILED", "queue": "mail"})

    pages = [browser.get("/admin/rsmq/result/", {"q": "t7"}), browser.get("/admin/rsmq/result/t7/change/")]

    assert all("Failed" in text_of(page) and "FAILED" not in text_of(page) for page in pages)


def test_long_names_break_between_words():
    assert breakable("shop.tasks.send_receipt<b>") == "shop.<wbr>tasks.<wbr>send_<wbr>receipt&lt;b&gt;"
