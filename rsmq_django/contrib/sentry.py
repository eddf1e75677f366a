"""Middleware for Sentry: errors, traces and cron monitors. Needs the extra `rsmq-django[sentry]`.

RSMQ = {"MIDDLEWARE": ["rsmq_django.contrib.sentry.Sentry", ...]}

The project calls `sentry_sdk.init()` itself, in its settings. Without that, nothing is collected or sent.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import sentry_sdk
from sentry_sdk.consts import SPANSTATUS
from sentry_sdk.crons import capture_checkin
from sentry_sdk.integrations.logging import ignore_logger

from ..conf.settings import get_settings
from ..tasks.middleware import SentCall
from ..tasks.retry import Postpone
from ..tasks.running import CurrentTask
from ..tasks.task import find_task
from ..worker.outcomes import Cancelled, Dead, Succeeded

__all__ = ["Sentry"]

ORIGIN = "auto.queue.rsmq"
CONTEXT = "sentry"
#: Loggers whose errors are the failures that are reported here.
LOGGERS = ("rsmq_django.worker.report.notifications", "django.tasks", "django_tasks")
FLUSH_WITHIN_S = 2.0
#: Attribute of an exception: the scopes of the attempt that raised it.
SCOPES = "_rsmq_sentry_scopes"
#: Intervals of cron monitors are whole minutes.
_MINUTE_S = 60


class Sentry:
    """Report failures to Sentry, with a scope, a transaction and spans for each attempt.

    A failure that is final is one event; with `retries=True` so is each failure that is retried. With `crons=True`
    calls of schedules check in at Sentry's monitors, which have the names of the schedules.
    """

    def __init__(self, *, retries: bool = False, crons: bool = False) -> None:
        for name in LOGGERS:
            ignore_logger(name)
        self._crons = crons
        if retries:
            self.on_retry = self._report

    # -- Sending ------------------------------------------------------------------------------------------------------

    def sending(self, call: SentCall) -> None:
        """Note the trace in the call, and a span that says where it is sent; the round trip follows after it."""
        sent: dict[str, Any] = {}
        if sentry_sdk.get_client().is_active():
            with sentry_sdk.start_span(op="queue.publish", name=call.task_path, origin=ORIGIN) as span:
                span.set_data("messaging.system", "rsmq")
                span.set_data("messaging.destination.name", call.queue_name)
                call.notes[CONTEXT] = span
                headers = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
            if not _runs_in_batches(call.task_path):  # calls of a batch have one trace, and share their context
                sent = {name: value for name, value in headers.items() if value}
        if self._crons and call.schedule is not None:
            sent["schedule"] = call.schedule
        if sent:
            call.context[CONTEXT] = sent

    def encoded(self, call: SentCall) -> None:
        """Add to the span which message it is; the transaction that it belongs to has not ended."""
        span = call.notes.get(CONTEXT)
        if span is None:
            return
        if len(call.ids) == 1:
            span.set_data("messaging.message.id", call.ids[0])
        else:
            span.set_data("messaging.batch.message_count", len(call.ids))
        span.set_data("messaging.message.body.size", call.body_bytes)

    # -- Running ------------------------------------------------------------------------------------------------------

    @contextmanager
    def around(self, run: CurrentTask) -> Iterator[None]:
        """Run the function in a scope of its own, and in a transaction that continues the trace of the sender."""
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            _describe(scope, run)
            transaction = sentry_sdk.continue_trace(
                _headers(run), op="queue.task.rsmq", name=run.path, source="task", origin=ORIGIN
            )
            postponed = None
            with (
                sentry_sdk.start_transaction(transaction),
                sentry_sdk.start_span(op="queue.process", name=run.path, origin=ORIGIN) as span,
            ):
                for name, value in _attributes(run).items():
                    span.set_data(name, value)
                self._check_in(run, "in_progress")
                try:
                    yield
                except Postpone as error:  # no failure: raised again outside of the spans, whose status it would be
                    postponed = error
                except BaseException as error:
                    with suppress(AttributeError):  # an exception with __slots__: reported without breadcrumbs
                        setattr(error, SCOPES, (scope, sentry_sdk.get_current_scope().fork()))  # with the span
                    raise
                transaction.set_status(SPANSTATUS.OK)
                span.set_status(SPANSTATUS.OK)
            if postponed is not None:
                raise postponed

    def after(self, run: CurrentTask, outcome: object) -> None:
        """Check in at the monitor of the schedule when the call has ended."""
        if isinstance(outcome, Succeeded):
            self._check_in(run, "ok")
        elif isinstance(outcome, (Dead, Cancelled)):  # Sentry has no status of its own for a cancelled one
            self._check_in(run, "error")

    def on_dead_letter(self, run: CurrentTask, outcome: Any) -> None:
        """Report a failure that is final."""
        self._report(run, outcome)

    def on_discard(self, run: CurrentTask, outcome: Any) -> None:
        """See on_dead_letter()."""
        self._report(run, outcome)

    def _report(self, run: CurrentTask, outcome: Any) -> None:
        error: BaseException = outcome.error
        scopes = getattr(error, SCOPES, None)
        if scopes is not None:
            isolation, current = scopes
            with sentry_sdk.scope.use_isolation_scope(isolation), sentry_sdk.scope.use_scope(current):
                _capture(error, outcome)
            with suppress(AttributeError):
                delattr(error, SCOPES)
            return
        with sentry_sdk.isolation_scope() as scope:  # no function ran: the message was unreadable, or expired
            scope.clear_breadcrumbs()
            _describe(scope, run)
            _capture(error, outcome)

    # -- Cron monitors ------------------------------------------------------------------------------------------------

    def _check_in(self, run: CurrentTask, status: str) -> None:
        schedule = _sent_with(run).get("schedule") if self._crons else None
        if not isinstance(schedule, str):
            return
        if status == "in_progress" and run.attempt > 1:
            return  # the check-in of the first attempt is open
        capture_checkin(
            monitor_slug=schedule,
            check_in_id=uuid.uuid5(uuid.NAMESPACE_OID, run.id).hex,  # the same for all attempts, in any process
            status=status,
            duration=run.ran_for_s if status != "in_progress" else None,
            monitor_config=_monitor_of(schedule),
        )

    # -- The end of the process ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what Sentry's client has collected, for two seconds at most."""
        sentry_sdk.flush(timeout=FLUSH_WITHIN_S)


def _capture(error: BaseException, outcome: Any) -> None:
    with sentry_sdk.new_scope() as scope:
        reason = getattr(outcome, "reason", None)
        scope.set_tag("rsmq.reason", reason or "retried")
        sentry_sdk.capture_exception(error)


def _describe(scope: Any, run: CurrentTask) -> None:
    scope.set_transaction_name(run.path, source="task")
    scope.set_tag("rsmq.queue", run.queue_name)
    scope.set_tag("rsmq.task", run.path)
    scope.set_tag("rsmq.task_id", run.id)
    scope.set_tag("rsmq.attempt", run.attempt)


def _attributes(run: CurrentTask) -> Mapping[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.system": "rsmq",
        "messaging.destination.name": run.queue_name,
        "messaging.message.id": run.id,  # that of the message in the queue is not known where the call is sent
        "messaging.message.body.size": run.body_bytes,
        "messaging.message.retry.count": run.attempt - 1,
    }
    if run.waited_for_s is not None:
        attributes["messaging.message.receive.latency"] = run.waited_for_s * 1000
    return attributes


def _runs_in_batches(path: str) -> bool:
    task = find_task(path)
    return task is not None and task.options.batch is not None


def _sent_with(run: CurrentTask) -> Mapping[str, Any]:
    sent = run.context.get(CONTEXT)
    return sent if isinstance(sent, dict) else {}  # any program may have written the message


def _headers(run: CurrentTask) -> dict[str, str]:
    sent = _sent_with(run)
    return {name: sent[name] for name in ("sentry-trace", "baggage") if isinstance(sent.get(name), str)}


def _monitor_of(name: str) -> Any:
    """Return the times of a schedule of the settings as Sentry knows them; None if it cannot have them."""
    entry = get_settings().schedules.get(name)
    if entry is None:
        return None
    if entry.cron is not None:
        fields = entry.cron.split()
        if len(fields) != 5:
            return None  # with seconds
        return {"schedule": {"type": "crontab", "value": entry.cron}, "timezone": entry.time_zone}
    minutes, rest = divmod(entry.every_s or 0, _MINUTE_S)
    return None if rest or not minutes else {"schedule": {"type": "interval", "value": int(minutes), "unit": "minute"}}
