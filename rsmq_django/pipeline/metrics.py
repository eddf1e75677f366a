"""Metrics of the pipeline for Prometheus; `telemetry.metrics` exports them where this application is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.db import DatabaseError
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ..conf.settings import get_settings
from .config import archived_connections
from .history import slo_burns
from .state import lost_events, project_logs, published_steps


def pipeline_metrics(aliases: Sequence[str]) -> Iterator[Metric]:
    """Yield the metrics of the log and the runs, if the connection of the pipeline is one of these."""
    if get_settings().pipeline.connection in aliases:
        yield from _log_metrics()
        yield from _run_metrics()


def _log_metrics() -> Iterator[Metric]:
    labels = ["connection"]
    lag = GaugeMetricFamily(
        "rsmq_pipeline_lag_seconds", "Age of the oldest event that is not archived; 0 without one.", labels=labels
    )
    fill = GaugeMetricFamily(
        "rsmq_pipeline_log_fill", "Length of the event log, as a share of MAX_LENGTH.", labels=labels
    )
    for alias, log in project_logs().items():
        if log is not None:  # else rsmq_up says so
            lag.add_metric([alias], log.lag_s)
            fill.add_metric([alias], log.fill)
    yield from (lag, fill)


def _run_metrics() -> Iterator[Metric]:
    lost = CounterMetricFamily(
        "rsmq_events_lost",
        "Events that were trimmed before they were archived, as of the last publishing.",
        labels=["connection"],
    )
    success = GaugeMetricFamily(
        "rsmq_pipeline_last_success_timestamp_seconds", "End of the last successful run of a step.", labels=["step"]
    )
    burn = GaugeMetricFamily(
        "rsmq_slo_burn_rate", "Burn rate of an objective's error budget.", labels=["queue", "objective", "window"]
    )
    try:
        for alias, number in (dict.fromkeys(archived_connections(), 0) | lost_events()).items():
            lost.add_metric([alias], number)
        for step in published_steps():
            if step.succeeded_at:
                success.add_metric([step.step], step.succeeded_at.timestamp())
        for each in slo_burns():
            burn.add_metric([each.queue, each.objective, each.window], each.burn_rate)
    except DatabaseError:  # without tables or a database, the metrics of Redis are still there
        pass
    yield from (lost, success, burn)
