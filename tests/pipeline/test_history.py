"""Queries of pages: histories over any range with exact percentiles, failure groups, burn rates, advice."""

import datetime as dt

import pytest

from rsmq_django.core.stats.histogram import Histogram
from rsmq_django.pipeline import history
from rsmq_django.pipeline.models import SloBurn
from rsmq_django.pipeline.publish import publish

from .conftest import DAY, NOON, failure_row, hour_row

pytestmark = pytest.mark.django_db

HOUR = dt.timedelta(hours=1)


def test_history_of_a_day_adds_the_histograms_of_its_hours_and_tasks(lake, write_hours):
    slow = Histogram.of([1_000_000] * 10).counts
    write_hours([hour_row(), hour_row(NOON + HOUR), hour_row(task="shop.bill", attempts=10, dead=5, run_hist=slow)])
    publish(lake)

    (day,) = history.task_history(queue="mail", step="day")
    hours = history.task_history(task="shop.send")

    assert (day.at, day.attempts, day.dead) == (DAY, 210, 5)
    assert day.failure_rate == 5 / 210
    assert day.run_ms(0.5) == pytest.approx(20, rel=0.01)
    assert day.run_ms(0.99) == pytest.approx(1000, rel=0.01)
    assert [point.at for point in hours] == [NOON, NOON + HOUR]


def test_history_keeps_to_its_range_and_may_be_empty(lake, write_hours):
    write_hours([hour_row(), hour_row(NOON + HOUR)])
    publish(lake)

    assert [point.at for point in history.task_history(since=NOON + HOUR)] == [NOON + HOUR]
    assert [point.at for point in history.task_history(until=NOON + HOUR)] == [NOON]
    assert history.task_history(queue="other") == []


def test_totals_begin_with_the_task_that_keeps_workers_busiest(lake, write_hours):
    write_hours([hour_row(), hour_row(task="shop.bill", busy_us=9_000_000)])
    publish(lake)

    assert list(history.task_totals()) == [("mail", "shop.bill"), ("mail", "shop.send")]


def test_failure_groups_are_added_over_days_with_the_latest_sample(lake, write_failures):
    write_failures([failure_row(), failure_row(fingerprint="e" * 32, n=1, queues=["other"])])
    later = NOON + dt.timedelta(days=1)
    write_failures([failure_row(later, sample="no row 8")], later.date())
    publish(lake)

    first, second = history.failure_groups()

    assert (first.n, first.dead, first.first_at, first.last_at, first.sample) == (6, 4, NOON, later, "no row 8")
    assert second.fingerprint == "e" * 32
    assert [group.n for group in history.failure_groups(since=later.date())] == [3]
    assert [group.n for group in history.failure_groups(queue="other")] == [1]


def test_alarm_is_raised_by_the_newest_burn_rate_only():
    row = {"day": DAY, "queue": "mail", "objective": "success", "total": 100, "bad": 2, "target": 0.999}
    SloBurn.objects.create(at=NOON, window="1h", burn_rate=20, budget_left=0.5, **row)
    assert [alarm.limit for alarm in history.burn_alarms()] == [14.4]

    SloBurn.objects.create(at=NOON + HOUR, window="1h", burn_rate=2, budget_left=0.5, **row)

    assert history.burn_alarms() == []
    assert [burn.burn_rate for burn in history.slo_burns()] == [2]


def test_history_of_burn_rates_has_the_highest_of_each_hour_or_day():
    row = {"day": DAY, "queue": "mail", "objective": "success", "total": 100, "bad": 2, "target": 0.999}
    for minutes, rate in ((0, 20.0), (5, 3.0), (60, 2.0)):
        at = NOON + dt.timedelta(minutes=minutes)
        SloBurn.objects.create(at=at, window="1h", burn_rate=rate, budget_left=0.5, **row)
    SloBurn.objects.create(at=NOON - dt.timedelta(days=9), window="1h", burn_rate=9, budget_left=0.5, **row)

    since = NOON - HOUR
    assert history.burn_history(since=since, step="hour") == {("mail", "success"): {"1h": {NOON: 20, NOON + HOUR: 2}}}
    assert history.burn_history(since=since, step="day") == {("mail", "success"): {"1h": {DAY: 20}}}


def test_pages_can_say_how_old_the_history_is(lake, write_hours):
    assert history.freshness().newest_hour is None
    assert history.capacity_advice() == []
    write_hours([hour_row()])
    publish(lake)

    assert history.freshness().newest_hour == NOON
    assert history.freshness().lost == 0
