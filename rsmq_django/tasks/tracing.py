"""OpenTelemetry spans from enqueue to execution in a worker, as one trace, and metrics of both.

Disabled unless RSMQ["TRACING"] or OpenTelemetry's instrumentor enables it: then OpenTelemetry is not imported and
messages contain nothing more. It uses the API only: sampling and export are configured in the project's SDK. Names and
attributes follow the semantic conventions for messaging; the context is sent as W3C `traceparent` in the envelope's
meta "trace". No attribute contains arguments, return values or bodies.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from django.core.signals import setting_changed
from django.dispatch import receiver

from ..conf.instrumented import instrumentation
from ..conf.settings import get_settings
from ..core import Queue
from ..core.log_lines import get_logger
from ..core.transport.sentinel_url import is_sentinel_url

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Tracer
    from opentelemetry.trace import Span as OpenTelemetrySpan

#: Other modules pass spans without importing OpenTelemetry.
Span: TypeAlias = "OpenTelemetrySpan"

logger = get_logger(__name__)

#: Key in the envelope's meta.
META = "trace"
SYSTEM = "rsmq"
NOTHING = nullcontext()
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
#: Attributes that are of one message, not of a series of a metric.
_OF_METRICS = (
    "messaging.system",
    "messaging.operation.name",
    "messaging.operation.type",
    "messaging.destination.name",
    "server.address",
    "server.port",
    "rsmq.task",
)


#: Maximum time that a process which ends gives the SDK to send what it has collected.
FLUSH_WITHIN_S = 2.0


@dataclass(slots=True)
class SendSpan:
    """The span of a send, and what is measured with it."""

    span: Span
    count: int
    attributes: Mapping[str, Any]


def is_tracing() -> bool:
    """Return whether the settings or the instrumentor enable tracing."""
    return instrumentation.is_on or get_settings().tracing.enabled


@cache
def tracer() -> Tracer | None:
    """Return the tracer, or None if tracing is disabled."""
    if not is_tracing():
        return None
    try:
        from opentelemetry import trace
    except ImportError:
        # A system check reports it, too. Messages are sent without traces.
        logger.error(
            "RSMQ['TRACING'] is on, but OpenTelemetry is missing; install rsmq-django[otel]. Continuing without traces."
        )
        return None
    return trace.get_tracer("rsmq_django", tracer_provider=instrumentation.tracer_provider)


def flush() -> None:
    """Let the SDK send the spans and metrics that it has collected, for two seconds at most."""
    if tracer() is None:
        return
    # The SDK's own limit is for less than the whole, and a collector that is down is asked repeatedly.
    thread = threading.Thread(target=_flush_providers, daemon=True)
    thread.start()
    thread.join(FLUSH_WITHIN_S)


def _flush_providers() -> None:
    from opentelemetry import metrics, trace

    providers = (
        instrumentation.tracer_provider or trace.get_tracer_provider(),
        instrumentation.meter_provider or metrics.get_meter_provider(),
    )
    for provider in providers:
        # Only the SDK has it, not the API.
        force_flush = getattr(provider, "force_flush", None)
        if force_flush is not None:
            try:
                force_flush()
            except Exception as error:
                logger.warning("OpenTelemetry has not sent what it had collected: %s", error)


def _forget_tracer() -> None:
    if tracer() is not None:
        from .messaging_metrics import messaging_metrics

        messaging_metrics.cache_clear()
    tracer.cache_clear()


instrumentation.on_change.append(_forget_tracer)


@receiver(setting_changed)
def _settings_changed(*, setting: str, **_: object) -> None:
    if setting == "RSMQ":
        tracer.cache_clear()


# -- Sending ----------------------------------------------------------------------------------------------------------


def start_sending(queue: Queue, task_path: str, task_ids: Sequence[str]) -> SendSpan | None:
    """Start the span for sending calls of a task, as a child of the current span. `sending()` ends it.

    If the transaction is rolled back, nothing is sent and the span is never exported.
    """
    own = tracer()
    if own is None:
        return None
    from opentelemetry.trace import SpanKind

    attributes = _attributes("send", queue, queue.name, task_path)
    if len(task_ids) == 1:
        attributes["messaging.message.conversation_id"] = task_ids[0]
    else:
        attributes["messaging.batch.message_count"] = len(task_ids)
    span = own.start_span(f"send {queue.name}", kind=SpanKind.PRODUCER, attributes=attributes)
    return SendSpan(span, len(task_ids), attributes)


def current_span() -> Span | None:
    """Return the current span of the caller; None when tracing is disabled."""
    if tracer() is None:
        return None
    from opentelemetry.trace import get_current_span

    return get_current_span()


def carried_by(span: SendSpan | Span | None) -> dict[str, Any]:
    """Return the envelope's meta that makes the runs of messages children of the span."""
    if span is None:
        return {}
    from opentelemetry.trace import set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    own = span.span if isinstance(span, SendSpan) else span
    TraceContextTextMapPropagator().inject(carrier, set_span_in_context(own))
    return {META: carrier["traceparent"]} if "traceparent" in carrier else {}


def sending(span: SendSpan | None, *, is_alone: bool = True) -> AbstractContextManager[object]:
    """Return a context manager for sending messages; it ends the span, with the error if one was raised.

    With `is_alone=False` no duration is measured: the messages travel with others, or later.
    """
    return NOTHING if span is None else _sending(span, is_alone)


@contextmanager
def _sending(sent: SendSpan, is_alone: bool) -> Iterator[None]:
    from opentelemetry.trace import use_span

    from .messaging_metrics import messaging_metrics

    attributes, began_at = _of_metrics(sent.attributes), time.monotonic()
    try:
        with use_span(sent.span, end_on_exit=True):
            try:
                yield
            except BaseException as error:
                attributes["error.type"] = error_type(error)
                sent.span.set_attribute("error.type", attributes["error.type"])
                raise
    finally:
        took_s = time.monotonic() - began_at if is_alone else None
        messaging_metrics().sent(attributes, sent.count, took_s)


# -- Running ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunSpan:
    """What the span of one call of a function says."""

    queue: Queue
    #: Of the received message: that of the queue, of a reliable queue, or `topic:group`.
    queue_name: str
    task_path: str
    message_id: str
    task_id: str
    attempt: int
    body_bytes: int
    worker_id: str
    #: The meta of each message, of which a batch has several.
    metas: Sequence[Mapping[str, Any] | None]


def processing(run: RunSpan) -> AbstractContextManager[object]:
    """Return a context manager for one call of a function: its span is the current span.

    It is a child of the sender's span. A call for several messages has links to the spans of their senders.
    """
    own = tracer()
    if own is None:
        return NOTHING
    attributes = _attributes("process", run.queue, run.queue_name, run.task_path)
    attributes["messaging.client.id"] = run.worker_id
    if len(run.metas) > 1:
        attributes["messaging.batch.message_count"] = len(run.metas)
    else:
        attributes |= {
            "messaging.message.id": run.message_id,
            "messaging.message.conversation_id": run.task_id,
            "messaging.message.body.size": run.body_bytes,
            "rsmq.attempt": run.attempt,
        }
    return _process_span(own, f"process {run.queue_name}", run.metas, attributes)


@contextmanager
def _process_span(
    own: Tracer, name: str, metas: Sequence[Mapping[str, Any] | None], attributes: Mapping[str, Any]
) -> Iterator[None]:
    from opentelemetry.trace import SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    from .messaging_metrics import messaging_metrics
    from .retry import Postpone  # tasks import this module

    measured, began_at = _of_metrics(attributes), time.monotonic()
    parent = TraceContextTextMapPropagator().extract(_carrier(metas[0]) if len(metas) == 1 else {})
    links = _links(metas) if len(metas) > 1 else ()
    try:
        with own.start_as_current_span(
            name,
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
            # OpenTelemetry itself records subclasses of `Exception` only, and a postponed task has not failed.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except Postpone:
                raise
            except BaseException as error:
                measured["error.type"] = error_type(error)
                span.set_attribute("error.type", measured["error.type"])
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
                raise
    finally:
        messaging_metrics().processed(measured, len(metas), time.monotonic() - began_at)


def _carrier(meta: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the traceparent of a message. Any program may have written it: an invalid one starts a new trace."""
    traceparent = (meta or {}).get(META)
    return {"traceparent": traceparent} if isinstance(traceparent, str) else {}


def _links(metas: Sequence[Mapping[str, Any] | None]) -> list[Link]:
    """Return a link to each span that has sent messages of a batch."""
    from opentelemetry.trace import Link, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carriers = {carrier["traceparent"]: carrier for carrier in map(_carrier, metas) if carrier}
    extract = TraceContextTextMapPropagator().extract
    senders = [get_current_span(extract(carrier)).get_span_context() for carrier in carriers.values()]
    return [Link(sender) for sender in senders if sender.is_valid]


def trace_id_of(meta: Mapping[str, Any] | None) -> str:
    """Return the id of the current trace, or of the one that a message names; "" without one."""
    if tracer() is not None:
        from opentelemetry.trace import get_current_span

        current = get_current_span().get_span_context()
        if current.is_valid:
            return f"{current.trace_id:032x}"
    named = _TRACEPARENT.fullmatch(_carrier(meta).get("traceparent", ""))
    return named[1] if named is not None else ""


# -- Attributes -------------------------------------------------------------------------------------------------------


def error_type(error: BaseException) -> str:
    """Return the full name of the class of an exception."""
    own = type(error)
    return own.__qualname__ if own.__module__ == "builtins" else f"{own.__module__}.{own.__qualname__}"


def _attributes(operation: str, queue: Queue, queue_name: str, task_path: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue_name,
        "rsmq.task": task_path,
        **server_attributes(queue.client.connection.url),
    }


def _of_metrics(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: attributes[name] for name in _OF_METRICS if name in attributes}


@lru_cache(maxsize=64)
def server_attributes(url: str) -> Mapping[str, Any]:
    """Return the address of the server in a URL; nothing for a service of sentinels, whose address changes."""
    if is_sentinel_url(url):
        return {}
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return {"server.address": parts.path}
    return {"server.address": parts.hostname or "localhost", "server.port": parts.port or 6379}
