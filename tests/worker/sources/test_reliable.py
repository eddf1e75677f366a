"""Workers on reliable queues: the same functions, acknowledged when they return, recovered when a worker is silent."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from rsmq_django.core import Connection, Message
from rsmq_django.core.reliable import ReliableQueue
from rsmq_django.core.stats.events import following
from rsmq_django.core.stats.history import read_totals
from rsmq_django.core.topic import TopicMessage
from rsmq_django.core.transport.call import load_script
from rsmq_django.management.commands.rsmq_worker import chosen_queues
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.reliable_queues import get_reliable_queue, task_body
from rsmq_django.tasks import Retry, TaskContext, consumer, current_task, fixed, lease_lost, topic_task
from rsmq_django.tasks.compat import InvalidTask
from rsmq_django.worker.execute.execution import Execution
from rsmq_django.worker.outcomes import Dead, Released, RetryIn, Succeeded
from rsmq_django.worker.report.notifications import Notifier
from rsmq_django.worker.report.shared_state import SharedState
from rsmq_django.worker.sources.reliable import make_reliable_sources
from rsmq_django.worker.sources.reliable_queue import ReliableWakeUp
from rsmq_django.worker.worker import Worker
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site import tasks
from tests.worker.site.journal import Journal
from tests.worker.workshop import declare, let_leases_be_renewed, new_worker, reliable_source, work, working


@pytest.fixture
def orders(settings: Any, server: PrivateServer) -> ReliableQueue:
    """A project with a queue "default" and a reliable queue "orders"."""
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}},
        "QUEUES": {"default": {}},
        "RELIABLE": {"orders": {"LEASE_S": 30, "MAX_DELIVERIES": 3}, "urgent": {"LEASE_S": 60}},
        "TASKS": {"ENQUEUE_ON_COMMIT": False, "UNKNOWN_TASK_GRACE_S": 0},
    }
    return get_reliable_queue("orders")


def make_abandoned(queue: ReliableQueue, server: PrivateServer, *, seconds: int) -> None:
    """Let the last deliveries be so long ago."""
    for message_id, _ in server.redis.zscan_iter(f"rsmq::reliable:{queue.name}:delivered"):
        server.redis.zincrby(f"rsmq::reliable:{queue.name}:delivered", -seconds * 1000 * 4096, message_id)


# -- What becomes of a message ----------------------------------------------------------------------------------------


def test_task_is_called_and_its_message_acknowledged(orders: ReliableQueue):
    seen: list[Any] = []

    def ship(number: int, *, to: str) -> str:
        seen.append((number, to))
        return "shipped"

    orders.push(task_body(declare(ship), 7, to="Brno"))

    assert work("orders")

    assert seen == [(7, "Brno")]
    assert orders.info() == ["undelivered", 0, "delivered", 0]
    assert orders.statistics().total_acked == 1


def test_limit_of_deliveries_is_stored_once_and_not_at_every_poll(
    orders: ReliableQueue, monkeypatch: pytest.MonkeyPatch
):
    configure, stored = ReliableQueue.configure, []

    def configure_and_note(queue: ReliableQueue, **options: Any) -> None:
        stored.append((queue.name, options))
        configure(queue, **options)

    monkeypatch.setattr(ReliableQueue, "configure", configure_and_note)
    seen: list[Any] = []
    consumer("orders")(seen.append)

    with working("orders"):
        orders.push("1")
        wait_until(lambda: len(seen) == 1)
        orders.push("2")
        wait_until(lambda: len(seen) == 2)

    assert stored == [("orders", {"max_deliveries": 3})]


def test_consumer_gets_every_message_of_its_queue_unchanged(orders: ReliableQueue):
    seen: list[Message] = []
    consumer("orders")(seen.append)
    ids = orders.push(b"\xff", "two")

    work("orders", threads=1)

    assert [(message.id, message.body, message.receive_count) for message in seen] == [
        (ids[0], b"\xff", 1),
        (ids[1], b"two", 1),
    ]


def test_coroutines_run_on_the_event_loop(orders: ReliableQueue):
    seen: list[bytes] = []

    @consumer("orders")
    async def note(message: Message) -> None:
        await asyncio.sleep(0)
        seen.append(message.body)

    orders.push(*[str(n) for n in range(50)])

    work("orders")

    assert sorted(map(int, seen)) == list(range(50))


def test_failed_attempt_is_released_with_its_backoff_and_the_attempts_are_counted(orders: ReliableQueue):
    attempts: list[int] = []

    def fail_twice(context: TaskContext) -> None:
        attempts.append(context.attempt)
        if context.attempt < 3:
            raise Retry("not yet", after_s=0.01)

    orders.push(task_body(declare(takes_context=True)(fail_twice)))

    work("orders")

    assert attempts == [1, 2, 3]
    assert (orders.statistics().total_nacked, orders.statistics().total_acked) == (2, 1)


def test_message_that_used_up_its_attempts_is_dead_with_the_reason(
    orders: ReliableQueue, caplog: pytest.LogCaptureFixture
):
    @consumer("orders", max_attempts=2, backoff=fixed(0))
    def fail(message: Message) -> None:
        raise ValueError("no such\norder")

    [message_id] = orders.push("x")

    work("orders")

    [dead] = orders.messages("dead")
    assert (dead.id, dead.body, dead.deliveries) == (message_id, b"x", 2)
    assert dead.consumer.startswith("attempts_used_up: ") and "no such" in dead.consumer
    assert "on attempt 2, kept as dead in its queue: " in caplog.text


def test_message_that_is_not_a_task_is_dead_at_once_and_does_not_stop_the_worker(orders: ReliableQueue):
    seen: list[int] = []
    orders.push("no JSON", b"\xff\xfe", '{"task": "nowhere.at_all"}', task_body(declare(lambda n: seen.append(n)), 1))

    work("orders")

    assert seen == [1]
    assert sorted(dead.consumer.split(":")[0] for dead in orders.messages("dead")) == [
        "undecodable",
        "undecodable",
        "unknown_task",
    ]


@pytest.fixture
def graceful(orders: ReliableQueue, settings: Any) -> None:
    """Calls of unknown tasks have the grace of the default settings."""
    settings.RSMQ = settings.RSMQ | {"TASKS": {"ENQUEUE_ON_COMMIT": False}}


def work_off() -> None:
    work("orders", until_empty=False, until_drained=True)


def end_delays(queue: ReliableQueue, server: PrivateServer) -> None:
    """Let the delays of the queue's messages be over."""
    for message_id, _ in server.redis.zscan_iter(f"rsmq::reliable:{queue.name}:delayed"):
        server.redis.zadd(f"rsmq::reliable:{queue.name}:delayed", {message_id: 1})


def test_call_of_an_unknown_task_waits_for_a_worker_that_has_the_task(
    orders: ReliableQueue, graceful: None, server: PrivateServer
):
    attempts: list[int] = []
    orders.push(json.dumps({"task": f"{__name__}.greet"}))
    for _ in range(3):
        end_delays(orders, server)
        work_off()
    assert [(each.deliveries, orders.messages("dead")) for each in orders.messages("delayed")] == [(3, [])]

    def greet(context: TaskContext) -> None:
        attempts.append(context.attempt)

    declare(takes_context=True)(greet)
    end_delays(orders, server)
    work("orders")

    assert attempts == [1]


def test_a_burst_leaves_calls_of_unknown_tasks_and_waits_for_delayed_ones(
    orders: ReliableQueue, graceful: None, caplog: pytest.LogCaptureFixture
):
    seen: list[str] = []
    orders.push(json.dumps({"task": f"{__name__}.greet"}))
    orders.push(task_body(declare(lambda word: seen.append(word)), "later"), delay_s=1.5)

    assert work("orders")

    assert seen == ["later"]
    assert "left 1 call of unknown tasks in the queues, for workers that know the tasks" in caplog.messages
    assert len(orders.messages("delayed")) == 1


def test_call_of_an_unknown_task_that_was_pushed_long_ago_is_given_back_as_often_as_fits_into_its_grace(
    orders: ReliableQueue, graceful: None, server: PrivateServer
):
    [message_id] = orders.push(body := json.dumps({"task": f"{__name__}.greet"}))
    long_ago = f"{int(message_id.split('-')[0]) - 3_600_000}-1"
    server.redis.lset("rsmq::reliable:orders:undelivered", 0, long_ago)
    server.redis.hset("rsmq::reliable:orders:bodies", long_ago, body)
    server.redis.hdel("rsmq::reliable:orders:bodies", message_id)

    work_off()
    assert (orders.messages("dead"), len(orders.messages("delayed"))) == ([], 1)
    end_delays(orders, server)
    for _ in range(30):
        orders.nack(*orders.pop_messages(), is_unused=True)
    work_off()

    [dead] = orders.messages("dead")
    assert (dead.id, dead.consumer.split(":")[0]) == (long_ago, "unknown_task")


def test_limit_of_the_settings_is_stored_for_consumers_in_all_languages(orders: ReliableQueue):
    work("orders", "urgent")

    assert orders.statistics().max_deliveries == 3
    assert get_reliable_queue("urgent").statistics().max_deliveries == 5, "that of TASKS"


def test_limit_of_the_settings_is_stored_by_a_worker_that_starts_on_a_full_server(
    orders: ReliableQueue, server: PrivateServer
):
    server.redis.config_set("maxmemory", 1)
    try:
        work("orders")
    finally:
        server.redis.config_set("maxmemory", 0)

    assert orders.statistics().max_deliveries == 3


# -- Abandoned messages -----------------------------------------------------------------------------------------------


def test_message_of_an_unresponsive_consumer_is_recovered_automatically(orders: ReliableQueue, server: PrivateServer):
    seen: list[int] = []
    consumer("orders")(lambda message: seen.append(message.receive_count))
    orders.push("left behind")
    orders.pop()
    make_abandoned(orders, server, seconds=31)

    work("orders")

    assert seen == [2]


def test_message_that_another_consumer_has_held_for_less_than_a_lease_stays_with_it(
    orders: ReliableQueue, server: PrivateServer
):
    seen: list[bytes] = []
    consumer("orders")(lambda message: seen.append(message.body))
    orders.push("held")
    (held,) = orders.pop_messages()
    make_abandoned(orders, server, seconds=1)  # of 30
    orders.push("another")

    with working("orders") as worker:
        wait_until(lambda: reliable_source(worker).is_drained and orders.statistics().total_acked == 1)

    assert seen == [b"another"] and orders.ack(held) == [held.id]


def test_message_that_kills_its_workers_dies(
    orders: ReliableQueue, server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    seen: list[bytes] = []
    consumer("orders")(lambda message: seen.append(message.body))
    poison, _good = orders.push("poison", "good")
    orders.configure(max_deliveries=3)
    for _ in range(3):  # each taken by a worker that died
        orders.pop() if not orders.info()[3] else orders.recover(1, 0)

    make_abandoned(orders, server, seconds=31)
    work("orders")

    assert seen == [b"good"]
    assert [dead.body for dead in orders.messages("dead")] == [b"poison"]
    assert f"message {poison} of queue orders is dead" in caplog.text
    totals = read_totals(orders.client, ["orders"])["orders"]
    assert sum(counts.dead for counts in totals.values()) == 1


def test_messages_that_ran_beside_one_that_kills_its_process_do_not_die_with_it(
    orders: ReliableQueue, start_worker: StartWorker, journal: Journal
):
    beside = [task_body(tasks.toil, f"good-{number}", 1.5) for number in range(3)]
    orders.push(task_body(tasks.kill_process, "deadly", 0.3), *beside)
    reliable = json.dumps({"orders": {"LEASE_S": 1, "MAX_DELIVERIES": 3}})

    start_worker("--processes", "1", "--threads", "4", "--queues", "orders", reliable=reliable)
    wait_until(lambda: orders.info() == ["undelivered", 0, "delivered", 0])

    assert [json.loads(dead.body)["args"][0] for dead in orders.messages("dead")] == ["deadly"]
    assert journal.names("start").count("deadly") == 3


def test_recovered_messages_are_taken_one_by_one_to_run_alone(orders: ReliableQueue, server: PrivateServer):
    worker = new_worker("orders", threads=4)
    source = reliable_source(worker)
    orders.push("a", "b", "c")
    orders.pop(2)
    make_abandoned(orders, server, seconds=31)

    found = [*source.exchange(4), *source.exchange(4)]

    executions = [Execution(delivery, source, worker.notifier) for delivery in found]
    suspects = {each.delivery.message.body: each.is_suspect for each in executions}
    assert suspects == {b"a": True, b"b": True, b"c": False}
    assert [delivery.message.body for delivery in found if delivery.crashes] == [b"a", b"b"]


def note_step(source: Any, step: str, steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Note each call of a method of a source."""
    do = getattr(source, step)

    def noted() -> None:
        steps.append(f"{step} {type(source).__name__}")
        do()

    monkeypatch.setattr(source, step, noted)


def test_outcomes_of_queues_are_sent_before_a_stop_waits_for_the_thread_of_reliable_queues(
    orders: ReliableQueue, monkeypatch: pytest.MonkeyPatch
):
    steps, worker = list[str](), new_worker("orders", "default")
    for source in worker.sources:
        note_step(source, "stop", steps, monkeypatch)
        note_step(source, "flush", steps, monkeypatch)

    worker.stop(within_s=0)
    worker.run()

    assert steps[:3] == ["flush QueueSource", "stop ReliableSource", "flush ReliableSource"]


def test_stop_waits_for_the_threads_of_reliable_queues_and_topics_at_the_same_time(
    orders: ReliableQueue, monkeypatch: pytest.MonkeyPatch
):
    @topic_task("news", group="readers")
    def read(message: TopicMessage) -> None: ...

    steps, worker = list[str](), new_worker("orders")
    for source in worker.sources:
        for step in ("stop_soon", "stop"):
            note_step(source, step, steps, monkeypatch)

    worker.stop(within_s=0)
    worker.run()

    assert sorted(steps[:2]) == ["stop_soon ReliableSource", "stop_soon TopicGroupSource"]
    assert sorted(steps[2:4]) == ["stop ReliableSource", "stop TopicGroupSource"]


def test_stopping_worker_does_not_take_the_token_of_the_message_that_it_gives_back(
    orders: ReliableQueue, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    has_begun, may_end, waiting = threading.Event(), threading.Event(), list[str]()

    def tokens_awaited() -> list[str]:
        return [each["id"] for each in server.redis.client_list() if each["cmd"] == "blpop"]

    @consumer("orders")
    def run_long(message: Message) -> None:
        has_begun.set()
        may_end.wait(60)

    orders.push("x")
    with working("orders") as worker:
        assert has_begun.wait(60)
        wait_until(tokens_awaited)
        source = reliable_source(worker)
        flush = source.flush

        def look_and_flush() -> None:
            waiting.extend(tokens_awaited())
            flush()

        monkeypatch.setattr(source, "flush", look_and_flush)

        worker.stop(within_s=0)
    may_end.set()

    assert waiting == []
    assert orders.info() == ["undelivered", 1, "delivered", 0]
    assert server.redis.llen("rsmq::reliable:orders:wake") == 1, "the next worker is woken"


def test_token_that_comes_after_a_stop_is_put_back_and_its_message_left_to_others(
    orders: ReliableQueue, server: PrivateServer
):
    tokens: list[bool] = []
    wake_up = ReliableWakeUp([orders], on_token=lambda: tokens.append(True))
    wake_up.start()
    wake_up.expect()
    wait_until(lambda: "blpop" in [each["cmd"] for each in server.redis.client_list()])

    wake_up.stop_soon()
    orders.push("x")
    wake_up.stop()

    assert orders.info() == ["undelivered", 1, "delivered", 0] and tokens == []
    assert server.redis.llen("rsmq::reliable:orders:wake") == 1


def test_running_message_is_extended_and_no_other_worker_receives_it(orders: ReliableQueue, server: PrivateServer):
    may_end, runs = threading.Event(), []
    urgent = get_reliable_queue("urgent")

    @consumer("urgent")
    def run_long(message: Message) -> None:
        runs.append(message.receive_count)
        may_end.wait(60)

    urgent.push("x")
    with working("urgent") as worker:
        wait_until(lambda: runs)
        for _ in range(2):
            make_abandoned(urgent, server, seconds=30)  # half of its lease, so that nobody may have it yet
            let_leases_be_renewed(worker)
            assert urgent.messages("delivered")[0].elapsed_ms < 25_000, "the worker has said that it still has it"
            assert urgent.recover(1, 25_000) == []
        may_end.set()

    assert runs == [1] and urgent.info()[3] == 0


def test_message_whose_attempt_ended_without_an_outcome_is_not_extended_any_more(orders: ReliableQueue):
    orders.push("x")
    worker = new_worker("orders")
    source = reliable_source(worker)
    (delivery,) = source.exchange(2)  # half of the room is for abandoned messages
    assert len(source.leases) == 1

    Execution(delivery, sink=source, notifier=worker.notifier).abandon()
    source.exchange(0)

    assert len(source.leases) == 0
    assert orders.statistics().depth.in_flight == 1


def test_task_can_ask_for_more_time_and_whether_it_still_has_any(orders: ReliableQueue):
    urgent = get_reliable_queue("urgent")
    said: list[Any] = []

    @declare
    def check() -> None:
        current = current_task()
        said.append((current.progress(1, 2), current.extend(600), lease_lost()))
        said.append(urgent.messages("delivered")[0].elapsed_ms)
        assert urgent.recover(1, 0) == []
        said.append((current.progress(2, 2), lease_lost()))

    urgent.push(task_body(check))
    new_worker("urgent", max_tasks=1).run()

    assert said[0] == (True, True, False)
    assert -600_000 <= said[1] < -500_000
    assert said[2] == (True, False), "what is extended counts as delivered in the future, so nobody recovers it"


def test_task_learns_that_another_worker_has_its_message(orders: ReliableQueue):
    said: list[Any] = []

    @declare
    def lose() -> None:
        orders.recover(1, 0)
        said.append((current_task().progress(1), lease_lost()))

    orders.push(task_body(lose))
    new_worker("orders", max_tasks=1).run()

    assert said == [(False, True)]


def test_result_of_a_message_leased_by_another_worker_is_discarded(orders: ReliableQueue, caplog: Any):
    @consumer("orders")
    def lose(message: Message) -> None:
        orders.recover(1, 0)

    orders.push("x")

    with working("orders"):
        wait_until(lambda: "the result is discarded" in caplog.text)

    assert orders.messages("delivered")[0].deliveries == 2, "the other one still holds it"


def test_stopped_worker_releases_running_messages_and_no_attempt_is_counted(orders: ReliableQueue):
    may_end, began = threading.Event(), threading.Event()

    @consumer("orders")
    def run_long(message: Message) -> None:
        began.set()
        may_end.wait(60)

    orders.push("x")
    with working("orders") as worker:
        assert began.wait(60)
        worker.stop(within_s=0)
    may_end.set()

    [message] = orders.pop_messages()
    assert (message.deliveries, message.attempt) == (2, 1)


# -- Waking and waiting -----------------------------------------------------------------------------------------------


def test_idle_worker_is_woken_by_a_push(orders: ReliableQueue, server: PrivateServer):
    seen: list[bytes] = []
    consumer("orders")(lambda message: seen.append(message.body))

    with working("orders", poll_interval_s=60.0):
        for number in range(3):
            wait_until(lambda: server.redis.info("clients")["blocked_clients"] == 1)
            orders.push(str(number))
            wait_until(lambda number=number: len(seen) == number + 1)  # type: ignore[misc]


def test_busy_worker_does_not_keep_the_token_from_others(orders: ReliableQueue, server: PrivateServer):
    may_end, began = threading.Event(), threading.Event()

    @consumer("orders")
    def run_long(message: Message) -> None:
        began.set()
        may_end.wait(60)

    with working("orders", threads=1, poll_interval_s=60.0):
        wait_until(lambda: server.redis.info("clients")["blocked_clients"] == 1)
        orders.push("first")
        assert began.wait(60)
        orders.push("second")
        others = orders.pop_messages(1, 60_000)
        may_end.set()

    assert [message.body for message in others] == [b"second"]


@pytest.mark.slow
def test_delayed_message_runs_when_its_time_has_come(orders: ReliableQueue):
    seen: list[bytes] = []
    consumer("orders")(lambda message: seen.append(message.body))
    orders.push("later", delay_s=0.3)

    work("orders", poll_interval_s=60.0)

    assert seen == [b"later"]


def test_first_reliable_queue_comes_first(orders: ReliableQueue):
    seen: list[bytes] = []
    for name in ("orders", "urgent"):
        consumer(name)(lambda message: seen.append(message.body))
    orders.push("1", "2")
    get_reliable_queue("urgent").push("now")

    new_worker("urgent", "orders", threads=1, until_drained=True).run()

    assert seen[0] == b"now"


def test_one_worker_works_on_both_kinds_of_queues(orders: ReliableQueue):
    seen: list[bytes] = []
    for name in ("orders", "default"):
        consumer(name)(lambda message: seen.append(message.body))
    orders.push("reliable")
    ensure_queue("default").send(b"ordinary")

    work()

    assert sorted(seen) == [b"ordinary", b"reliable"]
    assert get_queue("default").attributes().messages == orders.info()[3] == 0


# -- Round trips ------------------------------------------------------------------------------------------------------


def test_a_turn_is_one_round_trip_whatever_is_to_be_said(
    orders: ReliableQueue, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    """Outcomes of several kinds and queues, extensions, counters, recovery and pop."""
    consumer("orders")(lambda message: None)
    urgent, exchanges = get_reliable_queue("urgent"), list[int]()
    orders.push(*"abcde")
    urgent.push("u", "abandoned")
    urgent.pop()
    make_abandoned(urgent, server, seconds=61)
    worker = new_worker("orders", "urgent")
    source = reliable_source(worker)
    first = source.exchange(6)  # one place is for an abandoned message of one of the queues
    executions = [Execution(each, sink=source, notifier=worker.notifier) for each in first]
    assert [delivery.message.body for delivery in first] == [b"a", b"b", b"c", b"d", b"e"]
    source.note_arrived(executions)
    for execution, outcome in zip(
        executions, [Succeeded(), RetryIn(5, ValueError(), ""), Released(), Dead("x", ValueError())], strict=False
    ):
        source.settle(execution, outcome)
    executions[4].delivery.renewed_at -= 20
    source.leases._quiet_until = 0.0
    orders.push("new")
    source.fetch_now()
    exchange = Connection.exchange

    def counting(connection: Connection, *args: Any, **options: Any) -> Any:
        exchanges.append(1)
        return exchange(connection, *args, **options)

    monkeypatch.setattr(Connection, "exchange", counting)
    found = source.exchange(8)

    assert len(exchanges) == 1
    assert sorted(delivery.message.body for delivery in found) == [b"abandoned", b"c", b"new", b"u"], (
        "abandoned, released, and new ones"
    )
    assert time.monotonic() - executions[4].delivery.renewed_at < 20, "extended"
    depth = orders.statistics()
    assert (depth.total_acked, depth.total_nacked, depth.total_buried) == (1, 2, 1)


def test_refusal_of_the_server_is_no_token(orders: ReliableQueue, server: PrivateServer):
    tokens = list[bool]()
    server.redis.set("rsmq::reliable:orders:wake", "of another program")
    wake_up = ReliableWakeUp([orders], on_token=lambda: tokens.append(True))
    wake_up.start()
    try:
        wake_up.expect()
        wait_until(lambda: wake_up._backoff._failures or tokens)
    finally:
        wake_up.stop()

    assert tokens == []


@pytest.mark.parametrize("room", [1, 4])
def test_idle_worker_waits_for_a_token_a_poll_or_the_next_recovery(orders: ReliableQueue, room: int):
    source = reliable_source(new_worker("orders", "urgent", poll_interval_s=60.0))
    while not source.is_empty:  # recovery looks into one queue per turn; with room for one, a turn pops or recovers
        source.exchange(room)
    while (source.next_exchange_at(room) or 0.0) <= time.monotonic():
        source.exchange(room)

    assert not source.exchange(room)
    at = source.next_exchange_at(room)
    assert at is not None
    assert at in {state.recover_at for state in source.states.values()}, "the first recovery is due before the poll"
    assert source.next_exchange_at(0) is None
    source.fetch_now()
    assert source.next_exchange_at(0) == source.next_exchange_at(room) == 0.0
    source.exchange(0)
    assert source.next_exchange_at(0) is None, "a token that a busy worker took is given back once"


# -- Trouble ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_worker_continues_after_an_outage(orders: ReliableQueue, server: PrivateServer):
    seen: list[bytes] = []
    consumer("orders")(lambda message: seen.append(message.body))

    with working("orders"):
        orders.push("before")
        wait_until(lambda: orders.info() == ["undelivered", 0, "delivered", 0])
        server.restart()
        orders.push("after")
        wait_until(lambda: seen == [b"before", b"after"])


def test_outcome_that_could_not_be_sent_is_sent_later(orders: ReliableQueue, server: PrivateServer):
    may_end, began = threading.Event(), threading.Event()

    @consumer("orders")
    def run(message: Message) -> None:
        began.set()
        may_end.wait(60)

    orders.push("x")
    with working("orders"):
        assert began.wait(60)
        server.kill()
        may_end.set()
        server.start()
        wait_until(lambda: orders.info() == ["undelivered", 0, "delivered", 0])


@pytest.mark.parametrize("part", ["undelivered", "delivered", "state"])
def test_damaged_queue_does_not_stop_the_others(
    orders: ReliableQueue, server: PrivateServer, caplog: pytest.LogCaptureFixture, part: str
):
    seen: list[bytes] = []
    consumer("urgent")(lambda message: seen.append(message.body))
    server.redis.set(f"rsmq::reliable:orders:{part}", "of another program")
    get_reliable_queue("urgent").push("x")

    with working("orders", "urgent") as worker:
        wait_until(lambda: get_reliable_queue("urgent").statistics().total_acked)
        assert not reliable_source(worker).backoff.is_on and not reliable_source(worker).is_drained

    assert seen == [b"x"]
    assert "reliable queue 'orders': queue 'orders': one of its keys has the wrong type" in caplog.text


def test_error_of_a_pop_that_no_queue_is_to_blame_for_is_one_of_the_server(
    orders: ReliableQueue, server: PrivateServer, settings: Any
):
    with FaultProxy(server.url) as proxy:
        settings.RSMQ = settings.RSMQ | {"CONNECTIONS": {"default": {"URL": proxy.url, "TIMEOUT_S": 15}}}
        source = reliable_source(new_worker("orders", "urgent"))
        wait_until(lambda: source.exchange(1) == [] and source.is_drained)
        proxy.answer_instead(load_script("reliable/pop").sha1.encode(), b"-WRONGTYPE of no key\r\n")

        wait_until(lambda: source.exchange(1) == [] and source.backoff.is_on)

        orders.push("x")
        wait_until(lambda: source.exchange(1))
        assert not source.backoff.is_on


def test_outcomes_that_a_damaged_queue_refuses_are_sent_after_its_repair(orders: ReliableQueue, server: PrivateServer):
    may_end, began = threading.Event(), threading.Event()
    urgent = get_reliable_queue("urgent")

    @consumer("orders")
    def run(message: Message) -> None:
        began.set()
        may_end.wait(60)

    consumer("urgent")(lambda message: None)
    orders.push("x")
    with working("orders", "urgent") as worker:
        assert began.wait(60)
        server.redis.set("rsmq::reliable:orders:dead", "of another program")
        may_end.set()
        wait_until(lambda: reliable_source(worker).pending.refused)
        urgent.push("y")
        wait_until(lambda: urgent.statistics().total_acked == 1)
        assert not reliable_source(worker).is_idle
        wait_until(lambda: len(reliable_source(worker).leases) == 1)  # it has read that the other one is acknowledged
        (held,) = reliable_source(worker).leases.held()
        held.renewed_at -= 10
        reliable_source(worker).leases.add([held])  # as if it had been refused for a third of its lease
        wait_until(lambda: reliable_source(worker).leases.next_renewal_at() is None)

        server.redis.delete("rsmq::reliable:orders:dead")
        wait_until(lambda: orders.statistics().total_acked == 1)


def test_burst_worker_does_not_wait_forever_for_a_damaged_queue(
    orders: ReliableQueue, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rsmq_django.worker.lease.pending.GIVE_UP_REFUSED_AFTER_S", 0.1)

    @consumer("orders")
    def damage(message: Message) -> None:
        server.redis.set("rsmq::reliable:orders:dead", "of another program")

    orders.push("x")

    assert not work("orders")


# -- What is counted and limited --------------------------------------------------------------------------------------


def test_attempts_are_counted_as_those_of_other_queues(orders: ReliableQueue):
    @consumer("orders", backoff=fixed(0), max_attempts=2)
    def run(message: Message) -> None:
        if message.body == b"bad":
            raise ValueError("no")

    orders.push("good", "bad")

    work("orders")

    ((task, counts),) = read_totals(get_client(), ["orders"])["orders"].items()
    assert task.endswith("run")
    assert (counts.sent, counts.started, counts.succeeded, counts.retried, counts.dead) == (2, 3, 1, 1, 1)
    assert counts.run.count == 3


@pytest.fixture
def all_events(orders: ReliableQueue, settings: Any) -> None:
    settings.RSMQ = {**settings.RSMQ, "EVENTS": {"RECORD": "all"}}


@pytest.mark.usefixtures("all_events")
def test_attempts_are_events_as_those_of_other_queues(orders: ReliableQueue):
    @consumer("orders", backoff=fixed(0), max_attempts=2)
    def run(message: Message) -> None:
        if message.body == b"bad":
            raise ValueError("no")

    good, bad = orders.push("good", "bad")

    work("orders", threads=1)

    events = get_client().run(following("rsmq"))
    told = sorted((event.message_id, event.attempt, event.kind) for event in events)
    assert told == sorted([(good, 1, "succeeded"), (bad, 1, "retried"), (bad, 2, "dead")])
    for event in events:
        assert (event.queue, event.task.rpartition(".")[2], event.wait_us) == ("orders", "run", None)
        assert event.enqueued_ms == int(event.message_id.partition("-")[0])
        assert event.run_us is not None and event.body_bytes in (3, 4)
        failure = ("", "") if event.kind == "succeeded" else ("builtins.ValueError", "no")
        assert (event.error_type, event.error) == failure


@pytest.mark.usefixtures("all_events")
def test_result_that_is_discarded_is_an_event_too(orders: ReliableQueue):
    @consumer("orders")
    def run(message: Message) -> None:
        if message.receive_count == 1:
            orders.recover(1, 0)  # somebody else takes it over, and gives it back
            orders.nack(message.id)
        else:
            wait_until(lambda: get_client().run(following("rsmq")))  # or both outcomes could go out together

    orders.push("one")

    work("orders", threads=1)

    events = get_client().run(following("rsmq"))
    assert [(event.kind, event.error_type) for event in events] == [("lost", "LeaseLost"), ("succeeded", "")]


@pytest.mark.usefixtures("all_events")
def test_log_that_cannot_be_written_keeps_nothing_from_being_acknowledged(orders: ReliableQueue, server: PrivateServer):
    server.redis.set("rsmq::events", "no stream")
    consumer("orders")(lambda message: None)
    orders.push("one")

    work("orders")

    assert orders.info() == ["undelivered", 0, "delivered", 0]
    assert server.redis.get("rsmq::events:dropped") == b"1"


def test_hard_limit_is_in_shared_memory_while_the_function_runs(orders: ReliableQueue):
    shared_state, begun = SharedState(10), list[float]()
    run = declare(hard_timeout_s=1000)(lambda: begun.append(shared_state.next_limit() - time.monotonic()))
    orders.push(task_body(run))

    Worker([], new_worker("orders", until_empty=True).options, shared_state=shared_state).run()

    assert 900 < begun[0] <= 1000
    assert shared_state.running() == frozenset()


def test_damaged_queue_is_waited_for(orders: ReliableQueue, server: PrivateServer):
    seen: list[bytes] = []
    consumer("orders")(lambda message: seen.append(message.body))
    orders.push("x")
    server.redis.set("rsmq::reliable:orders:dead", "foreign")

    with working("orders") as worker:
        wait_until(lambda: reliable_source(worker).states["orders"].damage.is_on)
        server.redis.delete("rsmq::reliable:orders:dead")
        wait_until(lambda: seen == [b"x"])


def test_worker_recovers_nothing_from_a_queue_that_was_deleted(orders: ReliableQueue, server: PrivateServer):
    source = reliable_source(new_worker("orders"))
    while not source.is_empty:
        source.exchange(1)
    server.redis.flushdb()
    (state,) = source.states.values()
    state.recover_at = 0.0

    source.exchange(4)

    assert state.recover_at > 0, "it looks again later"


def test_queue_that_was_repaired_counts_as_healthy_from_the_next_look_on(orders: ReliableQueue, server: PrivateServer):
    (source,) = make_reliable_sources(["orders"], notifier=Notifier("w"), poll_interval_s=1, wake=lambda: None)
    source.exchange(1)
    server.redis.set("rsmq::reliable:orders:dead", "foreign")
    source.fetch_now()
    source.exchange(1)
    source.exchange(1)  # reads which of the queues it was
    damage = source.states["orders"].damage
    assert damage.is_on

    server.redis.delete("rsmq::reliable:orders:dead")
    damage.next_try_at = 0.0
    source.fetch_now()
    source.exchange(1)

    assert source.is_drained, "a worker that ends by itself need not wait for the next recovery"
    assert not damage.is_on


# -- Settings ---------------------------------------------------------------------------------------------------------


def test_name_that_is_not_configured_is_refused_with_the_nearest(orders: ReliableQueue):
    with pytest.raises(ImproperlyConfigured, match="Did you mean 'orders'"):
        get_reliable_queue("order")


def test_worker_suggests_queues_of_both_kinds(orders: ReliableQueue):
    with pytest.raises(ImproperlyConfigured, match=r"nor in RSMQ\['RELIABLE'\]\. Did you mean 'orders'"):
        new_worker("ordrs")
    with pytest.raises(ImproperlyConfigured, match="Did you mean 'default'"):
        new_worker("defalt", "orders")


def test_consumer_of_a_reliable_queue_has_no_dead_letter_queue(orders: ReliableQueue):
    with pytest.raises(InvalidTask, match="leave dead_letter_queue out"):
        consumer("orders", dead_letter_queue="default")(print)


def test_names_and_connections_of_reliable_queues_are_checked(settings: Any, server: PrivateServer):
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}},
        "QUEUES": {"mail": {}},
        "RELIABLE": {"a:b": {}, "mail": {}, "x": {"CONNECTION": "defualt"}, "y": {"LEASE_S": 0, "LEASE": 1}},
    }

    with pytest.raises(ImproperlyConfigured) as failure:
        get_reliable_queue("x")

    for complaint in ("invalid name", "'mail'] has the name of a queue", "Did you mean 'default'", "'LEASE_S'"):
        assert complaint in str(failure.value)


def test_there_is_one_fetcher_for_each_connection(settings: Any, server: PrivateServer):
    settings.RSMQ = {
        "CONNECTIONS": {
            "default": {"URL": server.url, "TIMEOUT_S": 15},
            "other": {"URL": server.url, "TIMEOUT_S": 15, "NAMESPACE": "other"},
        },
        "RELIABLE": {"a": {}, "b": {"CONNECTION": "other"}, "c": {}},
    }

    sources = make_reliable_sources(["a", "b", "c"], notifier=Notifier("w"), poll_interval_s=1, wake=lambda: None)

    assert [list(source.states) for source in sources] == [["a", "c"], ["b"]]


# -- The command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "excluded", "expected"),
    [
        ("", "", (["default"], ("orders", "urgent"))),
        ("urgent,default", "", (["default"], ("urgent",))),
        ("orders", "", ([], ("orders",))),
        ("", "orders", (["default"], ("urgent",))),
        ("", "default,orders", ([], ("urgent",))),
    ],
)
def test_command_line_names_queues_of_both_kinds(orders: ReliableQueue, names: str, excluded: str, expected: Any):
    queues, reliable = chosen_queues(names, excluded, backend=None)

    assert ([queue.name for queue in queues], reliable) == expected


def test_command_line_without_any_queue_left_is_refused(orders: ReliableQueue):
    with pytest.raises(ImproperlyConfigured, match="no queue to consume"):
        chosen_queues("", "default,orders,urgent", backend=None)
    with pytest.raises(ImproperlyConfigured, match="'order' is neither in"):
        chosen_queues("order", "", backend=None)


# -- Processes that are killed ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_messages_of_killed_processes_run_again_and_nothing_is_lost(
    orders: ReliableQueue, start_worker: StartWorker, journal: Journal
):
    names = [f"order-{number}" for number in range(60)]
    orders.push(task_body(tasks.wait_at_gate, "held"), *[task_body(tasks.toil, name, 0.05) for name in names])
    small = ("--processes", "2", "--threads", "2", "--queues", "orders")
    reliable = json.dumps({"orders": {"LEASE_S": 1, "MAX_DELIVERIES": 0}})

    for round_number in range(1, 4):
        worker = start_worker(*small, reliable=reliable)
        wait_until(lambda least=8 * round_number: len(journal.lines("start")) >= least)  # type: ignore[misc]
        worker.send_to_all(signal.SIGKILL)
        worker.process.wait()
    assert orders.info()[3] > 0, "they held something"
    journal.open_gate()
    last = start_worker(*small, "--burst", reliable=reliable)

    assert last.wait() == 0, last.output
    assert set(journal.names("end")) == {"held", *names}
    assert orders.info() == ["undelivered", 0, "delivered", 0]
    assert orders.statistics().total_acked == len(names) + 1
