"""The list of tasks and the page of one: options, counts, charts."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.test import Client as Browser
from django.utils import translation

from rsmq_django.admin.task_options import options_of
from rsmq_django.core import Queue
from rsmq_django.core.stats.cardinality import MOST_TASKS, OTHER
from rsmq_django.core.stats.counters import report
from rsmq_django.tasks import DISCARD, Concurrency, Rate, Unique, exponential, fixed, task, topic_task
from rsmq_django.tasks.task import _tasks
from tests.admin.pages import rows_of, text_of
from tests.redis_server import PrivateServer

pytestmark = pytest.mark.usefixtures("mid_minute")

TASKS = "/admin/rsmq/registeredtask/"


def pay_amount(amount: int) -> None:
    """Pay an amount."""


def backoff_of_tests(attempt: int) -> float:
    return attempt


@pytest.fixture
def pay(mail: Queue) -> Iterator[Any]:
    """A task that was run a few times."""
    declared = task(queue_name="mail", max_attempts=7, timeout_s=20)(pay_amount)
    path = declared.module_path
    grown = {
        f"sent:{path}": 9,
        f"succeeded:{path}": 8,
        f"retried:{path}": 2,
        f"run:400:{path}": 10,
        "succeeded:shop.gone": 1,
    }
    mail.client.run(report("rsmq", "mail", reporter="w1", number=1, at_s=time.time(), grown=grown))
    yield declared
    _tasks.pop(path)


def url_of(path: str) -> str:
    return f"{TASKS}{quote(path)}/change/"


def test_the_list_shows_declared_tasks_and_those_that_only_ran(browser: Browser, pay: Any):
    rows = {row.path: row for row in rows_of(browser.get(TASKS))}

    row = rows[pay.module_path]
    assert (row.sent, row.succeeded, row.failed, row.queue, row.is_registered) == (9, 8, 2, "mail", True)
    assert row.run_median_s == pytest.approx(1.02**400 / 1e6, rel=0.02)
    assert not rows["shop.gone"].is_registered


def test_functions_that_follow_topics_have_their_counts_and_charts_too(
    browser: Browser, mail: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(import_module("rsmq_django.tasks.topic_task"), "_tasks", {})
    topic_task("orders", group="billing")(pay_amount)
    path = f"{pay_amount.__module__}.{pay_amount.__qualname__}"
    grown = {f"sent:{path}": 3, f"succeeded:{path}": 2}
    mail.client.run(report("rsmq", "orders:billing", reporter="w1", number=1, at_s=time.time(), grown=grown))

    row = {row.path: row for row in rows_of(browser.get(TASKS))}[path]
    page = browser.get(url_of(path))

    assert (row.sent, row.succeeded, row.queue, row.is_registered) == (3, 2, "orders:billing", True)
    assert page.context["charts"][0].series[0].values[-1] == 2
    assert "Sent 3" in text_of(page) and "orders:billing" in text_of(page)
    assert "orders%3Abilling" not in page.content.decode(), "there is no such queue to look at"


def test_run_times_below_a_millisecond_have_a_unit_of_their_own(browser: Browser, pay: Any, mail: Queue):
    grown = {"succeeded:shop.quick": 1, "run:80:shop.quick": 1}
    mail.client.run(report("rsmq", "mail", reporter="w2", number=1, at_s=time.time(), grown=grown))

    assert "4.83 µs" in text_of(browser.get(TASKS))


def test_calls_of_any_priority_are_counted(browser: Browser, pay: Any, mail: Queue):
    urgent = Queue("mail-p10", mail.client, realtime=True)
    urgent.create()
    grown = {f"succeeded:{pay.module_path}": 3}
    mail.client.run(report("rsmq", "mail-p10", reporter="w1", number=1, at_s=time.time(), grown=grown))

    rows = {row.path: row for row in rows_of(browser.get(TASKS))}
    assert (rows[pay.module_path].succeeded, rows[pay.module_path].queue) == (11, "mail")
    page = browser.get(url_of(pay.module_path))
    assert page.context["charts"][0].series[0].values[-1] == 11
    assert "not in the settings" not in text_of(browser.get("/admin/rsmq/queue/"))


def test_the_page_shows_options_and_charts(browser: Browser, pay: Any):
    page = browser.get(url_of(pay.module_path))

    text = text_of(page)
    assert "Pay an amount." in text and "Max. attempts 7" in text and "Timeout 20 s" in text
    assert [chart.name for chart in page.context["charts"]] == ["outcomes", "wait", "run"]
    assert page.context["charts"][0].series[0].values[-1] == 8, "of this task only"
    assert len(browser.get(url_of(pay.module_path), {"span": "7d"}).context["charts"][0].times) == 169


RICH: dict[str, Any] = {
    "backoff": exponential(first_s=2, max_s=300),
    "retry_on": (OSError, ValueError),
    "give_up_on": KeyError,
    "hard_timeout_s": 90,
    "dead_letter_queue": DISCARD,
    "result_ttl_s": 0,
    "unique": Unique(by=["amount"], mode="debounce", window_s=60, max_wait_s=600),
    "expires_in_s": 86_400,
    "tags": ["shop"],
    "fair_by": ["amount"],
    "limits": [Concurrency(1, by=["amount"]), Rate(1200, per_s=60, name="bank")],
    "ack": "each",
    "aliases": ["shop.old_name"],
}


def test_options_of_a_task_are_in_words():
    declared = dataclasses.replace(task(queue_name="mail", **RICH)(pay_amount), priority=5)
    _tasks.pop(declared.module_path)

    assert options_of(declared) == [
        ("Sent to", "mail"),
        ("Priority", "5"),
        ("Backoff", "2 s, then 2 times as long after each failure, at most 5 min"),
        ("Retried errors", "OSError, ValueError"),
        ("Errors without a retry", "KeyError"),
        ("Dead letters", "none: messages that fail for good are deleted"),
        ("Hard timeout", "90 s, then its process is stopped"),
        ("Expires", "1 d after it is due"),
        ("Result", "not kept"),
        (
            "Unique",
            "by amount, until it has ended; an equal call replaces it and waits 1 min, at most 10 min in all",
        ),
        ("Fair shares", "by amount"),
        ("Limits", "1 run at a time, by amount; 1,200 starts in any 1 min, shared as “bank”"),
        ("Tags", "shop"),
        ("Other names", "shop.old_name"),
        ("Acknowledged", "each run before the next one begins"),
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"backoff": fixed(60)}, [("Backoff", "1 min after each failure")]),
        ({"backoff": backoff_of_tests}, [("Backoff", "computed by backoff_of_tests")]),
        ({"max_attempts": 1}, [("Max. attempts", "1")]),
        ({"batch": 10, "max_attempts": 1}, [("Max. attempts", "1"), ("Batch", "up to 10 calls")]),
        (
            {"unique": Unique(by=backoff_of_tests, scope="window", window_s=300), "max_attempts": 1},
            [
                ("Max. attempts", "1"),
                ("Unique", "by the function backoff_of_tests, for 5 min; an equal call is dropped"),
            ],
        ),
    ],
)
def test_options_that_are_functions_or_defaults_are_in_words_too(options: dict[str, Any], expected: list[Any]):
    declared = task(queue_name="mail", **options)(pay_amount)
    _tasks.pop(declared.module_path)

    assert options_of(declared)[2:] == expected


def test_options_of_a_task_are_translated():
    declared = task(queue_name="mail", **RICH)(pay_amount)
    _tasks.pop(declared.module_path)

    with translation.override("de"):
        said = dict(options_of(declared))

    assert said["Ergebnis"] == "wird nicht aufbewahrt" and said["Läuft ab"] == "1 d nach der Fälligkeit"


def test_the_page_leads_to_the_runs_of_the_task(browser: Browser, browser_of: Callable[..., Browser], pay: Any):
    page = browser.get(url_of(pay.module_path))

    assert page.context["runs_url"] == f"/admin/rsmq/run/?task={pay.module_path}"
    assert page.context["runs_url"] in page.content.decode()
    assert browser_of("view_registeredtask").get(url_of(pay.module_path)).context["runs_url"] == ""


def test_the_runs_are_those_of_the_connection_of_the_queue(browser: Browser, pay: Any, settings: Any):
    media = {**settings.RSMQ["CONNECTIONS"]["default"], "NAMESPACE": "media"}
    connections = {**settings.RSMQ["CONNECTIONS"], "media": media}
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": connections, "QUEUES": {pay.queue_name: {"CONNECTION": "media"}}}

    url = browser.get(url_of(pay.module_path)).context["runs_url"]

    assert url == f"/admin/rsmq/run/?task={pay.module_path}&connection=media"


def test_the_page_leads_to_the_form_that_enqueues_it(browser: Browser, browser_of: Callable[..., Browser], pay: Any):
    url = browser.get(url_of(pay.module_path)).context["enqueue_url"]

    assert "amount" in text_of(browser.get(url))
    assert browser_of("view_registeredtask").get(url_of(pay.module_path)).context["enqueue_url"] == ""


def test_a_task_that_is_not_declared_any_more_has_a_page(browser: Browser, pay: Any):
    assert "Its messages become dead letters" in text_of(browser.get(url_of("shop.gone")))


def test_names_of_other_programs_stay_text(browser: Browser, mail: Queue):
    name = "<script>alert(1)</script>\u202e"
    mail.client.run(report("rsmq", "mail", reporter="w1", number=1, at_s=time.time(), grown={f"succeeded:{name}": 1}))

    page = browser.get(TASKS)

    assert b"<script>alert" not in page.content and "\u202e" not in page.content.decode()
    assert any("script" in row.path for row in rows_of(page))


def test_forged_names_of_tasks_are_one_row(browser: Browser, pay: Any, server: PrivateServer):
    forged = {f"dead:forged.{number}": 2**40 for number in range(20_000)}
    server.redis.hset("rsmq::stats:mail:total", mapping=forged)

    page = browser.get(TASKS)

    own = {row.path: row for row in rows_of(browser.get(f"{TASKS}?q=pay_amount"))}
    assert own[pay.module_path].sent == 9
    assert page.context["cl"].result_count <= MOST_TASKS + 1 + len(_tasks)
    (rest,) = rows_of(browser.get(f"{TASKS}?q={OTHER}"))
    assert rest.dead >= (20_001 - MOST_TASKS) * 2**40
    assert browser.get(url_of(OTHER)).status_code == 200
