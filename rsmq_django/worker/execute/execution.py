"""One message through its whole life: read, perform, decide, settle, announce.

The only place that decides what becomes of a message. Each step is public and small; the sync and the async form
differ in one step, the call of the function.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ...conf import get_settings
from ...core.limits import MAX_SECONDS
from ...core.log_lines import get_logger
from ...tasks.compat import TaskResult
from ...tasks.envelope import Envelope, Unreadable
from ...tasks.expiry import TaskExpired, has_expired
from ...tasks.interrupts import TaskCancelled
from ...tasks.membership import META, Membership
from ...tasks.options import is_number_of_attempts
from ...tasks.retry import Postpone, RetryPolicy, exponential
from ...tasks.workflow_proofs import ForgedArgument
from ..lease.delivery import Delivery
from ..report.clock import ServerClock
from ..report.error_text import one_line, traceback_of
from ..report.notifications import Notifier
from . import unknown_tasks
from .ack_waiter import AckWaiter
from .interrupt import interrupt
from .invoke import Raised, Result, Returned, aresult_of, result_of
from .outcomes import NOTHING_RETURNED, Cancelled, Dead, Discarded, Outcome, Postponed, Released, RetryIn, Succeeded
from .resolve import Work, find_work
from .time_limit import TimeLimit
from .workflow import WorkflowGone

if TYPE_CHECKING:
    from .batch import Batch

logger = get_logger(__name__)


_encode = json.JSONEncoder(allow_nan=False).encode


class AckSink(Protocol):
    """Takes over what has to reach Redis, to be carried out together with others."""

    clock: ServerClock

    def began(self, execution: Execution) -> None: ...

    def settle(self, execution: Execution, outcome: Outcome) -> None: ...

    def flush_soon(self) -> None: ...

    def abandon(self, execution: Execution) -> None: ...

    def note_interruption(self, execution: Execution) -> None: ...


class Execution:
    """One attempt at one message."""

    #: What the function is called with; set when there is work.
    args: list[Any]
    kwargs: dict[str, Any]

    __slots__ = (
        "acks_each",
        "notifier",
        "args",
        "asked_to_end_with",
        "batch",
        "began_at",
        "delivery",
        "sink",
        "ended_at",
        "envelope",
        "finished_ms",
        "unfinished_as",
        "hard_timeout_s",
        "interrupted",
        "is_async",
        "is_suspect",
        "is_worker_stopping",
        "keep_result_s",
        "kwargs",
        "max_attempts",
        "may_run",
        "meta",
        "path",
        "places",
        "run_us",
        "takes_from",
        "task_result",
        "thread_id",
        "time_limit",
        "unreadable",
        "was_interrupted",
        "work",
    )

    def __init__(self, delivery: Delivery, *, sink: AckSink, notifier: Notifier) -> None:
        self.delivery = delivery
        self.notifier = notifier
        self.sink = sink
        #: When the function was called and when that was over, on the monotonic clock.
        self.began_at = 0.0
        self.ended_at: float | None = None
        #: Server time at which its outcome was known.
        self.finished_ms: float | None = None
        #: How long the function ran; None while it has not.
        self.run_us: int | None = None
        #: The function; None when the message cannot be read.
        self.work: Work | None = None
        #: How the call belongs to a workflow, if that gives it one more argument, before the others, when it runs.
        self.takes_from: Membership | None = None
        self.unreadable: Unreadable | None = None
        #: The dotted path of the function; "" when the message does not say.
        self.path = ""
        #: The task call, as far as the message got as being one.
        self.envelope: Envelope | None = None
        self.max_attempts = delivery.work_queue.settings.max_attempts
        #: What features say about the call; None when it uses none.
        self.meta: dict[str, Any] | None = None
        #: Keys of the limits in which it may hold a place until it ends; see limits.py.
        self.places: tuple[str, ...] = ()
        #: Whether the function is a coroutine function.
        self.is_async = False
        #: Whether a process died while it ran this message: it runs alone, see isolation.py.
        self.is_suspect = delivery.crashes > 0
        self.time_limit: TimeLimit | None = None
        #: After how long the supervisor ends the process for it.
        self.hard_timeout_s: float | None = None
        #: Whether its thread or coroutine waits until Redis knows the outcome.
        self.acks_each = False
        #: On which thread the function runs, and what it is to be interrupted with; see interruption.py.
        self.thread_id: int | None = None
        self.asked_to_end_with: type[BaseException] | None = None
        self.was_interrupted = False
        #: How long the finished result is kept; 0 for messages without one.
        self.keep_result_s = 0
        #: What it runs in together with others; None for functions that take no batches.
        self.batch: Batch | None = None
        #: Set when the worker stops and no longer waits for it.
        self.interrupted = False
        #: Set when the worker begins to stop: the message is given back if its function has not been called.
        self.is_worker_stopping = False
        #: What became of it then, if it is not given back.
        self.unfinished_as: Outcome | None = None
        #: Made when a signal or the task's context first asks for it.
        self.task_result: TaskResult[..., Any] | None = None
        self.read()
        #: Whether an attempt is left. A message whose worker died at each attempt has none at some point.
        self.may_run = self.unreadable is None and delivery.attempt <= self.max_attempts

    def run(self) -> Outcome:
        """Take the message through its whole life, on this thread."""
        self.begin()
        result = self.perform()
        return self.end(result)

    async def arun(self) -> Outcome:
        """See run(); on the event loop."""
        await self.abegin()
        result = await self.aperform()
        return await self.aend(result)

    # -- The steps ----------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Find out what the message asks for."""
        try:
            work = self.work = find_work(self)
        except Unreadable as error:
            self.unreadable, self.envelope = error, error.envelope
            if error.reason == "wrong_arguments" and error.envelope is not None:
                self.path = error.envelope.task  # a task that is declared here, not whatever a message may invent
            self.meta = error.envelope.meta if error.envelope else None  # its lock and tags go with it
            self.keep_result_s = get_settings().tasks.result_ttl_s if error.envelope else 0
            return
        except Exception as error:  # whatever a message holds, it does not stop the worker
            logger.exception("message %s cannot be read", self.delivery.message.id)
            self.unreadable = Unreadable("undecodable", f"cannot be read: {one_line(error)}")
            return
        options = work.options
        self.path, self.is_async, self.keep_result_s = work.path, work.is_async, work.keep_result_s
        self.max_attempts = options.max_attempts or self.max_attempts
        if self.meta is not None and is_number_of_attempts(most := self.meta.get("max_attempts")):
            self.max_attempts = most
        self.hard_timeout_s = options.hard_timeout_s
        if options.ack == "each":
            self.acks_each = True
            self.delivery.ack_waiter = AckWaiter(patience_s=self.delivery.work_queue.lease_s)
        if options.timeout_s is not None and not work.is_async:
            self.time_limit = TimeLimit(options.timeout_s)

    def begin(self) -> None:
        """Note the start and tell it."""
        self.began_at = time.monotonic() if self.batch is None else self.batch.began_at
        self.sink.began(self)
        if self.notifier.starts_are_news and self.may_run:
            self.notifier.started(self)
            self.began_at = time.monotonic()  # what others do with the news is no time of the function

    async def abegin(self) -> None:
        """See begin()."""
        self.began_at = time.monotonic() if self.batch is None else self.batch.began_at
        self.sink.began(self)
        if self.notifier.starts_are_news and self.may_run:
            await self.notifier.astarted(self)
            self.began_at = time.monotonic()

    def perform(self) -> Result:
        """Call the function, unless something ends the attempt before."""
        if self.unreadable is not None:
            return self.unreadable
        if (reason := self.reason_not_to_run()) is not None:
            return Raised(reason)
        return result_of(self)

    async def aperform(self) -> Result:
        """See perform()."""
        if self.unreadable is not None:
            return self.unreadable
        if (reason := self.reason_not_to_run()) is not None:
            return Raised(reason)
        return await aresult_of(self)

    def reason_not_to_run(self) -> BaseException | None:
        """Return what ends the attempt before the function is called; None when nothing does."""
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
        """Turn what happened into what becomes of the message. Does no I/O."""
        if self.delivery.cancelled:
            return Cancelled()  # whatever it still did: its result says so already
        if isinstance(result, Returned):
            return NOTHING_RETURNED if result.value is None else self._decide_return(result.value)
        if isinstance(result, Unreadable):
            if result.reason == unknown_tasks.REASON and (outcome := self._left_to_others(result)) is not None:
                return outcome
            return self.give_up(result.reason, result)
        if self.interrupted:
            return self.unfinished_as or Released()  # the worker stops: no failure of the task
        return self._decide_error(result.error)

    def end(self, result: Result) -> Outcome:
        """Decide, hand the outcome over, tell it."""
        outcome = self.decide(result)
        self.sink.settle(self, outcome)
        if self.notifier.successes_are_news or not isinstance(outcome, Succeeded):
            self.sink.flush_soon()  # who hears the news may take long
            self.notifier.finished(self, outcome)
        return outcome

    async def aend(self, result: Result) -> Outcome:
        """See end()."""
        outcome = self.decide(result)
        self.sink.settle(self, outcome)
        if self.notifier.successes_are_news or not isinstance(outcome, Succeeded):
            self.sink.flush_soon()
            await self.notifier.afinished(self, outcome)
        return outcome

    def interrupt(self, kind: type[BaseException]) -> bool:
        """Interrupt the function on its thread; return whether it runs."""
        return interrupt(self, kind)

    def check_reading(self) -> None:
        """End the attempt while its argument is being read, if it was interrupted or the worker stops."""
        if self.asked_to_end_with is not None:
            raise self.asked_to_end_with
        if self.is_worker_stopping:
            self.interrupted = True
            raise _WorkerStops

    def end_unfinished(self) -> Outcome:
        """Return what becomes of it because the worker ends before it does, and let nothing else come of it.

        One that does not end although it was interrupted has failed; all others are given back.
        """
        call = self if self.batch is None else self.batch.lead
        if call.was_interrupted and call.asked_to_end_with is not None:
            self.unfinished_as = self.decide(Raised(call.asked_to_end_with()))
        self.interrupted = True
        return self.unfinished_as or Released()

    def abandon(self) -> None:
        """Give up on this attempt without an outcome: something other than the function failed."""
        self.sink.abandon(self)

    def give_up(self, reason: str, error: BaseException, traceback: str = "") -> Dead:
        """Return the outcome of a message that no further attempt is made at."""
        kind = Dead if self.dead_letter_queue is not None else Discarded
        return kind(reason, error, traceback)

    # -- What the steps ask -------------------------------------------------------------------------------------------

    @property
    def ack_waiters(self) -> list[AckWaiter]:
        """Return what tells that Redis knows the outcome, if somebody waits for it."""
        return [self.delivery.ack_waiter] if self.delivery.ack_waiter is not None else []

    @property
    def is_settled(self) -> bool:
        """Say whether the outcome was handed over, and nothing but Redis' answer is waited for."""
        return self.finished_ms is not None

    @property
    def task_id(self) -> str:
        """Return the id of the task, which all its attempts share; the message's id where it has none."""
        envelope = self.envelope
        return envelope.id if envelope is not None else self.delivery.message.id

    @property
    def policy(self) -> RetryPolicy:
        """Return what to do about failures."""
        return self.work.options.retry_policy(self.max_attempts) if self.work else RetryPolicy(self.max_attempts)

    @property
    def dead_letter_queue(self) -> str | None:
        """Return where the message goes when it fails for good; None: it is deleted.

        That is the task's own dead-letter queue, or the one of its queue. A message that is in the former already, or
        in one of those that follow on it, goes on to the next one. So no message goes round in a circle.
        """
        options = self.work.options if self.work is not None else None
        following = self.delivery.work_queue.settings.dead_letter
        if options is None or options.dead_letter_queue is None:
            return following
        own = options.named_dead_letters
        is_there = own is not None and self.delivery.work_queue.base_name in get_settings().dead_letter_chain(own)
        return following if is_there else own

    @property
    def will_run(self) -> bool:
        """Say whether the function would be called now."""
        return self.reason_not_to_run() is None

    def _left_to_others(self, error: Unreadable) -> Postponed | None:
        wait_s = unknown_tasks.wait_s(self.delivery, now_ms=self.sink.clock.now_ms())
        if wait_s is None:
            return None
        unknown_tasks.log_once(error)
        return Postponed(wait_s, str(error), has_run=False)

    def _decide_return(self, value: Any) -> Outcome:
        if self.work is None or self.work.task is None:
            return NOTHING_RETURNED
        try:
            encoded = _encode(value)
        except Exception as error:  # TypeError and ValueError, and whatever the methods of its own classes raise
            # Its effect is done; running it again would do it twice and fail again.
            return self.give_up("bad_return_value", TypeError(f"{self.path} returned what JSON cannot hold: {error}"))
        limit = get_settings().tasks.max_result_bytes
        if len(encoded) > limit and (self.keep_result_s or META in (self.meta or ())):
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
        if isinstance(error, Postpone):
            return Postponed(min(max(0.0, error.after_s), MAX_SECONDS), str(error))
        text = traceback_of(error)
        if self.policy.gives_up_on(error):
            return self.give_up("gave_up", error, text)
        if self.delivery.attempt >= self.max_attempts:
            return self.give_up("attempts_used_up", error, text)
        return RetryIn(self._wait_s(error), error, text)

    def _wait_s(self, error: BaseException) -> float:
        try:
            wait_s = float(self.policy.wait_s(self.delivery.attempt, error))
            if not math.isfinite(wait_s):
                raise ValueError(f"{wait_s} is no number of seconds")
            return min(wait_s, MAX_SECONDS)
        except Exception:  # the project's function may raise anything; the message is retried all the same
            wait_s = exponential()(self.delivery.attempt)
            logger.exception("the backoff of %s raised; retrying in %.1f s instead", self.path, wait_s)
            return wait_s


class _WorkerStops(Exception):
    """The worker stops before the function was called."""


class _WorkerDied(Exception):
    def __init__(self, attempts: int) -> None:
        super().__init__(f"the worker died or lost its lease in each of {attempts} attempts")
