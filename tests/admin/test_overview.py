"""The list of queues as an overview: rates, shares, next due, processes, charts of an hour, a day and a week."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client as Browser

from rsmq_django.core import Client, Queue
from rsmq_django.core.errors import ConnectionFailed
from rsmq_django.core.keys import workers_key
from rsmq_django.core.stats.counters import report, sample
from rsmq_django.core.tasks.processes import ProcessRecord, describe
from rsmq_django.core.transport.call import Call
from rsmq_django.live import history
from rsmq_django.queues import ensure_queue
from tests.admin.conftest import QUEUES
from tests.admin.pages import rows_of, text_of
from tests.redis_server import PrivateServer
from tests.support import wait_until

pytestmark = pytest.mark.usefixtures("mid_minute")


def count(client: Client, queue: str, *, at_s: float, **grown: int) -> None:
    fields = {name.replace("__", ":"): by for name, by in grown.items()}
    client.run(report("rsmq", queue, reporter="w1", number=int(at_s * 1000), at_s=at_s, grown=fields))


def a_worker(client: Client, worker_id: str = "w1", *queues: str, state: str = "working") -> str:
    """A worker process that a supervisor has told about a moment ago."""
    client.run(Call("tasks/worker/beat", (workers_key("rsmq"),), (30_000, worker_id), lambda reply: None))
    record = ProcessRecord("web-1", 42, "1.0", 5000, 1 << 20, state, queues or ("mail",), ())
    client.run(describe("rsmq", worker_id, record))
    return worker_id


def row_of(browser: Browser, name: str = "mail", **query: str) -> Any:
    return next(row for row in rows_of(browser.get(QUEUES, query)) if row.name == name)


def test_a_queue_shows_rates_failures_and_a_curve(browser: Browser, mail: Queue):
    mail.client.run(sample("rsmq", "mail", at_s=time.time() - 60))
    mail.send_many([b"x"] * 6)
    mail.client.run(sample("rsmq", "mail", at_s=time.time()))
    count(mail.client, "mail", at_s=time.time(), succeeded__a=3, retried__a=1)

    row = row_of(browser)

    assert row.past.failed_share == 0.25
    assert row.past.handled_per_min > 0 and row.past.sent_per_min > 0
    page = browser.get(QUEUES)
    assert "25 %" in text_of(page) and b"rsmq-spark" in page.content


def test_a_new_queue_shows_its_sent_messages_before_the_first_sample(browser: Browser, mail: Queue):
    mail.send_many([b"x"] * 6)

    row = row_of(browser)

    assert row.past.sent_per_min > 0
    assert (row.past.failed_share, row.past.handled_per_min) == (None, 0)


def test_messages_of_a_new_queue_from_before_the_first_sample_count(
    browser: Browser, mail: Queue, server: PrivateServer
):
    server.redis.hset("rsmq:mail:Q", "created", int(time.time()) - 150)
    mail.send_many([b"x"] * 60)
    mail.client.run(sample("rsmq", "mail", at_s=time.time() - 60))

    assert 60 / 5 < row_of(browser).past.sent_per_min <= 60 / 2.4, "those of two and a half minutes, as it is read"


def test_an_old_queue_without_samples_shows_dashes(browser: Browser, mail: Queue, server: PrivateServer):
    server.redis.hdel("rsmq:mail:Q", "created")

    assert row_of(browser).past.sent_per_min is None


def test_total_of_an_old_queue_without_samples_is_not_a_rate(browser: Browser, mail: Queue, server: PrivateServer):
    server.redis.hset("rsmq:mail:Q", mapping={"created": int(time.time()) - 3 * 86_400, "totalsent": 1_000_000})

    assert row_of(browser).past.sent_per_min is None


def test_a_rate_counts_the_last_minutes_and_nothing_before_an_outage_of_all_workers(
    browser: Browser, mail: Queue, server: PrivateServer
):
    mail.client.run(sample("rsmq", "mail", at_s=time.time() - 40 * 60))
    server.redis.hset("rsmq:mail:Q", mapping={"created": int(time.time()) - 86_400, "totalsent": 1_000_000})

    assert row_of(browser).past.sent_per_min is None
    assert row_of(browser, span="24h").past.sent_per_min > 0, "whose minutes are the last fifty"


def test_messages_are_counted_by_state(browser: Browser, mail: Queue, dead: Queue):
    mail.send_many([b"x"] * 6)
    mail.receive_many(2, visibility_timeout_s=60)
    mail.send_many([b"x"] * 3, delay_s=60)
    dead.send(b"x")

    row = row_of(browser)

    assert (row.ready, row.depth.delayed, row.depth.in_flight, row.dead) == (4, 3, 2, 1)
    content = browser.get(QUEUES).content.decode()
    assert "?queue=mail&amp;state__exact=in_flight" in content and "?queue=mail-dead" in content


def test_many_hidden_messages_are_estimated_and_marked_as_estimates(browser: Browser, mail: Queue):
    mail.send_many([b"x"] * 500, delay_s=60)

    row_of(browser)
    page = browser.get(QUEUES)

    assert ">~500</a>" in page.content.decode()
    assert row_of(browser).depth.is_estimated


def test_the_next_end_of_a_lease_or_delay_is_shown(browser: Browser, mail: Queue):
    mail.send(b"x", delay_s=6000)
    mail.send(b"x")
    assert mail.receive(visibility_timeout_s=2000)

    assert 0 < row_of(browser).next_due_s <= 2000


def test_living_processes_that_take_messages_are_counted(browser: Browser, mail: Queue, server: PrivateServer):
    a_worker(mail.client, "w1", "mail", "default")
    a_worker(mail.client, "w2", "default")
    a_worker(mail.client, "w3", "mail", state="quiet")
    a_worker(mail.client, "w4", "mail")
    server.redis.zadd("rsmq::workers", {"w4": 1})

    assert row_of(browser).processes == 1


@pytest.mark.parametrize(("span", "points"), [("1h", 61), ("24h", 145), ("7d", 169), ("bogus", 61)])
def test_charts_cover_an_hour_a_day_and_a_week(browser: Browser, mail: Queue, span: str, points: int):
    count(mail.client, "mail", at_s=time.time(), **{"succeeded__a": 3, "run:400:a": 3, "wait:500:a": 3})

    page = browser.get(QUEUES, {"span": span})

    charts = {chart.name: chart for chart in page.context["cl"].charts}
    assert set(charts) == {"throughput", "outcomes", "wait", "run"}
    assert all(len(chart.times) == points for chart in charts.values())
    assert charts["outcomes"].series[0].values[-1] == 3
    assert charts["run"].series[0].values[-1] == pytest.approx(1.02**400 / 1e6, rel=0.02)
    assert page.content.count(b'<svg class="rsmq-chart"') == 4


def test_the_chosen_time_stays_with_filters_and_search(browser: Browser, mail: Queue, dead: Queue):
    page = browser.get(QUEUES, {"span": "24h", "q": "mail", "holds_dead_letters__exact": "1"})

    assert [row.name for row in rows_of(page)] == ["mail-dead"]
    assert [is_chosen for _, _, is_chosen in page.context["cl"].spans] == [False, True, False]
    assert "span=24h" in page.context["cl"].get_query_string({"p": 1})


def test_the_page_has_nothing_that_a_strict_policy_forbids(browser: Browser, mail: Queue):
    count(mail.client, "mail", at_s=time.time(), **{"succeeded__a": 3, "run:400:a": 3})

    content = browser.get(QUEUES).content.decode()

    ours = content[content.index("rsmq-spans") : content.index("</form>", content.index("rsmq-spans"))]
    assert " style=" not in ours and "<script" not in ours and " onclick" not in ours


def test_users_who_may_not_see_queues_see_no_charts(browser_of: Callable[..., Browser], mail: Queue):
    assert browser_of("view_worker").get(QUEUES).status_code == 403


@pytest.mark.parametrize("query", [{}, {"span": "24h"}, {"o": "3"}, {"q": "mail"}, {"holds_dead_letters__exact": "0"}])
def test_a_refresh_is_one_round_trip(
    browser: Browser,
    mail: Queue,
    dead: Queue,
    round_trips: list[int],
    query: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("rsmq_django.live.installation.KEEP_FACTOR", 1e9)  # read by a thread, now and then
    a_worker(mail.client)
    first = row_of(browser, **query)
    round_trips.clear()

    second = row_of(browser, **query)

    assert len(round_trips) == 1
    assert (first.processes, second.processes) == (1, 1)


def test_messages_that_came_and_went_since_the_last_sample_are_counted(
    browser: Browser, mail: Queue, server: PrivateServer
):
    a_worker(mail.client)
    row_of(browser)
    mail.send_many([b"x"] * 3, delay_s=60)
    a_worker(mail.client, "w2", "mail")
    new = Queue("a-new-one", mail.client)
    new.create()
    new.send(b"x")

    assert (row_of(browser, "a-new-one").ready, row_of(browser, "a-new-one").past.sent_per_min > 0) == (1, True)
    assert (row_of(browser).processes, row_of(browser).depth.delayed) == (2, 3)
    mail.delete_queue()
    page = browser.get(QUEUES)
    assert [row.name for row in rows_of(page)] == ["a-new-one"]
    assert [place.name for place in page.context["cl"].past.by_place] == ["a-new-one"]
    new.delete_queue()
    assert browser.get(QUEUES).context["cl"].past.by_place == {}


def test_queues_beyond_the_page_are_not_read(browser: Browser, mail: Queue, server: PrivateServer):
    for number in range(30):
        server.redis.sadd("rsmq:QUEUES", f"a{number:02}")
        server.redis.hset(f"rsmq:a{number:02}:Q", mapping={"vt": 30, "delay": 0, "maxsize": 65536})

    page = browser.get(QUEUES)

    assert len(page.context["cl"].past.by_place) == 20


def test_cached_data_of_an_unreachable_server_is_not_shown(
    browser: Browser, mail: Queue, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    own = settings.RSMQ["CONNECTIONS"]["default"]
    settings.RSMQ = {
        "CONNECTIONS": {"default": own, "billing": {**own, "NAMESPACE": "billing"}},
        "QUEUES": {"mail": {}, "invoices": {"CONNECTION": "billing"}},
    }
    ensure_queue("invoices")
    assert {place.name for place in browser.get(QUEUES).context["cl"].past.by_place} == {"invoices", "mail"}
    run_many = Client.run_many

    def is_away(self: Client, calls: Any) -> Any:
        if self.namespace == "billing":
            raise ConnectionFailed("nobody is there")
        return run_many(self, calls)

    monkeypatch.setattr(Client, "run_many", is_away)

    page = browser.get(QUEUES)

    assert {place.name for place in page.context["cl"].past.by_place} == {"mail"}


def test_charts_are_about_all_queues_unless_the_list_is_about_some(
    browser: Browser, mail: Queue, server: PrivateServer
):
    now_s = time.time()
    for number in range(320):
        Queue(f"other-{number:03}", mail.client).create()
    for name, sent in (("other-319", 5), ("mail", 7)):
        for at_s, total in ((now_s - 60, 100), (now_s, 100 + sent)):
            server.redis.hset(f"rsmq:{name}:Q", "totalsent", total)
            mail.client.run(sample("rsmq", name, at_s=at_s))
        count(mail.client, name, at_s=now_s, **{"succeeded__a": 3, "run:400:a": 3})

    def last_of(**query: str) -> tuple[Any, Any, Any]:
        page = browser.get(QUEUES, query)
        charts = {chart.name: chart for chart in page.context["cl"].charts}
        values = [charts[name].series[0].values[-1] for name in ("outcomes", "throughput", "run")]
        return values[0], values[1], values[2]

    succeeded, sent, run_s = last_of()
    assert (succeeded, sent) == (6, 12)
    assert run_s == pytest.approx(1.02**400 / 1e6, rel=0.02)
    assert last_of() == (succeeded, sent, run_s), "the second time, from memory"
    assert last_of(q="mail")[:2] == (3, 7)
    assert "All queues" in text_of(browser.get(QUEUES)) and "Queues on this page" in text_of(
        browser.get(QUEUES, {"q": "m"})
    )


def test_charts_of_very_many_queues_say_how_many_they_are_about(
    browser: Browser, mail: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.admin.queue_list.MAX_CHARTED", 25)
    for number in range(30):
        Queue(f"a-{number:02}", mail.client).create()

    page = browser.get(QUEUES)

    assert "25 of 31 queues" in text_of(page) and page.context["cl"].charted == 25


def test_charts_of_all_queues_may_come_later_than_the_page(
    browser: Browser, mail: Queue, monkeypatch: pytest.MonkeyPatch
):
    for number in range(30):
        Queue(f"other-{number}", mail.client).create()
    goes_on, real = threading.Event(), history.past_together
    monkeypatch.setattr(history, "past_together", lambda *words: goes_on.wait(60) and real(*words))
    monkeypatch.setattr(history, "WAIT_S", 0.01)

    early = browser.get(QUEUES)
    readers = [thread for thread in threading.enumerate() if thread.name == "rsmq-charts"]
    goes_on.set()
    for reader in readers:
        reader.join(60)
    monkeypatch.setattr(history, "WAIT_S", 60.0)

    assert "the charts of all queues are still loading" in text_of(early)
    assert len(readers) == 1 and "All queues" in text_of(browser.get(QUEUES))


def test_the_first_page_does_not_wait_for_the_charts_of_very_many_queues(
    browser: Browser, mail: Queue, monkeypatch: pytest.MonkeyPatch
):
    for number in range(30):
        Queue(f"other-{number}", mail.client).create()
    goes_on, real = threading.Event(), history.past_together
    monkeypatch.setattr(history, "past_together", lambda *words: goes_on.wait(60) and real(*words))
    monkeypatch.setattr(history, "MAX_AWAITED", 10)

    early = browser.get(QUEUES)  # would wait for a minute
    goes_on.set()
    wait_until(lambda: not any(thread.name == "rsmq-charts" for thread in threading.enumerate()))

    assert "the charts of all queues are still loading" in text_of(early)
    assert "All queues" in text_of(browser.get(QUEUES))
    assert "All queues" in text_of(browser.get(QUEUES)), "complete spans are remembered: this reading is short"
