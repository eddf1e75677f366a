"""A project with USE_TZ = False in a zone that sets its clocks back: every hour of the lake is in the database."""

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.spark.lake import Lake
from rsmq_django.spark.runs import StepRun, save
from rsmq_django.spark.schemas import HOURLY
from tests.postgres_server import PostgresCluster

from .conftest import hour_row

pytestmark = pytest.mark.deadline(120)

#: Midnight and one o'clock UTC are both two o'clock in Berlin.
HOURS = [dt.datetime(2026, 10, 25, hour, tzinfo=dt.UTC) for hour in (0, 1)]
ROOT = Path(__file__).parents[2]

PROJECT = """
import datetime as dt, json, sys
import django
from django.conf import settings

database, lake, when = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
settings.configure(
    USE_TZ=False,
    TIME_ZONE="Europe/Berlin",
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "rsmq_django", "rsmq_django.pipeline"],
    DATABASES={"default": database},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    RSMQ={},
)
django.setup()

from django.core.management import call_command
from django.db import connection

from rsmq_django.pipeline.history import pipeline_runs, task_history
from rsmq_django.pipeline.publish import publish
from rsmq_django.spark.lake import Lake

lake = Lake.at(lake)
call_command("migrate", verbosity=0)
publish(lake)
if when == "as before":
    call_command("migrate", "rsmq_pipeline", "0004", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM rsmq_pipeline_taskhour WHERE attempts = 2")
        cursor.execute("UPDATE rsmq_pipeline_taskhour SET hour = '2026-10-25 02:00:00'")
        cursor.execute("UPDATE rsmq_pipeline_pipelinerun SET started_at = '2026-10-25 02:00:00'")
    call_command("migrate", verbosity=0)
    publish(lake)
publish(lake, since=dt.date(2026, 10, 1))
found = {
    "hours": [[point.at.isoformat(), point.attempts] for point in task_history(step="hour")],
    "since": [point.attempts for point in task_history(step="hour", since=dt.datetime(2026, 10, 25, 2, fold=1))],
    "runs": [run.started_at.isoformat() for run in pipeline_runs()],
}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    cluster = PostgresCluster()
    yield cluster
    cluster.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    if request.param == "postgresql":
        return request.getfixturevalue("cluster").make_database("berlin")
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3")}


@pytest.mark.parametrize("when", ["now", "as before"])
def test_two_hours_with_the_same_local_time_are_two_hours(database: dict[str, Any], lake: Lake, when: str):
    lake.write_day(HOURLY, HOURS[0].date(), [hour_row(at, attempts=number) for number, at in enumerate(HOURS, 1)])
    run = StepRun("archive", HOURS[1].isoformat(), seconds=60)
    save(lake, run)

    words = [sys.executable, "-c", PROJECT, json.dumps(database), str(lake.root), when]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "hours": [[HOURS[0].isoformat(), 1], [HOURS[1].isoformat(), 2]],
        "since": [2],
        "runs": [HOURS[1].isoformat()],
    }
