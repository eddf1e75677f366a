"""The possible outcomes of an attempt, and the settlement of one. The list is closed: all else follows from it."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.keys import result_key
from ..core.transport.call import Argument
from ..tasks.envelope import Envelope
from .delivery import AttemptState, Delivery


@dataclass(slots=True)  # not frozen: creating a frozen one takes half a microsecond longer
class Succeeded:
    """The function returned: the message is deleted."""

    #: The return value as JSON; "null" when no result is kept.
    value: str = "null"


#: The outcome of most functions. It is never changed, so all of them share it.
NOTHING_RETURNED = Succeeded()


@dataclass(frozen=True, slots=True)
class RetryIn:
    """The attempt failed and another one follows after `after_s` seconds."""

    after_s: float
    error: BaseException
    traceback: str


@dataclass(frozen=True, slots=True)
class Postponed:
    """The message becomes visible again after `after_s` seconds, and the run does not count as an attempt."""

    after_s: float
    why: str = ""
    #: False when its limits did not let it start, or its task is not known here: no run is announced then.
    has_run: bool = True


@dataclass(frozen=True, slots=True)
class Dead:
    """No further attempt: the message moves to the dead-letter queue with a reason."""

    #: One of: undecodable, too_long, unknown_version, unknown_task, wrong_queue, wrong_arguments, gave_up,
    #: attempts_used_up, worker_died, crashed, bad_return_value, expired, workflow_gone, missing_object, and those of
    #: tasks/sealing.py.
    reason: str
    error: BaseException
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Discarded(Dead):
    """No further attempt, and no dead-letter queue: the message is deleted."""


@dataclass(frozen=True, slots=True)
class Released:
    """The message is given back untouched: visible at once, and the delivery counts as no attempt."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The task was cancelled, which removed the message and wrote the result: nothing is left to do."""


Outcome = Succeeded | RetryIn | Dead | Released | Cancelled | Postponed


@dataclass(slots=True)
class Settlement:
    """The outcome of a message, to be sent to Redis."""

    execution: AttemptState
    outcome: Outcome

    @property
    def worker_id(self) -> str:
        """Return the id of the worker that ran it."""
        return self.execution.notifier.worker_id

    @property
    def delivery(self) -> Delivery:
        """Return the message to settle."""
        return self.execution.delivery

    @property
    def envelope(self) -> Envelope | None:
        """Return the task call; None when the message could not be decoded as one."""
        return self.execution.envelope

    @property
    def keep_result_s(self) -> int:
        """Return how long the finished result is kept; 0 for messages without one."""
        return self.execution.keep_result_s

    @property
    def result_keys(self) -> tuple[str, ...]:
        """Return the key of the result record, or nothing when none is kept."""
        envelope = self.execution.envelope
        if envelope is None or not self.execution.keep_result_s:
            return ()
        return (result_key(self.delivery.work_queue.queue.client.namespace, envelope.id),)

    def record(self, ttl_s: int, **fields: str) -> tuple[Argument, ...]:
        """Return the arguments of write_result() in parts/results.lua; empty when no result is kept."""
        if not self.result_keys:
            return ()
        fields |= {"queue": self.delivery.work_queue.name, "message": self.delivery.message.id}
        return self.record_of_run(ttl_s, **fields)

    def record_of_run(self, ttl_s: int, **fields: str) -> tuple[Argument, ...]:
        """See record(); without the fields that the sender has written."""
        attempt, words = self.delivery.attempt, [f"worker:{self.delivery.attempt}", self.worker_id]
        if self.delivery.started_ms is not None:  # otherwise it ran in a process that is gone, which noted the start
            started_ms = f"{self.delivery.started_ms:.3f}"
            words += ("attempted_ms", started_ms)
            if attempt == 1:
                words += ("started_ms", started_ms)
        for field in fields.items():
            words += field
        return ttl_s, len(words), *words
