"""What tasks of topics have because one executor runs all tasks: time limits, middleware, signals, a fair share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rsmq_django.core.topic import Topic, TopicMessage
from rsmq_django.reliable_queues import task_body
from rsmq_django.signals import lease_lost, message_dead_lettered
from rsmq_django.tasks import current_task, fixed, topic_task
from rsmq_django.tasks.retry import Postpone, TaskTimeout
from rsmq_django.tasks.running import CurrentTask
from rsmq_django.topics import get_topic
from rsmq_django.worker.execute.interrupt import Interruptions, call_interruptibly
from rsmq_django.worker.execute.stacks import stacks_of
from rsmq_django.worker.outcomes import Outcome
from rsmq_django.worker.sources.topic import TopicGroupSource
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, LateInterruption, declare, work, working

pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture
def topic() -> Topic:
    """The topic "orders"."""
    return get_topic("orders")


def test_function_that_exceeds_its_time_limit_is_interrupted_and_its_message_tried_again(topic: Topic):
    errors: list[type[BaseException]] = []
    go_on = threading.Event()

    @topic_task("orders", group="billing", timeout_s=0.05, max_deliveries=0, backoff=fixed(0))
    def bill(message: TopicMessage) -> None:
        if message.deliveries == 1:
            try:
                while not go_on.wait(0.001):
                    pass
            except BaseException as error:
                errors.append(type(error))
                raise

    topic.publish("a")
    assert work()

    assert errors == [TaskTimeout]
    assert topic.group("billing").status().position == 1
    assert get_topic("orders.dlt").status().last == 0


def test_coroutine_that_exceeds_its_time_limit_is_cancelled(topic: Topic):
    tries: list[int] = []

    @topic_task("orders", group="billing", timeout_s=0.05, max_deliveries=0, backoff=fixed(0))
    async def bill(message: TopicMessage) -> None:
        tries.append(message.deliveries)
        if message.deliveries == 1:
            await asyncio.Event().wait()

    topic.publish("a")
    work()

    assert tries[:2] == [1, 2]
    assert topic.group("billing").status().position == 1


def test_batch_that_exceeds_its_time_limit_is_tried_message_by_message_in_another_thread(topic: Topic):
    calls: list[list[bytes]] = []
    go_on = threading.Event()

    @topic_task("orders", group="billing", batch=10, timeout_s=0.5, max_deliveries=0, backoff=fixed(0))
    def bill(messages: list[TopicMessage]) -> None:
        calls.append([message.body for message in messages])
        while len(messages) > 1 and not go_on.wait(0.001):
            pass

    topic.publish("a", "b")
    work()

    assert calls[0] == [b"a", b"b"]
    assert {len(each) for each in calls[1:]} == {1}
    assert topic.group("billing").status().held == 0


@pytest.mark.parametrize("overdue", [0, 1], ids=["all messages", "one message"])
def test_next_call_of_a_batch_is_not_interrupted_when_the_worker_notices_a_time_limit_late(
    topic: Topic, late_interruption: LateInterruption, overdue: int
):
    calls: list[list[bytes]] = []

    @topic_task("orders", group="billing", batch=10, timeout_s=3600, backoff=fixed(3600))
    def bill(messages: list[TopicMessage]) -> None:
        calls.append([message.body for message in messages])
        if len(calls) == overdue + 1:
            late_interruption.overdue_call()
        elif len(calls) == overdue + 2:
            late_interruption.next_call()
        if len(messages) > 1:
            raise ValueError

    topic.publish("a", "b", "c")
    with working(threads=1):
        wait_until(lambda: (status := topic.group("billing").status()).lag == status.held == 0)

    assert calls == [[b"a", b"b", b"c"], [b"a"], [b"b"], [b"c"]]
    assert not late_interruption.hit_the_next


def test_time_limit_that_is_over_while_a_call_of_a_batch_ends_interrupts_no_other_call(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
):
    noticed = threading.Event()
    interrupt = Interruptions.interrupt
    calls: list[list[bytes]] = []

    def interrupt_and_note(self: Interruptions[Any], *words: Any) -> None:
        interrupt(self, *words)
        noticed.set()

    def call_and_end_late(function: Any, attempt: Any) -> Any:
        try:
            return call_interruptibly(function, attempt)
        finally:
            if len(calls) == 1:
                attempt.time_limit.deadline = 0.0
                attempt.sink.flush_soon()
                assert noticed.wait(60)

    monkeypatch.setattr(Interruptions, "interrupt", interrupt_and_note)
    monkeypatch.setattr("rsmq_django.worker.execute.invoke.call_interruptibly", call_and_end_late)

    @topic_task("orders", group="billing", batch=10, timeout_s=3600, backoff=fixed(3600))
    def bill(messages: list[TopicMessage]) -> None:
        calls.append([message.body for message in messages])
        if len(messages) > 1:
            raise ValueError

    topic.publish("a", "b", "c")
    with working(threads=1):
        wait_until(lambda: len(calls) > 1)
        wait_until(lambda: (status := topic.group("billing").status()).lag == status.held == 0)

    assert calls == [[b"a", b"b", b"c"], [b"a"], [b"b"], [b"c"]]


class Noting:
    """Middleware that notes what it sees."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    @contextmanager
    def around(self, run: CurrentTask) -> Iterator[None]:
        """Note the call."""
        self.seen.append(("around", run.queue_name, run.message_id, run.attempt))
        yield

    def after(self, run: CurrentTask, outcome: Outcome) -> None:
        """Note the outcome."""
        self.seen.append(("after", run.message_id, type(outcome).__name__))

    def on_dead_letter(self, run: CurrentTask, outcome: Outcome) -> None:
        """Note the failure."""
        self.seen.append(("dead", run.message_id))


def test_middleware_surrounds_the_function_of_a_topic(topic: Topic, settings: Any):
    noting = Noting()
    settings.RSMQ = {**settings.RSMQ, "MIDDLEWARE": [noting]}

    @topic_task("orders", group="billing", max_deliveries=2, backoff=fixed(0))
    def bill(message: TopicMessage) -> None:
        if message.body == b"bad":
            raise ValueError

    topic.publish("good", "bad")
    work()

    assert noting.seen == [
        ("around", "orders:billing", "1", 1),
        ("after", "1", "Succeeded"),
        ("around", "orders:billing", "2", 1),
        ("after", "2", "RetryIn"),
        ("around", "orders:billing", "2", 2),
        ("after", "2", "Dead"),
        ("dead", "2"),
    ]


def test_signals_report_dead_letters_and_lost_leases(topic: Topic):
    got: list[tuple[str, str, str]] = []

    def receive_dead(queue_name: str, message: Any, reason: str, **_: Any) -> None:
        got.append((queue_name, message.id, reason))

    def receive_lost(queue_name: str, message: Any, **_: Any) -> None:
        got.append((queue_name, message.id, "lost"))

    @topic_task("orders", group="billing", max_deliveries=1)
    def bill(message: TopicMessage) -> None:
        if message.index == 1:
            raise ValueError
        topic.group("billing").ack(message)

    message_dead_lettered.connect(receive_dead)
    lease_lost.connect(receive_lost)
    try:
        topic.publish("a", "b")
        work()
    finally:
        message_dead_lettered.disconnect(receive_dead)
        lease_lost.disconnect(receive_lost)

    assert got == [("orders:billing", "1", "attempts_used_up"), ("orders:billing", "2", "lost")]


def test_function_can_extend_its_lease_and_learns_that_it_was_lost(topic: Topic, server: PrivateServer):
    found: list[Any] = []

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        due = topic.group("billing").keys.due
        before = server.redis.zscore(due, "1")
        task = current_task()
        found.append((task.queue_name, task.message_id, task.attempt))
        found.append((task.extend(600), server.redis.zscore(due, "1") - before > 500_000))
        found.append(task.progress(1, 2))
        topic.group("billing").ack(message)
        found.append((task.extend(600), task.lease_lost))

    topic.publish("a")
    work()

    assert found == [("orders:billing", "1", 1), (True, True), True, (False, True)]


def test_postponed_message_counts_no_attempt(topic: Topic):
    tries: list[tuple[int, int]] = []

    @topic_task("orders", group="billing", max_deliveries=2)
    def bill(message: TopicMessage) -> None:
        tries.append((message.deliveries, message.attempt))
        if len(tries) < 5:
            raise Postpone(0)

    topic.publish("a")
    work()

    assert tries == [(n, 1) for n in range(1, 6)]
    assert get_topic("orders.dlt").status().last == 0


@pytest.mark.parametrize(
    "written", ["2:99999999999999999999", "2:3", "0", "99999999999999999999:5", "9" * 400, "1e3", "-4", "many", ""]
)
def test_deliveries_that_another_program_wrote_stop_neither_the_worker_nor_the_message(
    topic: Topic, server: PrivateServer, written: str
):
    group, tries = topic.group("billing"), list[tuple[int, int]]()

    @topic_task("orders", group="billing", max_deliveries=3, backoff=fixed(0))
    def bill(message: TopicMessage) -> None:
        tries.append((message.deliveries, message.attempt))
        if len(tries) == 1:
            server.redis.hset(group.keys.counts, "1", written)
            server.redis.zadd(group.keys.due, {"1": 1})
            raise ValueError

    topic.publish("a")
    work()

    assert tries == [(1, 1), (2, 2)]
    assert (group.status().position, group.status().held) == (1, 0)


@pytest.mark.parametrize("consumers", [1, 2])
def test_group_runs_as_many_messages_at_a_time_as_it_has_consumers_in_order(topic: Topic, consumers: int):
    lock, running, most, order = threading.Lock(), [0], [0], list[int]()

    @topic_task("orders", group="billing", consumers=consumers)
    def bill(message: TopicMessage) -> None:
        with lock:
            order.append(message.index)
            running[0] += 1
            most[0] = max(most[0], running[0])
        if message.index == 1 and consumers == 2:
            wait_until(lambda: most[0] == 2)
        with lock:
            running[0] -= 1

    topic.publish(*map(str, range(60)))
    work(threads=4)

    assert most[0] == consumers
    assert sorted(order) == list(range(1, 61))
    assert consumers > 1 or order == sorted(order)


def test_backlog_of_a_queue_leaves_a_topic_its_turn(project: Configure, topic: Topic):
    ran: list[str] = []

    def spin(number: int) -> None:
        ran.append("queue")

    topic_task("orders", group="billing")(lambda message: ran.append("topic"))
    declare(spin).enqueue_many([[number] for number in range(3000)])
    topic.publish("a", "b")

    work(threads=1)

    assert ran.count("topic") == 2
    assert "queue" in ran[max(at for at, kind in enumerate(ran) if kind == "topic") :]


def test_publish_wakes_a_worker_that_waits_for_several_topics(topic: Topic):
    got: list[tuple[str, bytes]] = []
    names = ["orders", "payments", "{shop}.returns"]
    for name in names:
        topic_task(name, group="billing")(lambda message, name=name: got.append((name, message.body)))

    with working() as worker:
        for number in range(10):
            for name in names:
                get_topic(name).publish(str(number))
            wait_until(lambda: len(got) == 3 * (number + 1))  # noqa: B023 - it is called before number changes
        (source,) = [each for each in worker.sources if isinstance(each, TopicGroupSource)]
        assert len(source.wake_ups._by_tag) == 2
        assert worker.pool.is_idle

    assert sorted(got) == sorted((name, str(number).encode()) for name in names for number in range(10))


def test_messages_of_a_plain_client_are_found_without_a_wake_up(topic: Topic, server: PrivateServer):
    got: list[bytes] = []
    topic_task("orders", group="billing")(lambda message: got.append(message.body))

    with working():
        wait_until(lambda: topic.group("billing").status().exists)
        server.redis.mset({"orders:messages:1": "plain", "orders:nextIndex": 1})
        wait_until(lambda: got == [b"plain"])


def test_stack_of_a_running_function_can_be_read(topic: Topic):
    began, go_on = threading.Event(), threading.Event()

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        began.set()
        assert go_on.wait(60)

    topic.publish("a")
    with working() as worker:
        assert began.wait(60)
        stacks = stacks_of(worker.pool)
        go_on.set()

    assert list(stacks) == ["1"] and "go_on.wait(60)" in stacks["1"]


def test_process_ends_after_its_number_of_tasks_of_topics_too(topic: Topic):
    got: list[bytes] = []
    topic_task("orders", group="billing")(lambda message: got.append(message.body))
    topic.publish(*"abcde")

    work(max_tasks=3, until_empty=False)

    assert got == [b"a", b"b", b"c"]
    assert topic.group("billing").status().position == 3


def test_message_that_looks_like_the_call_of_a_task_goes_to_the_function_of_its_group(topic: Topic):
    ran: list[str] = []
    got: list[bytes] = []

    def pay() -> None:
        ran.append("the task")

    topic_task("orders", group="billing")(lambda message: got.append(message.body))
    body = task_body(declare(pay))
    topic.publish(body)

    work()

    assert (ran, got) == ([], [body])
