"""The table of features by source in docs/how-to/tasks.md: each cell is true."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.dispatch import Signal
from django.test import override_settings
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from rsmq_django.conf.settings import QueueSettings, get_settings
from rsmq_django.core.stats.events import following
from rsmq_django.core.stats.history import read_totals
from rsmq_django.core.topic import TopicMessage
from rsmq_django.queues import ensure_queue, get_client, get_queue
from rsmq_django.reliable_queues import get_reliable_queue, task_body
from rsmq_django.signals import message_dead_lettered
from rsmq_django.tasks import DISCARD, Concurrency, Rate, Unique, cancel, consumer, fixed
from rsmq_django.tasks.compat import InvalidTask, TaskResultDoesNotExist, task_finished, task_started
from rsmq_django.tasks.model_instances import InstanceConverter
from rsmq_django.tasks.reliable_calls import REFUSED
from rsmq_django.tasks.topic_task import topic_task
from rsmq_django.tasks.wrong_value import MissingObject
from rsmq_django.telemetry.instrumentor import RsmqInstrumentor
from rsmq_django.topics import get_topic
from rsmq_django.worker.execute.execution import Execution
from rsmq_django.worker.report.shared_state import SharedState
from rsmq_django.worker.worker import Worker, WorkerOptions
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.workshop import Configure, dead_letters, declare, new_worker, work

DOCS = Path(__file__).parents[3] / "docs/how-to/tasks.md"
YES, RAISES = "yes", "raises"


def table() -> dict[str, list[str]]:
    """Return the cells of the table by feature."""
    part = DOCS.read_text("utf-8").split("## Features by source")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| ")][1:]
    return {name.strip(): [cell.strip().split(",")[0] for cell in cells] for name, *cells in rows}


@dataclass
class Place:
    """A queue of one structure, with a worker on it."""

    source: str
    server: PrivateServer

    @property
    def name(self) -> str:
        return "default" if self.source == "queues" else "orders"

    def send(self, task: Any, *args: Any) -> None:
        if self.source == "queues":
            task.enqueue(*args)
        else:
            get_reliable_queue(self.name).push(task_body(task, *args))

    def work(self, **options: Any) -> None:
        assert work(self.name, **options)

    def stored(self) -> int:
        """Return how many messages are there, without dead ones."""
        if self.source == "queues":
            return get_queue(self.name).attributes().messages
        depth = get_reliable_queue(self.name).statistics().depth
        return depth.ready + depth.hidden

    def dead(self) -> list[str]:
        """Return the reasons of dead messages."""
        if self.source == "queues":
            return [record["reason"] for _, record in dead_letters()]
        return [dead.consumer.partition(":")[0] for dead in get_reliable_queue(self.name).messages("dead")]


@pytest.fixture(params=["queues", "reliable queues"])
def place(request: pytest.FixtureRequest, settings: Any, server: PrivateServer) -> Place:
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}},
        "QUEUES": {"default": {}},
        "RELIABLE": {"orders": {"LEASE_S": 30}},
        "TASKS": {"ENQUEUE_ON_COMMIT": False},
    }
    return Place(request.param, server)


# -- What works, everywhere it does -----------------------------------------------------------------------------------


def fails_until(attempt: int, **options: Any) -> tuple[Any, list[int]]:
    """Return a task that fails before this attempt, and the list of its attempts."""
    attempts: list[int] = []

    def fail() -> None:
        attempts.append(len(attempts) + 1)
        if len(attempts) < attempt:
            raise ValueError("not yet")

    return declare(backoff=fixed(0), **options)(fail), attempts


def retries(place: Place) -> None:
    task, attempts = fails_until(3, max_attempts=3)
    place.send(task)
    place.work()
    assert attempts == [1, 2, 3] and place.dead() == []


def max_attempts(place: Place) -> None:
    task, attempts = fails_until(9, max_attempts=3)
    place.send(task)
    place.send(task.using(max_attempts=1))
    place.work()
    assert len(attempts) == 4 and place.dead() == ["attempts_used_up"] * 2


def give_up_on(place: Place) -> None:
    task, attempts = fails_until(9, max_attempts=3, give_up_on=ValueError)
    place.send(task)
    place.work()
    assert attempts == [1] and place.dead() == ["gave_up"]


def timeout(place: Place) -> None:
    def run_on() -> None:
        while True:
            time.sleep(0.001)

    place.send(declare(timeout_s=0.05, max_attempts=1)(run_on))
    place.work()
    assert place.dead() == ["attempts_used_up"]


def limits(place: Place) -> None:
    most, running, lock = [0], [0], threading.Lock()

    def run(number: int) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        if number == 0:
            wait_until(lambda: place_of_limit(place))
        with lock:
            running[0] -= 1

    task = declare(limits=[Concurrency(1), Rate(1000, per_s=1)])(run)
    for number in range(4):
        place.send(task, number)
    place.work(threads=4)
    assert most == [1] and place.stored() == 0
    assert not place_of_limit(place), "the slot is free again"


def place_of_limit(place: Place) -> dict[bytes, bytes]:
    """Return the slots of the limit for concurrency."""
    found: dict[bytes, bytes] = {}
    for key in place.server.redis.scan_iter("rsmq::limit*"):
        if place.server.redis.type(key) == b"hash":
            found |= place.server.redis.hgetall(key)
    return found


def expires(place: Place) -> None:
    seen: list[str] = []
    task = declare(lambda name: seen.append(name))
    place.send(task.using(expires_in_s=0.001), "late")
    place.send(task.using(expires_in_s=1000), "in time")
    sent_at = place.server.redis.time()
    wait_until(lambda: place.server.redis.time() > (sent_at[0], sent_at[1] + 2000))
    place.work()
    assert seen == ["in time"] and place.dead() == ["expired"]


def batch(place: Place) -> None:
    sizes: list[int] = []
    task = declare(batch=10)(lambda calls: sizes.append(len(calls)))
    for _ in range(6):
        place.send(task)
    place.work(threads=4)  # the first turn has room for four, half of it for abandoned messages
    assert sum(sizes) == 6 and max(sizes) > 1


def ack_each(place: Place) -> None:
    stored: list[int] = []
    task = declare(ack="each")(lambda: stored.append(place.stored()))
    for _ in range(3):
        place.send(task)
    place.work(threads=1)
    assert stored == [3, 2, 1]


def aliases(place: Place) -> None:
    seen: list[int] = []
    task = declare(aliases=["shop.tasks.of_before"])(lambda: seen.append(1))
    body = task_body(task).replace(task.module_path.encode(), b"shop.tasks.of_before")
    if place.source == "queues":
        ensure_queue(place.name).send(body)
    else:
        get_reliable_queue(place.name).push(body)
    place.work()
    assert seen == [1]


class Tenant:
    """Carries a word from the sender to the run."""

    told: list[Any] = []

    def sending(self, call: Any) -> None:
        call.context["tenant"] = "blue"

    def before(self, run: Any) -> None:
        self.told.append(run.context["tenant"])


def middleware(place: Place) -> None:
    Tenant.told = []
    with override_settings(RSMQ={**django_settings.RSMQ, "MIDDLEWARE": [Tenant]}):
        place.send(declare(lambda: None))
        place.work()
    assert Tenant.told == ["blue"]


def discard(place: Place) -> None:
    task, attempts = fails_until(9, max_attempts=1, dead_letter_queue=DISCARD)
    place.send(task)
    place.work()
    assert attempts == [1] and place.stored() == 0 and place.dead() == []


def missing_objects(place: Place) -> None:
    def find_nothing(_self: InstanceConverter, _values: Sequence[Any]) -> NoReturn:
        raise MissingObject("auth.user:7 does not exist any more")

    @declare(missing_objects=DISCARD)
    def greet(user: User) -> None:
        raise AssertionError("its row is gone")

    @declare
    def greet_again(user: User) -> None:
        raise AssertionError("its row is gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InstanceConverter, "read_all", find_nothing)
        for task, reasons in ((greet, []), (greet_again, ["missing_object"])):
            place.send(task, 7)
            place.work()
            assert (place.stored(), place.dead()) == (0, reasons)


def hard_timeout(place: Place) -> None:
    shared_state, left_s = SharedState(10), list[float]()
    place.send(declare(hard_timeout_s=1000)(lambda: left_s.append(shared_state.next_limit() - time.monotonic())))
    Worker(*_chosen(place), shared_state=shared_state).run()
    assert 900 < left_s[0] <= 1000


def _chosen(place: Place) -> tuple[list[QueueSettings], WorkerOptions]:
    queues = [get_settings().queue(place.name)] if place.source == "queues" else []
    return queues, new_worker(place.name, until_empty=True).options


def once(place: Place) -> None:
    noted: list[tuple[str, str]] = []
    seen: list[int] = []

    def note(task_id: str, path: str, function: Callable[[], Any]) -> Any:
        noted.append((task_id, path))
        return function()

    task = declare(once=True)(lambda: seen.append(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rsmq_django.outbox.inbox.run_once", note)  # see tests/outbox
        place.send(task)
        place.work()
    assert seen == [1] and [path for _, path in noted] == [task.module_path]


@contextmanager
def connected(signal: Signal) -> Iterator[list[dict[str, Any]]]:
    """Collect what a signal says."""
    said: list[dict[str, Any]] = []

    def receive(**words: Any) -> None:
        said.append(words)

    signal.connect(receive)
    yield said
    signal.disconnect(receive)


def signals(place: Place) -> None:
    task, _ = fails_until(2, max_attempts=1)
    with (
        connected(task_started) as started,
        connected(task_finished) as finished,
        connected(message_dead_lettered) as dead,
    ):
        place.send(task)
        place.work()
    assert (len(started), len(finished)) == (1, 1)
    assert [words["queue_name"] for words in dead] == [place.name]


@contextmanager
def traced() -> Iterator[InMemorySpanExporter]:
    """Collect spans."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    RsmqInstrumentor().instrument(tracer_provider=provider)
    try:
        yield exporter
    finally:
        RsmqInstrumentor().uninstrument()


def names_of_runs(exporter: InMemorySpanExporter) -> list[str]:
    return [span.name for span in exporter.get_finished_spans() if span.kind is SpanKind.CONSUMER]


def tracing(place: Place) -> None:
    with traced() as exporter:
        place.send(declare(lambda: None))
        place.work()
    assert names_of_runs(exporter) == [f"process {place.name}"]


def events(place: Place) -> None:
    with override_settings(RSMQ={**django_settings.RSMQ, "EVENTS": {"RECORD": "all"}}):
        place.send(declare(lambda: None))
        place.work()
    assert [(event.queue, event.kind) for event in get_client().run(following("rsmq"))] == [(place.name, "succeeded")]


def counters(place: Place) -> None:
    place.send(declare(lambda: None))
    place.work()
    ((_, counts),) = read_totals(get_client(), [place.name])[place.name].items()
    assert (counts.started, counts.succeeded) == (1, 1)


WORKS: dict[str, Callable[[Place], None]] = {
    "`backoff`, retries": retries,
    "`max_attempts`": max_attempts,
    "`retry_on`, `give_up_on`": give_up_on,
    "`timeout_s`": timeout,
    "`hard_timeout_s`": hard_timeout,
    "`limits`": limits,
    "`expires_in_s`": expires,
    "`batch`": batch,
    '`ack="each"`': ack_each,
    "`aliases`": aliases,
    "`once`": once,
    "middleware": middleware,
    "signals": signals,
    "tracing": tracing,
    "events": events,
    "counters": counters,
    "`dead_letter_queue=DISCARD`": discard,
    "`missing_objects`": missing_objects,
}


@pytest.mark.parametrize("feature", WORKS)
def test_feature_works_where_the_table_says_so(place: Place, feature: str):
    assert table()[feature][:2] == [YES, YES]

    WORKS[feature](place)


# -- What raises ------------------------------------------------------------------------------------------------------

#: The name of the option, and values for a declaration or a call.
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "`dead_letter_queue` with a name": ("dead_letter_queue", {"dead_letter_queue": "default-dead"}),
    "`result_ttl_s`": ("result_ttl_s", {"result_ttl_s": 60}),
    "`unique`": ("unique", {"unique": Unique()}),
    "`tags`": ("tags", {"tags": ["red"]}),
    "`priority`": ("priority", {"priority": 5}),
    "`fair_by`": ("fair_by", {"fair_by": ["number"]}),
    "`shard_by`": ("shard_by", {"shard_by": ["number"]}),
    "`durability`": ("durability", {"durability": False}),
    "`run_after`": ("run_after", {"run_after": timedelta(seconds=1)}),
}


@pytest.mark.parametrize("feature", OPTIONS)
def test_option_that_has_no_effect_raises_with_the_next_step(place: Place, feature: str):
    option, values = OPTIONS[feature]
    task = declare(lambda number: None)
    calls = task.using(**values) if option == "run_after" else declare(**values)(lambda number: None)
    assert table()[feature] == [YES, RAISES, RAISES]

    if place.source == "queues":
        place.send(calls, 1)
        assert place.server.redis.zcard("rsmq:default") or place.server.redis.keys("rsmq:default*")
    else:
        with pytest.raises(InvalidTask, match=rf"{option} does not work in reliable queues: .*; ") as refusal:
            place.send(calls, 1)
        assert REFUSED[option].instead in str(refusal.value)
        if REFUSED[option].without:
            assert f"using({REFUSED[option].without})" in str(refusal.value)


@pytest.mark.parametrize("feature", [name for name, (option, _) in OPTIONS.items() if REFUSED[option].without])
def test_a_call_without_the_option_is_pushed(place: Place, feature: str):
    option, values = OPTIONS[feature]
    without = {"priority": 0, "tags": (), "result_ttl_s": 0}.get(option)
    seen: list[int] = []

    place.send(declare(**values)(lambda number: seen.append(number)).using(**{option: without}), 1)
    place.work()

    assert seen == [1]


def test_the_table_has_every_feature_and_nothing_else():
    assert set(table()) == {*WORKS, *OPTIONS, "`cancel()`"}


def test_call_of_a_queue_can_be_cancelled_and_a_message_of_the_others_cannot(place: Place):
    assert table()["`cancel()`"] == [YES, RAISES, RAISES]
    task = declare(lambda: None)
    if place.source == "queues":
        assert cancel(task.enqueue().id)
        assert place.stored() == 0
        return
    body = task_body(task)
    get_reliable_queue(place.name).push(body)
    for unknown in (json.loads(body)["id"], "7"):  # 7 might be the index of a message of a topic
        with pytest.raises(TaskResultDoesNotExist):
            cancel(unknown)
    assert place.stored() == 1


#: Options of tasks that the declaration of a topic task refuses.
OF_TOPICS: dict[str, Any] = {
    "max_attempts": 3,
    "retry_on": ValueError,
    "give_up_on": ValueError,
    "limits": [Concurrency(1)],
    "expires_in_s": 5,
    "ack": "each",
    "aliases": ["a.b"],
    "once": True,
    "dead_letter_queue": DISCARD,
    "missing_objects": DISCARD,
    **{option: values[option] for option, values in OPTIONS.values()},
}


@pytest.mark.parametrize("option", OF_TOPICS)
def test_topic_task_refuses_the_options_that_it_cannot_have(option: str):
    words = re.compile(rf"[`(, ]{option}")
    assert {cells[2] for feature, cells in table().items() if words.search(feature)} == {RAISES}

    with pytest.raises((TypeError, ValueError, InvalidTask), match=option):
        topic_task("news", group="g", **{option: OF_TOPICS[option]})(print)


# -- What works in topics ----------------------------------------------------------------------------------------------


def is_retried_in_topics() -> None:
    attempts: list[int] = []

    @topic_task("news", group="g", backoff=fixed(0))
    def fail(message: TopicMessage) -> None:
        attempts.append(message.attempt)
        if len(attempts) < 3:
            raise ValueError("not yet")

    get_topic("news").publish("a")
    assert work()
    assert attempts == [1, 2, 3]


def has_a_time_limit_in_topics() -> None:
    @topic_task("news", group="g", timeout_s=0.05, max_deliveries=1)
    def run_on(message: TopicMessage) -> None:
        while True:
            time.sleep(0.001)

    get_topic("news").publish("a")
    assert work()
    assert get_topic("news.dlt").status().last == 1


def has_a_hard_time_limit_in_topics() -> None:
    shared_state, left_s = SharedState(10), list[float]()

    @topic_task("news", group="g", hard_timeout_s=1000)
    def note(message: TopicMessage) -> None:
        left_s.append(shared_state.next_limit() - time.monotonic())

    get_topic("news").publish("a")
    Worker([], new_worker(until_empty=True).options, shared_state=shared_state).run()
    assert len(left_s) == 1 and 900 < left_s[0] <= 1000


def takes_batches_in_topics() -> None:
    sizes: list[int] = []
    topic_task("news", group="g", batch=10)(lambda messages: sizes.append(len(messages)))
    get_topic("news").publish(*"abcdef")
    assert work()
    assert sizes == [6]


class Around:
    """Notes which functions it surrounds."""

    paths: list[str] = []

    def before(self, run: Any) -> None:
        self.paths.append(run.queue_name)


def has_middleware_in_topics() -> None:
    Around.paths = []
    with override_settings(RSMQ={**django_settings.RSMQ, "MIDDLEWARE": [Around]}):
        topic_task("news", group="g")(lambda message: None)
        get_topic("news").publish("a")
        assert work()
    assert Around.paths == ["news:g"]


def has_signals_in_topics() -> None:
    topic_task("news", group="g", max_deliveries=1)(int)
    with connected(message_dead_lettered) as dead:
        get_topic("news").publish("a")
        assert work()
    assert [words["queue_name"] for words in dead] == ["news:g"]


def is_traced_in_topics() -> None:
    with traced() as exporter:
        topic_task("news", group="g")(lambda message: None)
        get_topic("news").publish("a")
        assert work()
    assert names_of_runs(exporter) == ["process news:g"]


def has_events_in_topics() -> None:
    with override_settings(RSMQ={**django_settings.RSMQ, "EVENTS": {"RECORD": "all"}}):
        topic_task("news", group="g")(lambda message: None)
        get_topic("news").publish("a")
        assert work()
    assert [(event.queue, event.kind) for event in get_client().run(following("rsmq"))] == [("news:g", "succeeded")]


def is_counted_in_topics() -> None:
    topic_task("news", group="g")(lambda message: None)
    get_topic("news").publish("a")
    assert work()
    ((_, counts),) = read_totals(get_client(), ["news:g"])["news:g"].items()
    assert (counts.started, counts.succeeded) == (1, 1)


WORKS_IN_TOPICS: dict[str, Callable[[], None]] = {
    "`backoff`, retries": is_retried_in_topics,
    "`timeout_s`": has_a_time_limit_in_topics,
    "`hard_timeout_s`": has_a_hard_time_limit_in_topics,
    "`batch`": takes_batches_in_topics,
    "middleware": has_middleware_in_topics,
    "signals": has_signals_in_topics,
    "tracing": is_traced_in_topics,
    "events": has_events_in_topics,
    "counters": is_counted_in_topics,
}


@pytest.mark.parametrize("feature", WORKS_IN_TOPICS)
def test_feature_works_in_topics_where_the_table_says_so(project: Configure, feature: str):
    assert table()[feature][2] == YES

    WORKS_IN_TOPICS[feature]()


def test_every_feature_of_a_topic_task_is_tried_or_refused():
    cells = {feature: row[2] for feature, row in table().items()}

    assert {feature for feature, cell in cells.items() if cell == YES} == {*WORKS_IN_TOPICS}
    assert set(cells.values()) == {YES, RAISES}


# -- Limits across structures -----------------------------------------------------------------------------------------


def test_slot_of_a_reliable_message_is_free_when_its_lease_has_expired(place: Place):
    """Its process died: neither the worker nor its supervisor frees the slot."""
    task = declare(limits=[Concurrency(1, name="shared")])(lambda name: None)
    reliable = get_reliable_queue("orders")
    reliable.push(task_body(task, "dead"))
    dying = new_worker("orders", worker_id="w-dying")
    (source,) = dying.sources
    (delivery,) = source.exchange(2, at_most=2)
    (admitted,) = source.admit([Execution(delivery, sink=source, notifier=dying.notifier)])
    assert admitted.places and place_of_limit(place)
    (slots,) = [key for key in place.server.redis.scan_iter("rsmq::limit*") if place.server.redis.type(key) == b"hash"]
    ((holder, text),) = place.server.redis.hgetall(slots).items()
    place.server.redis.hset(slots, holder, re.sub(rb" \d+ ", b" 1 ", text))  # the time until which it is held unasked

    task.enqueue("other")
    worker = new_worker("default")
    (queue_source,) = worker.sources
    (other,) = queue_source.exchange(1, at_most=1)
    waiting = Execution(other, sink=queue_source, notifier=worker.notifier)
    assert list(queue_source.admit([waiting])) == [], "the lease of the first is valid"

    for message_id, _ in place.server.redis.zscan_iter("rsmq::reliable:orders:delivered"):
        place.server.redis.zincrby("rsmq::reliable:orders:delivered", -31_000 * 4096, message_id)
    place.server.redis.hset(slots, holder, re.sub(rb" \d+ ", b" 1 ", text))
    assert list(queue_source.admit([waiting])) == [waiting]


def test_consumer_of_a_reliable_queue_may_be_limited(place: Place):
    running: list[bytes] = []
    consumer("orders", limits=[Rate(100, per_s=1)])(lambda message: running.append(message.body))
    get_reliable_queue("orders").push("a", "b")

    assert work("orders")

    assert running == [b"a", b"b"]
