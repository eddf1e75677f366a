"""What the Sentry middleware sends, seen by a transport of Sentry's client that keeps it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from rsmq_django.contrib.sentry import Sentry
from rsmq_django.queues import get_queue
from rsmq_django.reliable_queues import task_body
from rsmq_django.tasks import Postpone, Retry, cancel, current_task, is_cancelled
from rsmq_django.worker.supervise.process import flush_output
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.tasks.schedules import let_pass, new_scheduler, own_declarations  # noqa: F401
from tests.worker.workshop import Configure, declare, send_raw, work


class KeptTransport(Transport):  # type: ignore[misc]  # mypy does not follow the types of sentry_sdk
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.items += [item.payload.json for item in envelope.items if item.payload.json is not None]

    def of_type(self, kind: str | None) -> list[dict[str, Any]]:
        """Return the events ("event" is Sentry's word for an item without a type), transactions or check-ins."""
        return [item for item in self.items if item.get("type") == kind]

    @property
    def errors(self) -> list[dict[str, Any]]:
        return self.of_type(None)

    @property
    def transactions(self) -> list[dict[str, Any]]:
        return self.of_type("transaction")


@pytest.fixture(scope="module", autouse=True)
def logging_is_python_s_afterwards() -> Iterator[None]:
    """Sentry replaces a method of all loggers for as long as the process lives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.Logger, "callHandlers", logging.Logger.callHandlers)
        yield


@pytest.fixture
def sentry(project: Configure, settings: Any) -> Iterator[KeptTransport]:
    """A project with the middleware, and what it sends."""
    use(settings, Sentry())
    transport = KeptTransport()
    client = sentry_sdk.Client(
        dsn="https://public@sentry.invalid/1", transport=transport, traces_sample_rate=1.0, default_integrations=True
    )
    with sentry_sdk.isolation_scope() as scope, sentry_sdk.new_scope() as current:
        scope.set_client(client)
        current.set_client(client)
        before = sentry_sdk.get_global_scope().client
        sentry_sdk.get_global_scope().set_client(client)  # for the threads of workers
        yield transport
        sentry_sdk.get_global_scope().set_client(before)
        client.close(timeout=0)


def use(settings: Any, *middleware: Any) -> None:
    settings.RSMQ = {**settings.RSMQ, "MIDDLEWARE": list(middleware)}


def spans(transaction: dict[str, Any], op: str) -> list[dict[str, Any]]:
    return [span for span in transaction["spans"] if span["op"] == op]


def bodies() -> list[bytes]:
    queue = get_queue("default")
    (ids,) = queue.client.connection.exchange([("ZRANGE", queue.keys.messages, 0, -1)])
    return list(queue.client.connection.exchange([("HGET", queue.keys.settings, each) for each in ids]))


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_final_failure_is_one_event_with_the_call_as_tags_and_the_trace_of_its_attempt(
    sentry: KeptTransport, is_async: bool
):
    def fail(number: int) -> None:
        sentry_sdk.add_breadcrumb(message="about to fail")
        raise KeyError(number)

    async def afail(number: int) -> None:
        fail(number)

    sent = declare(max_attempts=2, backoff=lambda attempt: 0)(afail if is_async else fail).enqueue(7)
    work()

    (event,) = sentry.errors
    assert event["exception"]["values"][-1]["type"] == "KeyError"
    path = f"{__name__}.{'afail' if is_async else 'fail'}"
    assert event["tags"] == {
        "rsmq.queue": "default",
        "rsmq.task": path,
        "rsmq.task_id": sent.id,
        "rsmq.attempt": 2,
        "rsmq.reason": "attempts_used_up",
    }
    assert event["transaction"] == path
    assert [crumb["message"] for crumb in event["breadcrumbs"]["values"]] == ["about to fail"]
    runs = sentry.transactions
    assert event["contexts"]["trace"]["trace_id"] == runs[-1]["contexts"]["trace"]["trace_id"]
    assert event["contexts"]["trace"]["span_id"] in {span["span_id"] for span in runs[-1]["spans"]}


def test_each_failure_is_an_event_when_retries_are_reported(sentry: KeptTransport, settings: Any):
    use(settings, Sentry(retries=True))

    def fail() -> None:
        raise Retry("not yet", after_s=0)

    declare(max_attempts=3)(fail).enqueue()
    work()

    assert [event["tags"]["rsmq.attempt"] for event in sentry.errors] == [1, 2, 3]
    assert [event["tags"]["rsmq.reason"] for event in sentry.errors] == ["retried", "retried", "attempts_used_up"]


def test_message_that_no_function_could_run_is_an_event_too(sentry: KeptTransport):
    send_raw(b'{"task": "shop.tasks.unknown"}')
    work()

    (event,) = sentry.errors
    assert event["tags"]["rsmq.reason"] == "unknown_task"
    assert event["tags"]["rsmq.queue"] == "default"


def test_success_and_postponed_calls_are_no_events(sentry: KeptTransport):
    seen: list[int] = []

    def wait_once() -> None:
        seen.append(1)
        if len(seen) == 1:
            raise Postpone(after_s=0)

    declare(wait_once).enqueue()
    work()

    assert len(seen) == 2
    assert sentry.errors == []
    runs = sentry.transactions
    assert [run["contexts"]["trace"]["status"] for run in runs] == ["ok", "ok"]
    assert [process["status"] for run in runs for process in spans(run, "queue.process")] == ["ok", "ok"]


def test_attempts_continue_the_trace_of_the_sender(sentry: KeptTransport):
    declared = declare(lambda: None)

    with sentry_sdk.start_transaction(op="http.server", name="POST /orders"):
        sent = declared.enqueue()
    (body,) = bodies()
    work()

    request, run = sentry.transactions
    (publish,), (process,) = spans(request, "queue.publish"), spans(run, "queue.process")
    assert run["contexts"]["trace"]["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert run["contexts"]["trace"]["parent_span_id"] == publish["span_id"]
    assert publish["data"]["messaging.destination.name"] == "default"
    data = process["data"]
    assert (data["messaging.system"], data["messaging.destination.name"]) == ("rsmq", "default")
    assert data["messaging.message.retry.count"] == 0
    for name, value in {"id": sent.id, "body.size": len(body)}.items():
        assert publish["data"][f"messaging.message.{name}"] == data[f"messaging.message.{name}"] == value
    assert data["messaging.message.receive.latency"] >= 0
    assert run["transaction_info"] == {"source": "task"}


def test_bulk_calls_are_one_span_with_their_number_and_size(sentry: KeptTransport):
    declared = declare(lambda number: None)

    with sentry_sdk.start_transaction(op="http.server", name="POST /orders"):
        declared.enqueue_many([[1], [2], [3]])
    sizes = [len(body) for body in bodies()]

    ((publish,),) = [spans(request, "queue.publish") for request in sentry.transactions]
    assert publish["data"]["messaging.batch.message_count"] == len(sizes) == 3
    assert publish["data"]["messaging.message.body.size"] == sum(sizes)
    assert "messaging.message.id" not in publish["data"]


def test_call_in_a_reliable_queue_has_the_same_span(sentry: KeptTransport, settings: Any):
    declared = declare(lambda: None)

    with sentry_sdk.start_transaction(op="http.server", name="POST /orders"):
        body = task_body(declared)

    ((publish,),) = [spans(request, "queue.publish") for request in sentry.transactions]
    assert publish["data"]["messaging.message.body.size"] == len(body)
    assert publish["data"]["messaging.message.id"] == json.loads(body)["id"]


def test_what_a_task_adds_to_its_scope_ends_with_it(sentry: KeptTransport):
    def fail(tenant: str | None) -> None:
        if tenant is not None:
            sentry_sdk.set_tag("tenant", tenant)
        raise KeyError

    declared = declare(max_attempts=1)(fail)
    declared.enqueue("north")
    declared.enqueue(None)
    work()

    assert [event["tags"].get("tenant") for event in sentry.errors] == ["north", None]


def test_context_of_another_program_harms_nothing(sentry: KeptTransport):
    seen: list[int] = []
    declared = declare(lambda: seen.append(1))
    for context in ("x", {"sentry-trace": 7, "baggage": ["x"], "schedule": {}}, {"sentry-trace": "no trace"}):
        body = {"task": declared.module_path, "meta": {"context": {"sentry": context}}}
        send_raw(json.dumps(body).encode())
    work()

    assert len(seen) == 3
    assert len(sentry.transactions) == 3


def test_nothing_is_added_to_messages_without_a_client(project: Configure, settings: Any):
    use(settings, Sentry())
    with sentry_sdk.isolation_scope(), sentry_sdk.new_scope():
        declare(lambda: None).enqueue()

    message = get_queue("default").receive()
    assert message is not None
    assert "meta" not in json.loads(message.body)


@pytest.mark.usefixtures("mid_minute", "own_declarations")
@pytest.mark.parametrize(("fails", "end"), [(False, "ok"), (True, "error")])
def test_calls_of_schedules_check_in_at_their_monitor(
    sentry: KeptTransport, settings: Any, server: PrivateServer, fails: bool, end: str
):
    use(settings, Sentry(crons=True))

    def tick() -> None:
        if fails:
            raise KeyError

    declared = declare(max_attempts=2, backoff=lambda attempt: 0)(tick)
    settings.RSMQ = {**settings.RSMQ, "SCHEDULES": {"hourly": {"TASK": declared.module_path, "EVERY_S": 3600}}}
    new_scheduler().fire_due()
    let_pass(server, "hourly", seconds=3600)
    new_scheduler().fire_due()
    declared.enqueue()  # of the project: no check-in
    work()

    began, ended = sentry.of_type("check_in")
    assert (began["status"], ended["status"]) == ("in_progress", end)
    assert began["monitor_slug"] == ended["monitor_slug"] == "hourly"
    assert began["check_in_id"] == ended["check_in_id"]
    assert ended["duration"] is not None
    assert began["monitor_config"] == {"schedule": {"type": "interval", "value": 60, "unit": "minute"}}


@pytest.mark.usefixtures("mid_minute", "own_declarations")
def test_cancelled_call_of_a_schedule_closes_its_check_in(sentry: KeptTransport, settings: Any, server: PrivateServer):
    use(settings, Sentry(crons=True))

    def tick() -> None:
        cancel(current_task().id)
        wait_until(is_cancelled)

    declared = declare(tick)
    settings.RSMQ = {**settings.RSMQ, "SCHEDULES": {"hourly": {"TASK": declared.module_path, "EVERY_S": 3600}}}
    new_scheduler().fire_due()
    let_pass(server, "hourly", seconds=3600)
    new_scheduler().fire_due()
    work()

    began, ended = sentry.of_type("check_in")
    assert (began["status"], ended["status"]) == ("in_progress", "error")
    assert began["check_in_id"] == ended["check_in_id"]


def test_end_of_a_process_sends_what_was_collected(sentry: KeptTransport, monkeypatch: pytest.MonkeyPatch):
    flushed: list[float] = []
    monkeypatch.setattr(sentry, "flush", lambda timeout, callback=None: flushed.append(timeout))
    monkeypatch.setattr("logging.shutdown", lambda: flushed.append(0))

    flush_output(may_hang=False)

    assert len(flushed) == 2
    assert 0 < flushed[0] <= 2, "before the log is closed, and not for longer than two seconds"


def test_calls_of_several_traces_run_in_one_batch(sentry: KeptTransport):
    sizes: list[int] = []
    declared = declare(batch=10)(lambda calls: sizes.append(len(calls)))
    for number in range(3):
        with sentry_sdk.isolation_scope(), sentry_sdk.start_transaction(name="request"):
            declared.enqueue(number)
    work()

    assert sizes == [3]
