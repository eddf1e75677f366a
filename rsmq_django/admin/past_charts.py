"""The charts of an hour, a day or a week: throughput, outcomes, waiting and run times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from django.http import HttpRequest
from django.utils.translation import gettext as _

from ..core.stats.histogram import Histogram
from ..live.history import HOUR, SPANS_S, WEEK, Past
from .charts import Chart, Number, Series
from .formats import as_figure, as_number, as_run_time, local_text

SPAN_PARAMETER = "span"


def span_of(request: HttpRequest) -> str:
    """Return the requested period."""
    span = request.GET.get(SPAN_PARAMETER, "")
    return span if span in SPANS_S else HOUR


def span_links(request: HttpRequest) -> list[tuple[str, str, bool]]:
    """Return the periods to choose from: label, query string, whether it is shown now."""
    labels = {"1h": _("1 hour"), "24h": _("24 hours"), "7d": _("7 days")}
    links = []
    for span in SPANS_S:
        query = request.GET.copy()
        query[SPAN_PARAMETER] = span
        links.append((labels[span], f"?{query.urlencode()}", span == span_of(request)))
    return links


def charts_of(past: Past, span: str) -> list[Chart]:
    """Return the charts of the overview."""
    times = [time_label(begins_s, span) for begins_s in past.begins_s]
    minutes = past.step_s / 60
    sent: list[Number] = [None if sent is None else sent / minutes for sent in past.sent]
    handled: list[Number] = [ends.handled / minutes for ends in past.ends]
    return [
        Chart(
            "throughput",
            _("Messages per minute"),
            times,
            [Series(_("sent"), "b", sent), Series(_("processed"), "a", handled)],
            show_number,
        ),
        Chart(
            "outcomes",
            _("Attempts by outcome"),
            times,
            [
                Series(_("succeeded"), "a", [ends.succeeded for ends in past.ends]),
                Series(_("retried"), "b", [ends.retried for ends in past.ends]),
                Series(_("dead letters"), "c", [ends.dead for ends in past.ends]),
                Series(_("lost"), "d", [ends.lost for ends in past.ends]),
            ],
            show_number,
            is_stacked=True,
        ),
        Chart("wait", _("Latency"), times, _quantiles(past.wait), show_seconds),
        Chart("run", _("Run time"), times, _quantiles(past.run), show_seconds),
    ]


def _quantiles(histograms: Sequence[Histogram]) -> list[Series]:
    shares = (("p50", "a", 0.5), ("p95", "b", 0.95), ("p99", "c", 0.99))
    return [Series(label, colour, [_quantile(each, share) for each in histograms]) for label, colour, share in shares]


def _quantile(histogram: Histogram, share: float) -> Number:
    microseconds = histogram.quantile_us(share)
    return None if microseconds is None else microseconds / 1e6


def time_label(begins_s: int, span: str) -> str:
    """Return how the begin of a span of time is written at an axis."""
    return local_text(datetime.fromtimestamp(begins_s, UTC), "j M H:i" if span == WEEK else "H:i")


def show_number(value: float) -> str:
    """Return a number as it is written at an axis: "0.5", "2,000", "12 M"."""
    if value >= 1_000_000:
        return f"{as_number(value / 1e6)} M"
    return as_number(round(value)) if value >= 10 or value == int(value) else as_figure(value, ".2g")


def show_seconds(value: float) -> str:
    """Return a time as it is written at an axis: "0", "250 ms", "1.5 s"."""
    return as_run_time(value) if value else "0"
