"""Capacity, burn rates, anomalies: plain Python, compared with independent computations."""

import datetime as dt
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsmq_django.core.stats.histogram import Histogram
from rsmq_django.spark.anomalies import HourMetrics, find_anomalies
from rsmq_django.spark.burn import Objective, budget_left, burn, read_objectives
from rsmq_django.spark.capacity import Demand, advise, arrival_rate_per_s, slots_needed
from rsmq_django.spark.demand import workers_at_once
from rsmq_django.spark.errors import PipelineError

# -- Capacity ----------------------------------------------------------------------------------------------------------


def share_that_waits_longer(slots: int, *, arrivals_per_s: float, mean_run_s: float, target_s: float) -> float:
    """Simulate a queue with exponential run times, and return the share of messages that wait too long."""
    chance = random.Random(7)
    free_at, now, late = [0.0] * slots, 0.0, 0
    count = 60_000
    for _ in range(count):
        now += chance.expovariate(arrivals_per_s)
        first = min(range(slots), key=free_at.__getitem__)
        start = max(now, free_at[first])
        late += start - now > target_s
        free_at[first] = start + chance.expovariate(1 / mean_run_s)
    return late / count


@pytest.mark.slow
@pytest.mark.parametrize(("arrivals_per_s", "target_s"), [(1.8, 0.5), (9.0, 2.0)])
def test_advised_slots_are_enough_and_one_less_is_not(arrivals_per_s: float, target_s: float):
    needed = slots_needed(arrivals_per_s, 1.0, target_s)
    simulated = {"arrivals_per_s": arrivals_per_s, "mean_run_s": 1.0, "target_s": target_s}

    assert share_that_waits_longer(needed, **simulated) <= 0.055
    assert share_that_waits_longer(needed - 1, **simulated) > 0.05


@given(st.floats(0.01, 50), st.floats(0.01, 10), st.floats(0.01, 30), st.floats(0, 16))
def test_more_load_a_shorter_target_or_wilder_run_times_never_need_fewer_slots(arrivals, mean_s, target_s, cv_squared):
    def needed(**changes: float) -> int | None:
        given = {"arrivals": arrivals, "target_s": target_s, "cv_squared": cv_squared} | changes
        return slots_needed(
            given["arrivals"], mean_s, given["target_s"], run_cv_squared=given["cv_squared"], most=10**6
        )

    assert needed() > arrivals * mean_s
    assert needed() <= needed(arrivals=arrivals * 1.5)
    assert needed() <= needed(target_s=target_s / 2)
    assert needed() <= needed(cv_squared=cv_squared + 1)


DEMAND = Demand("mail", 100_000, 5.0, 0.4, 1.0, 1000.0, 1.1, 8)


def test_advice_shows_what_it_was_computed_from():
    advice = advise(DEMAND, wait_target_s=1.0)

    assert (advice.load, advice.slots_needed, advice.silent_because) == (2.0, 3, "")
    assert advice.demand is DEMAND


@pytest.mark.parametrize(
    ("changed", "said"), [({"attempts_per_hour": 50}, "are needed"), ({"run_time_spread": 3}, "not one class")]
)
def test_there_is_no_advice_where_it_would_be_a_guess(changed, said):
    from dataclasses import replace

    advice = advise(replace(DEMAND, **changed), wait_target_s=1.0)

    assert advice.slots_needed is None
    assert said in advice.silent_because


def test_there_is_no_number_where_messages_wait_although_there_are_enough_slots():
    from dataclasses import replace

    waiting = advise(replace(DEMAND, wait_s=31.2), wait_target_s=1.0)
    short_of_slots = advise(replace(DEMAND, wait_s=31.2, slots_seen=2), wait_target_s=1.0)

    assert waiting.slots_needed is None
    assert waiting.silent_because.startswith("95 % of the messages waited up to 31.2 s, although there were enough")
    assert len(waiting.silent_because) < 200, "the database has room for it"
    assert (short_of_slots.slots_needed, short_of_slots.silent_because) == (3, "")
    assert advise(replace(DEMAND, wait_s=0.9), wait_target_s=1.0).slots_needed == 3


def test_workers_that_are_started_again_count_once():
    hourly = [(hour * 12, hour * 12 + 12) for hour in range(24)]

    assert workers_at_once(hourly) == 1
    assert workers_at_once([*hourly, (0, 288)]) == 2
    assert workers_at_once([(0, 1000), *[(500, 510)] * 8]) == 1, "a short peak"
    assert workers_at_once([(0, 1000), *[(500, 600)] * 8]) == 9
    assert workers_at_once([(7, 7), (7, 7)]) == 2
    assert workers_at_once([]) == 0


def test_rate_of_arrivals_counts_the_quiet_times_too():
    busy = dict.fromkeys(range(10), 300)

    assert arrival_rate_per_s(busy, slots=10) == 1.0
    assert arrival_rate_per_s(busy, slots=1000) == 0.0
    assert arrival_rate_per_s({}, slots=0) == 0.0


# -- Objectives --------------------------------------------------------------------------------------------------------


def test_objectives_are_read_with_their_limits():
    success, wait = read_objectives({"mail": {"success": 0.999, "wait_p95_ms": 2000}})

    assert success == Objective("mail", "success", 0.999)
    assert wait == Objective("mail", "wait_p95_ms", 0.95, 2_000_000)


@pytest.mark.parametrize("wrong", [{"success": 1.5}, {"sucess": 0.9}, {"wait_p95_ms": -1}])
def test_objective_that_is_not_understood_is_named(wrong):
    with pytest.raises(PipelineError, match=f"{next(iter(wrong))!r} .* of queue 'mail'"):
        read_objectives({"mail": wrong})


def test_burn_rate_is_one_when_the_budget_is_used_up_exactly():
    success = Objective("mail", "success", 0.999)

    assert burn(success, "1h", total=10_000, bad=10).burn_rate == pytest.approx(1)
    assert burn(success, "1h", total=0, bad=0).burn_rate == 0
    assert budget_left(success, total=10_000, bad=15) == pytest.approx(-0.5)


# -- Anomalies ---------------------------------------------------------------------------------------------------------

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


def hour_row(at: dt.datetime, **values) -> HourMetrics:
    row = {"hour": at, "queue": "mail", "task": "send", "attempts": 1000, "retried": 0, "dead": 0, "lost": 0}
    return HourMetrics.of(row | {"wait_hist": {}, "run_hist": Histogram.of([20_000] * 10).counts} | values)


def test_hour_unlike_the_same_hour_of_other_days_is_found():
    chance = random.Random(7)
    history = [hour_row(NOON - dt.timedelta(days=n), attempts=1000 + chance.randint(-20, 20)) for n in range(1, 15)]

    usual = find_anomalies([*history, hour_row(NOON, attempts=1010)], [NOON.date()])
    odd = find_anomalies([*history, hour_row(NOON, attempts=3000)], [NOON.date()])

    assert usual == []
    assert [(item.metric, item.value, item.n) for item in odd] == [("attempts", 3000.0, 3000)]
    assert odd[0].z > 6


def test_hour_is_compared_with_the_same_weekday_once_there_are_weeks():
    saturdays_are_quiet = [
        hour_row(at, attempts=100 if at.weekday() == 5 else 1000 + at.day)
        for at in (NOON - dt.timedelta(days=n) for n in range(1, 50))
    ]
    saturday = NOON + dt.timedelta(days=1)

    found = find_anomalies([*saturdays_are_quiet, hour_row(saturday, attempts=100)], [saturday.date()])

    assert found == []


def test_first_failures_ever_are_found_and_too_few_attempts_say_nothing():
    history = [hour_row(NOON - dt.timedelta(days=n)) for n in range(1, 15)]

    found = find_anomalies([*history, hour_row(NOON, dead=100)], [NOON.date()])
    quiet = find_anomalies([*history, hour_row(NOON, attempts=20, dead=20)], [NOON.date()])

    assert [(item.metric, item.z) for item in found] == [("failure_rate", math.inf)]
    assert quiet == []
