"""Messages of a topic that are read together and run one after another: their order, failures, stops and deaths."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from rsmq_django.core.topic import Topic, TopicMessage
from rsmq_django.tasks import fixed, topic_task
from rsmq_django.topics import get_topic
from rsmq_django.worker.delivery import Delivery
from rsmq_django.worker.execute.batch import executions_of
from rsmq_django.worker.execute.execution import Execution
from rsmq_django.worker.execute.pool import MOST_PREFETCHED, Prefetch
from rsmq_django.worker.execute.sequence import MessageSequence
from rsmq_django.worker.execute.stacks import stacks_of
from rsmq_django.worker.outcomes import NOTHING_RETURNED
from rsmq_django.worker.report.notifications import Notifier
from rsmq_django.worker.report.shared_state import SharedState
from rsmq_django.worker.report.statistics import Statistics
from rsmq_django.worker.sources.source import SourceContext
from rsmq_django.worker.sources.topic import TopicGroupSource, make_topic_sources
from rsmq_django.worker.sources.topic_group import MOST_AHEAD_BYTES
from rsmq_django.worker.supervise.process import most_noted
from rsmq_django.worker.worker import Worker
from tests.support import wait_until
from tests.worker.workshop import Configure, LateInterruption, TimeIsUp, new_worker, run_apart, work, working

pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture
def topic() -> Topic:
    """The topic "orders"."""
    return get_topic("orders")


class ShortRuns(Prefetch):
    """Takes each run as a short one: how long it took here says something about the machine only."""

    def note(self, run_s: float) -> None:
        super().note(0.0001)


def fast_source(shared_state: SharedState | None = None) -> TopicGroupSource:
    """Return the only source of topics, after many short runs of its only function."""
    context = SourceContext(
        notifier=Notifier("w1"), poll_interval_s=1, wake=lambda: None, shared_state=shared_state, ends_by_itself=True
    )
    (source,) = make_topic_sources(None, context)
    (state,) = source.consumers.values()
    state.pace = ShortRuns()
    for _ in range(50):
        state.pace.note(0)
    return source


def sequence_of(source: TopicGroupSource, deliveries: list[Delivery]) -> MessageSequence:
    """Return the only call for these messages."""
    executions = [Execution(each, sink=source, notifier=source.notifier) for each in deliveries]
    (sequence,) = source.in_calls(executions)
    assert isinstance(sequence, MessageSequence)
    return sequence


@pytest.fixture
def many_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers read up to 50 messages together, however long their functions run here."""
    monkeypatch.setattr(Prefetch, "ahead", lambda _, threads: 50)


def has_left(topic: Topic, held: int) -> bool:
    """Return whether all messages were read, and all but these were settled."""
    status = topic.group("billing").status()
    return (status.lag, status.held) == (0, held)


def attempts_of(source: TopicGroupSource, count: int = 100) -> list[tuple[bytes, int]]:
    """Return the messages that are ready, each with its attempt."""
    (state,) = source.consumers.values()
    return [(message.body, message.attempt) for message in state.group.read(count)]


def publish_with_a_slow_one(topic: Topic) -> tuple[threading.Event, threading.Event]:
    """Publish 34 messages, of which the 31st runs until it is released; return the events of its begin and release."""
    began, release = threading.Event(), threading.Event()

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        if message.body == b"slow":
            began.set()
            assert release.wait(60)

    topic.publish(*["fast"] * 30, "slow", *["fast"] * 3)
    return began, release


def test_short_messages_are_read_together_and_run_in_order(topic: Topic):
    ran: list[int] = []

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        ran.append(message.index)

    topic.publish(*map(str, range(120)))
    source = fast_source()
    reads = []
    while deliveries := source.exchange(1):
        reads.append(len(deliveries))
        run_apart(sequence_of(source, deliveries))

    assert reads == [50, 50, 20], "as many as runs were seen when the read was sent"
    assert ran == list(range(1, 121))
    assert (topic.group("billing").status().position, topic.group("billing").status().held) == (120, 0)


@pytest.mark.parametrize("consumers", [1, 3])
def test_a_worker_runs_each_message_once_and_each_sequence_in_its_order(topic: Topic, consumers: int):
    ran: list[int] = []
    by_thread: dict[int, list[int]] = {}

    @topic_task("orders", group="billing", consumers=consumers)
    def bill(message: TopicMessage) -> None:
        ran.append(message.index)
        by_thread.setdefault(threading.get_ident(), []).append(message.index)

    topic.publish(*map(str, range(1000)))
    assert work(threads=4)

    assert sorted(ran) == list(range(1, 1001))
    assert consumers > 1 or ran == sorted(ran)
    assert all(own == sorted(own) for own in by_thread.values())


def test_message_that_was_tried_before_is_read_without_others(topic: Topic):
    topic_task("orders", group="billing")(lambda message: None)
    source = fast_source()
    topic.publish("deadly", "good", "better", "new")
    (state,) = source.consumers.values()
    state.group.retry(state.group.read(2).messages, after_s=0)  # the leases of a process that died

    reads = []
    while deliveries := source.exchange(10):
        reads.append([each.message.body for each in deliveries])
        for execution in [Execution(each, sink=source, notifier=source.notifier) for each in deliveries]:
            run_apart(execution)

    assert reads == [[b"deadly"], [b"good"], [b"better", b"new"]]


@pytest.mark.parametrize("is_async", [False, True], ids=["function", "coroutine"])
def test_without_another_delivery_and_for_coroutines_one_message_is_read(topic: Topic, is_async: bool):
    async def abill(message: TopicMessage) -> None: ...

    def bill(message: TopicMessage) -> None: ...

    topic_task("orders", group="billing", max_deliveries=5 if is_async else 1)(abill if is_async else bill)
    topic.publish("a", "b", "c")

    assert len(fast_source().exchange(10)) == 1


def test_failure_of_one_message_leaves_the_others_of_its_sequence(topic: Topic):
    ran: list[bytes] = []

    @topic_task("orders", group="billing", backoff=fixed(3600))
    def bill(message: TopicMessage) -> None:
        ran.append(message.body)
        if message.body == b"bad":
            raise ValueError

    topic.publish("a", "bad", "b")
    source = fast_source()
    run_apart(sequence_of(source, source.exchange(10)))
    source.flush()

    assert ran == [b"a", b"bad", b"b"]
    assert topic.group("billing").status().held == 1


def test_messages_behind_a_long_run_are_given_back_without_an_attempt(topic: Topic, monkeypatch: pytest.MonkeyPatch):
    began, release = threading.Event(), threading.Event()

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        began.set()
        assert release.wait(60)

    topic.publish("slow", *map(str, range(1, 13)))
    source = fast_source()
    sequence = sequence_of(source, source.exchange(10))
    thread = threading.Thread(target=sequence.run)
    thread.start()
    assert began.wait(60)

    source.exchange(10)
    assert topic.group("billing").status().due == 0, "the run is not long yet"
    monkeypatch.setattr("rsmq_django.worker.execute.pool.STUCK_AFTER_S", 0)
    source.exchange(10)  # gives back
    assert not sequence.has_waiting and len(sequence.executions) == 1
    release.set()
    thread.join(60)
    source.flush()

    assert attempts_of(source) == [(b"%d" % number, 1) for number in range(1, 13)], "in their order"


@pytest.mark.usefixtures("many_ahead")
def test_outcomes_of_a_sequence_are_sent_while_it_runs(topic: Topic):
    began, release = publish_with_a_slow_one(topic)
    with working(threads=1):
        assert began.wait(60)
        wait_until(lambda: topic.group("billing").status().held in range(1, 5))
        release.set()
        wait_until(lambda: topic.group("billing").status().held == 0)


@pytest.mark.usefixtures("many_ahead")
def test_stopping_worker_gives_back_the_rest_of_a_sequence(topic: Topic):
    ran: list[int] = []
    began, release = threading.Event(), threading.Event()

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        ran.append(message.index)
        if message.index == 40:
            began.set()
            assert release.wait(60)

    topic.publish(*map(str, range(80)))
    with working(threads=1) as worker:
        assert began.wait(60)
        worker.stop(within_s=60)
        wait_until(lambda: all(each.is_worker_stopping for each in executions_of(worker.pool.running())))
        release.set()

    assert ran == list(range(1, 41))
    messages = topic.group("billing", at_least_once=True).read(100).messages
    assert [(message.index, message.attempt) for message in messages] == [(index, 1) for index in range(41, 81)]


@pytest.mark.usefixtures("many_ahead")
def test_time_limit_of_a_message_interrupts_that_message_only(topic: Topic, time_is_up: TimeIsUp):
    attempts: list[tuple[bytes, int]] = []
    threads: set[int] = set()

    @topic_task("orders", group="billing", timeout_s=3600, backoff=fixed(3600))
    def bill(message: TopicMessage) -> None:
        attempts.append((message.body, message.attempt))
        threads.add(threading.get_ident())
        if message.body == b"endless":
            time_is_up()
        while message.body == b"endless":
            threading.Event().wait(0.001)

    topic.publish(*["a"] * 30, "endless", "b", "c")
    with working(threads=1):
        wait_until(lambda: len(attempts) == 33)
        wait_until(lambda: topic.group("billing").status().held == 1)

    assert attempts[-3:] == [(b"endless", 1), (b"b", 1), (b"c", 1)]
    assert len(threads) == 2, "nothing runs on a thread that was interrupted"


@pytest.mark.usefixtures("many_ahead")
def test_only_the_message_that_was_interrupted_is_counted(
    topic: Topic, time_is_up: TimeIsUp, monkeypatch: pytest.MonkeyPatch
):
    counted: list[str] = []
    monkeypatch.setattr(Statistics, "interrupted", lambda _, queue, task: counted.append(queue))

    @topic_task("orders", group="billing", timeout_s=3600, backoff=fixed(3600))
    def bill(message: TopicMessage) -> None:
        if message.body == b"endless":
            time_is_up()
        while message.body == b"endless":
            threading.Event().wait(0.001)

    topic.publish(*["a"] * 30, "endless", *["b"] * 10)
    with working(threads=1):
        wait_until(lambda: has_left(topic, held=1))

    assert counted == ["orders:billing"]


@pytest.mark.usefixtures("many_ahead")
def test_next_message_is_not_interrupted_when_the_worker_notices_a_time_limit_late(
    topic: Topic, late_interruption: LateInterruption
):
    @topic_task("orders", group="billing", timeout_s=3600, backoff=fixed(3600))
    def bill(message: TopicMessage) -> None:
        if message.body == b"overdue":
            late_interruption.overdue_call()
        elif message.body == b"next":
            late_interruption.next_call()

    topic.publish("a", "overdue", "next", "b")
    with working(threads=1):
        wait_until(lambda: has_left(topic, held=0))

    assert not late_interruption.hit_the_next


@pytest.mark.usefixtures("many_ahead")
def test_stack_is_that_of_the_message_that_runs(topic: Topic):
    began, release = publish_with_a_slow_one(topic)
    with working(threads=1) as worker:
        assert began.wait(60)
        stacks = stacks_of(worker.pool)
        release.set()

    assert [*stacks] == ["31"]


def test_messages_whose_leases_are_lost_do_not_begin(topic: Topic):
    ran: list[bytes] = []

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        ran.append(message.body)
        if len(ran) == 2:
            topic.group("billing").replay(force=True)
            source.leases.expire(time.monotonic() + 3600)  # as a renewal finds out

    topic.publish("a", "b", "c", "d")
    source = fast_source()
    run_apart(sequence_of(source, source.exchange(10)))
    while deliveries := source.exchange(10):
        run_apart(sequence_of(source, deliveries))

    assert ran == [b"a", b"b", b"a", b"b", b"c", b"d"]
    assert (topic.group("billing").status().position, topic.group("billing").status().held) == (4, 0)


def test_after_a_pause_longer_than_their_leases_no_further_messages_begin(topic: Topic):
    ran: list[bytes] = []

    @topic_task("orders", group="billing", visibility_timeout_s=3600)
    def bill(message: TopicMessage) -> None:
        ran.append(message.body)
        if ran == [b"a", b"b"]:
            for held in source.leases.held():  # the process stood still: nothing was renewed or noticed
                held.renewed_at -= 3600

    topic.publish("a", "b", "c", "d")
    source = fast_source()
    run_apart(sequence_of(source, source.exchange(10)))
    source.exchange(0)

    assert ran == [b"a", b"b"]
    assert attempts_of(source) == [(b"c", 1), (b"d", 1)], "nor do they lose an attempt"


def test_of_long_messages_few_are_read_together(topic: Topic):
    topic_task("orders", group="billing")(lambda message: None)
    source = fast_source()
    long = bytes(MOST_AHEAD_BYTES // 4)
    topic.publish("short", *[long] * 20, *["short"] * 200)

    reads: list[int] = []
    while deliveries := source.exchange(10, at_most=4 if not reads else 1000):
        reads.append(len(deliveries))
        for execution in [Execution(each, sink=source, notifier=source.notifier) for each in deliveries]:
            source.settle(execution, NOTHING_RETURNED)

    assert reads[:5] == [4] * 5, "a megabyte or so"
    assert max(reads) > 20, "short ones are read together again"


def test_a_function_changes_the_context_of_its_own_run_only(topic: Topic, project: Configure, settings: Any):
    from django.utils import translation

    languages: list[str] = []

    @topic_task("orders", group="billing")
    def bill(message: TopicMessage) -> None:
        languages.append(translation.get_language() or "")
        translation.activate("de")

    topic.publish("a", "b", "c")
    source = fast_source()
    run_apart(sequence_of(source, source.exchange(10)))
    source.flush()

    assert languages == ["en-us"] * 3


@pytest.mark.parametrize(("threads", "consumers"), [(3, 3), (8, 8), (1, 10)])
def test_each_message_is_in_shared_memory_however_many_outcomes_wait(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, threads: int, consumers: int
):
    monkeypatch.setattr(Prefetch, "ahead", lambda _, threads: MOST_PREFETCHED)

    @topic_task("orders", group="billing", consumers=consumers, hard_timeout_s=1000)
    def bill(message: TopicMessage) -> None: ...

    shared_state = SharedState(most_noted(new_worker(threads=threads).options))
    source = fast_source(shared_state)
    topic.publish(*["short"] * 1000)
    deliveries = source.exchange(consumers)
    executions = [Execution(each, sink=source, notifier=source.notifier) for each in deliveries]
    for sequence in source.in_calls(executions):
        run_apart(sequence)

    assert len(deliveries) == min(consumers * MOST_PREFETCHED, 1000)
    assert len(shared_state.running()) == len(deliveries)


def test_hard_limit_of_each_message_is_in_shared_memory_while_it_runs(topic: Topic):
    shared_state, left_s = SharedState(10), list[float]()

    @topic_task("orders", group="billing", hard_timeout_s=1000)
    def bill(message: TopicMessage) -> None:
        left_s.append(shared_state.next_limit() - time.monotonic())

    topic.publish(*map(str, range(10)))
    Worker([], new_worker(until_empty=True).options, shared_state=shared_state).run()

    assert len(left_s) == 10 and all(900 < each <= 1000 for each in left_s)
    assert shared_state.running() == frozenset()
