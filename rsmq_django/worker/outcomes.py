"""The possible outcomes of an attempt. The list is closed: everything else follows from the outcome."""

from __future__ import annotations

from dataclasses import dataclass


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
    #: attempts_used_up, worker_died, crashed, bad_return_value, expired, workflow_gone, and those of tasks/sealing.py.
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
