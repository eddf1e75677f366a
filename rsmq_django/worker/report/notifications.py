"""Announces what happens to tasks: log lines, Django's task signals and those of this project. It decides nothing.

Exceptions become text here, for logs, failure records and results: a task may raise anything, so this never raises.
"""

from __future__ import annotations

import json
import logging
import traceback
from dataclasses import replace
from typing import Any, TypeGuard

from ...conf.settings import get_settings
from ...core import Queue
from ...core.log_lines import get_logger
from ...core.texts import printable
from ...signals import lease_lost, message_dead_lettered
from ...tasks.compat import TaskError, TaskResult, TaskResultStatus, anybody_listens, task_finished, task_started
from ...tasks.envelope import Unreadable
from ...tasks.interrupts import TaskCancelled
from ...tasks.middleware import chain
from ...tasks.results import as_time, restored_task
from ...tasks.running import CurrentTask
from ...tasks.tracing import is_tracing
from ...tasks.typed_arguments import as_returned
from ..delivery import AttemptState, Delivery
from ..outcomes import Cancelled, Dead, Discarded, Outcome, Postponed, Released, RetryIn, Succeeded

logger = get_logger(__name__)

#: Name of each outcome in logs, in the event log and in counters.
EVENT_NAMES: dict[type[Outcome], str] = {
    Succeeded: "succeeded",
    RetryIn: "retried",
    Dead: "dead",
    Discarded: "discarded",
    Released: "released",
    Postponed: "released",
    Cancelled: "cancelled",
}


def event_name(outcome: Outcome) -> str:
    """Return the name of an outcome."""
    return EVENT_NAMES.get(type(outcome)) or type(outcome).__name__.lower()


#: After these a task never runs again.
_FINAL = (Succeeded, Dead, Cancelled)


class Notifier:
    """Sends the notifications of one worker process."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        self.starts_are_news = self.successes_are_news = True
        #: Whether Django's signal for the end of a task has receivers, when it has succeeded.
        self._successes_are_signalled = True
        #: Whether neither is announced, nor traced: most workers are silent about runs that succeed.
        self.is_silent = False

    def find_listeners(self) -> None:
        """Find out whether starts and successes have listeners.

        Checking this for each message would cost as much as a short task. Workers call it before they hand out
        received messages.
        """
        settings = get_settings()
        self.starts_are_news = anybody_listens(task_started)
        self._successes_are_signalled = anybody_listens(task_finished)
        #: Whether successes go to a log, to middleware, or to a receiver of Django's signal.
        self.successes_are_news = (
            logger.isEnabledFor(logging.DEBUG) or bool(settings.middleware) or self._successes_are_signalled
        )
        self.is_silent = not (self.starts_are_news or self.successes_are_news or is_tracing())

    # -- Signals ------------------------------------------------------------------------------------------------------

    def started(self, attempt: AttemptState) -> None:
        """Send `task_started`."""
        if _is_task(attempt):
            result = self.task_result(attempt)
            task_started.send_robust(sender=type(result.task.get_backend()), task_result=result)

    async def astarted(self, attempt: AttemptState) -> None:
        """See started()."""
        if _is_task(attempt):
            result = self.task_result(attempt)
            await task_started.asend_robust(sender=type(result.task.get_backend()), task_result=result)

    def finished(self, attempt: AttemptState, outcome: Outcome) -> None:
        """Write the log line of an outcome; send `task_finished` and `message_dead_lettered` when they apply."""
        log_outcome(attempt, outcome)
        _tell_middleware(attempt, outcome)
        if _is_task(attempt) and self._is_end_signalled(outcome):
            result = self._finished_result(attempt, outcome)
            task_finished.send_robust(sender=type(result.task.get_backend()), task_result=result)
        if type(outcome) is Dead:
            message_dead_lettered.send_robust(sender=Queue, **_dead_letter(attempt, outcome))

    async def afinished(self, attempt: AttemptState, outcome: Outcome) -> None:
        """See finished()."""
        log_outcome(attempt, outcome)
        _tell_middleware(attempt, outcome)
        if _is_task(attempt) and self._is_end_signalled(outcome):
            result = self._finished_result(attempt, outcome)
            await task_finished.asend_robust(sender=type(result.task.get_backend()), task_result=result)
        if type(outcome) is Dead:
            await message_dead_lettered.asend_robust(sender=Queue, **_dead_letter(attempt, outcome))

    def _is_end_signalled(self, outcome: Outcome) -> TypeGuard[Succeeded | Dead | Cancelled]:
        if isinstance(outcome, Succeeded):
            return self._successes_are_signalled
        return isinstance(outcome, _FINAL) and anybody_listens(task_finished, has_failed=True)

    def lost(self, delivery: Delivery) -> None:
        """Log that a result was discarded because another worker may hold the message now."""
        logger.warning(
            "message %s of queue %s was received by another worker while it was held here; the result is discarded",
            delivery.message.id,
            delivery.work_queue.name,
            extra={
                "rsmq_event": "lost",
                "rsmq_queue": delivery.work_queue.name,
                "rsmq_message_id": delivery.message.id,
                "rsmq_attempt": delivery.attempt,
                "rsmq_worker": self.worker_id,
            },
        )
        lease_lost.send_robust(sender=Queue, queue_name=delivery.work_queue.name, message=delivery.message)

    # -- Content of signals and contexts ------------------------------------------------------------------------------

    def task_result(self, attempt: AttemptState) -> TaskResult[..., Any]:
        """Return the running task's `TaskResult`, the same object for its context and all its signals."""
        if attempt.task_result is None:
            attempt.task_result = self._running_result(attempt)
        return attempt.task_result

    def failed_result(self, attempt: AttemptState, error: BaseException, text: str) -> TaskResult[..., Any]:
        """Return the result after this failed attempt, without the errors of earlier ones, which Redis has."""
        failure = TaskError(exception_class_path=dotted_path(type(error)), traceback=text)
        return replace(self.task_result(attempt), status=TaskResultStatus.FAILED, errors=[failure])

    def _running_result(self, attempt: AttemptState) -> TaskResult[..., Any]:
        delivery, handler, envelope = attempt.delivery, attempt.handler, attempt.envelope
        assert handler is not None and handler.task is not None and envelope is not None
        started_at = as_time(delivery.started_ms)
        return TaskResult(
            task=restored_task(handler.path, queue_name=delivery.work_queue.name, backend=handler.task.backend),
            id=envelope.id,
            status=TaskResultStatus.RUNNING,
            enqueued_at=as_time(delivery.message.sent_ms),
            started_at=started_at,
            finished_at=None,
            last_attempted_at=started_at,
            args=envelope.args,
            kwargs=envelope.kwargs,
            backend=handler.task.backend,
            errors=[],
            # Earlier attempts may have run elsewhere; the result record contains their workers.
            worker_ids=[""] * (delivery.attempt - 1) + [self.worker_id],
        )

    def _finished_result(self, attempt: AttemptState, outcome: Succeeded | Dead | Cancelled) -> TaskResult[..., Any]:
        result = self.task_result(attempt)
        failed = not isinstance(outcome, Succeeded)
        object.__setattr__(result, "status", TaskResultStatus.FAILED if failed else TaskResultStatus.SUCCESSFUL)
        object.__setattr__(result, "finished_at", as_time(attempt.finished_ms))
        if isinstance(outcome, Dead):
            kind = type(outcome.error)
            result.errors.append(
                TaskError(
                    exception_class_path=dotted_path(kind),
                    traceback=outcome.traceback or text_of(outcome.error),
                )
            )
        elif isinstance(outcome, Cancelled):
            error = TaskCancelled()
            result.errors.append(TaskError(exception_class_path=dotted_path(type(error)), traceback=str(error)))
        else:
            value, task = json.loads(outcome.value), attempt.handler.task if attempt.handler is not None else None
            object.__setattr__(result, "_return_value", value if task is None else as_returned(task, value))
        return result


def log_outcome(attempt: AttemptState, outcome: Outcome) -> None:
    """Write one line about an outcome and the next step, with the same data as fields for programs."""
    if isinstance(outcome, Succeeded) and not logger.isEnabledFor(logging.DEBUG):
        return  # before any formatting: most outcomes are successes
    delivery = attempt.delivery
    what = attempt.path or f"a message of queue {delivery.work_queue.name}"
    message_id, number, most = delivery.message.id, delivery.attempt, attempt.max_attempts
    extra = log_fields(attempt, outcome)
    match outcome:
        case Succeeded():
            logger.debug("%s succeeded on attempt %d [%s]", what, number, message_id, extra=extra)
        case RetryIn(after_s, error):
            text = "%s failed on attempt %d of %d, retry in %.1f s: %s [%s]"
            logger.warning(text, what, number, most, after_s, one_line(error), message_id, extra=extra)
        case Dead(reason, error, traceback_text):
            fate = "discarded" if isinstance(outcome, Discarded) else _fate(delivery)
            text = f"%s failed for good (%s) on attempt %d, {fate}: %s [%s]"
            why = one_line(error).removeprefix(f"{Unreadable.__name__}: ")  # the reason contains this already
            _log_error(text, (what, reason, number, why, message_id), traceback_text.rstrip(), extra)
        case Cancelled():
            logger.info("%s was cancelled on attempt %d [%s]", what, number, message_id, extra=extra)
        case Postponed(after_s, why, has_run=False):
            logger.debug("%s is given back for %.1f s: %s [%s]", what, after_s, why, message_id, extra=extra)
        case Postponed(after_s, why):
            logger.info("%s is postponed by %.1f s: %s [%s]", what, after_s, why, message_id, extra=extra)
        case Released():
            text = "%s was released unfinished, another worker can run it at once [%s]"
            logger.info(text, what, message_id, extra=extra)


def _fate(delivery: Delivery) -> str:
    """Return where a message goes that has failed for good."""
    if delivery.work_queue.reliable is not None:
        return "kept as dead in its queue"
    return "moved to its dead-letter queue" if delivery.given is None else "moved to its dead-letter topic"


def _log_error(text: str, args: tuple[object, ...], traceback_text: str, extra: dict[str, Any]) -> None:
    """Log an error whose traceback is only known as text, in the place where formatters look for it."""
    if logger.isEnabledFor(logging.ERROR):
        path, line, function, _ = logger.findCaller(stacklevel=2)
        record = logger.makeRecord(logger.name, logging.ERROR, path, line, text, args, None, func=function, extra=extra)
        record.exc_text = traceback_text or None
        logger.handle(record)


def log_fields(attempt: AttemptState, outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as fields of a log record, never with arguments; docs/how-to/metrics.md explains them."""
    delivery, envelope = attempt.delivery, attempt.envelope
    fields: dict[str, Any] = {
        "rsmq_event": event_name(outcome),
        "rsmq_queue": delivery.work_queue.name,
        "rsmq_task": attempt.path,
        "rsmq_task_id": envelope.id if envelope else "",
        "rsmq_message_id": delivery.message.id,
        "rsmq_attempt": delivery.attempt,
        "rsmq_max_attempts": attempt.max_attempts,
        "rsmq_worker": attempt.notifier.worker_id,
    }
    if delivery.started_ms is not None and attempt.finished_ms is not None:
        fields["rsmq_run_ms"] = round(attempt.finished_ms - delivery.started_ms, 3)
    if isinstance(outcome, (RetryIn, Dead)):
        fields["rsmq_error_type"] = dotted_path(type(outcome.error))
    if isinstance(outcome, RetryIn):
        fields["rsmq_retry_in_s"] = round(outcome.after_s, 3)
    if isinstance(outcome, Dead):
        fields["rsmq_reason"] = outcome.reason
    return fields


#: The middleware method for each outcome, besides `after`.
_MIDDLEWARE_EVENTS: dict[type[Outcome], str] = {RetryIn: "on_retry", Dead: "on_dead_letter", Discarded: "on_discard"}


def _tell_middleware(attempt: AttemptState, outcome: Outcome) -> None:
    middleware = chain()
    if middleware is not None:
        middleware.tell(CurrentTask(attempt), outcome, _MIDDLEWARE_EVENTS.get(type(outcome)))


def _is_task(attempt: AttemptState) -> bool:
    return attempt.handler is not None and attempt.handler.task is not None


def _dead_letter(attempt: AttemptState, outcome: Dead) -> dict[str, Any]:
    delivery = attempt.delivery
    return {
        "queue_name": delivery.work_queue.name,
        "message": delivery.message,
        "reason": outcome.reason,
        "task_path": attempt.path,
    }


# -- Exceptions as text -----------------------------------------------------------------------------------------------

#: Tracebacks are for people, who read their end.
MAX_TRACEBACK_CHARACTERS = 8192
MAX_TEXT_CHARACTERS = 2000
MAX_LINE_CHARACTERS = 500


def traceback_of(error: BaseException) -> str:
    """Return the traceback from the task's first frame on, cut at its beginning when it is long."""
    frame, ours = error.__traceback__, __package__.partition(".")[0] + "."
    while frame is not None and frame.tb_frame.f_globals.get("__name__", "").startswith(ours):
        frame = frame.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, frame))
    except BaseException:  # its own __str__ raises, maybe SystemExit
        text = one_line(error)
    return text if len(text) <= MAX_TRACEBACK_CHARACTERS else "...\n" + text[-MAX_TRACEBACK_CHARACTERS:]


def dotted_path(kind: type[BaseException]) -> str:
    """Return the dotted path of an exception's class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def text_of(error: BaseException) -> str:
    """Return the exception's own text."""
    try:
        return str(error)[:MAX_TEXT_CHARACTERS]
    except BaseException:  # its own __str__ raises, maybe SystemExit
        return "(its text cannot be shown)"


def one_line(error: BaseException) -> str:
    """Return class and text on one printable line: texts are input of other people, and logs are read by line."""
    text = text_of(error)[:MAX_LINE_CHARACTERS]
    line = f"{type(error).__qualname__}: {text}" if text else type(error).__qualname__
    return printable(line)
