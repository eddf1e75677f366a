"""The state of the pipeline in figures: in the command, in doctor, and as metrics."""

import datetime as dt
import json
import time
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test import RequestFactory
from prometheus_client.parser import text_string_to_metric_families

from rsmq_django.core.transport.streams import name_log, readers_key, trim
from rsmq_django.pipeline.models import PipelineRun, SloBurn
from rsmq_django.pipeline.state import log_state, lost_events, published_steps, steps_of
from rsmq_django.queues import get_client
from rsmq_django.spark.runs import StepRun
from rsmq_django.telemetry.metrics import metrics
from tests.redis_server import PrivateServer
from tests.spark.samples import log_events

from .conftest import NOON

LOG = "rsmq::events"


@pytest.fixture(autouse=True)
def project(settings: Any, server: PrivateServer) -> None:
    settings.RSMQ = {
        "CONNECTIONS": {"default": {"URL": server.url, "TIMEOUT_S": 15}},
        "EVENTS": {"MAX_LENGTH": 1000},
    }


def log_at(server: PrivateServer, *ages_s: float) -> list[str]:
    """Log events of these ages, oldest first; return their ids."""
    now_ms = 1000 * time.time()
    return [server.redis.xadd(LOG, {"v": "succeeded"}, id=f"{now_ms - 1000 * age:.0f}-0").decode() for age in ages_s]


def scraped() -> dict[tuple[str, tuple[str, ...]], float]:
    text = metrics(RequestFactory().get("/metrics")).content.decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def run_of(step: str, at: dt.datetime, **values: Any) -> PipelineRun:
    run_id = f"{step} {at:%m-%d %H:%M:%S}"
    row: dict[str, Any] = {"run_id": run_id, "seconds": 60, "rows_in": 1, "rows_out": 1, "lost": 0}
    return PipelineRun.objects.create(step=step, started_at=at, **row | {"exit_code": 0} | values)


# -- Log --------------------------------------------------------------------------------------------------------------


def test_lag_is_the_age_of_the_oldest_event_behind_the_position_of_the_archive(server: PrivateServer):
    client = get_client()
    assert log_state(client).lag_s == 0
    first, second, _ = log_at(server, 500, 300, 100)

    assert log_state(client).lag_s == pytest.approx(500, abs=60)
    assert log_state(client, after=first).lag_s == pytest.approx(300, abs=60)
    log = client.run(name_log(LOG))
    client.run(trim(LOG, readers_key(LOG), reader="archive", finished_id=second, log=log))
    state = log_state(client)

    assert state.lag_s == pytest.approx(100, abs=60)
    assert (state.length, state.fill) == (1, 0.001)


def test_clock_of_the_server_is_compared_with_the_one_of_this_machine_and_with_the_newest_event(
    server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    log_at(server, -7200)
    here = time.time

    assert log_state(get_client()).ahead_s == pytest.approx(7200, abs=60)
    assert log_state(get_client()).clock_s == pytest.approx(0, abs=60)
    monkeypatch.setattr(time, "time", lambda: here() - 600)
    assert log_state(get_client()).clock_s == pytest.approx(600, abs=60)


# -- Steps ------------------------------------------------------------------------------------------------------------


def test_step_has_its_latest_run_and_the_end_of_its_latest_success():
    def run(minute: int, error: str = "", step: str = "archive") -> StepRun:
        return StepRun(step, (NOON + dt.timedelta(minutes=minute)).isoformat(), seconds=60, error=error)

    steps = steps_of([run(30, "no disk"), run(15), run(0), run(0, "no table", step="publish")])

    assert [(step.step, step.error, step.succeeded_at) for step in steps] == [
        ("archive", "no disk", NOON + dt.timedelta(minutes=16)),
        ("publish", "no table", None),
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("use_tz", [True, False])
def test_steps_in_the_database_are_those_of_the_lake(use_tz: bool, settings: Any, django_assert_num_queries: Any):
    settings.USE_TZ = use_tz
    noon = NOON if use_tz else NOON.replace(tzinfo=None) - dt.timedelta(hours=6)
    settings.TIME_ZONE = "America/Chicago"
    run_of("archive", noon)
    run_of("archive", noon + dt.timedelta(minutes=15), error="no disk")
    run_of("publish", noon, error="no table")

    with django_assert_num_queries(2):
        steps = published_steps()

    assert [(step.step, step.error, step.succeeded_at) for step in steps] == [
        ("archive", "no disk", NOON + dt.timedelta(minutes=1)),
        ("publish", "no table", None),
    ]


@pytest.mark.django_db
def test_step_whose_runs_are_removed_at_this_moment_is_left_out():
    run_of("archive", NOON)
    run_of("drain", NOON - dt.timedelta(days=400))

    def remove_before(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if " IN (" in sql and sql.startswith("SELECT"):
            removed, _ = PipelineRun.objects.filter(step="drain").delete()
            assert removed == 1
        return execute(sql, params, many, context)

    with connection.execute_wrapper(remove_before):
        assert [step.step for step in published_steps()] == ["archive"]


@pytest.mark.django_db
def test_lost_events_are_those_that_the_archive_has_counted_since_the_log_was_created():
    assert lost_events() == {}
    run_of("archive", NOON, lost=40, offsets={LOG: {"lost": 40}})
    run_of("archive", NOON + dt.timedelta(minutes=15), offsets={LOG: {"lost": 40}})
    run_of("archive", NOON + dt.timedelta(minutes=30), error="no disk")

    assert lost_events() == {"default": 40}


# -- Metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_state_is_exported_for_prometheus(server: PrivateServer):
    log_at(server, *range(500, 0, -1))
    run_of("archive", NOON, lost=7, offsets={LOG: {"lost": 7}})
    row = {"day": NOON.date(), "at": NOON, "total": 100, "bad": 2, "target": 0.999, "budget_left": 0.5}
    SloBurn.objects.create(queue="mail", objective="success", window="1h", burn_rate=20, **row)

    found = scraped()

    assert found["rsmq_pipeline_lag_seconds", ("default",)] == pytest.approx(500, abs=60)
    assert found["rsmq_pipeline_log_fill", ("default",)] == 0.5
    assert found["rsmq_events_lost_total", ("default",)] == 7
    assert found["rsmq_pipeline_last_success_timestamp_seconds", ("archive",)] == NOON.timestamp() + 60
    assert found["rsmq_slo_burn_rate", ("success", "mail", "1h")] == 20


def raise_no_table() -> dict[str, int]:
    raise DatabaseError("no such table")


@pytest.mark.django_db
def test_metrics_of_redis_are_exported_without_tables_and_those_of_the_tables_without_redis(
    server: PrivateServer, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    run_of("archive", NOON)
    with monkeypatch.context() as without:
        without.setattr("rsmq_django.pipeline.metrics.lost_events", raise_no_table)
        assert scraped()["rsmq_pipeline_lag_seconds", ("default",)] == 0

    settings.RSMQ = {"CONNECTIONS": {"default": {"URL": "redis://127.0.0.1:1/0", "TIMEOUT_S": 0.5}}}
    found = scraped()

    assert ("rsmq_pipeline_last_success_timestamp_seconds", ("archive",)) in found
    assert ("rsmq_pipeline_lag_seconds", ("default",)) not in found


def test_project_without_the_pipeline_has_no_metrics_of_it(settings: Any):
    settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if name != "rsmq_django.pipeline"]

    assert not [name for name, _ in scraped() if "pipeline" in name or "slo" in name]


# -- Doctor and status ------------------------------------------------------------------------------------------------


def test_doctor_names_clocks_that_differ_and_steps_that_failed(
    pipeline, lake, server: PrivateServer, monkeypatch: pytest.MonkeyPatch
):
    from rsmq_django.spark.runs import record

    def fail(run: StepRun) -> None:
        raise OSError("no disk")

    record(lake, "rollup", fail)
    log_events(server.redis, 3)
    log_at(server, -10_900)
    here = time.time
    monkeypatch.setattr(time, "time", lambda: here() - 600)

    _code, said = pipeline("doctor")

    assert "the clock of Redis is 10 min ahead of that of this machine" in said
    assert "the newest event is dated 3 h after the clock of Redis" in said
    assert "the latest run of rollup failed: OSError: no disk" in said
    assert "4 events not archived yet, the oldest for " in said


def test_status_has_the_state_as_json(pipeline, lake, server: PrivateServer):
    from rsmq_django.spark.runs import record

    record(lake, "rollup", lambda run: None)
    log_at(server, *range(250, 0, -1))

    state = json.loads(pipeline("status", json=True)[1])

    assert state["lag_s"] == pytest.approx(250, abs=60) and state["log_fill"] == 0.25
    assert abs(state["clock_s"]) < 60
    assert list(state["last_success"]) == ["rollup"]
