"""A lake with a few days in it, written without Spark."""

import datetime as dt
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from rsmq_django.core.stats.histogram import Histogram
from rsmq_django.pipeline.days import write_day
from rsmq_django.pipeline.models import TaskHour
from rsmq_django.spark.events import SCHEMA
from rsmq_django.spark.lake import Lake
from rsmq_django.spark.options import DEFAULT_URL_VARIABLE
from rsmq_django.spark.schemas import EVENTS, FAILURES, HOURLY
from tests.redis_server import PrivateServer

DAY = dt.date(2026, 11, 18)
NOON = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)


def hour_row(at: dt.datetime = NOON, **values: Any) -> dict[str, Any]:
    counts = ("retried", "dead", "released", "lost", "cancelled")
    row: dict[str, Any] = {
        "hour": at,
        "queue": "mail",
        "task": "shop.send",
        "attempts": 100,
        "first_attempts": 100,
        "succeeded": 100,
    }
    row |= dict.fromkeys(counts, 0) | {"busy_us": 2_000_000, "run_s_squared": 0.1, "body_bytes": 9000, "workers": 2}
    row |= {"wait_hist": Histogram.of([1000] * 100).counts, "run_hist": Histogram.of([20_000] * 100).counts}
    row |= values
    return row | {name: list(row[name].items()) for name in ("wait_hist", "run_hist")}


def failure_row(at: dt.datetime = NOON, **values: Any) -> dict[str, Any]:
    row = {"task": "shop.send", "fingerprint": "f" * 32, "error_type": "ValueError", "n": 3, "retried": 1, "dead": 2}
    row |= {"first_at": at, "last_at": at, "sample": "no row 7", "sample_task_id": "t1", "queues": ["mail"]}
    return row | {"workers": 1} | values


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.at(tmp_path / "lake")


@pytest.fixture
def write_hours(lake: Lake) -> Callable[..., None]:
    """Write the hourly rows of a day."""

    def write(rows: list[dict[str, Any]], day: dt.date = DAY) -> None:
        lake.write_day(HOURLY, day, rows)

    return write


@pytest.fixture
def write_failures(lake: Lake) -> Callable[..., None]:
    """Write the failure groups of a day."""

    def write(rows: list[dict[str, Any]], day: dt.date = DAY) -> None:
        lake.write_day(FAILURES, day, rows)

    return write


def add_up_days() -> None:
    """Write the sums of days that publishing would write for the hours in the database."""
    for day in TaskHour.objects.order_by().values_list("day", flat=True).distinct():
        write_day("default", day, TaskHour.objects.filter(day=day).values())


def write_events(lake: Lake, rows: list[dict[str, Any]]) -> None:
    """Write events as a batch of the archive would."""
    empty = dict.fromkeys(column.name for column in SCHEMA)
    lake.append(EVENTS, DAY, [empty | row for row in rows])


@pytest.fixture
def pipeline(lake: Lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command; return its exit status and what it said."""
    # The command sets it; this puts it back after the test.
    monkeypatch.setenv(DEFAULT_URL_VARIABLE, "")
    monkeypatch.delenv(DEFAULT_URL_VARIABLE)

    def run(*words: str, **options: Any) -> tuple[int, str]:
        out = StringIO()
        options = {"lake": str(lake.root), **options}
        try:
            call_command("rsmq_pipeline", *words, stdout=out, stderr=out, **options)
        except SystemExit as ended:
            return int(ended.code or 0), out.getvalue()
        return 0, out.getvalue()

    return run
