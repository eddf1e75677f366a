"""The event log as workers write it: one event for each attempt, in the step that settles it."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rsmq_django.admin.failures import failure_groups
from rsmq_django.core.stats.events import Event, following, state
from rsmq_django.core.stats.fingerprint import fingerprint
from rsmq_django.core.stats.history import read_totals
from rsmq_django.live.places import QueueRef
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.spark.dead_letters import DeadLetters
from rsmq_django.spark.events import EventLogReader
from rsmq_django.spark.log import StreamLog
from rsmq_django.spark.options import Options
from rsmq_django.tasks import cancel
from rsmq_django.worker.fetch.queues import work_queues_by_client
from rsmq_django.worker.supervise.recovery import Death, recover
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, declare, new_worker, queue_source, send_raw, work, working

Log = Callable[..., None]


@pytest.fixture
def log(configure: Configure, settings: Any) -> Log:
    """Return the function that chooses what is logged; all at first."""

    def choose(**options: Any) -> None:
        configure()
        settings.RSMQ = {**settings.RSMQ, "EVENTS": {"RECORD": "all", **options}}

    choose()
    return choose


def events() -> list[Event]:
    return get_client().run(following("rsmq"))


def kinds() -> list[str]:
    return [event.kind for event in events()]


# -- What is in them --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result_ttl_s", [0, 60], ids=["without result", "with result"])
def test_success_is_an_event_with_every_field(log: Log, result_ttl_s: int):
    task = declare(result_ttl_s=result_ttl_s)(lambda order_id: None)
    result = task.enqueue(order_id=7)
    message = get_queue("default").receive(visibility_timeout_s=0)

    work()

    (event,) = events()
    assert (event.kind, event.queue, event.task, event.task_id) == ("succeeded", "default", task.module_path, result.id)
    assert (event.message_id, event.attempt, event.body_bytes) == (message.id, 2, len(message.body))
    assert event.enqueued_ms == int(message.sent_ms)
    assert event.wait_us is not None and event.wait_us >= 0
    assert event.run_us is not None and event.run_us >= 0
    assert event.worker.count("-") >= 2
    assert (event.error_type, event.error) == ("", "")
    assert event.enqueued_ms <= event.at_ms


def test_run_and_wait_are_measured_apart(log: Log):
    begun, go_on = threading.Event(), threading.Event()

    def run() -> None:
        begun.set()
        go_on.wait(60)

    task = declare(run)
    task.enqueue()
    with working(threads=1):
        assert begun.wait(60)
        began_s = time.monotonic()
        while time.monotonic() < began_s + 0.2:
            time.sleep(0.01)
        go_on.set()

    (event,) = events()
    assert event.run_us >= 200_000
    assert event.wait_us < event.at_ms * 1000 - event.enqueued_ms * 1000 - 190_000


def test_each_attempt_is_an_event_of_its_own(log: Log):
    def fail() -> None:
        raise ValueError("no such order")

    declare(max_attempts=3, backoff=lambda attempt: 0)(fail).enqueue()

    work()

    assert [(event.kind, event.attempt) for event in events()] == [("retried", 1), ("retried", 2), ("dead", 3)]
    assert {(event.error_type, event.error) for event in events()} == {("builtins.ValueError", "no such order")}


def test_coroutines_are_logged_too(log: Log):
    async def fetch() -> None:
        await asyncio.sleep(0)

    declare(fetch).enqueue()

    work()

    assert kinds() == ["succeeded"]


def test_unreadable_message_is_dead_without_an_attempt(log: Log):
    message_id = send_raw("no json")

    work()

    (event,) = events()
    assert (event.kind, event.task, event.task_id, event.message_id) == ("dead", "", "", message_id)
    assert (event.wait_us, event.run_us) == (None, None)
    assert event.error_type.endswith(".Unreadable")


def test_many_successes_of_one_batch_are_as_many_events_in_order(log: Log):
    task = declare(lambda number: None)
    ids = task.enqueue_many([[number] for number in range(300)])

    work(threads=1)

    assert [event.task_id for event in events()] == ids
    assert set(kinds()) == {"succeeded"}


def test_messages_released_by_a_stopping_worker_count_as_released(log: Log):
    def stop() -> None:
        worker.stop(within_s=0)
        stopped.wait(60)

    stopped = threading.Event()
    result = declare(stop).enqueue()
    worker = new_worker(threads=1)
    worker.run()
    stopped.set()

    (event,) = events()
    assert (event.kind, event.task_id, event.attempt, event.run_us) == ("released", result.id, 1, None)


def test_task_that_is_cancelled_while_it_runs_is_an_event(log: Log):
    began, release = threading.Event(), threading.Event()

    def run() -> None:
        began.set()
        while not release.is_set():
            time.sleep(0.01)

    result = declare(run).enqueue()
    with working(threads=1) as worker:
        wait_until(began.is_set)
        assert cancel(result.id)
        wait_until(lambda: queue_source(worker).is_idle)

    (event,) = events()
    assert (event.kind, event.task_id, event.error_type) == ("cancelled", result.id, "")
    (counts,) = read_totals(get_client(), ["default"])["default"].values()
    assert (counts.started, counts.cancelled, counts.ended) == (1, 1, 1)


@pytest.mark.parametrize("settlement", ["returns", "fails", "dies"])
def test_attempt_that_lost_its_lease_counts_as_lost_with_any_outcome(log: Log, settlement: str):
    def run() -> None:
        queue = get_queue("default")
        (held,) = queue.client.connection.exchange([("ZRANGE", queue.keys.messages, 0, 0)])[0]
        queue.change_visibility(held.decode(), 0)
        assert queue.receive() is not None
        if settlement != "returns":
            raise OSError

    declare(max_attempts=1 if settlement == "dies" else 5)(run).enqueue()

    new_worker(max_tasks=1).run()

    (event,) = events()
    assert (event.kind, event.error_type) == ("lost", "LeaseLost")
    (counts,) = read_totals(get_client(), ["default"])["default"].values()
    assert (counts.started, counts.lost, counts.ended) == (1, 1, 1)


# -- A process that died ----------------------------------------------------------------------------------------------


def die_with(*, running: int, max_crashes: int = 3) -> None:
    """Let a worker that holds three messages end as if its process had died."""
    task = declare(lambda number: None)
    ids = task.enqueue_many([[number] for number in range(3)])
    worker = new_worker(worker_id="w-dead")
    source = queue_source(worker)
    held = source.exchange(3)
    assert len(held) == len(ids)
    ((client, queues),) = work_queues_by_client([each.settings for each in source.queues], "w-dead")
    ids_running = frozenset(delivery.message.id for delivery in held[:running])
    recover(client, queues, Death(worker_id="w-dead", how="signal 9", running=ids_running), max_crashes=max_crashes)


def test_running_messages_of_a_dead_process_are_lost_and_waiting_ones_are_released(log: Log):
    die_with(running=1)

    found = {event.kind: event for event in events()}
    assert sorted(kinds()) == ["lost", "released", "released"]
    assert (found["lost"].error_type, found["lost"].error) == ("ProcessDied", "signal 9")
    assert found["lost"].task.endswith("<lambda>")
    assert (found["lost"].worker, found["lost"].attempt) == ("w-dead", 1)


def test_message_that_died_too_often_is_dead_and_not_lost_as_well(log: Log):
    die_with(running=1, max_crashes=1)

    assert sorted(kinds()) == ["dead", "released", "released"]
    (dead,) = [event for event in events() if event.kind == "dead"]
    assert dead.error_type.endswith(".ProcessDied")


# -- What is not in them ----------------------------------------------------------------------------------------------


def test_arguments_and_results_are_in_no_event_and_no_counter(log: Log, server: PrivateServer):
    def pay(card: str) -> str:
        if card == "hunter2":
            raise ValueError("declined")
        return "hunter3"

    task = declare(max_attempts=1)(pay)
    task.enqueue(card="hunter2")
    task.enqueue(card="other")

    work()

    assert sorted(kinds()) == ["dead", "succeeded"]
    stored = str(server.redis.xrange("rsmq::events"))
    stored += str([server.redis.hgetall(key) for key in server.redis.keys("rsmq::stats:*")])
    assert "hunter" not in stored


def test_error_text_can_be_left_out_and_is_cut(log: Log):
    def fail() -> None:
        raise ValueError("x" * 10_000)

    task = declare(max_attempts=1)(fail)
    task.enqueue()
    work()
    log(ERROR_TEXT=False)
    task.enqueue()
    work()

    first, second = events()
    assert len(first.error) == 500
    assert (second.error_type, second.error) == ("builtins.ValueError", "")


def test_error_that_is_not_text_is_logged_anyway(log: Log):
    def fail() -> None:
        raise ValueError("half a pair: \ud83d")

    declare(max_attempts=1)(fail).enqueue()

    work()

    (event,) = events()
    assert event.error == "half a pair: \\ud83d"


def test_nothing_is_logged_when_the_log_is_off(log: Log, server: PrivateServer):
    log(RECORD="off")
    declare(lambda: None).enqueue()

    work()

    assert server.redis.keys("rsmq::events*") == []


def test_only_failures_are_logged_on_request(log: Log):
    def fail() -> None:
        raise ValueError

    log(RECORD="failures")
    declare(lambda: None).enqueue()
    declare(max_attempts=1)(fail).enqueue()

    work()

    assert kinds() == ["dead"]


def test_log_is_cut_near_its_limit(log: Log):
    log(MAX_LENGTH=100)
    declare(lambda number: None).enqueue_many([[number] for number in range(1000)])

    work(threads=1)

    # The server cuts whole blocks of a hundred.
    about = get_client().run(state("rsmq"))
    assert 100 <= about.events <= 300
    assert about.dropped == 0


# -- Trouble ----------------------------------------------------------------------------------------------------------


def test_log_that_cannot_be_written_stops_no_settlement_and_is_counted(log: Log, server: PrivateServer):
    server.redis.set("rsmq::events", "no stream")
    ran = []
    declare(lambda number: ran.append(number)).enqueue_many([[number] for number in range(20)])

    work()

    assert sorted(ran) == list(range(20))
    assert get_queue("default").attributes().messages == 0
    assert int(server.redis.get("rsmq::events:dropped")) == 20


def test_settling_and_logging_work_at_the_memory_limit(log: Log, server: PrivateServer):
    task = declare(result_ttl_s=0)(lambda number: None)
    task.enqueue_many([[number] for number in range(20)])
    server.redis.config_set("maxmemory", 1)
    try:
        work()
    finally:
        server.redis.config_set("maxmemory", 0)

    assert get_queue("default").attributes().messages == 0
    about = get_client().run(state("rsmq"))
    assert about.events + about.dropped == 20


def test_counters_that_cannot_be_written_stop_nothing_and_are_logged_once(log: Log, server: PrivateServer, caplog: Any):
    server.redis.set("rsmq::stats:default:total", "no hash")
    declare(lambda number: None).enqueue_many([[number] for number in range(20)])

    work()

    assert get_queue("default").attributes().messages == 0
    assert caplog.text.count("its statistics have a gap") == 1


@pytest.mark.parametrize("score", [0, 1_795_190_076], ids=["nothing", "seconds"])
def test_wait_is_unknown_where_another_client_stores_other_units(log: Log, server: PrivateServer, score: int):
    queue = ensure_queue("default")
    task = declare(lambda: None)
    message_id = queue.send(json.dumps({"task": task.module_path}))
    server.redis.zadd(queue.keys.messages, {message_id: score})

    work()

    (event,) = events()
    assert event.wait_us is None
    assert event.run_us is not None


# -- One group of failures everywhere ------------------------------------------------------------------------------


def pipeline_fingerprints(url: str, kind: str) -> list[str]:
    """Return the fingerprints that the pipeline computes from the event log, or from dead-letter queues."""
    options = Options.read({"url": url, "kind": kind, "failOnDataLoss": "false"})  # Redis 6.2 cannot tell
    log = StreamLog(options, options.streams)
    source: Any = EventLogReader(options) if kind == "events" else DeadLetters(options)
    begins = log.beginning()
    parts = log.ranges(begins, log.advance_all(begins, 1000)) if kind == "events" else source.plan()
    tables = [table for part in parts for table in source.read(part)]
    return [fingerprint for table in tables for fingerprint in table["fingerprint"] if fingerprint]


def test_admin_event_log_and_pipeline_show_the_same_groups_of_failures(log: Log, server: PrivateServer):
    def fail(text: str) -> None:
        raise KeyError(text) if "@" in text else ValueError(text)

    paths = declare(max_attempts=1)(fail)
    texts = ("no row 7", "no 'x'\nDETAIL: 8", f"{'long ' * 200}'quoted' 9", "é" * 600, "")
    for text in (*texts, "alice@example.com", "bob@example.com"):
        paths.enqueue(text)
    send_raw(json.dumps({"task": "shop.gone", "args": []}))
    send_raw(json.dumps({"task": paths.module_path, "args": []}))
    send_raw("no JSON")

    work(threads=1)

    of_events = [fingerprint(event.task, event.error_type, event.error) for event in events() if event.kind == "dead"]
    groups = failure_groups(QueueRef("default", "default-dead")).groups
    assert len(of_events) == 10
    assert len(set(of_events)) == 9, "alice and bob are one group"
    assert {group.fingerprint for group in groups} == set(of_events)
    assert sorted(pipeline_fingerprints(server.url, "events")) == sorted(of_events)
    assert sorted(pipeline_fingerprints(server.url, "dead")) == sorted(of_events)
