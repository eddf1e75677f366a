"""One trace from the call that enqueues to every attempt in a worker, and nothing at all when it is off."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from rsmq_django.core.errors import ConnectionFailed
from rsmq_django.queues import get_queue
from rsmq_django.tasks import call, group
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


def spans(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def meta_of_next_message(queue_name: str = "default") -> Any:
    message = get_queue(queue_name).receive(visibility_timeout_s=0)
    assert message is not None
    return json.loads(message.body).get("meta")


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
