"""OpenTelemetry spans from enqueue to execution in a worker, as one trace.

Disabled unless RSMQ["TRACING"] enables it: then OpenTelemetry is not imported and messages contain nothing more. It
uses the API only: sampling and export are configured in the project's SDK. Names and attributes follow the semantic
conventions for messaging; the context is sent as W3C `traceparent` in the envelope's meta "trace". No attribute
contains arguments, return values or bodies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from django.core.signals import setting_changed
from django.dispatch import receiver

from ..conf.settings import get_settings
from ..core.log_lines import get_logger

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OpenTelemetrySpan
    from opentelemetry.trace import Tracer

#: Other modules pass spans without importing OpenTelemetry.
Span: TypeAlias = "OpenTelemetrySpan"

logger = get_logger(__name__)

#: Key in the envelope's meta.
META = "trace"
SYSTEM = "rsmq"
NOTHING = nullcontext()


@cache
def tracer() -> Tracer | None:
    """Return the tracer, or None if tracing is disabled."""
    if not get_settings().tracing.enabled:
        return None
    try:
        from opentelemetry import trace
    except ImportError:
        # A system check reports it, too. Messages are sent without traces.
        logger.error(
            "RSMQ['TRACING'] is on, but OpenTelemetry is missing; install rsmq-django[otel]. Continuing without traces."
        )
        return None
    return trace.get_tracer("rsmq_django")


@receiver(setting_changed)
def _forget_tracer(*, setting: str, **_: object) -> None:
    if setting == "RSMQ":
        tracer.cache_clear()


# -- Sending ----------------------------------------------------------------------------------------------------------


def start_sending(queue_name: str, task_path: str, task_ids: Sequence[str]) -> Span | None:
    """Start the span for sending calls of a task, as a child of the current span. `sending()` ends it.

    If the transaction is rolled back, nothing is sent and the span is never exported.
    """
    own = tracer()
    if own is None:
        return None
    from opentelemetry.trace import SpanKind

    attributes = _attributes("send", queue_name, task_path)
    if len(task_ids) == 1:
        attributes["messaging.message.conversation_id"] = task_ids[0]
    else:
        attributes["messaging.batch.message_count"] = len(task_ids)
    return own.start_span(f"send {queue_name}", kind=SpanKind.PRODUCER, attributes=attributes)


def current_span() -> Span | None:
    """Return the current span of the caller; None when tracing is disabled."""
    if tracer() is None:
        return None
    from opentelemetry.trace import get_current_span

    return get_current_span()


def carried_by(span: Span | None) -> dict[str, Any]:
    """Return the envelope's meta that makes the runs of messages children of the span."""
    if span is None:
        return {}
    from opentelemetry.trace import set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, set_span_in_context(span))
    return {META: carrier["traceparent"]} if "traceparent" in carrier else {}


def sending(span: Span | None) -> AbstractContextManager[object]:
    """Return a context manager for sending messages; it ends the span, with the error if one was raised."""
    if span is None:
        return NOTHING
    from opentelemetry.trace import use_span

    return use_span(span, end_on_exit=True)


# -- Running ----------------------------------------------------------------------------------------------------------


def processing(
    queue_name: str,
    task_path: str,
    *,
    meta: Mapping[str, Any] | None,
    message_id: str,
    task_id: str,
    attempt: int,
    body_bytes: int,
    worker_id: str,
) -> AbstractContextManager[object]:
    """Return a context manager for one run: its span is the current span, a child of the sender's span."""
    own = tracer()
    if own is None:
        return NOTHING
    attributes = _attributes("process", queue_name, task_path) | {
        "messaging.message.id": message_id,
        "messaging.message.conversation_id": task_id,
        "messaging.message.body.size": body_bytes,
        "messaging.client.id": worker_id,
        "rsmq.attempt": attempt,
    }
    return _process_span(own, f"process {queue_name}", (meta or {}).get(META), attributes)


@contextmanager
def _process_span(own: Tracer, name: str, traceparent: object, attributes: Mapping[str, Any]) -> Iterator[None]:
    from opentelemetry.trace import SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    from .retry import TaskTimeout  # tasks import this module

    # The message is untrusted: an invalid traceparent starts a new trace.
    carrier = {"traceparent": traceparent} if isinstance(traceparent, str) else {}
    parent = TraceContextTextMapPropagator().extract(carrier)
    with own.start_as_current_span(name, context=parent, kind=SpanKind.CONSUMER, attributes=attributes) as span:
        try:
            yield
        except TaskTimeout as error:  # OpenTelemetry records subclasses of `Exception` only
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
            raise


def _attributes(operation: str, queue_name: str, task_path: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue_name,
        "rsmq.task": task_path,
    }
