"""Retry policies: whether and when a failed task runs again. Pure: no clock, no Redis, no Django.

A backoff is any function from the number of the attempt that failed (1, 2, 3 ...) to seconds; or, in the form proposed
for Django, a function from the exception and the task's result to seconds, or to None for no further attempt.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeGuard

from ..core.numbers import is_number

AttemptBackoff = Callable[[int], float]
#: From the exception and the result of the call, with this attempt and its error; None: no further attempt.
ResultBackoff = Callable[[BaseException, Any], float | None]
Backoff = AttemptBackoff | ResultBackoff


def _check_seconds(example: str, after_s: object) -> None:
    if not is_number(after_s):
        name = example.partition("(")[0]
        raise TypeError(f"after_s of {name} is {after_s!r}; it must be a number of seconds, such as {example}")


def _check_reason(reason: object) -> None:
    if isinstance(reason, int | float | timedelta):  # Postpone(60) is right
        raise TypeError("the first argument of Retry is its reason; write Retry(after_s=60)")


class Retry(Exception):
    """Raised by a task to be run again after `after_s` seconds; it counts as one of its attempts.

    Without `after_s` the task's backoff decides.
    """

    def __init__(self, reason: str = "", *, after_s: float | None = None) -> None:
        _check_reason(reason)
        if after_s is not None:
            _check_seconds("Retry(after_s=60)", after_s)
        super().__init__(reason or "the task asked to be run again")
        self.after_s = after_s


class Postpone(Exception):
    """Raised by a task that cannot do its work now: it runs again after `after_s` seconds, and no attempt counts."""

    def __init__(self, after_s: float, why: str = "") -> None:
        _check_seconds("Postpone(60)", after_s)
        super().__init__(why or f"the task asked to be run {after_s:g} s later")
        self.after_s = after_s


class TaskTimeout(BaseException):
    """Raised inside a function that runs longer than its `timeout_s`; counts as a failed attempt.

    Not an `Exception`, so that a task which catches those does not continue by mistake. For `retry_on` and `give_up_on`
    it counts as one.
    """

    def __init__(self, text: str = "it ran longer than its timeout_s") -> None:
        super().__init__(text)


def _check(name: str, value: object, *, at_least: int) -> None:
    if not is_number(value) or not value >= at_least:
        raise ValueError(f"{name} of a backoff is {value!r}; it must be a number of at least {at_least}")


def wrong_backoff(backoff: object) -> str:
    """Return an explanation for a backoff that is not a function."""
    way = f"; write fixed({backoff!r})" if isinstance(backoff, (int, float)) else ", such as fixed(60) or exponential()"
    return f"backoff is {backoff!r}; it must be a function of the attempt that returns seconds{way}"


def refuse_result_backoff(backoff: Backoff, what: str) -> None:
    """Raise ValueError for a backoff that takes a result, where a message has none."""
    if takes_result(backoff):
        raise ValueError(
            f"the backoff of {what} takes an exception and a result, and its messages have no result; write a function "
            "of the attempt, such as exponential()"
        )


def takes_result(backoff: Backoff) -> TypeGuard[ResultBackoff]:
    """Return whether a backoff takes the exception and the result: it has two parameters without a default."""
    if isinstance(backoff, exponential):
        return False
    try:
        parameters = inspect.signature(backoff).parameters.values()
    except (TypeError, ValueError):  # some functions written in C
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is each.empty for each in parameters) == 2


def fixed(seconds: float) -> AttemptBackoff:
    """Wait the same number of seconds after each failure."""
    _check("seconds", seconds, at_least=0)
    return lambda attempt: seconds


@dataclass(frozen=True, slots=True)
class exponential:
    """Wait `first_s`, then `factor` times longer after each failure, at most `max_s`.

    Up to `jitter` of the wait (a quarter by default) is added at random, so that tasks that failed together are not
    retried together.
    """

    first_s: float = 2.0
    factor: float = 2.0
    max_s: float = 3600.0
    jitter: float = 0.25

    def __post_init__(self) -> None:
        _check("first_s", self.first_s, at_least=0)
        _check("factor", self.factor, at_least=1)
        _check("max_s", self.max_s, at_least=0)
        _check("jitter", self.jitter, at_least=0)

    def __call__(self, attempt: int) -> float:
        """Return the seconds to wait after a failed attempt."""
        try:
            wait_s = min(self.max_s, self.first_s * self.factor ** (attempt - 1))
        except OverflowError:  # the thousandth power of two
            wait_s = self.max_s
        return wait_s * (1 + random.random() * self.jitter)  # noqa: S311 - spreads load, keeps no secret


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry policy of a task."""

    #: Maximum number of attempts; 1 means no retry.
    max_attempts: int
    backoff: Backoff = exponential()
    #: Only these exceptions are retried.
    retry_on: tuple[type[BaseException], ...] = (BaseException,)
    #: These are never retried, even where retry_on has a base class of theirs.
    give_up_on: tuple[type[BaseException], ...] = ()

    def gives_up_on(self, error: BaseException) -> bool:
        """Return whether this error, or its cause, makes further attempts pointless."""
        if isinstance(error, Retry):
            return False
        cause: BaseException | None = error
        seen: set[int] = set()  # `raise error from error` is a cycle
        while cause is not None and id(cause) not in seen:
            if _is_one_of(cause, self.give_up_on):
                return True
            seen.add(id(cause))
            cause = cause.__cause__
        return not _is_one_of(error, self.retry_on)

    def wait_s(self, attempt: int, error: BaseException, result: Callable[[], Any] | None = None) -> float | None:
        """Return how long to wait after failed attempt number `attempt`; None: the backoff wants no other attempt.

        `result` returns the result of the call, for a backoff that takes it.
        """
        wait_s = error.after_s if isinstance(error, Retry) else None
        if wait_s is None:
            backoff: Any = self.backoff
            if takes_result(self.backoff):
                wait_s = backoff(error, result() if result is not None else None)
                if wait_s is None:
                    return None
            else:
                wait_s = backoff(attempt)
        return max(0.0, float(wait_s))


def _is_one_of(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    return isinstance(error, kinds) or (isinstance(error, TaskTimeout) and Exception in kinds)
