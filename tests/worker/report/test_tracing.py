"""One trace from the call that enqueues to every attempt in a worker, and nothing at all when it is off."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from rsmq_django.core.errors import ConnectionFailed
from rsmq_django.queues import get_queue
from rsmq_django.tasks import Postpone, call, group
from rsmq_django.tasks.tracing import server_attributes, tracer
from rsmq_django.telemetry.instrumentor import RsmqInstrumentor
from rsmq_django.telemetry.task_logs import TaskFieldsFilter
from rsmq_django.worker.supervise.process import flush_output
from tests.redis_server import PrivateServer
from tests.worker.workshop import Configure, declare, send_raw, work

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="session")
def exporter() -> InMemorySpanExporter:
    """The SDK of a project, which sets it up once."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def traced(exporter: InMemorySpanExporter, configure: Configure, settings: Any) -> Iterator[InMemorySpanExporter]:
    """A project that traces, and the spans that have ended."""
    configure()
    settings.RSMQ = {**settings.RSMQ, "TRACING": {"ENABLED": True}}
    exporter.clear()
    yield exporter


@pytest.fixture(scope="session")
def reader() -> InMemoryMetricReader:
    """The metrics of the same project; each read has what came since the one before it."""
    reader = InMemoryMetricReader(dict.fromkeys((Counter, Histogram), AggregationTemporality.DELTA))
    metrics.set_meter_provider(MeterProvider([reader]))
    return reader


@pytest.fixture
def measured(reader: InMemoryMetricReader, traced: InMemorySpanExporter) -> InMemoryMetricReader:
    """A project that traces and measures."""
    reader.get_metrics_data()
    return reader


def points(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    """Return what was recorded since the last read, by the name of the metric."""
    data = reader.get_metrics_data()
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
    return {each.name: list(each.data.data_points) for scope in scopes for each in scope.metrics}


def spans(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def meta_of_next_message(queue_name: str = "default") -> Any:
    message = get_queue(queue_name).receive(visibility_timeout_s=0)
    assert message is not None
    return json.loads(message.body).get("meta")


def test_log_records_have_the_trace_of_the_open_span_before_that_of_the_message(traced: InMemorySpanExporter):
    seen = []

    @declare
    def send_receipt():
        with trace.get_tracer("shop").start_as_current_span("apart", context=Context()) as apart:
            record = logging.makeLogRecord({"msg": "sending"})
            TaskFieldsFilter().filter(record)
            seen.append((vars(record)["rsmq_trace_id"], f"{apart.get_span_context().trace_id:032x}"))

    send_raw(json.dumps({"task": send_receipt.module_path, "meta": {"trace": TRACEPARENT}}))
    work()
    ((of_record, of_span),) = seen
    assert of_record == of_span and of_span not in TRACEPARENT


def test_every_attempt_is_a_child_of_the_send(traced: InMemorySpanExporter):
    attempts = []

    @declare(max_attempts=2, backoff=lambda attempt: 0)
    def send_receipt(order_id):
        attempts.append(trace.get_current_span().get_span_context().span_id)
        if len(attempts) == 1:
            raise ValueError("not yet")

    with trace.get_tracer("shop").start_as_current_span("POST /orders") as request:
        result = send_receipt.enqueue(order_id="hunter2")
    work()

    (sent,), runs = spans(traced, "send default"), spans(traced, "process default")
    assert (sent.kind, sent.parent.span_id) == (SpanKind.PRODUCER, request.get_span_context().span_id)
    assert [run.parent.span_id for run in runs] == [sent.context.span_id] * 2
    assert {run.context.trace_id for run in runs} == {request.get_span_context().trace_id}
    assert [run.context.span_id for run in runs] == attempts, "the run's own span is the current one"
    assert [run.kind for run in runs] == [SpanKind.CONSUMER] * 2
    assert [run.status.status_code for run in runs] == [StatusCode.ERROR, StatusCode.UNSET]
    assert [event.name for event in runs[0].events] == ["exception"]
    assert [run.attributes["rsmq.attempt"] for run in runs] == [1, 2]
    assert runs[0].attributes["messaging.message.conversation_id"] == result.id
    assert runs[0].attributes["messaging.system"] == "rsmq"
    assert runs[0].attributes["messaging.destination.name"] == "default"
    assert "hunter2" not in str([dict(span.attributes) for span in [sent, *runs]])


def test_time_out_is_an_error_of_its_span(traced: InMemorySpanExporter):
    @declare(max_attempts=1, timeout_s=0.1)
    def dawdle() -> None:
        while True:
            pass

    dawdle.enqueue()
    work()

    (run,) = spans(traced, "process default")
    assert run.status.status_code is StatusCode.ERROR
    assert run.events[0].attributes["exception.type"] == "rsmq_django.tasks.retry.TaskTimeout"


def test_coroutines_are_traced_too(traced: InMemorySpanExporter):
    seen = []

    @declare
    async def fetch_rates():
        await asyncio.sleep(0)
        seen.append(trace.get_current_span().get_span_context().span_id)

    asyncio.run(fetch_rates.aenqueue())
    work()

    (sent,), (run,) = spans(traced, "send default"), spans(traced, "process default")
    assert run.parent.span_id == sent.context.span_id
    assert seen == [run.context.span_id]


def test_batch_of_messages_is_one_run_with_a_link_to_each_sender(traced: InMemorySpanExporter):
    @declare(batch=10)
    def count(calls):
        pass

    count.enqueue(1)
    count.enqueue(2)
    count.enqueue_many([[3], [4]])
    work()

    (run,) = spans(traced, "process default")
    senders = {span.context.span_id for span in spans(traced, "send default")}
    assert {link.context.span_id for link in run.links} == senders
    assert len(senders) == len(run.links) == 3
    assert run.parent is None
    assert run.attributes["messaging.batch.message_count"] == 4
    assert "messaging.message.id" not in run.attributes


def test_failure_has_the_type_of_its_error(traced: InMemorySpanExporter):
    @declare(max_attempts=1)
    def fail(error):
        raise {"own": ConnectionFailed("no"), "builtin": ValueError("no")}[error]

    fail.enqueue("own")
    fail.enqueue("builtin")
    work()

    types = {run.attributes["error.type"] for run in spans(traced, "process default")}
    assert types == {"rsmq_django.core.errors.ConnectionFailed", "ValueError"}


def test_postponed_task_has_not_failed(traced: InMemorySpanExporter):
    runs = []

    @declare
    def wait_once():
        runs.append(1)
        if len(runs) == 1:
            raise Postpone(after_s=0)

    wait_once.enqueue()
    work()

    for run in spans(traced, "process default"):
        assert run.status.status_code is StatusCode.UNSET
        assert "error.type" not in run.attributes
    assert len(runs) == 2


def test_spans_name_the_server(traced: InMemorySpanExporter, server: PrivateServer):
    @declare
    def count():
        pass

    count.enqueue()
    work()

    seen = {span.attributes["server.address"] for span in traced.get_finished_spans()}
    assert len(seen) == 1
    assert seen.pop() in server.url


@pytest.mark.parametrize(
    ("url", "attributes"),
    [
        ("redis://:secret@redis.example:6380/0", {"server.address": "redis.example", "server.port": 6380}),
        ("rediss://redis.example", {"server.address": "redis.example", "server.port": 6379}),
        ("redis://[::1]:7000", {"server.address": "::1", "server.port": 7000}),
        ("unix:///run/redis.sock?db=1", {"server.address": "/run/redis.sock"}),
        ("redis+sentinel://:secret@s1,s2/mymaster", {}),
    ],
)
def test_address_of_a_server_is_that_of_its_url(url: str, attributes: dict[str, object]):
    assert server_attributes(url) == attributes


def test_sends_and_runs_are_measured(measured: InMemoryMetricReader, traced: InMemorySpanExporter):
    @declare(max_attempts=1)
    def fail_once(number):
        if number == 1:
            raise ValueError("no")

    fail_once.enqueue_many([[0], [1], [2]])
    work()

    seen = points(measured)
    (sent,), (took,) = seen["messaging.client.sent.messages"], seen["messaging.client.operation.duration"]
    assert (sent.value, took.count) == (3, 1)
    assert sent.attributes["messaging.operation.name"] == "send"
    assert sent.attributes["messaging.destination.name"] == "default"
    assert sent.attributes["messaging.system"] == "rsmq"
    runs = {point.attributes.get("error.type"): point for point in seen["messaging.process.duration"]}
    assert {kind: point.count for kind, point in runs.items()} == {None: 2, "ValueError": 1}
    assert runs[None].explicit_bounds[0] == 0.005
    consumed = {point.attributes.get("error.type"): point.value for point in seen["messaging.client.consumed.messages"]}
    assert consumed == {None: 2, "ValueError": 1}
    for point in [sent, took, *runs.values()]:
        assert point.attributes["server.address"]
        assert not {"messaging.message.id", "messaging.message.conversation_id"} & set(point.attributes)


def test_failed_send_is_measured_with_its_error(measured: InMemoryMetricReader, settings: Any):
    @declare
    def count():
        pass

    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": "redis://127.0.0.1:1/0"}}}
    with pytest.raises(ConnectionFailed):
        count.enqueue()

    (sent,) = points(measured)["messaging.client.sent.messages"]
    assert sent.attributes["error.type"] == "rsmq_django.core.errors.ConnectionFailed"
    assert (sent.attributes["server.address"], sent.attributes["server.port"]) == ("127.0.0.1", 1)


def test_sends_of_a_workflow_have_no_duration(measured: InMemoryMetricReader):
    tasks = [declare(function) for function in (first, second)]

    group([call(tasks[0]), call(tasks[1])]).enqueue()

    seen = points(measured)
    assert sum(point.value for point in seen["messaging.client.sent.messages"]) == 2
    assert "messaging.client.operation.duration" not in seen


def test_instrumentor_switches_traces_on_and_off(configure: Configure, exporter: InMemorySpanExporter):
    configure()
    instrumentor = RsmqInstrumentor()
    own = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(own))
    exporter.clear()

    @declare
    def count():
        pass

    count.enqueue()
    instrumentor.instrument(tracer_provider=provider, skip_dep_check=True)
    try:
        count.enqueue()
        work()
        assert len(spans(own, "send default")) == 1
        assert len(spans(own, "process default")) == 2
    finally:
        instrumentor.uninstrument()
    count.enqueue()
    work()

    assert tracer() is None
    assert len(own.get_finished_spans()) == 3
    assert exporter.get_finished_spans() == ()


def test_batch_is_one_send(traced: InMemorySpanExporter):
    @declare
    def count(number):
        pass

    count.enqueue_many([[number] for number in range(5)])
    work()

    (sent,) = spans(traced, "send default")
    assert sent.attributes["messaging.batch.message_count"] == 5
    assert {run.parent.span_id for run in spans(traced, "process default")} == {sent.context.span_id}


def test_sends_of_a_workflow_end_with_it(traced: InMemorySpanExporter, settings: Any):
    tasks = [declare(function) for function in (first, second)]

    group([call(tasks[0]), call(tasks[1])]).enqueue()
    assert [span.status.status_code for span in spans(traced, "send default")] == [StatusCode.UNSET] * 2

    traced.clear()
    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": "redis://127.0.0.1:1", "TIMEOUT_S": 0.5}}}
    with pytest.raises(ConnectionFailed):
        group([call(tasks[0]), call(tasks[1])]).enqueue()
    assert {span.status.status_code for span in spans(traced, "send default")} == {StatusCode.ERROR}


def first() -> None:
    pass


def second() -> None:
    pass


def test_failed_send_is_reported(traced: InMemorySpanExporter, settings: Any):
    @declare
    def count():
        pass

    settings.RSMQ = {**settings.RSMQ, "CONNECTIONS": {"default": {"URL": "redis://127.0.0.1:1/0"}}}
    with pytest.raises(ConnectionFailed):
        count.enqueue()

    (sent,) = spans(traced, "send default")
    assert sent.status.status_code is StatusCode.ERROR


def test_message_of_a_program_in_another_language_continues_its_trace(traced: InMemorySpanExporter):
    @declare
    def count():
        pass

    send_raw(json.dumps({"task": count.module_path, "meta": {"trace": TRACEPARENT}}))
    work()

    (run,) = spans(traced, "process default")
    assert f"{run.context.trace_id:032x}" == TRACEPARENT.split("-")[1]
    assert f"{run.parent.span_id:016x}" == TRACEPARENT.split("-")[2]


@pytest.mark.parametrize("damaged", ["", "00-xyz", 7, None, ["a"], "x" * 5000])
def test_damaged_trace_begins_a_new_one(traced: InMemorySpanExporter, damaged: object):
    @declare
    def count():
        pass

    send_raw(json.dumps({"task": count.module_path, "meta": {"trace": damaged}}))
    work()

    (run,) = spans(traced, "process default")
    assert run.parent is None
    assert run.status.status_code is StatusCode.UNSET


def test_message_carries_a_traceparent_and_nothing_else(traced: InMemorySpanExporter):
    @declare
    def count():
        pass

    count.enqueue()

    (sent,) = spans(traced, "send default")
    meta = meta_of_next_message()
    assert list(meta) == ["trace"]
    assert meta["trace"].startswith(f"00-{sent.context.trace_id:032x}-{sent.context.span_id:016x}-")


def test_when_it_is_off_messages_carry_nothing(exporter: InMemorySpanExporter, project: Configure):
    exporter.clear()

    @declare
    def count():
        pass

    count.enqueue()
    assert meta_of_next_message() is None
    work()

    assert exporter.get_finished_spans() == ()


@pytest.mark.slow
@pytest.mark.parametrize("is_on", [False, True], ids=["off", "on"])
def test_without_opentelemetry_everything_else_works(server: PrivateServer, is_on: bool):
    program = f"""
import os, sys
sys.modules["opentelemetry"] = None  # as if it were not installed
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
from django.conf import settings
settings.RSMQ = {{**settings.RSMQ, "TRACING": {{"ENABLED": {is_on}}}, "TASKS": {{"ENQUEUE_ON_COMMIT": False}}}}
import django; django.setup()
from rsmq_django.tasks import task
import rsmq_django.worker.worker

@task
def count(): pass

count.enqueue()
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert ("install rsmq-django[otel]" in done.stderr) == is_on


def test_process_that_ends_sends_the_spans_and_metrics_that_the_sdk_has_collected(
    traced: InMemorySpanExporter, measured: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch
):
    flushed: list[str] = []
    monkeypatch.setattr(trace.get_tracer_provider(), "force_flush", lambda: flushed.append("spans"), raising=False)
    monkeypatch.setattr(metrics.get_meter_provider(), "force_flush", lambda: flushed.append("metrics"), raising=False)
    monkeypatch.setattr("logging.shutdown", lambda: flushed.append("log"))

    flush_output(may_hang=False)

    assert flushed == ["spans", "metrics", "log"]
