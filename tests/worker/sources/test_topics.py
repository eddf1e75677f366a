"""Topic tasks in a worker: batches, failures, dead letters, several groups, stopping, dying, bridges."""

import asyncio
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from contextvars import copy_context
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from rsmq_django.core import Connection, Message
from rsmq_django.core.limits import MAX_SECONDS
from rsmq_django.core.stats.events import following
from rsmq_django.core.stats.history import Counts, Window, lag_calls, lags_of, read_totals
from rsmq_django.core.topic import Topic, TopicMessage, list_topics
from rsmq_django.core.transport.call import load_script
from rsmq_django.management.commands.rsmq_worker import chosen_topics
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.signals import lease_lost
from rsmq_django.tasks import bridge_topic, consumer, fixed, topic_task
from rsmq_django.tasks.retry import Postpone
from rsmq_django.topics import get_topic
from rsmq_django.worker.execute.execution import Execution
from rsmq_django.worker.execute.invoke import Raised, connections_kept
from rsmq_django.worker.fetch.wakeup import Wakeup
from rsmq_django.worker.outcomes import Released, RetryIn
from rsmq_django.worker.report.notifications import Notifier
from rsmq_django.worker.sources.source import SourceContext
from rsmq_django.worker.sources.topic import TopicGroupSource, make_topic_sources
from rsmq_django.worker.sources.topic_group import ConsumerState
from rsmq_django.worker.sources.topic_steps import note_lags, run_rounds
from rsmq_django.worker.sources.topic_wake_up import TopicWakeUp
from tests.fault_proxy import FaultProxy
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.processes import StartWorker
from tests.worker.site.journal import Journal
from tests.worker.workshop import Configure, work, working

pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture(autouse=True)
def no_database_in_this_thread() -> Iterator[None]:
    """Some tests run a step of a consumer here, where an earlier test may have connected to a database."""
    with connections_kept():
        yield


@pytest.fixture
def topic() -> Iterator[Topic]:
    """The topic "orders"."""
    yield get_topic("orders")


def test_function_gets_one_message_at_a_time(topic: Topic):
    got: list[TopicMessage] = []
    topic_task("orders", group="billing")(got.append)
    topic.publish("a", "b", key="k", headers={"x": "y"})

    assert work()

    assert [(message.body, message.key, message.headers) for message in got] == [
        (b"a", "k", {"x": "y"}),
        (b"b", "k", {"x": "y"}),
    ]
    assert topic.group("billing").status().held == topic.group("billing").lag() == 0


def test_function_with_batch_gets_lists(topic: Topic):
    sizes: list[int] = []

    @topic_task("orders", group="billing", batch=100)
    def bill(messages: list[TopicMessage]) -> None:
        sizes.append(len(messages))

    topic.publish(*map(str, range(250)))
    work()

    assert sizes == [100, 100, 50]


def test_coroutine_is_run(topic: Topic):
    got: list[bytes] = []

    @topic_task("orders", group="billing")
    async def bill(message: TopicMessage) -> None:
        await asyncio.sleep(0)
        got.append(message.body)

    topic.publish("a")
    work()

    assert got == [b"a"]


def test_every_group_gets_all_messages(topic: Topic):
    got: dict[str, list[bytes]] = {"billing": [], "stock": []}
    topic_task("orders", group="billing")(lambda message: got["billing"].append(message.body))
    topic_task("orders", group="stock")(lambda message: got["stock"].append(message.body))
    topic.publish("a", "b")

    work()

    assert got == {"billing": [b"a", b"b"], "stock": [b"a", b"b"]}


def test_batch_that_fails_is_tried_message_by_message(topic: Topic):
    calls: list[list[bytes]] = []

    @topic_task("orders", group="billing", batch=10, max_deliveries=2, backoff=fixed(0))
    def bill(messages: list[TopicMessage]) -> None:
        calls.append([message.body for message in messages])
        if b"bad" in calls[-1]:
            raise ValueError("cannot bill this")

    topic.publish("a", "bad", "b")
    work()

    assert calls == [[b"a", b"bad", b"b"], [b"a"], [b"bad"], [b"b"], [b"bad"]]
    (dead,) = get_topic("orders.dlt").group("look").read(10)
    assert (dead.body, dead.headers["group"], dead.headers["deliveries"]) == (b"bad", "billing", "2")
    assert topic.group("billing").status().lag == topic.group("billing").status().held == 0


@pytest.mark.slow
def test_worker_continues_after_any_exception_of_a_function(topic: Topic):
    got: list[bytes] = []

    @topic_task("orders", group="billing", max_deliveries=1)
    def bill(message: TopicMessage) -> None:
        if message.body == b"exit":
            raise SystemExit(3)
        got.append(message.body)

    topic.publish("exit", "good")
    work()

    assert got == [b"good"]
    assert get_topic("orders.dlt").status().last == 1


def test_backoff_that_fails_is_replaced(topic: Topic, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rsmq_django.worker.execute.execution.exponential", lambda: lambda attempt: 0)
    deliveries: list[int] = []

    @topic_task("orders", group="billing", max_deliveries=2, backoff=lambda delivery: "soon")  # type: ignore[arg-type, return-value]
    def bill(message: TopicMessage) -> None:
        deliveries.append(message.deliveries)
        raise ValueError

    topic.publish("a")
    work()

    assert deliveries == [1, 2]


def test_batch_mode_ends_although_a_message_waits_to_be_tried_again(topic: Topic):
    @topic_task("orders", group="billing", backoff=fixed(3600))
    def bill(message: TopicMessage) -> None:
        raise ValueError

    topic.publish("a")

    assert work(until_empty=False, until_drained=True)
    assert topic.group("billing").status().held == 1


@pytest.fixture
def all_events(project: object, settings: Any) -> None:
    settings.RSMQ = {**settings.RSMQ, "EVENTS": {"RECORD": "all"}}


def counted() -> Counts:
    """Return the counts of the one task of the group "billing"."""
    ((task, counts),) = read_totals(get_client(), ["orders:billing"])["orders:billing"].items()
    assert task.endswith("bill")
    return counts


@pytest.mark.usefixtures("all_events")
def test_attempts_are_counted_and_logged_as_those_of_a_queue(topic: Topic):
    @topic_task("orders", group="billing", max_deliveries=2, backoff=fixed(0))
    def bill(message: TopicMessage) -> None:
        if message.body == b"bad":
            raise ValueError("no")

    topic.publish("good", "bad")

    work()

    counts = counted()
    assert (counts.sent, counts.started, counts.succeeded, counts.retried, counts.dead) == (2, 3, 1, 1, 1)
    assert (counts.run.count, counts.wait.count) == (3, 0)
    events = get_client().run(following("rsmq"))
    assert [(event.message_id, event.attempt, event.kind) for event in events] == [
        ("1", 1, "succeeded"),
        ("2", 1, "retried"),
        ("2", 2, "dead"),
    ]
    for event in events:
        assert (event.queue, event.task.rpartition(".")[2], event.task_id) == ("orders:billing", "bill", "")
        assert (event.enqueued_ms, event.wait_us) == (None, None)
        assert event.run_us is not None and event.body_bytes in (3, 4) and event.worker
        failure = ("", "") if event.kind == "succeeded" else ("builtins.ValueError", "no")
        assert (event.error_type, event.error) == failure


@pytest.mark.usefixtures("all_events")
def test_messages_of_a_batch_are_counted_one_by_one(topic: Topic):
    @topic_task("orders", group="billing", batch=10, backoff=fixed(0))
    def bill(messages: list[TopicMessage]) -> None:
        if len(messages) > 1:
            raise ValueError("too many")

    topic.publish("a", "b", "c")

    work()

    counts = counted()
    assert (counts.sent, counts.started, counts.retried, counts.succeeded) == (3, 6, 3, 3)
    kinds = [event.kind for event in get_client().run(following("rsmq"))]
    assert kinds == ["retried"] * 3 + ["succeeded"] * 3


def test_messages_that_a_group_lost_are_counted_as_lost(topic: Topic):
    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        topic.group("billing").seek("latest", force=True)

    topic.publish("a")

    work()

    assert (counted().succeeded, counted().lost) == (0, 1)


def test_returned_messages_are_counted_as_released(topic: Topic):
    begun, may_end = threading.Event(), threading.Event()

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        begun.set()
        may_end.wait(60)

    topic.publish("a")
    with working() as worker:
        assert begun.wait(60)
        worker.stop(within_s=0)
    may_end.set()

    assert (counted().started, counted().released, counted().ended) == (1, 1, 1)


def test_only_chosen_topics_are_followed(topic: Topic):
    got: list[bytes] = []
    topic_task("orders", group="billing")(lambda message: got.append(message.body))
    topic_task("other", group="billing")(lambda message: got.append(message.body))
    topic.publish("a")
    get_topic("other").publish("b")

    work(topics=("other",))

    assert got == [b"b"]


def test_waiting_worker_gets_messages_as_they_come(topic: Topic):
    got: list[bytes] = []
    topic_task("orders", group="billing")(lambda message: got.append(message.body))

    with working():
        for n in range(20):
            topic.publish(str(n))
            wait_until(lambda: len(got) == n + 1)  # noqa: B023 - it is called before n changes

    assert got == [str(n).encode() for n in range(20)]


@pytest.mark.slow
def test_function_that_runs_long_keeps_its_message(topic: Topic, server: PrivateServer):
    began, go_on = threading.Event(), threading.Event()

    @topic_task("orders", group="billing", visibility_timeout_s=5)
    def bill(message: TopicMessage) -> None:
        began.set()
        assert go_on.wait(60)

    topic.publish("a")
    due = topic.group("billing").keys.due
    with working():
        assert began.wait(60)
        first = server.redis.zscore(due, "1")
        wait_until(lambda: (server.redis.zscore(due, "1") or 0) > first)
        assert topic.group("billing").status().live_consumers == 1
        go_on.set()

    assert topic.group("billing").status().position == 1


def test_stopping_worker_lets_the_function_end(topic: Topic):
    began, go_on = threading.Event(), threading.Event()

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        began.set()
        assert go_on.wait(60)

    topic.publish("a", "b")
    with working() as worker:
        assert began.wait(60)
        worker.stop(within_s=60)
        wait_until(lambda: not worker._stopping.is_news)
        go_on.set()

    status = topic.group("billing").status()
    assert (status.position, status.held, status.live_consumers) == (1, 0, 0)


def test_tasks_that_do_not_end_in_time_are_released(topic: Topic):
    began, go_on = threading.Event(), threading.Event()

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        began.set()
        assert go_on.wait(60)

    topic.publish("a")
    with working() as worker:
        assert began.wait(60)
        worker.stop(within_s=0)
    try:
        (again,) = topic.group("billing", at_least_once=True).read()
        assert again.deliveries == 2, "at once, and not when its time is over"
    finally:
        go_on.set()


@pytest.mark.slow
def test_worker_outlives_a_restart_of_the_server(topic: Topic, server: PrivateServer):
    got: list[bytes] = []
    topic_task("orders", group="billing")(lambda message: got.append(message.body))
    topic.publish("before")

    with working():
        wait_until(lambda: got == [b"before"] and topic.group("billing").status().position == 1)
        server.restart()
        topic.publish("after")
        wait_until(lambda: got == [b"before", b"after"])


def test_queue_is_fed_from_a_topic(topic: Topic, project):
    project(**{"default": {}, "node": {"MAX_SIZE_BYTES": 1024}})
    bridge_topic("orders", group="to-node", queue="node")
    got: list[bytes] = []

    @consumer("node")
    def follow(message: Message) -> None:
        got.append(message.body)

    topic.publish("a", "x" * 2000, "b")
    work()  # feeds the queue; its consumer may have ended before
    work()

    assert sorted(got) == [b"a", b"b"]
    assert get_topic("orders.dlt").status().last == 1
    assert get_queue("node").attributes().messages == 0


def test_damaged_topic_is_reported_and_the_others_continue(
    topic: Topic, server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    got: list[bytes] = []
    topic_task("orders", group="billing")(lambda message: got.append(message.body))
    topic_task("other", group="billing")(lambda message: got.append(message.body))
    server.redis.set("orders:nextIndex", "broken")
    get_topic("other").publish("b")

    with working():
        wait_until(lambda: got == [b"b"])
        wait_until(lambda: "'orders:nextIndex', is 'broken'" in caplog.text)
        server.redis.delete("orders:nextIndex")
        topic.publish("a")
        wait_until(lambda: got == [b"b", b"a"])


def test_key_that_cannot_be_waited_for_delays_its_own_topic_only(
    server: PrivateServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("rsmq_django.worker.sources.topic_wake_up.LEAVE_OUT_S", 0.01)
    news: list[str] = []
    server.redis.set("rsmqt:broken:wake", "of another program")
    wake_up = TopicWakeUp(Connection(server.url, timeout_s=15), on_news=news.extend)
    wake_up.start()
    try:
        for key in ("rsmqt:broken:wake", "rsmqt:orders:wake"):
            wake_up.expect(key, 0)
        server.redis.xadd("rsmqt:orders:wake", {"a": "b"}, id="1-0")
        wait_until(lambda: "rsmqt:orders:wake" in news)
        assert caplog.text.count("cannot wait for the key rsmqt:broken:wake: WRONGTYPE") == 1

        server.redis.delete("rsmqt:broken:wake")
        server.redis.xadd("rsmqt:broken:wake", {"a": "b"}, id="1-0")
        wake_up.expect("rsmqt:broken:wake", 0)
        wait_until(lambda: "rsmqt:broken:wake" in news)
    finally:
        wake_up.stop_soon()
        wake_up.join()


def test_thread_of_topics_sleeps_until_a_publish_is_expected(server: PrivateServer):
    sleeps = list[float | None]()

    class Expected(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            sleeps.append(timeout)
            return super().wait(timeout)

    wake_up = TopicWakeUp(Connection(server.url, timeout_s=15), on_news=lambda keys: None)
    wake_up._is_expected = Expected()
    wake_up.start()
    try:
        wait_until(lambda: sleeps == [None])
    finally:
        wake_up.stop_soon()
        wake_up.join()


def test_rest_of_a_batch_runs_during_an_outage_and_is_acknowledged_after_it(topic: Topic, server: PrivateServer):
    calls: list[list[bytes]] = []

    @topic_task("orders", group="billing", batch=3, backoff=fixed(0))
    def bill(messages: list[TopicMessage]) -> None:
        calls.append([message.body for message in messages])
        if len(messages) == 3:
            raise ValueError("try them one by one")
        if len(calls) == 2:
            server.kill()

    topic.publish("a", "b", "c")
    with working() as worker:
        wait_until(lambda: len(calls) == 4 and worker.pool.is_idle)
        server.start()
        wait_until(lambda: topic.group("billing").status().held == 0)

    assert calls == [[b"a", b"b", b"c"], [b"a"], [b"b"], [b"c"]]


@pytest.mark.slow
def test_killed_worker_loses_no_message(server: PrivateServer, start_worker: StartWorker, journal: Journal):
    topic = get_topic("noted")
    topic.publish(*map(str, range(40)))
    first = start_worker("--processes", "1", topic=topic.name)
    wait_until(lambda: len(journal.names("message")) > 5)
    first.send_to_all(signal.SIGKILL)
    first.wait()
    topic.group("site").retry(range(1, 41))  # the time of what it held is over

    second = start_worker("--processes", "1", "--burst", topic=topic.name)

    assert second.wait() == 0, second.output
    assert "topic noted with 1 process" in second.output
    assert set(journal.names("message")) == {str(n) for n in range(40)}


def test_worker_notes_the_lag_of_all_groups_also_of_those_it_does_not_serve(topic: Topic):
    topic_task("orders", group="billing")(print)
    topic.publish(*map(str, range(10)))
    topic.group("shipping").read(3)

    run_rounds(topic, note_lags(topic))
    run_rounds(topic, note_lags(get_topic("empty")))  # nobody reads from it: there is nothing to note

    spans = topic.client.run_many(lag_calls(topic.name, Window.of(time.time() - 60)))
    assert [lag for lag in lags_of("shipping", spans) if lag is not None] == [7]


def test_lag_of_consumed_topics_is_recorded(topic: Topic, server: PrivateServer):
    topic_task("orders", group="billing")(lambda message: None)
    topic.publish("a")

    with working():
        wait_until(lambda: server.redis.keys("rsmqt:orders:lag:60:*"))


def test_command_refuses_topics_that_nothing_is_declared_for(topic: Topic):
    topic_task("orders", group="billing")(print)

    assert chosen_topics(None, no_topics=False) == ("orders",)
    assert chosen_topics("orders", no_topics=False) == ("orders",)
    assert chosen_topics(None, no_topics=True) == ()
    with pytest.raises(ImproperlyConfigured, match="Topic 'order' has no declared topic task. Did you mean 'orders'"):
        chosen_topics("order", no_topics=False)


# -- Steps of one source -----------------------------------------------------------------------------------------------


def topic_source() -> TopicGroupSource:
    """Return the only source of topics; a test does its steps."""
    context = SourceContext(notifier=Notifier("w1"), poll_interval_s=1, wake=lambda: None, ends_by_itself=True)
    (source,) = make_topic_sources(None, context)
    return source


def test_worker_reads_only_the_topics_that_it_was_given():
    for name in ("orders", "payments"):
        topic_task(name, group="billing")(print)
    context = SourceContext(notifier=Notifier("w1"), poll_interval_s=1, wake=lambda: None, ends_by_itself=True)

    (source,) = make_topic_sources(["payments"], context)

    assert source._unlisted == {"payments"}
    assert make_topic_sources([], context) == []


def test_group_sends_heartbeats_as_long_as_it_holds_a_call():
    topic_task("orders", group="billing", consumers=2)(print)
    get_topic("orders").publish("a", "b")
    source = topic_source()
    one, other = (source.exchange(1, at_most=1) for _ in range(2))
    state = consumer_of(source)

    state.over([each.batch for each in one])
    assert state.beat_at < math.inf

    state.over([each.batch for each in other])
    assert state.beat_at == math.inf


def test_reconnect_wait_is_a_tenth_of_the_shortest_lease_while_messages_are_held(
    configure: Configure, server: PrivateServer
):
    topic_task("orders", group="billing", visibility_timeout_s=10)(lambda message: None)
    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        get_topic("orders").publish("a")
        source = topic_source()
        assert len(source.exchange(1, at_most=1)) == 1
    waits = []
    for _ in range(60):
        source.backoff.next_try_at = 0.0
        consumer_of(source).beat_at = 0.0  # so that there is something to send
        assert source.exchange(1, at_most=1) == []
        waits.append(source.backoff.next_try_at - time.monotonic())

    assert source.backoff.is_on
    assert max(waits) <= 1.0


def consumer_of(source: TopicGroupSource) -> ConsumerState:
    """Return the only group of a source that a function receives."""
    (state,) = source.consumers.values()
    return state


def step(source: TopicGroupSource) -> int:
    """Settle, read and run once; return how many messages were read."""
    deliveries = source.exchange(10, at_most=1000)
    executions = [Execution(each, sink=source, notifier=source.notifier) for each in deliveries]
    source.note_arrived(executions)
    for runnable in source.in_calls(executions):
        copy_context().run(runnable.run)  # the test itself is not a task
    return len(deliveries)


def give_back(source: TopicGroupSource) -> None:
    """Give back what a source holds, as a worker does whose time to stop is over."""
    for delivery in source.leases.held():
        execution = delivery.execution
        assert isinstance(execution, Execution)
        source.settle(execution, execution.end_unfinished())
    source.flush()


def test_messages_that_failed_before_are_tried_one_by_one_after_the_new_ones(topic: Topic):
    calls: list[list[bytes]] = []

    @topic_task("orders", group="billing", batch=10, backoff=fixed(0))
    def bill(messages: list[TopicMessage]) -> None:
        calls.append([message.body for message in messages])
        if calls[-1] in ([b"1", b"2"], [b"1"], [b"2"]) and len(calls) < 4:
            raise ValueError

    source = topic_source()
    topic.publish("1", "2")
    step(source)
    assert calls == [[b"1", b"2"], [b"1"], [b"2"]]
    topic.publish("3", "4")

    step(source)
    step(source)

    assert calls[3:] == [[b"3", b"4"], [b"1"], [b"2"]]
    assert topic.group("billing").status().held == 0


def test_released_messages_do_not_run_and_a_late_result_does_not_count(topic: Topic):
    calls: list[list[bytes]] = []

    @topic_task("orders", group="billing", batch=10, backoff=fixed(0))
    def bill(messages: list[TopicMessage]) -> None:
        calls.append([message.body for message in messages])
        if len(messages) > 1:
            raise ValueError
        give_back(source)

    source = topic_source()
    topic.publish("1", "2", "3")

    step(source)
    source.flush()

    assert calls == [[b"1", b"2", b"3"], [b"1"]]
    assert topic.group("billing").status().held == 3
    again = consumer_of(source).group.read(10)
    assert [(message.body, message.attempt) for message in again] == [(b"1", 1), (b"2", 1), (b"3", 1)]


@pytest.mark.usefixtures("all_events")
def test_released_messages_are_events_without_those_that_another_consumer_has(topic: Topic):
    @topic_task("orders", group="billing", batch=10)
    def bill(messages: list[TopicMessage]) -> None: ...

    source = topic_source()
    topic.publish("1", "2", "3")
    for delivery in source.exchange(10):
        source.settle(Execution(delivery, sink=source, notifier=source.notifier), Released())
    topic.group("billing").ack(1)

    source.flush()

    events = get_client().run(following("rsmq"))
    assert [(event.message_id, event.kind) for event in events] == [("2", "released"), ("3", "released")]


def test_failure_of_a_released_message_schedules_no_retry(topic: Topic):
    @topic_task("orders", group="billing", backoff=fixed(3600))
    def bill(message: TopicMessage) -> None:
        give_back(source)
        raise ValueError

    source = topic_source()
    topic.publish("1")

    step(source)
    source.flush()

    assert [message.body for message in consumer_of(source).group.read(10)] == [b"1"], "it is due at once"


@pytest.mark.usefixtures("all_events")
def test_outcome_whose_reply_was_lost_is_not_counted_as_lost(server: PrivateServer, configure: Configure):
    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        """Do nothing."""

    with FaultProxy(server.url) as proxy:
        configure(url=proxy.url)
        get_topic("orders").publish("1")
        source = topic_source()
        step(source)
        proxy.lose_reply_to(load_script("topic/ack").sha1.encode())
        source.flush()

        assert (counted().succeeded, counted().lost) == (1, 0)


@pytest.mark.usefixtures("all_events")
def test_failed_message_that_another_consumer_has_is_counted_as_lost(topic: Topic):
    @topic_task("orders", group="billing", max_deliveries=1)
    def bill(message: TopicMessage) -> None:
        topic.group("billing").seek("latest", force=True)
        raise ValueError

    topic.publish("1")
    source = topic_source()
    step(source)
    source.flush()

    assert (counted().retried, counted().dead, counted().lost) == (0, 0, 1)


def test_batch_of_which_a_part_was_lost_counts_that_part(topic: Topic):
    @topic_task("orders", group="billing", batch=10)
    def bill(messages: list[TopicMessage]) -> None:
        topic.group("billing").ack(messages[:1])

    topic.publish("1", "2", "3")
    source = topic_source()
    step(source)
    source.flush()

    assert (counted().succeeded, counted().lost, counted().run.count) == (2, 1, 3)


@pytest.mark.parametrize("lost_index", [1, 2, 3])
@pytest.mark.parametrize("fails", [False, True], ids=["acknowledged", "released"])
def test_the_message_that_was_lost_is_the_one_that_is_named(topic: Topic, lost_index: int, fails: bool):
    named: list[str] = []

    def receive(message: Message, **_: Any) -> None:
        named.append(message.id)

    @topic_task("orders", group="billing", batch=10)
    def bill(messages: list[TopicMessage]) -> None:
        topic.group("billing").ack(lost_index)
        if fails:
            raise Postpone(after_s=60)

    topic.publish("1", "2", "3")
    source = topic_source()
    lease_lost.connect(receive)
    try:
        step(source)
        source.flush()
    finally:
        lease_lost.disconnect(receive)

    assert named == [str(lost_index)]
    assert topic.group("billing").status().held == (2 if fails else 0)


@pytest.mark.parametrize(("backoff", "expected_s"), [(-5, 0.0), (7.5, 7.5), (1e300, float(MAX_SECONDS)), ("3", 3.0)])
def test_wait_of_a_backoff_is_within_what_redis_can_store(topic: Topic, backoff: Any, expected_s: float):
    @topic_task("orders", group="billing", backoff=lambda delivery: backoff)
    def bill(message: TopicMessage) -> None: ...

    topic.publish("1")
    source = topic_source()
    (delivery,) = source.exchange(1)
    outcome = Execution(delivery, sink=source, notifier=source.notifier).decide(Raised(ValueError()))

    assert isinstance(outcome, RetryIn) and outcome.after_s == expected_s


def test_only_leased_messages_are_renewed_when_it_is_time(topic: Topic, server: PrivateServer):
    ends: list[float] = []

    def lease_ends() -> float:
        ((_, score),) = server.redis.zrange(topic.group("billing").keys.due, 0, -1, withscores=True)
        return float(score)

    @topic_task("orders", group="billing", visibility_timeout_s=300)
    def bill(message: TopicMessage) -> None:
        before = lease_ends()
        source.exchange(0)
        assert lease_ends() == before, "it is not time yet"
        server.redis.zadd(topic.group("billing").keys.due, {"1": before - 200_000})
        for held in source.leases.held():
            held.renewed_at -= 200
        source.leases._quiet_until = 0.0
        source.exchange(0)
        ends.extend((before, lease_ends()))

    source = topic_source()
    topic.publish("1")
    step(source)

    before, after = ends
    assert after >= before
    source.exchange(0)
    assert source.is_idle
    assert topic.group("billing").status().held == 0


def test_lease_that_a_damaged_group_does_not_renew_is_not_tried_again_at_once(topic: Topic, server: PrivateServer):
    pending, waits = "rsmqt:orders:pending:billing", list[float]()

    @topic_task("orders", group="billing", visibility_timeout_s=300)
    def bill(message: TopicMessage) -> None:
        server.redis.rename(pending, "aside")
        server.redis.set(pending, "of another program")
        (held,) = source.leases.held()
        held.renewed_at -= 200
        source.leases._quiet_until = 0.0
        source.exchange(0)
        waits.extend(at - time.monotonic() for at in [source.leases.next_renewal_at()] if at is not None)
        server.redis.rename("aside", pending)
        source.leases._quiet_until = 0.0
        source.exchange(0)
        assert held.renewed_at > time.monotonic() - 200, "renewed after the repair"

    source = topic_source()
    topic.publish("1")
    step(source)

    assert waits == [pytest.approx(30, abs=5)]
    wait_until(lambda: source.exchange(0) or source.is_idle)
    assert topic.group("billing").status().held == 0


@pytest.mark.parametrize("error", [ValueError("no"), Postpone(after_s=0)], ids=["retry", "postpone"])
def test_message_to_try_again_is_not_renewed_in_the_exchange_that_settles_it(topic: Topic, error: Exception):
    @topic_task("orders", group="billing", visibility_timeout_s=300, backoff=fixed(0))
    def bill(message: TopicMessage) -> None:
        for held in source.leases.held():  # it kept the main loop from its renewals, and then failed
            held.renewed_at -= 200
        source.leases._quiet_until = 0.0
        raise error

    source = topic_source()
    topic.publish("1")
    step(source)
    source.exchange(0)

    assert source.is_idle
    assert topic.group("billing").status().due == 1


def test_publish_that_is_noticed_before_the_reply_of_a_read_that_missed_it_is_read_at_once(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
):
    news: list[float] = []
    topic_task("orders", group="billing")(lambda message: None)
    context = SourceContext(notifier=Notifier("w1"), poll_interval_s=1, wake=lambda: news.append(0.0))
    (source,) = make_topic_sources(None, context)
    run_many = source.client.run_many

    def run_and_publish(calls: Any) -> Any:
        monkeypatch.setattr(source.client, "run_many", run_many)
        replies = run_many(calls)
        topic.publish("late")
        wait_until(lambda: news)
        return replies

    with closing(Wakeup()) as wakeup:
        source.start(wakeup, lambda: True)
        try:
            source.exchange(1)
            monkeypatch.setattr(source.client, "run_many", run_and_publish)
            consumer_of(source).read_soon()
            assert source.exchange(1) == []
            assert consumer_of(source).next_read_at == 0.0
        finally:
            source.stop()


def test_lease_that_another_consumer_has_is_noted_as_lost(topic: Topic):
    lost: list[list[bool]] = []

    @topic_task("orders", group="billing", batch=10)
    def bill(messages: list[TopicMessage]) -> None:
        topic.group("billing").ack(messages[1])
        for held in source.leases.held():
            held.renewed_at -= 20
        source.leases._quiet_until = 0.0
        source.exchange(0)
        lost.append([held.lease_lost for held in sorted(source.leases.held(), key=lambda held: held.message.id)])

    source = topic_source()
    topic.publish("1", "2", "3")
    step(source)

    assert lost == [[False, True, False]]


def test_messages_that_were_dropped_before_they_were_read_are_logged(topic: Topic, caplog: pytest.LogCaptureFixture):
    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None: ...

    source = topic_source()
    topic.publish("1")
    step(source)
    topic.publish("2", "3", "4")
    topic.trim(keep=1)

    step(source)

    assert "missed 2 messages" in caplog.text


def test_consumer_is_drained_when_nothing_is_ready_and_empty_when_nothing_is_in_flight(topic: Topic):
    @topic_task("orders", group="billing", backoff=fixed(3600))
    def bill(message: TopicMessage) -> None:
        raise ValueError

    source = topic_source()
    assert (source.is_drained, source.is_empty) == (None, None)
    assert step(source) == 0
    assert (source.is_drained, source.is_empty) == (True, True), "there is no message at all"
    topic.publish("1")
    consumer_of(source).read_soon()
    assert step(source) == 1
    assert source.is_drained is False, "it has just run one"
    step(source)
    step(source)

    assert (source.is_drained, source.is_empty) == (True, False)


@pytest.mark.parametrize("is_bridge", [False, True], ids=["function", "bridge"])
def test_after_an_exchange_without_a_reply_it_is_unknown_what_is_left(
    topic: Topic, server: PrivateServer, is_bridge: bool
):
    if is_bridge:
        bridge_topic("orders", group="copies", queue="default")
    else:
        topic_task("orders", group="billing")(lambda message: None)
    source = topic_source()
    wait_until(lambda: step(source) == 0 and source.is_drained)
    (state,) = source._groups
    state.read_at = 0.0  # it has heard of a message

    server.kill()
    try:
        source.exchange(1)
    finally:
        server.start()

    assert (source.is_drained, source.is_empty) == (None, None)


def test_topic_that_a_worker_reads_is_listed_before_the_first_message(topic: Topic):
    topic_task("orders", group="billing")(lambda message: None)

    step(topic_source())

    assert list_topics(topic.client) == ["orders"]


def test_queue_that_was_deleted_is_created_for_the_next_message_of_its_bridge(topic: Topic):
    bridge_topic("orders", group="copies", queue="default")
    source = topic_source()
    topic.publish("1")

    step(source)
    assert get_queue("default").attributes().messages == 0, "it was created"
    step(source)
    assert source.is_drained
    assert get_queue("default").attributes().messages == 1


def test_message_that_is_too_long_for_the_queue_of_its_bridge_is_logged(topic: Topic, caplog: pytest.LogCaptureFixture):
    bridge_topic("orders", group="copies", queue="default")
    source = topic_source()
    ensure_queue("default").set_attributes(max_size_bytes=1024)
    topic.publish("x" * 1025, "short")

    step(source)

    assert source.is_drained
    assert "1 message of" in caplog.text and "longer than queue default allows" in caplog.text
    assert get_queue("default").attributes().messages == 1


def test_outcome_that_a_damaged_group_refuses_is_logged_and_sent_again_later(
    topic: Topic, server: PrivateServer, caplog: pytest.LogCaptureFixture
):
    pending, aside = "rsmqt:orders:pending:billing", "aside"

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        server.redis.rename(pending, aside)
        server.redis.set(pending, "of another program")

    source = topic_source()
    topic.publish("a")
    step(source)
    source.exchange(0)

    assert source.unreported == 1
    assert "orders" in caplog.text and "Trying again until it works" in caplog.text
    server.redis.rename(aside, pending)
    (state,) = source.consumers.values()
    state.damage.next_try_at = math.inf
    for _ in range(3):
        source.exchange(0)
    assert source.unreported == 1, "it is not sent before its time"
    state.damage.next_try_at = 0.0
    wait_until(lambda: source.exchange(0) or source.is_idle)
    assert topic.group("billing").status().held == 0
