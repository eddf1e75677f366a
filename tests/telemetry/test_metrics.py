"""Prometheus metrics: the view, the command, and independence from servers that are down."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.models import AnonymousUser
from django.core.management import call_command
from django.test import RequestFactory
from prometheus_client.parser import text_string_to_metric_families

from rsmq_django.conf.settings import aliases_of, get_settings
from rsmq_django.core import Queue
from rsmq_django.core.queue.pause import pause
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.stats.cardinality import MOST_QUEUES, MOST_TASKS, OTHER
from rsmq_django.core.stats.counters import report
from rsmq_django.core.stats.histogram import bucket_of
from rsmq_django.core.tasks.processes import ProcessRecord, SlotUse, describe
from rsmq_django.core.tasks.schedules import put_entry
from rsmq_django.core.topic import Topic
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.tasks import task
from rsmq_django.telemetry.metrics import metrics, metrics_with_token
from rsmq_django.worker.lease.inflight import heartbeat_call
from tests.redis_server import PrivateServer

ROOT = Path(__file__).parents[2]

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape() -> Samples:
    return parse(metrics(RequestFactory().get("/metrics")).content.decode())


def at(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset({"connection": "default", **labels}.items())


@pytest.fixture(autouse=True)
def project(settings: Any, server: PrivateServer, db: None) -> None:
    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}}, "QUEUES": {"mail": {}}}


def test_lengths_of_queues_are_read_live():
    queue = ensure_queue("mail")
    queue.send_many([b"x"] * 5)
    queue.send(b"later", delay_s=60)
    queue.receive()
    get_client().run(pause("rsmq", "mail"))

    seen = scrape()

    states = [seen[at("rsmq_queue_messages", queue="mail", state=s)] for s in ("ready", "delayed", "in_flight")]
    assert states == [4, 1, 1]
    assert seen[at("rsmq_queue_sent_total", queue="mail")] == 6
    assert seen[at("rsmq_queue_received_total", queue="mail")] == 1
    assert seen[at("rsmq_queue_paused", queue="mail")] == 1
    assert seen[at("rsmq_queue_oldest_ready_seconds", queue="mail")] >= 0
    assert seen[at("rsmq_up")] == 1


def test_counters_and_histograms_are_those_of_all_workers():
    ensure_queue("mail")
    slow, fast = bucket_of(2_000_000), bucket_of(3_000)
    grown = {"succeeded:shop.send": 4, "dead:shop.send": 1, "started:shop.send": 6, "run_us:shop.send": 2_012_000}
    grown |= {f"run:{fast}:shop.send": 4, f"run:{slow}:shop.send": 1}
    for worker in ("w1", "w2"):
        get_client().run(report("rsmq", "mail", reporter=worker, number=1, at_s=time.time(), grown=grown))

    seen = scrape()

    labels = {"queue": "mail", "task": "shop.send"}
    assert seen[at("rsmq_attempts_total", outcome="succeeded", **labels)] == 8
    assert seen[at("rsmq_attempts_total", outcome="retried", **labels)] == 0
    assert seen[at("rsmq_attempts_started_total", **labels)] == 12
    assert seen[at("rsmq_run_seconds_bucket", le="0.001", **labels)] == 0
    assert seen[at("rsmq_run_seconds_bucket", le="0.005", **labels)] == 8
    assert seen[at("rsmq_run_seconds_bucket", le="2.5", **labels)] == 10
    assert seen[at("rsmq_run_seconds_bucket", le="+Inf", **labels)] == 10
    assert seen[at("rsmq_run_seconds_count", **labels)] == 10
    assert seen[at("rsmq_run_seconds_sum", **labels)] == pytest.approx(4.024)


def test_reliable_queues_and_groups_of_topics_are_measured_as_queues():
    orders, topic = ReliableQueue("orders", get_client()), Topic("paid", get_client())
    orders.push("a", "b")
    orders.bury(*[message.id for message in orders.pop_messages()])
    topic.publish("1", "2", "3")
    topic.group("billing", at_least_once=True).read()
    grown = {"sent:shop.bill": 2, "succeeded:shop.bill": 1}
    get_client().run(report("rsmq", "paid:billing", reporter="w", number=1, at_s=time.time(), grown=grown))

    seen = scrape()

    states = [
        seen[at("rsmq_queue_messages", queue="orders", state=s)] for s in ("ready", "delayed", "in_flight", "dead")
    ]
    assert states == [1, 0, 0, 1]
    assert seen[at("rsmq_queue_sent_total", queue="orders")] == 2
    assert at("rsmq_queue_oldest_ready_seconds", queue="orders") not in seen
    states = [seen[at("rsmq_queue_messages", queue="paid:billing", state=s)] for s in ("ready", "in_flight")]
    assert states == [2, 1]
    assert seen[at("rsmq_queue_oldest_ready_seconds", queue="paid:billing")] >= 0
    assert seen[at("rsmq_queue_sent_total", queue="paid:billing")] == 3
    assert seen[at("rsmq_topic_dead_lettered_total", queue="paid:billing")] == 0
    assert seen[at("rsmq_task_sent_total", queue="paid:billing", task="shop.bill")] == 2
    assert seen[at("rsmq_attempts_total", queue="paid:billing", task="shop.bill", outcome="succeeded")] == 1


def test_age_of_the_last_heartbeat_of_each_worker_is_exported(server: PrivateServer):
    seconds, _ = server.redis.time()
    server.redis.zadd("rsmq::workers", {"web1-7": (seconds - 20) * 1000})

    seen = scrape()

    assert 19 < seen[at("rsmq_worker_last_beat_age_seconds", worker="web1-7")] < 60
    assert seen[at("rsmq_workers")] == 1


def test_server_that_is_down_does_not_hide_the_others(settings: Any, server: PrivateServer):
    connections = {"default": {"URL": server.url, "TIMEOUT_S": 15}, "gone": {"URL": "redis://127.0.0.1:1/0"}}
    settings.RSMQ = {"CONNECTIONS": connections, "QUEUES": {"mail": {}}}
    ensure_queue("mail")

    seen = scrape()

    assert seen[at("rsmq_up")] == 1
    assert seen["rsmq_up", frozenset({("connection", "gone")})] == 0
    assert at("rsmq_queue_sent_total", queue="mail") in seen


def test_queue_that_another_program_broke_does_not_hide_the_others(server: PrivateServer):
    ensure_queue("mail")
    server.redis.sadd("rsmq:QUEUES", "broken")
    server.redis.set("rsmq:broken:Q", "no hash")

    seen = scrape()

    assert at("rsmq_queue_sent_total", queue="mail") in seen
    assert at("rsmq_queue_sent_total", queue="broken") not in seen


@pytest.mark.parametrize("total", ["9" * 400, "9" * 5000, "1e308", "inf", "-1", "many"])
def test_total_that_is_not_a_number_hides_no_other_value(server: PrivateServer, total: str):
    ensure_queue("mail").send(b"x")
    server.redis.hset("rsmq:mail:Q", "totalsent", total)
    server.redis.hset("rsmq::stats:mail:total", mapping={"sent:shop.send": total, f"wait:{total}:shop.send": 1})

    seen = scrape()

    assert seen[at("rsmq_queue_sent_total", queue="mail")] == 0
    assert seen[at("rsmq_queue_messages", queue="mail", state="ready")] == 1


@pytest.mark.parametrize("key", ["stats:mail:total", "paused", "workers", "events"])
def test_record_that_another_program_broke_does_not_hide_the_queues(server: PrivateServer, key: str):
    ensure_queue("mail").send(b"x")
    server.redis.set(f"rsmq::{key}", "of another program")

    seen = scrape()

    assert seen[at("rsmq_up")] == 1
    assert seen[at("rsmq_queue_messages", queue="mail", state="ready")] == 1


def test_names_that_are_not_utf8_hide_no_other_value(server: PrivateServer):
    server.redis.zadd("rsmq::workers", {b"w\xff": 1, b"w\xfe": 1})
    server.redis.hset("rsmq::schedule:entries", b"s\xff", '{"task": "shop.tasks.pay", "every_s": 60}')

    seen = scrape()

    ages = [at("rsmq_worker_last_beat_age_seconds", worker=f"w\\udc{end}") for end in ("ff", "fe")]
    assert all(age in seen for age in ages)
    assert seen[at("rsmq_workers")] == 2


def test_nothing_of_bodies_is_shown():
    ensure_queue("mail").send(b'{"task": "shop.send", "args": ["hunter2"]}')
    get_queue("mail").receive()

    text = metrics(RequestFactory().get("/metrics")).content.decode()

    assert "hunter2" not in text


def test_command_prints_once():
    ensure_queue("mail")
    out = StringIO()

    call_command("rsmq_metrics", "--once", stdout=out)

    assert at("rsmq_queue_sent_total", queue="mail") in parse(out.getvalue())


@pytest.mark.slow
def test_command_serves_until_it_is_stopped():
    ensure_queue("mail")
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "manage.py", "rsmq_metrics", "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[2].rstrip(";")
        with urllib.request.urlopen(url, timeout=180) as answer:  # noqa: S310 - an http address of our own
            seen = parse(answer.read().decode())
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
    finally:
        process.kill()
        process.communicate()

    assert at("rsmq_queue_sent_total", queue="mail") in seen
    assert status == 0


FORGED = 20_000


def forge_tasks(server: PrivateServer, queue: str, count: int = FORGED) -> None:
    """Write counters of tasks that do not exist, as any program can that may write the namespace."""
    for kind in ("dead", "run:7", "run_us"):
        server.redis.hset(f"rsmq::stats:{queue}:total", mapping={f"{kind}:forged.{n}": 1 for n in range(count)})


def test_forged_names_of_tasks_are_counted_together(server: PrivateServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(import_module("rsmq_django.tasks.task"), "_tasks", {})

    def function() -> None:
        pass

    function.__qualname__ = "ours"
    ours = task(queue_name="mail")(function)
    ensure_queue("mail")
    forge_tasks(server, "mail")
    server.redis.hset("rsmq::stats:mail:total", mapping={f"dead:{ours.module_path}": 1, "dead:busy.one": 5})

    seen = scrape()

    dead = {dict(labels)["task"]: n for (name, labels), n in seen.items() if ("outcome", "dead") in labels}
    assert len(dead) == MOST_TASKS + 1
    assert (dead[ours.module_path], dead["busy.one"]) == (1, 5)
    assert dead[OTHER] == FORGED + 2 - MOST_TASKS
    assert sum(dead.values()) == FORGED + 6
    assert seen[at("rsmq_run_seconds_count", queue="mail", task=OTHER)] == FORGED + 2 - MOST_TASKS


def test_forged_queues_are_counted_together(server: PrivateServer):
    long = Queue("long", get_client())
    long.create()
    long.send_many([b"x"] * 3)
    ensure_queue("mail").send_many([b"x"] * 2)
    for number in range(MOST_QUEUES + 20):
        server.redis.sadd("rsmq:QUEUES", f"forged{number}")
        server.redis.hset(f"rsmq:forged{number}:Q", mapping={"vt": 30, "delay": 0, "maxsize": 65536, "totalsent": 1})
        server.redis.hset(f"rsmq::stats:forged{number}:total", "dead:x.y", 1)

    seen = scrape()

    sent = {dict(labels)["queue"]: n for (name, labels), n in seen.items() if name == "rsmq_queue_sent_total"}
    assert len(sent) == MOST_QUEUES + 1
    assert (sent["mail"], sent["long"], sent[OTHER]) == (2, 3, 22)
    dead = [n for (name, labels), n in seen.items() if ("outcome", "dead") in labels]
    assert sum(dead) == MOST_QUEUES + 20
    assert len(dead) <= MOST_TASKS + 1


def test_workers_are_counted_for_queues_that_they_have_to_consume(settings: Any):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"mail": {}, "idle": {}, "node": {"FOR_OTHERS": True}}}
    client = get_client()
    record = ProcessRecord("host", 1, "0", 0, None, "working", ("mail",), ())
    client.run(heartbeat_call(client, ["worker-1"]))
    client.run(describe(client.namespace, "worker-1", record))

    seen = {dict(labels)["queue"]: value for (name, labels), value in scrape().items() if name == "rsmq_queue_workers"}

    assert seen == {"mail": 1, "idle": 0}


def test_workers_are_counted_for_bands_and_shards_of_queues(settings: Any):
    settings.RSMQ = {**settings.RSMQ, "QUEUES": {"mail": {}, "orders": {"SHARDS": 2}}}
    ensure_queue("mail-p50")
    record = ProcessRecord("host", 1, "0", 0, None, "working", ("mail", "orders"), ())
    for alias in get_settings().connections:
        client = get_client(alias)
        client.run(heartbeat_call(client, ["worker-1"]))
        client.run(describe(client.namespace, "worker-1", record))

    seen = {
        (dict(labels)["connection"], dict(labels)["queue"]): value
        for (name, labels), value in scrape().items()
        if name == "rsmq_queue_workers"
    }

    first, second = aliases_of(get_settings().queues["orders"])
    assert seen == {("default", "mail"): 1, ("default", "mail-p50"): 1, (first, "orders"): 1, (second, "orders"): 1}


def test_slots_of_processes_are_added_up_by_their_queues_and_kind():
    client = get_client()
    use = (SlotUse("function", 3, 8), SlotUse("coroutine", 0, 100))
    plain = ProcessRecord("host", 1, "0", 0, None, "working", ("mail", "jobs"), (), slots=use)
    records = {
        "one": plain,
        "two": replace(plain, slots=(SlotUse("function", 8, 8), SlotUse("coroutine", 5, 50))),
        "reliable": replace(plain, reliable=("orders",)),
        "quiet": replace(plain, state="quiet"),
        "older": replace(plain, slots=()),
        "many": replace(plain, queues=tuple(f"queue-{n:03}" for n in range(100))),
    }
    client.run(heartbeat_call(client, list(records)))
    for name, record in records.items():
        client.run(describe(client.namespace, name, record))

    seen = {
        tuple(dict(labels)[name] for name in ("kind", "queues", "state")): value
        for (metric, labels), value in scrape().items()
        if metric == "rsmq_worker_slots"
    }

    many = f"{','.join(f'queue-{n:03}' for n in range(20))},..."
    assert seen == {
        ("function", "jobs,mail", "busy"): 11,
        ("function", "jobs,mail", "total"): 16,
        ("coroutine", "jobs,mail", "busy"): 5,
        ("coroutine", "jobs,mail", "total"): 150,
        ("function", "jobs,mail,orders", "busy"): 3,
        ("function", "jobs,mail,orders", "total"): 8,
        ("coroutine", "jobs,mail,orders", "busy"): 0,
        ("coroutine", "jobs,mail,orders", "total"): 100,
        ("function", many, "busy"): 3,
        ("function", many, "total"): 8,
        ("coroutine", many, "busy"): 0,
        ("coroutine", many, "total"): 100,
    }


def test_tick_that_has_not_fired_is_overdue():
    client = get_client()
    client.run(put_entry(client.namespace, "hourly", "{}", seen="", owner="", next_ms=1000))
    client.run(put_entry(client.namespace, "yearly", "{}", seen="", owner="", next_ms=2**52))

    seen = scrape()

    assert seen[at("rsmq_schedule_overdue_seconds", schedule="hourly")] > 1_000_000_000
    assert seen[at("rsmq_schedule_overdue_seconds", schedule="yearly")] == 0
    assert seen[at("rsmq_schedule_fired_total", schedule="hourly")] == 0
    assert seen[at("rsmq_schedule_skipped_total", schedule="hourly")] == 0


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer s3cret", 200),
        ("bearer s3cret", 200),
        ("Bearer s3cre", 401),
        ("Basic s3cret", 401),
        ("s3cret", 401),
        ("Bearer s\u00e9cret", 401),
        ("", 401),
    ],
)
def test_view_with_a_token_answers_only_those_who_have_it(header: str, status: int):
    response = metrics_with_token("s3cret")(RequestFactory().get("/metrics", headers={"Authorization": header}))

    assert response.status_code == status
    assert (b"rsmq_up" in response.content) is (status == 200)


def test_view_with_an_empty_token_is_refused():
    with pytest.raises(ValueError, match="is empty"):
        metrics_with_token("")


def test_view_with_a_token_needs_no_login():
    request = RequestFactory().get("/metrics")
    request.user = AnonymousUser()

    refusal = LoginRequiredMiddleware(metrics).process_view(request, metrics_with_token("s3cret"), (), {})

    assert refusal is None
