"""Lake -> database: the tables equal the files, after any number of runs."""

import datetime as dt
from typing import Any

import pytest
from django.db import IntegrityError

from rsmq_django.pipeline import days
from rsmq_django.pipeline import publish as publishing
from rsmq_django.pipeline.history import pipeline_runs
from rsmq_django.pipeline.models import Anomaly, CapacityAdvice, FailureGroup, PipelineRun, PublishedDay, TaskHour
from rsmq_django.pipeline.publish import publish
from rsmq_django.spark.errors import PipelineError
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.runs import StepRun, as_row, record, save
from rsmq_django.spark.schemas import ANOMALIES, CAPACITY, RUNS

from .conftest import DAY, NOON, failure_row, hour_row

pytestmark = pytest.mark.django_db


def test_published_days_are_in_the_database_once_and_keep_their_keys(lake: Lake, write_hours, write_failures):
    write_hours([hour_row(), hour_row(task="shop.bill")])
    write_failures([failure_row()])

    first = publish(lake)
    keys = set(TaskHour.objects.values_list("pk", flat=True))
    again = publish(lake)
    forced = publish(lake, since=DAY)

    assert (first.days, first.rows) == (2, 3)
    assert (again.days, forced.days) == (0, 2)
    assert set(TaskHour.objects.values_list("pk", flat=True)) == keys
    assert FailureGroup.objects.get().queues == ["mail"]
    assert TaskHour.objects.filter(task="shop.send").get().hour == NOON


def test_day_that_changed_replaces_its_rows_and_no_others(lake: Lake, write_hours):
    write_hours([hour_row(), hour_row(task="shop.bill")])
    write_hours([hour_row(NOON + dt.timedelta(days=1))], DAY + dt.timedelta(days=1))
    publish(lake)

    write_hours([hour_row(attempts=150), hour_row(task="shop.ship")])
    result = publish(lake)

    assert result.days == 1
    assert dict(TaskHour.objects.filter(day=DAY).values_list("task", "attempts")) == {
        "shop.send": 150,
        "shop.ship": 100,
    }
    assert TaskHour.objects.count() == 3


def test_day_that_expired_in_the_lake_leaves_the_database(lake: Lake, write_hours):
    write_hours([hour_row()])
    publish(lake)

    lake.expire(DAY + dt.timedelta(days=1000))
    result = publish(lake)

    assert result.removed == 1
    assert TaskHour.objects.count() == PublishedDay.objects.count() == 0


def test_dry_run_changes_nothing(lake: Lake, write_hours):
    write_hours([hour_row()])

    result = publish(lake, dry_run=True)

    assert result.days == 1
    assert TaskHour.objects.count() == 0


def test_values_that_databases_cannot_store_are_adapted(lake: Lake, write_hours, write_failures):
    write_hours([hour_row(task="x" * 500)])
    write_failures([failure_row(sample="zero \0 byte", sample_task_id=None)])
    odd = {
        "hour": NOON,
        "queue": "mail",
        "task": "t",
        "metric": "failure_rate",
        "value": 0.1,
        "median": 0.0,
        "mad": 0.0,
    }
    lake.write_day(ANOMALIES, DAY, [odd | {"z": float("inf"), "n": 100}])
    silent = {"queue": "mail", "attempts": 5, "arrivals_per_s": 0.1, "mean_run_s": 1.0, "run_cv_squared": 1.0}
    silent |= {"load": 0.1, "slots_seen": 8, "slots_needed": None, "wait_target_s": 5.0, "quantile": 0.95}
    lake.write_day(CAPACITY, DAY, [silent | {"silent_because": "5 attempts an hour"}])

    publish(lake)

    assert len(TaskHour.objects.get().task) == 200
    assert FailureGroup.objects.get().sample == "zero \ufffd byte"
    assert Anomaly.objects.get().z is None
    assert CapacityAdvice.objects.get().slots_needed is None


def test_zero_bytes_which_postgresql_does_not_store_are_replaced(lake: Lake, write_hours, write_failures):
    def fail(run):
        raise RuntimeError("zero \0 byte")

    write_hours([hour_row(task="shop.\0")])
    write_failures([failure_row(task="a\0", error_type="b\0", sample_task_id="c\0", queues=["d\0"])])
    record(lake, "rollup", fail)

    publish(lake)

    assert TaskHour.objects.get().task == "shop.\ufffd"
    group = FailureGroup.objects.get()
    assert [group.task, group.error_type, group.sample_task_id, *group.queues] == [f"{name}\ufffd" for name in "abcd"]
    assert PipelineRun.objects.get().error == "RuntimeError: zero \ufffd byte"


def test_day_is_published_again_when_another_process_has_inserted_rows_of_its_week(
    lake: Lake, write_hours, monkeypatch: pytest.MonkeyPatch
):
    write_hours([hour_row()])
    attempts: list[dt.date] = []

    def at_once(database: str, day: dt.date, hours: Any) -> None:
        attempts.append(day)
        if len(attempts) == 1:
            raise IntegrityError("duplicate key value violates unique constraint")
        days.write_day(database, day, hours)

    monkeypatch.setattr(publishing, "write_day", at_once)

    assert publish(lake).rows == 1
    assert attempts == [DAY, DAY]
    assert TaskHour.objects.count() == 1


def test_day_of_the_future_does_not_remove_the_hours_of_today(lake: Lake, write_hours):
    today = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0)
    for at in (today, today + dt.timedelta(days=1000)):  # the clock of Redis was ahead for some time
        write_hours([hour_row(at)], day=at.date())

    publish(lake)

    assert TaskHour.objects.filter(hour=today).exists()


def test_task_paths_that_differ_after_the_room_of_a_column_are_two_rows(lake: Lake, write_hours):
    paths = ["shop." + "x" * 500 + end for end in ("a", "b")]
    write_hours([hour_row(task=path, attempts=number) for number, path in enumerate(paths, 1)])

    for _ in range(2):
        publish(lake, since=DAY)

    rows = TaskHour.objects.order_by("attempts")
    assert [(row.attempts, len(row.task), row.task[:191]) for row in rows] == [
        (1, 200, paths[0][:191]),
        (2, 200, paths[1][:191]),
    ]


def test_broken_file_leaves_the_day_as_it_was(lake: Lake, write_hours):
    write_hours([hour_row()])
    publish(lake)
    (file,) = (lake.root / "hourly" / f"dt={DAY}").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:100])

    with pytest.raises(PipelineError, match=f"{file.name}.*run: rollup --since"):
        publish(lake, since=DAY)

    assert TaskHour.objects.count() == 1


def test_runs_are_recorded_with_their_lost_events(lake: Lake):
    def lose(run):
        run.rows_in, run.lost = 60, 40

    def fail(run):
        raise RuntimeError("no disk")

    codes = [record(lake, "archive", lose).exit_code, record(lake, "rollup", fail).exit_code]
    for _ in range(2):
        publish(lake)

    assert codes == [3, 1]
    assert {(run.step, run.lost, run.error) for run in pipeline_runs()} == {
        ("archive", 40, ""),
        ("rollup", 0, "RuntimeError: no disk"),
    }


def test_run_that_goes_on_is_published_again_and_old_ones_are_removed(lake: Lake):
    run = StepRun("archive", f"{DAY}T12:00:00+00:00")
    old = StepRun("rollup", f"{DAY - dt.timedelta(days=91)}T12:00:00+00:00")
    for each in (old, run):
        save(lake, each)
    publish(lake)
    run.seconds, run.lost, run.exit_code = 30.0, 40, 3
    save(lake, run)
    keys = set(PipelineRun.objects.values_list("pk", flat=True))
    publish(lake)

    assert [(each.step, each.seconds, each.lost, each.exit_code) for each in pipeline_runs()] == [
        ("archive", 30.0, 40, 3),
        ("rollup", 0.0, 0, 0),
    ]
    assert {each.pk for each in pipeline_runs()} == keys
    lake.expire(DAY)
    publish(lake)
    assert [each.step for each in pipeline_runs()] == ["archive"]


def test_more_runs_than_five_hundred_are_published(lake: Lake):
    first = dt.datetime.combine(DAY, dt.time(), dt.UTC)
    runs = [StepRun("publish", (first + dt.timedelta(minutes=number)).isoformat()) for number in range(600)]
    lake.append(RUNS, DAY, map(as_row, runs))

    publish(lake)

    assert PipelineRun.objects.count() == 600
