"""Sums of days, weeks and four weeks: the same figures as the hours, in few rows."""

import datetime as dt
import json
import random
from typing import Any

import pytest

from rsmq_django.core.stats.histogram import Histogram
from rsmq_django.pipeline import history
from rsmq_django.pipeline.days import KEEP_HOURS_DAYS, begin_of, cover
from rsmq_django.pipeline.fields import decode, encode
from rsmq_django.pipeline.models import ALL, PublishedDay, TaskDay, TaskHour
from rsmq_django.pipeline.publish import publish
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.schemas import HOURLY

from .conftest import DAY, NOON, hour_row

pytestmark = pytest.mark.django_db

TASKS = [("mail", "shop.send"), ("mail", "shop.bill"), ("default", "shop.send")]


def some_days(lake: Lake, number: int) -> list[dict[str, Any]]:
    """Write days up to DAY; return their rows."""
    rng, rows = random.Random(7), []
    for back in range(number):
        of_day = []
        for hour in rng.sample(range(24), 2):
            for queue, task in TASKS:
                at = (NOON - dt.timedelta(days=back)).replace(hour=hour)
                count = rng.randrange(1, 50)
                runs = Histogram.of([rng.lognormvariate(10, 1) for _ in range(count)]).counts
                values = {"attempts": count, "dead": rng.randrange(3), "workers": rng.randrange(1, 9), "run_hist": runs}
                of_day.append(hour_row(at, queue=queue, task=task, **values))
        lake.write_day(HOURLY, DAY - dt.timedelta(days=back), of_day)
        rows += of_day
    return rows


def figures(point: history.Point) -> tuple[Any, ...]:
    return point.attempts, point.dead, point.busy_s, point.wait.counts, point.run.counts


def as_point(rows: list[dict[str, Any]]) -> history.Point:
    point = history.Point(DAY)
    for row in rows:
        point.attempts, point.dead = point.attempts + row["attempts"], point.dead + row["dead"]
        point.busy_s += row["busy_us"] / 1e6
        point.wait.add_counts(dict(row["wait_hist"]))
        point.run.add_counts(dict(row["run_hist"]))
    return point


@pytest.mark.parametrize(
    ("counts", "text"),
    [({}, ""), ({500: 12}, "500:12"), ({"502": 3, "500": 12, "501": 0}, "500:12,,3"), ({0: 1}, "0:1")],
)
def test_histogram_is_a_short_text(counts: dict[Any, int], text: str):
    numbers = {int(bucket): count for bucket, count in counts.items() if count}

    assert encode(counts) == text and decode(text) == numbers
    assert decode(json.dumps(counts)) == numbers, "of an earlier version"


@pytest.mark.parametrize("length", [7, 28])
def test_rows_cover_a_range_once_with_the_longest_that_fit(length: int):
    begin = dt.date(2026, 1, 1)
    for days in (0, 1, 6, 7, 30, 364):
        end = begin + dt.timedelta(days=days)
        parts = list(cover(begin, end))

        covered = [day + dt.timedelta(days=each) for number, day in parts for each in range(number)]
        assert covered == [begin + dt.timedelta(days=each) for each in range(days)]
        assert all(begin_of(day, number) == day for number, day in parts)
        assert len(parts) <= 13 + 2 * (3 + 6)
    assert begin_of(dt.date(2026, 11, 25), 7) == dt.date(2026, 11, 23), "a Monday"
    assert begin_of(begin_of(DAY, length), length) == begin_of(DAY, length)


def test_totals_of_any_range_are_those_of_its_hours_and_read_few_rows(lake: Lake, django_assert_num_queries: Any):
    rows = some_days(lake, 60)
    publish(lake)

    for first, last in ((0, 59), (3, 40), (10, 11), (0, 0), (5, 33)):
        since, until = (
            NOON.replace(hour=0) - dt.timedelta(days=last),
            NOON.replace(hour=0) + dt.timedelta(days=1 - first),
        )
        with django_assert_num_queries(2):
            found = history.task_totals(since=since, until=until)
        for queue, task in TASKS:
            own = [row for row in rows if (row["queue"], row["task"]) == (queue, task) and since <= row["hour"] < until]
            assert figures(found[queue, task]) == figures(as_point(own)), (first, last)
        assert len(found) == 3
    assert figures(history.task_totals()["mail", "shop.bill"])[0] == sum(
        row["attempts"] for row in rows if row["task"] == "shop.bill"
    )
    assert list(history.task_totals(queue="default")) == [("default", "shop.send")]
    assert history.task_totals(since=NOON + dt.timedelta(days=9)) == {}


def test_days_of_all_tasks_of_a_queue_and_of_a_task_are_sums_of_their_hours(lake: Lake):
    rows = [row for row in some_days(lake, 3) if row["hour"].date() == DAY]
    publish(lake)

    for queue, task in ((None, None), ("mail", None), (None, "shop.send"), ("mail", "shop.send")):
        *_, newest = history.task_history(queue=queue, task=task, step="day")
        own = [row for row in rows if queue in (None, row["queue"]) and task in (None, row["task"])]
        assert (newest.at, figures(newest)) == (DAY, figures(as_point(own))), (queue, task)


def test_changed_day_and_removed_day_change_their_sums(lake: Lake, write_hours: Any):
    write_hours([hour_row()])
    publish(lake)
    write_hours([hour_row(attempts=150), hour_row(task="shop.bill", attempts=7)])
    publish(lake)

    weeks = TaskDay.objects.filter(days=7).values_list("day", "task", "attempts")
    assert sorted(weeks) == [(begin_of(DAY, 7), "shop.bill", 7), (begin_of(DAY, 7), "shop.send", 150)]
    assert TaskDay.objects.get(days=1, queue=ALL).attempts == 157
    lake.expire(DAY + dt.timedelta(days=1000))
    publish(lake)
    assert not TaskDay.objects.exists()


def test_hours_leave_the_database_after_90_days_and_days_stay(lake: Lake, write_hours: Any):
    old = NOON - dt.timedelta(days=KEEP_HOURS_DAYS + 1)
    write_hours([hour_row(old)], day=old.date())
    publish(lake)
    assert TaskHour.objects.get().hour == old

    write_hours([hour_row()])
    publish(lake)
    again = publish(lake, since=old.date())

    assert TaskHour.objects.get().hour == NOON
    assert (again.days, publish(lake).days) == (2, 0)
    assert [point.at for point in history.task_history(step="day")] == [old.date(), DAY]
    assert history.task_totals()["mail", "shop.send"].attempts == 200


def test_upgrade_lets_the_next_publishing_add_up_all_days(lake: Lake, write_hours: Any):
    from importlib import import_module

    from django.apps import apps
    from django.db import connection

    write_hours([hour_row()])
    publish(lake)
    TaskDay.objects.all().delete()

    migration = import_module("rsmq_django.pipeline.migrations.0003_task_days")
    migration.publish_hours_again(apps, connection.schema_editor())

    assert publish(lake).days == PublishedDay.objects.filter(table="hourly").count() == 1
    assert TaskDay.objects.filter(days=28).count() == 1
