"""`manage.py rsmq_stats`: the table, the JSON, and refusals."""

import json
import time
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from hypothesis import given
from hypothesis import strategies as st

from rsmq_django.core import Queue
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.stats.cardinality import MOST_TASKS, OTHER
from rsmq_django.core.stats.counters import report, sample
from rsmq_django.core.stats.histogram import bucket_of
from rsmq_django.core.tasks.processes import ProcessRecord, describe
from rsmq_django.core.topic import Topic
from rsmq_django.management.cli.stats import HEIGHTS, curve
from rsmq_django.queues import ensure_queue, get_client, get_queue, pause_queue
from rsmq_django.worker.lease.inflight import heartbeat_call
from tests.redis_server import PrivateServer
from tests.support import pass_time

pytestmark = pytest.mark.usefixtures("mid_minute")


@pytest.fixture(autouse=True)
def project(settings: Any, server: PrivateServer) -> None:
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}},
        "QUEUES": {"mail": {}, "pay": {}},
    }


def work_done(queue: str, task: str, *, ago_s: float = 0, **counts: int) -> None:
    grown = {f"{name}:{task}": number for name, number in counts.items()}
    grown |= {f"run:{bucket_of(2500)}:{task}": 1, f"run_us:{task}": 2500}
    at_s = time.time() - ago_s
    get_client().run(report("rsmq", queue, reporter=f"{task}{ago_s}", number=1, at_s=at_s, grown=grown))


def stats(*words: str) -> str:
    out = StringIO()
    call_command("rsmq_stats", *words, stdout=out)
    return out.getvalue()


def test_table_shows_queues_and_below_them_their_tasks():
    ensure_queue("mail").send_many([b"x"] * 3)
    ensure_queue("pay")
    work_done("mail", "shop.send", sent=44, succeeded=41, retried=2, dead=1)
    work_done("mail", "shop.rare", succeeded=1)

    lines = stats().splitlines()

    names = [line.split()[0] for line in lines]
    assert names == ["QUEUE", "mail", "shop.send", "shop.rare", "pay"]
    assert lines[1].split()[1:4] == ["3", "0", "0"]
    assert lines[2].split()[1:9] == ["44", "41", "3", "1", "-", "-", "2.5ms", "2.5ms"]
    assert lines[2].endswith(HEIGHTS[-1])


def test_queues_are_shown_although_the_tasks_cannot_be_imported(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.syspath_prepend(str(tmp_path))
    (app := tmp_path / "app_that_is_broken").mkdir()
    (app / "__init__.py").touch()
    (app / "tasks.py").write_text("1 / 0")
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, app.name]
    ensure_queue("mail").send(b"x")
    work_done("mail", "shop.send", sent=1)

    names = [line.split()[0] for line in stats().splitlines()]

    assert names == ["QUEUE", "mail", "shop.send"]
    assert "tasks cannot be imported: ZeroDivisionError" in caplog.text


def test_older_events_are_left_out():
    ensure_queue("mail")
    work_done("mail", "shop.send", ago_s=3 * 3600, succeeded=5)
    work_done("mail", "shop.send", succeeded=1)

    assert json.loads(stats("mail", "--json"))["succeeded"] == 1
    assert json.loads(stats("mail", "--json", "--since", "6h"))["succeeded"] == 6


def test_json_has_one_object_per_queue():
    ensure_queue("mail").send(b"x")
    ensure_queue("pay")
    get_client().run(sample("rsmq", "mail", at_s=time.time()))
    work_done("mail", "shop.send", started=2, succeeded=1, lost=1)

    mail, pay = map(json.loads, stats("--json").splitlines())

    assert (mail["queue"], mail["ready"], mail["failed"], mail["lost"]) == ("mail", 1, 1, 1)
    assert mail["tasks"]["shop.send"]["run_p50_us"] == pytest.approx(2500, rel=0.01)
    assert mail["tasks"]["shop.send"]["wait_p95_us"] is None
    assert (pay["queue"], pay["succeeded"], pay["tasks"], pay["sent"]) == ("pay", 0, {}, 0)


def test_messages_sent_to_a_new_queue_or_band_are_counted_before_the_first_sample(server: PrivateServer):
    ensure_queue("mail-p50").send_many([b"x"] * 3)
    ensure_queue("pay").send(b"x")
    server.redis.hdel("rsmq:pay:Q", "created")

    band, old = map(json.loads, stats("--json").splitlines())

    assert (band["queue"], band["sent"]) == ("mail-p50", 3)
    assert (old["queue"], old["sent"]) == ("pay", None), "it may be much older than what was asked for"


def test_reliable_queues_and_groups_of_topics_are_listed_with_the_queues():
    orders, topic = ReliableQueue("orders", get_client()), Topic("paid", get_client())
    orders.push("a", "b", "c")
    orders.push("later", delay_s=60)
    orders.pop()
    topic.publish("1", "2", "3")
    topic.group("billing", at_least_once=True).read()
    work_done("orders", "shop.ship", sent=1, started=1)
    work_done("paid:billing", "shop.bill", sent=2, succeeded=2)
    ensure_queue("mail")

    mail, ship, bill = map(json.loads, stats("--json").splitlines())

    assert [each["kind"] for each in (mail, ship, bill)] == ["queue", "reliable", "topic"]
    assert (ship["queue"], ship["ready"], ship["delayed"], ship["in_flight"]) == ("orders", 2, 1, 1)
    assert (ship["sent"], ship["tasks"]["shop.ship"]["sent"]) == (None, 1)
    assert (bill["queue"], bill["ready"], bill["delayed"], bill["in_flight"]) == ("paid:billing", 2, 0, 1)
    assert bill["tasks"]["shop.bill"]["succeeded"] == 2
    assert [json.loads(line)["queue"] for line in stats("--json", "paid:billing").splitlines()] == ["paid:billing"]
    names = [line.split()[0] for line in stats().splitlines()]
    assert names == ["QUEUE", "mail", "orders", "shop.ship", "paid:billing", "shop.bill"]


# -- Workers and problems ------------------------------------------------------------------------------------------


def live_worker(worker_id: str, *queues: str, reliable: Sequence[str] = ()) -> None:
    client = get_client()
    client.run(heartbeat_call(client, [worker_id]))
    record = ProcessRecord("host", 7, "1", 0, None, "working", queues, (), reliable=tuple(reliable))
    client.run(describe(client.namespace, worker_id, record))


def test_workers_of_each_queue_are_counted():
    for name in ("mail", "mail-p50", "pay"):
        ensure_queue(name)
    ReliableQueue("orders", get_client()).push("a")
    live_worker("one", "mail")
    live_worker("two", "mail", reliable=["orders"])

    workers = {each["queue"]: each["workers"] for each in map(json.loads, stats("--json").splitlines())}

    assert workers == {"mail": 2, "mail-p50": 2, "pay": 0, "orders": 1}
    assert stats("mail").splitlines()[0].split()[:7] == ["QUEUE", "/", "TASK", "READY", "DELAYED", "IN", "FLIGHT"]
    assert stats("mail").splitlines()[1].split()[5] == "2"


def test_top_shows_the_busiest_queues_first():
    ensure_queue("mail")
    ensure_queue("pay")
    ensure_queue("pay-p5").send("x")
    work_done("mail", "shop.send", succeeded=3)
    work_done("pay", "shop.pay", succeeded=8)

    assert [json.loads(line)["queue"] for line in stats("--json", "--top", "2").splitlines()] == ["pay", "mail"]
    assert [json.loads(line)["queue"] for line in stats("--json", "--top", "3").splitlines()][2] == "pay-p5"
    with pytest.raises(CommandError, match="0 is not in the range x>=1"):
        stats("--top", "0")


def test_trouble_lists_queues_with_their_problems(settings: Any, server: PrivateServer):
    queues: dict[str, dict[str, bool]] = {name: {} for name in ("mail", "pay", "fine", "waits", "held")}
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {**queues, "node": {"FOR_OTHERS": True}}}
    for name in ("mail", "fine", "waits", "held", "mail-dead", "node"):
        ensure_queue(name).send("x")
    ensure_queue("pay")
    pass_time(get_queue("waits"), seconds=61)
    pause_queue("held")
    live_worker("one", "fine", "waits", "held")
    server.redis.set("rsmq:broken:Q", "no hash")
    server.redis.sadd("rsmq:QUEUES", "broken")

    found = {each["queue"]: each["trouble"] for each in map(json.loads, stats("--trouble", "--json").splitlines())}
    lines = stats("--trouble").splitlines()

    assert found == {
        "mail": ["no worker"],
        "waits": ["late"],
        "held": ["paused"],
        "mail-dead": ["dead letters"],
        "broken": ["broken"],
    }
    assert lines[0].split()[-2:] == ["WORKERS", "PROBLEM"]
    assert [line.split()[0] for line in lines[1:]] == ["broken", "held", "mail", "mail-dead", "waits"]
    assert lines[3].endswith("no worker")


def test_installation_without_problems_is_reported():
    ensure_queue("mail")

    assert stats("--trouble").strip() == "no queue has a problem"


def test_invalid_keys_of_reliable_queues_and_topics_hide_no_others(server: PrivateServer):
    ensure_queue("mail")
    server.redis.sadd("rsmq::reliable", "a:b", "broken")
    server.redis.set("rsmq::reliable:broken:state", "no hash")
    server.redis.set("rsmqt::topics", "no set")

    shown = [json.loads(line) for line in stats("--json").splitlines()]

    assert [(each["queue"], "error" in each) for each in shown] == [("mail", False), ("broken", True)]


def test_server_that_is_down_hides_no_queue_of_the_others(settings: Any):
    gone = {"URL": "redis://127.0.0.1:1/0", "TIMEOUT_S": 1}
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"gone": gone, **settings.RSMQ["CONNECTIONS"]}}
    ensure_queue("mail")
    out = StringIO()

    with pytest.raises(CommandError, match="cannot connect to redis://127.0.0.1:1/0") as ended:
        call_command("rsmq_stats", json=True, stdout=out)
    with pytest.raises(CommandError, match="cannot connect to redis://127.0.0.1:1/0"):
        stats("--connection", "gone")

    assert [json.loads(line)["queue"] for line in out.getvalue().splitlines()] == ["mail"]
    assert ended.value.returncode == 1


def test_names_of_other_programs_cannot_move_the_cursor(server: PrivateServer):
    server.redis.sadd("rsmq:QUEUES", "evil\x1b[2J")

    assert "\x1b" not in stats()


def test_unknown_queue_and_connection_are_refused_with_the_existing_ones():
    ensure_queue("mail")

    with pytest.raises(CommandError, match="queue not found: 'male'"):
        stats("male")
    with pytest.raises(CommandError, match="Did you mean 'default'"):
        stats("--connection", "defalt")


@pytest.mark.parametrize("text", ["", "1", "h", "-1h", "0s", "400d", "1w"])
def test_time_without_stored_counters_is_refused(text: str):
    with pytest.raises(CommandError, match="such as 30s, 15m, 1h or 7d"):
        stats(f"--since={text}")


@given(st.lists(st.integers(min_value=0, max_value=10**6), max_size=200))
def test_curve_fits_into_its_column_and_is_highest_where_most_ended(numbers: list):
    letters = curve(numbers)

    assert len(letters) <= 30
    assert set(letters) <= set(HEIGHTS)
    assert (HEIGHTS[-1] in letters) == any(numbers)


def test_idle_queues_cost_a_few_commands_each(server: PrivateServer):
    names = [f"idle{number}" for number in range(100)]
    for name in names:
        Queue(name, get_client()).create()
        for ago_s in range(9000, -1, -1800):
            get_client().run(sample("rsmq", name, at_s=time.time() - ago_s))

    before = server.redis.info("stats")["total_commands_processed"]
    rows = [json.loads(line) for line in stats("--json").splitlines()]
    commands = server.redis.info("stats")["total_commands_processed"] - before

    assert [row["sent"] for row in rows if row["queue"] in names] == [0] * 100
    assert commands < 1500


def test_forged_names_of_tasks_are_one_row(server: PrivateServer):
    ensure_queue("mail")
    work_done("mail", "shop.busy", succeeded=7)
    (minute,) = server.redis.keys("rsmq::stats:mail:60:*")
    server.redis.hset(minute, mapping={f"dead:forged.{number}": 1 for number in range(20_000)})

    mail = json.loads(stats("mail", "--json"))

    assert len(mail["tasks"]) == MOST_TASKS + 1
    assert mail["tasks"]["shop.busy"]["succeeded"] == 7
    assert sum(each["dead"] for each in mail["tasks"].values()) == 20_000
    assert mail["tasks"][OTHER]["dead"] == 20_001 - MOST_TASKS
