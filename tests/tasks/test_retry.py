"""Retry policies are pure: when a failed task runs again, and when it does not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rsmq_django.tasks import Postpone, Retry, exponential, fixed
from rsmq_django.tasks.retry import RetryPolicy, TaskTimeout, wrong_backoff

OPTIONS = ("first_s", "factor", "max_s", "jitter")


def policy(**options) -> RetryPolicy:
    return RetryPolicy(max_attempts=5, **options)


def caused_by(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


# -- Backoffs ------------------------------------------------------------------------------------------------------


def test_fixed_backoff_is_the_same_after_each_failure():
    backoff = fixed(3)

    assert [backoff(attempt) for attempt in (1, 2, 100)] == [3, 3, 3]


def test_exponential_backoff_grows_by_its_factor_up_to_its_maximum():
    backoff = exponential(first_s=1, factor=3, max_s=20, jitter=0)

    assert [backoff(attempt) for attempt in (1, 2, 3, 4, 5)] == [1, 3, 9, 20, 20]


def test_exponential_backoff_never_overflows():
    backoff = exponential(first_s=1, factor=2.0, max_s=300, jitter=0)

    assert backoff(100_000) == 300


def test_jitter_adds_up_to_its_share_and_differs_from_call_to_call():
    backoff = exponential(first_s=100, factor=1, max_s=100, jitter=0.25)

    waits = [backoff(1) for _ in range(200)]

    assert all(100 <= wait <= 125 for wait in waits)
    assert len(set(waits)) > 100


# -- How long to wait ----------------------------------------------------------------------------------------------


def test_failed_attempt_is_retried_after_the_backoff():
    counting = policy(backoff=lambda attempt: attempt * 10)

    assert counting.wait_s(3, ValueError()) == 30


def test_retry_with_a_time_overrules_the_backoff():
    patient = policy(backoff=fixed(60))

    assert patient.wait_s(1, Retry(after_s=5)) == 5
    assert patient.wait_s(1, Retry(after_s=0)) == 0


def test_retry_without_a_time_leaves_it_to_the_backoff():
    assert policy(backoff=fixed(60)).wait_s(1, Retry("not yet")) == 60


def test_wait_is_never_negative():
    assert policy(backoff=lambda attempt: -5.0).wait_s(1, ValueError()) == 0
    assert policy().wait_s(1, Retry(after_s=-5)) == 0


def test_retry_is_logged_with_its_reason():
    assert str(Retry("gate not known yet", after_s=1)) == "gate not known yet"
    assert "asked to be run again" in str(Retry(after_s=1))


# -- Whether to try again ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError(), SystemExit(), KeyboardInterrupt(), MemoryError()])
def test_every_exception_is_retried_by_default(error):
    assert not policy().gives_up_on(error)


def test_only_the_named_exceptions_are_retried():
    picky = policy(retry_on=(OSError,))

    assert not picky.gives_up_on(ConnectionResetError())
    assert picky.gives_up_on(ValueError())


def test_named_exceptions_are_given_up_at_once_even_below_a_retried_class():
    picky = policy(retry_on=(OSError,), give_up_on=(FileNotFoundError,))

    assert picky.gives_up_on(FileNotFoundError())
    assert not picky.gives_up_on(PermissionError())


def test_exception_caused_by_a_hopeless_one_is_hopeless():
    picky = policy(give_up_on=(ValueError,))
    wrapped = caused_by(RuntimeError("wrapped"), caused_by(OSError(), UnicodeError()))

    assert picky.gives_up_on(wrapped)


def test_exception_raised_while_another_was_handled_is_judged_alone():
    picky = policy(give_up_on=(ValueError,))
    error = OSError()
    error.__context__ = ValueError()

    assert not picky.gives_up_on(error)


def test_circle_of_causes_comes_to_an_end():
    first, second, own_cause = OSError(), RuntimeError(), OSError()
    first.__cause__, second.__cause__, own_cause.__cause__ = second, first, own_cause
    picky = policy(give_up_on=(ValueError,))

    assert not picky.gives_up_on(first)
    assert not picky.gives_up_on(own_cause)


def test_asking_to_be_run_again_is_never_hopeless():
    picky = policy(retry_on=(OSError,), give_up_on=(ValueError, Exception))

    assert not picky.gives_up_on(Retry())
    assert not picky.gives_up_on(caused_by(Retry(), ValueError()))


def test_longest_wait_of_a_backoff_may_be_less_than_a_second():
    backoff = exponential(max_s=0.5, jitter=0)

    assert [backoff(attempt) for attempt in (1, 2, 1000)] == [0.5, 0.5, 0.5]
    assert exponential(max_s=0, jitter=0)(3) == 0


@pytest.mark.parametrize("value", [True, "60", None, -1, float("nan")])
@pytest.mark.parametrize("make", [fixed, *[lambda value, n=n: exponential(**{n: value}) for n in OPTIONS]])
def test_a_backoff_of_impossible_numbers_is_refused_when_it_is_created(make: Any, value: object):
    with pytest.raises(ValueError, match=r"of a backoff is .*; it must be a number of at least [01]"):
        make(value)


def test_a_backoff_may_be_nothing_and_does_not_shrink():
    assert fixed(0)(1) == exponential(first_s=0, max_s=0, jitter=0)(1) == 0
    assert exponential(factor=1, jitter=0)(9) == 2
    with pytest.raises(ValueError, match="factor of a backoff is 0.9; it must be a number of at least 1"):
        exponential(factor=0.9)


def test_default_backoff_doubles_from_two_seconds_to_an_hour_and_adds_up_to_a_quarter(
    monkeypatch: pytest.MonkeyPatch,
):
    for share, factor in ((0.0, 1), (1.0, 1.25)):
        monkeypatch.setattr("random.random", lambda share=share: share)

        assert [exponential()(attempt) for attempt in (1, 2, 3, 50)] == [factor * wait for wait in (2, 4, 8, 3600)]


@pytest.mark.parametrize("after_s", [True, "60", timedelta(minutes=1)])
def test_retry_after_no_number_is_refused(after_s: Any):
    with pytest.raises(TypeError, match="after_s of Retry is .*; it must be a number of seconds"):
        Retry(after_s=after_s)


@pytest.mark.parametrize("seconds", [60, 1.5, timedelta(minutes=1)])
def test_seconds_in_the_place_of_a_reason_are_refused(seconds: Any):
    with pytest.raises(TypeError, match=r"the first argument of Retry is its reason; write Retry\(after_s=60\)"):
        Retry(seconds)


@pytest.mark.parametrize("after_s", [True, "60", None])
def test_postponing_by_no_number_is_refused(after_s: Any):
    with pytest.raises(TypeError, match=r"must be a number of seconds, such as Postpone\(60\)"):
        Postpone(after_s)


@pytest.mark.parametrize(
    ("backoff", "way"),
    [(5, "; write fixed(5)"), (0.5, "; write fixed(0.5)"), ("5", ", such as fixed(60) or exponential()")],
)
def test_a_backoff_that_is_not_a_function_is_explained(backoff: object, way: str):
    text = f"backoff is {backoff!r}; it must be a function of the attempt that returns seconds"

    assert wrong_backoff(backoff) == text + way


def test_a_timeout_counts_as_an_exception_and_an_exit_of_the_process_does_not():
    picky = policy(give_up_on=(Exception,))

    assert picky.gives_up_on(TaskTimeout())
    assert not picky.gives_up_on(SystemExit())
    assert not policy(give_up_on=(ValueError,)).gives_up_on(TaskTimeout())
    assert not policy(retry_on=(Exception,)).gives_up_on(TaskTimeout())
    assert policy(retry_on=(Exception,)).gives_up_on(SystemExit())
