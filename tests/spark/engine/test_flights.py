"""A day's departures through all of it: DataFrame, task calls, worker, event log, lake, database, pages."""

import csv
import json
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client as Browser

from example_project.history.flights import AIRPORTS, TASK, as_calls, write_flights
from rsmq_django.pipeline import history
from rsmq_django.pipeline.models import QueueDepth
from rsmq_django.queues import ensure_queue
from rsmq_django.spark.job import Pipeline
from tests.redis_server import PrivateServer
from tests.worker.workshop import work

pytestmark = [pytest.mark.spark, pytest.mark.django_db]

#: The first of January.
FLIGHTS = 842
QUEUES = [f"dep-{airport}" for airport in AIRPORTS]


@pytest.fixture
def pipeline(spark: Any, settings: Any, server: PrivateServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a step of the command in the session of all tests; return what it printed as JSON."""
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}},
        "QUEUES": {name: {} for name in QUEUES},
        "EVENTS": {"RECORD": "all"},
        "PIPELINE": {"LAKE": str(tmp_path / "lake"), "OBJECTIVES": {"dep-EWR": {"success": 0.99}}},
    }
    monkeypatch.setattr("rsmq_django.spark.job.start_session", lambda *_, **__: spark)
    monkeypatch.setattr(Pipeline, "close", lambda _: None)

    def run(*words: str) -> dict[str, Any]:
        out = StringIO()
        call_command("rsmq_pipeline", *words, "--json", stdout=out)
        runs = [json.loads(line) for line in out.getvalue().splitlines()]
        return {run["step"]: (run["rows_in"], run["rows_out"]) for run in runs}

    return run


def test_day_of_departures_is_read_back_unchanged(pipeline: Any, spark: Any, tmp_path: Path):
    import example_project.history.tasks  # noqa: F401 - declares the task

    _, cancelled = write_flights(tmp_path / "flights.csv", FLIGHTS)
    with (tmp_path / "flights.csv").open(newline="") as lines:
        flown = Counter(f"dep-{row['origin']}" for row in csv.DictReader(lines))
    queues = {name: ensure_queue(name) for name in QUEUES}
    calls = as_calls(spark, tmp_path / "flights.csv")

    for _ in range(2):
        calls.write.format("rsmq").mode("append").options(kind="tasks", task=TASK, job="day").save()
    sent = {name: queue.attributes().messages for name, queue in queues.items()}
    waiting = pipeline("snapshot")
    work()
    done = pipeline("run")
    buried_again = pipeline("dlq")

    assert sent == flown
    assert waiting["snapshot"] == (FLIGHTS, 3)
    # A worker gives back what it took too early, and each such delivery is an event, too.
    assert done["archive"][0] == done["archive"][1] >= FLIGHTS
    assert {name: point.succeeded + point.dead for (name, _), point in history.task_totals().items()} == flown
    assert sum(group.n for group in history.failure_groups()) == cancelled == 4
    assert (done["dlq"], buried_again["dlq"]) == ((cancelled, cancelled), (cancelled, 0))
    # The first snapshot has the flights, that of `run` the dead letters.
    assert sum(depth.waiting for depth in QueueDepth.objects.all()) == FLIGHTS + cancelled
    assert_shown(flown)
    assert_redriven()


def assert_shown(flown: Counter[str]) -> None:
    """The pages say the same."""
    browser = Browser()
    browser.force_login(User.objects.create_superuser("root"))
    page = browser.get("/admin/rsmq_pipeline/taskhour/", {"span": "2d"})
    assert {queue: point.succeeded + point.dead for (queue, _, point, *_), *_ in page.context["totals"]} == flown
    assert b"Cancelled" in browser.get("/admin/rsmq_pipeline/failuregroup/").content
    assert b"success" in browser.get("/admin/rsmq_pipeline/sloburn/").content


def assert_redriven() -> None:
    """A group of failures goes back to the queues in which it died."""
    group, *_ = history.failure_groups()
    out = StringIO()
    call_command("rsmq_pipeline", "replay", group.fingerprint, "--yes", stdout=out)
    assert f"{group.n} dead letter" in out.getvalue()
    assert sum(ensure_queue(name).attributes().messages for name in group.queues) == group.n
