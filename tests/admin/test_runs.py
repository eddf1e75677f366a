"""The list of attempts with its filters, and the page of one attempt."""

import html
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.test import Client as Browser
from django.utils import timezone
from django.utils.html import escape

from rsmq_django.core import Queue
from rsmq_django.core.stats import run_search
from rsmq_django.core.stats.events import FIELDS, read_event
from rsmq_django.core.stats.fingerprint import fingerprint
from tests.admin.pages import rows_of, text_of
from tests.redis_server import PrivateServer

RUNS = "/admin/rsmq/run/"
BEGIN_MS = 1_795_000_000_000


def write(server: PrivateServer, number: int, *, tags: str = "", **changes: Any) -> str:
    fields = dict.fromkeys(FIELDS, "") | {"e": "succeeded", "q": "mail", "t": "shop.send", "i": f"t{number}", "a": "1"}
    fields |= {"m": f"m{number}", "s": str(BEGIN_MS), "w": "1500", "r": "2500000", "k": "web1-7", "b": "47"}
    text = "\n".join((fields | changes).values())
    words = {"v": text, **({"g": tags} if tags else {})}
    return server.redis.xadd("rsmq::events", words, id=f"{BEGIN_MS + number}-0").decode()


@pytest.fixture
def ran(mail: Queue, server: PrivateServer) -> None:
    """Thirty runs of two tasks; every tenth failed for good."""
    for number in range(30):
        about = {"t": "shop.pay"} if number % 2 else {}
        if number % 10 == 0:
            about |= {"e": "dead", "x": "builtins.ValueError", "y": f"order {number} password=hunter2"}
        write(server, number, tags="tour 7" if number == 4 else "", **about)


def at(seconds: int) -> str:
    return f"{timezone.localtime(datetime.fromtimestamp(BEGIN_MS / 1000 + seconds, UTC)):%Y-%m-%dT%H:%M:%S}"


def ids(response: Any) -> list[str]:
    return [row.event.task_id for row in rows_of(response)]


def test_runs_are_listed_newest_first_page_by_page(browser: Browser, ran: None):
    first = browser.get(RUNS)
    second = browser.get(RUNS + first.context["cl"].older_url)

    assert ids(first) == [f"t{number}" for number in range(29, 9, -1)]
    assert ids(second) == [f"t{number}" for number in range(9, -1, -1)]
    assert second.context["cl"].older_url == ""
    assert second.context["cl"].newest_url == "?"
    text = text_of(first)
    assert "shop.pay" in text and "Succeeded" in text and "1.5 ms" in text and "2.5 s" in text and "web1-7" in text
    assert " CST " in text and " ago" in text


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"task": "shop.pay"}, [f"t{number}" for number in range(29, -1, -2)]),
        ({"queue": "default"}, []),
        ({"outcome": "dead"}, ["t20", "t10", "t0"]),
        ({"outcome": "failed", "task": "shop.send"}, ["t20", "t10", "t0"]),
        ({"tag": "tour 7"}, ["t4"]),
        ({"worker": "web2"}, []),
        ({"q": "ORDER 20"}, ["t20"]),
        ({"q": "order 2"}, []),
        ({"q": "order 0"}, ["t0"]),
        ({"q": "t13"}, ["t13"]),
        ({"group": fingerprint("shop.send", "builtins.ValueError", "order 7 password=hunter2")}, ["t20", "t10", "t0"]),
        ({"since": at(0), "until": at(1)}, None),
        ({"since": at(1)}, []),
        ({"until": "2026-11-01T00:00:00"}, []),
        ({"period": "1h"}, []),
    ],
)
def test_filters_are_in_the_address(browser: Browser, ran: None, asked: dict[str, str], expected: list[str] | None):
    page = browser.get(RUNS, asked)

    if expected is None:
        assert len(ids(page)) == 20
    else:
        assert ids(page) == expected[:20]
    for name, value in asked.items():
        if name not in ("outcome", "period"):
            assert f'value="{escape(value)}"' in page.content.decode()
    older = page.context["cl"].older_url
    assert not older or all(f"{name}=" in older for name in asked)


def test_number_is_found_in_arguments_and_errors_as_a_whole(browser: Browser, mail: Queue, server: PrivateServer):
    for number, task_id in ((7, "aaa"), (47, "b7b"), (70, "7cc")):
        body = json.dumps({"task": "shop.send", "id": task_id, "args": [], "kwargs": {"order": number}})
        server.redis.hset(f"rsmq::result:{task_id}", "body", body)
        write(server, number, i=task_id, m=f"m{number}")
    write(server, 77, i="ddd", x="x.Down", y="order_7 was refused")

    assert ids(browser.get(RUNS, {"q": "order 7"})) == ["ddd", "aaa"]


def test_filter_that_cannot_be_understood_is_named_and_left_out(browser: Browser, ran: None):
    page = browser.get(RUNS, {"since": "yesterday", "outcome": "odd", "before": "x"})

    assert page.status_code == 200
    assert len(ids(page)) == 20
    assert "Enter a valid date/time" in text_of(page)


def test_page_reports_that_older_events_were_not_searched(browser: Browser, ran: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rsmq_django.live.runs.MOST_LOOKED_AT", 1)
    monkeypatch.setattr("rsmq_django.core.stats.run_search.MAX_BATCH", 10)

    page = browser.get(RUNS, {"outcome": "dead"})

    assert ids(page) == ["t20"]
    assert "Searched 10 events" in text_of(page)
    assert ids(browser.get(RUNS + page.context["cl"].older_url)) == ["t10"]


def test_search_without_a_match_continues_automatically(browser: Browser, ran: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rsmq_django.live.runs.MOST_LOOKED_AT", 1)
    monkeypatch.setattr("rsmq_django.core.stats.run_search.MAX_BATCH", 10)
    asked, looks = "?outcome=dead&q=t0", 0

    while not ids(page := browser.get(RUNS + asked)):
        looks, asked = looks + 1, page.context["cl"].continues_at
        address = html.escape(asked)
        assert f'<meta http-equiv="refresh" content="0; url={address}">' in page.content.decode()
        assert "The search continues with older ones" in text_of(page)

    assert looks == 2 and ids(page) == ["t0"]
    assert b"http-equiv" not in page.content and b"http-equiv" not in browser.get(RUNS).content


def test_events_of_other_outcomes_cost_a_search_little(browser: Browser, ran: None, monkeypatch: pytest.MonkeyPatch):
    read: list[str] = []

    def note(entry_id: str, words: Any) -> Any:
        read.append(entry_id)
        return read_event(entry_id, words)

    monkeypatch.setattr(run_search, "read_event", note)

    assert ids(browser.get(RUNS, {"outcome": "failed"})) == ["t20", "t10", "t0"]
    assert len(read) == 3


def test_lane_is_shown_and_found_as_its_queue(browser: Browser, mail: Queue, server: PrivateServer):
    for number, name in enumerate(("mail", "mail-lane0", "mail-p50", "mailing")):
        write(server, number, i=f"t{number}", q=name)

    page = browser.get(RUNS, {"queue": "mail"})

    assert ids(page) == ["t2", "t1", "t0"]
    assert "mail-lane0" not in text_of(page)


def test_error_texts_and_words_in_them_are_shown_only_to_users_who_may_see_bodies(
    browser_of: Callable[..., Browser], ran: None, server: PrivateServer
):
    server.redis.hset("rsmq::result:t20", mapping={"body": '{"args": ["hunter3"]}'})
    staff = browser_of("view_run")

    page = staff.get(RUNS, {"outcome": "dead"})

    assert ids(page) == ["t20", "t10", "t0"]
    assert "order 20" not in text_of(page) and "ValueError" in text_of(page)
    assert ids(staff.get(RUNS, {"q": "order"})) == ids(staff.get(RUNS, {"q": "hunter3"})) == []
    one = staff.get(f"{RUNS}{rows_of(page)[0].pk}/change/".replace("%", "%25"))
    assert "hunter" not in text_of(one)


def test_tags_are_shown_and_filtered_by_only_for_users_who_may_see_bodies(
    browser: Browser, browser_of: Callable[..., Browser], ran: None
):
    for user, are_seen in ((browser, True), (browser_of("view_run"), False)):
        page = user.get(RUNS)
        page = user.get(RUNS + page.context["cl"].older_url)

        assert ids(page)[-5] == "t4"
        assert ("tour 7" in text_of(page)) == ("tags" in page.context["cl"].list_display) == are_seen
        assert ('name="tag"' in page.content.decode()) == are_seen
        assert (ids(user.get(RUNS, {"tag": "tour 7"})) == ["t4"]) == are_seen
        one = user.get(f"{RUNS}{quote(rows_of(page)[-5].pk)}/change/")
        assert ("tour 7" in text_of(one)) == are_seen


def test_secrets_in_errors_are_hidden(browser: Browser, ran: None):
    page = browser.get(RUNS, {"outcome": "dead"})

    assert "order 20" in text_of(page) and "hunter2" not in text_of(page)


def link(page: Any) -> str:
    return next(iter(page.context["cl"].result_list)).pk


def open_run(browser: Browser, **asked: str) -> Any:
    return browser.get(f"{RUNS}{quote(link(browser.get(RUNS, asked)))}/change/")


def test_page_of_a_run_shows_arguments_result_error_and_other_attempts(
    browser: Browser, mail: Queue, server: PrivateServer
):
    write(server, 1, i="seven", e="retried", x="builtins.OSError", y="timed out")
    write(server, 2, i="eight")
    write(server, 3, i="seven", a="2", tags="tour 7")
    body = {"task": "shop.send", "id": "seven", "args": [7], "kwargs": {"password": "hunter2", "to": "ann"}}
    server.redis.hset(
        "rsmq::result:seven",
        mapping={
            "status": "SUCCESSFUL", "queue": "mail", "message": "m3", "body": json.dumps(body), "value": '{"sent": 1}',
            "worker:1": "w", "error:1": json.dumps(["builtins.OSError", "Traceback of one"]),
        },
    )  # fmt: skip

    good = open_run(browser, q="seven", outcome="succeeded")
    bad = open_run(browser, q="seven", outcome="retried")

    text = text_of(good)
    assert '"to": "ann"' in good.context["page"].arguments.text
    assert '"sent": 1' in good.context["page"].value.text and "tour 7" in text
    assert b"hunter2" not in good.content
    assert "Retried" in text, "the other attempt"
    text = text_of(bad)
    assert "timed out" in text and "Traceback of one" in text and bad.context["page"].value is None
    assert "/admin/rsmq/result/seven/change/" in bad.content.decode()


def test_links_to_other_runs_stay_on_the_connection(
    browser: Browser, mail: Queue, server: PrivateServer, settings: Any
):
    media = {**settings.RSMQ["CONNECTIONS"]["default"], "NAMESPACE": "media"}
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {**settings.RSMQ["CONNECTIONS"], "media": media}}
    write(server, 1, e="dead", x="builtins.OSError")
    server.redis.rename("rsmq::events", "media::events")

    urls = open_run(browser, connection="media").context["urls"]

    assert [ids(browser.get(urls[name])) for name in ("same_task", "same_error")] == [["t1"], ["t1"]]


def test_run_without_its_message_says_that_arguments_are_not_stored_any_more(browser: Browser, ran: None):
    page = open_run(browser, q="t13")

    assert "no longer stored" in text_of(page)
    assert "no other attempt" in text_of(page)


def test_arguments_of_an_encrypted_queue_are_not_shown(browser: Browser, mail: Queue, server: PrivateServer, settings):
    key = "b25seSBmb3IgdGhlc2UgYmVuY2htYXJrcywgcmVhbGw="
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"mail": {"ENCRYPTION_KEYS": [key]}}}
    write(server, 1)

    assert "are encrypted" in text_of(open_run(browser))


def test_trace_and_workflow_are_links(browser: Browser, mail: Queue, server: PrivateServer, settings: Any):
    settings.RSMQ = {**settings.RSMQ, "ADMIN": {"TRACE_URL": "https://traces.example.org/{trace_id}?x=1"}}
    trace = "0af7651916cd43dd8448eb211c80319c"
    meta = {"trace": f"00-{trace}-b7ad6b7169203331-01", "workflow": {"id": "w7", "member": 0}}
    write(server, 1)
    body = {"task": "shop.send", "id": "t1", "args": [], "kwargs": {}, "meta": meta}
    server.redis.hset("rsmq::result:t1", mapping={"queue": "mail", "body": json.dumps(body), "status": "SUCCESSFUL"})

    page = open_run(browser).content.decode()

    assert f'href="https://traces.example.org/{trace}?x=1"' in page
    assert 'href="/admin/rsmq/workflow/default/w7/change/"' in page or "default_2Fw7" in page


@pytest.mark.parametrize("url", ["https://traces.example.org/", "javascript:{trace_id}", "{trace_id}", 7])
def test_trace_url_that_cannot_be_one_is_an_error_of_the_settings(settings: Any, url: Any):
    from rsmq_django.conf.settings import read_settings

    _, problems = read_settings({**settings.RSMQ, "ADMIN": {"TRACE_URL": url}})

    assert [problem.id for problem in problems] == ["rsmq.E003"]
    assert "TRACE_URL" in problems[0].message


@pytest.mark.parametrize("key", ["default/1", "default/1795000000000-0", "default/x%2F%2F", "nowhere/1-0", "x" * 2000])
def test_run_that_is_not_there_leads_back(browser: Browser, ran: None, key: str):
    assert browser.get(f"{RUNS}{quote(key)}/change/").status_code == 302


def test_log_that_is_off_is_reported(browser: Browser, settings: Any, server: PrivateServer):
    settings.RSMQ = {**settings.RSMQ, "EVENTS": "off"}

    assert "The event log is off" in text_of(browser.get(RUNS))


def test_failed_call_of_order_7_is_run_again(
    browser: Browser, mail: Queue, server: PrivateServer, django_capture_on_commit_callbacks: Any
):
    from tests.worker.site.tasks import write as task

    path = task.module_path
    write(server, 1, i="seven", t=path, e="dead", x="builtins.ValueError", y="no")
    body = {"task": path, "id": "seven", "args": ["order 7"], "kwargs": {}}
    server.redis.hset("rsmq::result:seven", mapping={"status": "FAILED", "queue": "default", "body": json.dumps(body)})

    page = open_run(browser, q="order 7", outcome="failed")
    with django_capture_on_commit_callbacks(execute=True):
        done = browser.post(page.context["run_again"]["url"], {page.context["run_again"]["unchanged"]: "1"})

    assert done.status_code == 302
    (message,) = [value for value in server.redis.hvals("rsmq:default:Q") if b"order 7" in value]
    assert json.loads(message)["args"] == ["order 7"]


def test_list_needs_its_permission(browser_of: Callable[..., Browser], ran: None):
    assert browser_of("view_message").get(RUNS).status_code == 403
    assert browser_of("view_run").get(RUNS).status_code == 200


def test_a_period_and_a_time_are_compared_without_time_zones_too(browser: Browser, settings: Any, ran: None):
    settings.USE_TZ = False

    assert browser.get(RUNS, {"period": "24h", "since": "2026-11-22T10:00:00"}).status_code == 200


@pytest.mark.parametrize(
    "query",
    [{"until": "1960-01-01T00:00:00"}, {"since": "0001-01-01T00:00"}, {"until": "9999-12-31T23:59"}, {"before": "0-0"}],
)
def test_times_beyond_all_runs_are_answered(browser: Browser, ran: None, query: dict[str, str]):
    page = browser.get(RUNS, query)

    assert len(rows_of(page)) == (0 if "1960" in str(query) else 20)
