"""One attempt at one message, from reading to settling: read, begin, perform, decide, end.

This module decides the outcome of an attempt. Messages that are not run are postponed in limits.py, or released by
the worker; when its process dies, supervise/recovery.py decides. Each step is public and small; the sync and the async
form differ in one step, the call of the function.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...conf.settings import get_settings
from ...core.limits import MAX_SECONDS
from ...core.log_lines import get_logger
from ...tasks.envelope import Envelope, Unreadable
from ...tasks.expiry import TaskExpired, has_expired
from ...tasks.interrupts import TaskCancelled
from ...tasks.membership import META
from ...tasks.options import is_number_of_attempts
from ...tasks.results import encode_value
from ...tasks.retry import Postpone, RetryPolicy, exponential
from ...tasks.typed_arguments import as_json_if_fits
from ...tasks.workflow_proofs import ForgedArgument
from ..delivery import AckWaiter, AttemptState, Delivery, Handler, TimeLimit
from ..outcomes import NOTHING_RETURNED, Cancelled, Dead, Discarded, Outcome, Postponed, Released, RetryIn, Succeeded
from ..report.clock import ServerClock
from ..report.notifications import Notifier, one_line, traceback_of
from .interrupt import interrupt
from .invoke import (
    RETURNED_NOTHING,
    Raised,
    Result,
    Returned,
    aresult_of,
    aresult_of_plain,
    result_of,
    result_of_plain,
)
from .pool import Runnable
from .resolve import UNKNOWN_TASK, find_handler, handler_of_group, log_unknown_task, unknown_task_wait_s
from .typed_arguments import MISSING_OBJECT
from .workflow import WorkflowGone

logger = get_logger(__name__)


class AckSink(Protocol):
    """Accepts outcomes and other writes to Redis, which are carried out together with others."""

    clock: ServerClock

    def began(self, execution: Execution) -> None:
        """Note that an execution begins."""

    def settle(self, execution: Execution, outcome: Outcome) -> None:
        """Take over an outcome, which is sent with the next exchange."""

    def flush_soon(self) -> None:
        """Send the outcomes without waiting for more of them."""

    def abandon(self, execution: Execution) -> None:
        """Stop renewing the lease of a message that will have no outcome here."""

    def note_interruption(self, execution: Execution) -> None:
        """Note that a running function was interrupted."""


class SharedCall(Runnable, Protocol):
    """One call for several executions; see batch.py."""

    #: The member whose call runs.
    lead: Execution
    #: The members that the call is for.
    members: Sequence[Execution]

    @property
    def is_cancelled(self) -> bool:
        """Whether all its executions were cancelled."""


class Execution(AttemptState):
    """One attempt at one message."""

    __slots__ = (
        "acks_each",
        "batch",
        "hard_timeout_s",
        "is_async",
        "is_plain",
        "is_suspect",
        "may_run",
        "sink",
        "unfinished_as",
        "unreadable",
    )

    notifier: Notifier
    time_limit: TimeLimit | None

    def __init__(
        self,
        delivery: Delivery,
        sink: AckSink,
        notifier: Notifier,
        call: Envelope | None = None,
        handler: Handler | None = None,
    ) -> None:
        """Read the message; a plain one was read before, see plain.py."""
        self.delivery = delivery
        self.notifier = notifier
        self.sink = sink
        self.began_at = 0.0
        self.ended_at = None
        self.finished_ms = None
        self.run_us = None
        self.handler = None
        self.takes_from = None
        #: Why the message cannot be read; None if it can.
        self.unreadable: Unreadable | None = None
        self.path = ""
        self.envelope = None
        self.max_attempts = delivery.work_queue.settings.max_attempts
        self.meta = None
        self.places = ()
        #: Whether the function is a coroutine function.
        self.is_async = False
        #: Whether it needs nothing but the call of its function, see plain.py.
        self.is_plain = False
        #: Whether a process died while it ran this message. It runs alone then, see quarantine.py.
        self.is_suspect = delivery.crashes > 0
        self.time_limit = None
        #: The run time after which the supervisor kills the process.
        self.hard_timeout_s: float | None = None
        #: Whether its thread or coroutine waits until Redis knows the outcome.
        self.acks_each = False
        self.thread_id = None
        self.asked_to_end_with = None
        self.was_interrupted = False
        self.keep_result_s = 0
        #: The batch that it is a member of; None for functions that take no batches.
        self.batch: SharedCall | None = None
        self.interrupted = False
        self.is_worker_stopping = False
        #: The outcome when the worker does not wait for it any more; None to give the message back.
        self.unfinished_as: Outcome | None = None
        self.task_result = None
        if call is None or handler is None:
            self.read()
        else:
            options = handler.options
            self.is_plain, self.envelope, self.handler = True, call, handler
            self.args, self.kwargs = call.args, call.kwargs
            self.path, self.is_async, self.keep_result_s = handler.path, handler.is_async, handler.keep_result_s
            self.max_attempts = options.max_attempts or self.max_attempts
            self.hard_timeout_s = options.hard_timeout_s
            if options.timeout_s is not None and not handler.is_async:
                self.time_limit = TimeLimit(options.timeout_s)
        #: Whether an attempt is left. A message whose worker died in each attempt runs out of attempts, too.
        self.may_run = self.unreadable is None and delivery.attempt <= self.max_attempts

    @property
    def shares_call_with(self) -> Sequence[Execution]:
        """See AttemptState.shares_call_with."""
        return (self,) if self.batch is None else self.batch.members

    def run(self) -> None:
        """Run the message from its begin to settling on this thread."""
        if not (self.is_plain and self.notifier.is_silent) or self.delivery.cancelled:
            self.begin()
            self.end(self.perform())
            return
        self.began_at = time.monotonic()
        self.sink.began(self)
        result = result_of_plain(self)
        if result is not RETURNED_NOTHING or self.delivery.cancelled:
            self.end(result)
        else:
            self.sink.settle(self, NOTHING_RETURNED)

    async def arun(self) -> None:
        """See run(); on the event loop."""
        if not (self.is_plain and self.notifier.is_silent) or self.delivery.cancelled:
            await self.abegin()
            await self.aend(await self.aperform())
            return
        self.began_at = time.monotonic()
        self.sink.began(self)
        result = await aresult_of_plain(self)
        if result is not RETURNED_NOTHING or self.delivery.cancelled:
            await self.aend(result)
        else:
            self.sink.settle(self, NOTHING_RETURNED)

    # -- The steps ----------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Find the function and the arguments of the message."""
        try:
            of_group = self.delivery.work_queue.handler
            if of_group is None:
                handler = self.handler = find_handler(self)
            else:
                handler = self.handler = handler_of_group(self, of_group)
                self.is_plain = handler.is_plain and self.delivery.attempt == 1
        except Unreadable as error:
            self.unreadable, self.envelope = error, error.envelope
            if error.reason == "wrong_arguments" and error.envelope is not None:
                self.path = error.envelope.task  # a declared task, not a name invented by the message
            self.meta = error.envelope.meta if error.envelope else None  # its lock and tags go with it
            self.keep_result_s = get_settings().tasks.result_ttl_s if error.envelope else 0
            return
        except Exception as error:  # no content of a message may stop the worker
            logger.exception("message %s cannot be read", self.delivery.message.id)
            self.unreadable = Unreadable("undecodable", f"cannot be read: {one_line(error)}")
            return
        options = handler.options
        self.path, self.is_async, self.keep_result_s = handler.path, handler.is_async, handler.keep_result_s
        self.max_attempts = options.max_attempts or self.max_attempts
        if self.meta is not None and is_number_of_attempts(most := self.meta.get("max_attempts")):
            self.max_attempts = most
        self.hard_timeout_s = options.hard_timeout_s
        if options.ack == "each":
            self.acks_each = True
            self.delivery.ack_waiter = AckWaiter(most_s=self.delivery.work_queue.lease_s)
        if options.timeout_s is not None and not handler.is_async:
            self.time_limit = TimeLimit(options.timeout_s)

    def begin(self) -> None:
        """Note the start and announce it."""
        self.began_at = time.monotonic() if self.batch is None else self.batch.began_at
        self.sink.began(self)
        if self.notifier.starts_are_news and self.may_run:
            self.notifier.started(self)
            self.began_at = time.monotonic()  # the time that listeners take does not count as run time

    async def abegin(self) -> None:
        """See begin()."""
        self.began_at = time.monotonic() if self.batch is None else self.batch.began_at
        self.sink.began(self)
        if self.notifier.starts_are_news and self.may_run:
            await self.notifier.astarted(self)
            self.began_at = time.monotonic()

    def perform(self) -> Result:
        """Call the function unless the attempt ends before; return the result."""
        if self.unreadable is not None:
            return self.unreadable
        if (reason := self.reason_not_to_run()) is not None:
            return Raised(reason)
        return result_of(self)

    async def aperform(self) -> Result:
        """See perform(). An unreadable message has no function, so it is never here."""
        if (reason := self.reason_not_to_run()) is not None:
            return Raised(reason)
        return await aresult_of(self)

    def reason_not_to_run(self) -> BaseException | None:
        """Return the reason to end the attempt without calling the function; None to call it."""
        if not self.may_run:
            return _WorkerDied(self.delivery.attempt - 1)
        if self.delivery.cancelled:
            return TaskCancelled()
        if self.meta is not None and self._has_expired(self.meta):
            return TaskExpired(self.meta["expires_in_s"])
        return None

    def _has_expired(self, meta: Mapping[str, Any]) -> bool:
        delivery, now_ms = self.delivery, self.sink.clock.now_ms()
        return has_expired(meta, delivery.message, attempt=delivery.attempt, wait_us=delivery.wait_us, now_ms=now_ms)

    def decide(self, result: Result) -> Outcome:
        """Return the outcome that follows from a result. Does no I/O."""
        if self.delivery.cancelled:
            return Cancelled()  # the result of the function is ignored: the record says that it was cancelled
        if isinstance(result, Returned):
            return NOTHING_RETURNED if result.value is None else self._decide_return(result.value)
        if isinstance(result, Unreadable):
            if result.reason == UNKNOWN_TASK and (outcome := self._postpone_unknown(result)) is not None:
                return outcome
            return self.give_up(result.reason, result)
        if self.interrupted:
            return self.unfinished_as or Released()  # the worker is stopping: not a failure of the task
        return self._decide_error(result.error)

    def end(self, result: Result) -> None:
        """Decide on the outcome, hand it over and announce it."""
        outcome = self.decide(result)
        if self._was_cut_off(outcome):
            return
        self.sink.settle(self, outcome)
        if self.notifier.successes_are_news or not isinstance(outcome, Succeeded):
            self.sink.flush_soon()  # listeners may take long
            self.notifier.finished(self, outcome)

    async def aend(self, result: Result) -> None:
        """See end()."""
        outcome = self.decide(result)
        if self._was_cut_off(outcome):
            return
        self.sink.settle(self, outcome)
        if self.notifier.successes_are_news or not isinstance(outcome, Succeeded):
            self.sink.flush_soon()
            await self.notifier.afinished(self, outcome)

    def interrupt(self, kind: type[BaseException]) -> bool:
        """Interrupt the function on its thread; return whether it is running."""
        return interrupt(self, kind)

    def end_unfinished(self) -> Outcome:
        """Return the outcome of an attempt that is cut off by the end of the worker, and ignore any later result.

        An attempt that did not end although it was interrupted has failed; all others are given back.
        """
        call = self if self.batch is None else self.batch.lead
        if call.was_interrupted and call.asked_to_end_with is not None:
            self.unfinished_as = self.decide(Raised(call.asked_to_end_with()))
        self.interrupted = True
        return self.unfinished_as or Released()

    def _was_cut_off(self, outcome: Outcome) -> bool:
        """Return whether the stopping worker has handed over the outcome already; a success counts nevertheless."""
        return self.interrupted and self.is_settled and not isinstance(outcome, Succeeded)

    def abandon(self) -> None:
        """Abandon this attempt without an outcome: something other than the function failed."""
        self.sink.abandon(self)

    def give_up(self, reason: str, error: BaseException, traceback: str = "") -> Dead:
        """Return the outcome of a message that has no further attempt."""
        kind = Dead if self.dead_letter_queue is not None else Discarded
        return kind(reason, error, traceback)

    # -- Properties that the steps use --------------------------------------------------------------------------------

    @property
    def ack_waiters(self) -> list[AckWaiter]:
        """Return the waiter for the outcome, if the message has one."""
        return [self.delivery.ack_waiter] if self.delivery.ack_waiter is not None else []

    @property
    def running_now(self) -> Execution:
        """Return this execution; see Runnable."""
        return self

    @property
    def is_settled(self) -> bool:
        """Return whether the outcome was handed over and only the reply of Redis is missing."""
        return self.finished_ms is not None

    @property
    def policy(self) -> RetryPolicy:
        """Return the policy for failures."""
        return self.handler.options.retry_policy(self.max_attempts) if self.handler else RetryPolicy(self.max_attempts)

    @property
    def will_run(self) -> bool:
        """Return whether the function would be called now."""
        return self.reason_not_to_run() is None

    def _postpone_unknown(self, error: Unreadable) -> Postponed | None:
        wait_s = unknown_task_wait_s(self.delivery, now_ms=self.sink.clock.now_ms())
        if wait_s is None:
            return None
        log_unknown_task(error)
        return Postponed(wait_s, str(error), has_run=False)

    def _decide_return(self, value: Any) -> Outcome:
        if self.handler is None or self.handler.task is None:
            return NOTHING_RETURNED
        try:
            if self.handler.returned is not None:
                value = as_json_if_fits(self.handler.returned, value)
            encoded = encode_value(value)
        except Exception as error:  # TypeError, ValueError, and any exception from methods of its own classes
            # The function has had its effect; running it again would repeat that, and fail again.
            said = f"Unsupported type: {self.path} returned what JSON cannot hold: {error}"  # Django's words
            return self.give_up("bad_return_value", TypeError(said))
        is_stored = self.keep_result_s or META in (self.meta or ())
        if is_stored and len(encoded) > (limit := get_settings().tasks.max_result_bytes):
            text = (
                f"{self.path} returned {len(encoded)} bytes of JSON, RSMQ['TASKS']['MAX_RESULT_BYTES'] allows {limit}"
            )
            return self.give_up("bad_return_value", ValueError(f"{text}; store the value elsewhere and return its id"))
        return Succeeded(encoded)

    def _decide_error(self, error: BaseException) -> Outcome:
        if isinstance(error, _WorkerDied):
            return self.give_up("worker_died", error)
        if isinstance(error, TaskExpired):
            return self.give_up("expired", error)
        if isinstance(error, WorkflowGone):
            return self.give_up("workflow_gone", error)
        if isinstance(error, ForgedArgument):
            return self.give_up("forged_argument", error)
        if isinstance(error, Unreadable):
            return self._give_up_arguments(error)
        if isinstance(error, Postpone):
            return Postponed(min(max(0.0, error.after_s), MAX_SECONDS), str(error))
        text = traceback_of(error)
        if self.policy.gives_up_on(error):
            return self.give_up("gave_up", error, text)
        if self.delivery.attempt >= self.max_attempts:
            return self.give_up("attempts_used_up", error, text)
        wait_s = self._wait_s(error, text)
        return self.give_up("gave_up", error, text) if wait_s is None else RetryIn(wait_s, error, text)

    def _give_up_arguments(self, error: Unreadable) -> Dead:
        """Return the outcome of a call whose function cannot get its arguments."""
        if error.reason == MISSING_OBJECT and self.handler is not None and self.handler.options.missing_objects:
            return Discarded(error.reason, error)
        return self.give_up(error.reason, error)

    def _wait_s(self, error: BaseException, text: str) -> float | None:
        try:
            policy = self.policy
            wait_s = policy.wait_s(self.delivery.attempt, error, lambda: self.notifier.failed_result(self, error, text))
            if wait_s is None:
                return None
            if not math.isfinite(wait_s):
                raise ValueError(f"{wait_s} is not a valid number of seconds")
            return min(wait_s, MAX_SECONDS)
        except Exception:  # the project's function may raise anything; the message is still retried
            wait_s = exponential()(self.delivery.attempt)
            logger.exception("the backoff of %s raised; retrying in %.1f s instead", self.path, wait_s)
            return wait_s


class _WorkerDied(Exception):
    def __init__(self, attempts: int) -> None:
        super().__init__(f"the worker died or lost its lease in each of {attempts} attempts")
