"""The charts of weeks and months: throughput, outcomes, latency and run times of all tasks, a queue or a task."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.utils.formats import date_format
from django.utils.translation import gettext as _

from ..admin.charts import Chart, Number, Series
from ..admin.formats import as_figure, local_text
from ..admin.past_charts import show_number, show_seconds
from ..spark.burn import ALARMS, WINDOWS_S
from .history import QUANTILES, Burns, DepthPoint, Point, Step

#: Span -> number of days, and step.
SPANS: dict[str, tuple[int, Step]] = {"2d": (2, "hour"), "2w": (14, "day"), "12w": (84, "day"), "52w": (364, "day")}
DEFAULT_SPAN = "2w"


def hours_and_days(begin: dt.datetime, end: dt.datetime, step: Step) -> list[dt.datetime | dt.date]:
    """Return the hours or days of UTC that a range touches, the one of its end last."""
    begin, end = begin.astimezone(dt.UTC), end.astimezone(dt.UTC) - dt.timedelta(microseconds=1)
    if step == "day":
        return [begin.date() + dt.timedelta(days=number) for number in range((end.date() - begin.date()).days + 1)]
    first, last = whole(begin, step), whole(end, step)
    return [first + dt.timedelta(hours=number) for number in range(round((last - first) / dt.timedelta(hours=1)) + 1)]


def begin_of(span: str, now: dt.datetime) -> dt.datetime:
    """Return the start of a span: of an hour or a day of UTC, which the tables have."""
    days, step = SPANS[span]
    before = dt.timedelta(hours=days * 24 - 1) if step == "hour" else dt.timedelta(days=days - 1)
    return whole(now, step) - before


def whole(at: dt.datetime, step: Step) -> dt.datetime:
    """Return the begin of the hour or the day of UTC that a time is in."""
    hour = at.astimezone(dt.UTC).replace(minute=0, second=0, microsecond=0)
    return hour if step == "hour" else hour.replace(hour=0)


def charts_of(points: Sequence[Point], steps: Sequence[dt.datetime | dt.date], urls: Sequence[str] = ()) -> list[Chart]:
    """Return four charts; steps without attempts are gaps or zero. `urls` are the pages about each step."""
    found = {point.at: point for point in points}
    row = [found.get(step) or Point(step) for step in steps]
    attempts = _("Attempts per hour") if isinstance(steps[0], dt.datetime) else _("Attempts per day")
    outcomes = [
        Series(_("succeeded"), "a", [point.succeeded for point in row]),
        Series(_("retried"), "b", [point.retried for point in row]),
        Series(_("dead letters"), "c", [point.dead for point in row]),
        Series(_("lost"), "d", [point.lost for point in row]),
    ]
    failures = _("Share of attempts that failed")
    rates: list[Number] = [100 * point.failure_rate if point.attempts else None for point in row]
    return [
        chart_of("attempts", attempts, steps, outcomes, show_number, is_stacked=True, urls=urls),
        chart_of("failures", failures, steps, [Series(_("failed"), "c", rates)], _percent, urls=urls),
        chart_of("wait", _("Latency"), steps, _quantiles([point.wait_ms for point in row]), show_seconds, urls=urls),
        chart_of("run", _("Run time"), steps, _quantiles([point.run_ms for point in row]), show_seconds, urls=urls),
    ]


def depth_charts_of(points: Sequence[DepthPoint], steps: Sequence[dt.datetime | dt.date]) -> list[Chart]:
    """Return charts of depth and age; steps without snapshots are gaps."""
    found = {point.at: point for point in points}
    row = [found.get(step) for step in steps]

    def values(name: str) -> list[Number]:
        return [None if point is None else getattr(point, name) for point in row]

    depths = [
        Series(_("ready"), "a", values("waiting")),
        Series(_("delayed"), "b", values("delayed")),
        Series(_("in flight"), "d", values("in_flight")),
    ]
    oldest = [Series(_("oldest ready"), "c", values("oldest_s"))]
    return [
        chart_of("depth", _("Largest depth"), steps, depths, show_number),
        chart_of("oldest", _("Age of the oldest ready message"), steps, oldest, show_seconds),
    ]


def burn_charts_of(burns: Mapping[tuple[str, str], Burns], steps: Sequence[dt.datetime | dt.date]) -> list[Chart]:
    """Return a chart of the burn rates of each objective; steps without one are gaps."""
    charts = []
    for number, ((queue, objective), windows) in enumerate(burns.items()):
        series = [
            Series(
                _("%(window)s, limit %(limit)s") % {"window": window, "limit": as_figure(ALARMS[window], "g")},
                colour,
                [windows.get(window, {}).get(step) for step in steps],
            )
            for window, colour in zip(WINDOWS_S, "cab", strict=True)
        ]
        title = _("Burn rate of %(objective)s, %(queue)s") % {"objective": objective, "queue": queue}
        charts.append(chart_of(f"burn-{number}", title, steps, series, _factor, shows_zero=True))
    return charts


def step_label(at: dt.datetime | dt.date) -> str:
    """Return the label at the axis of a chart: of an hour its begin where the user is, of a day its date in UTC."""
    return local_text(at, "D H:i") if isinstance(at, dt.datetime) else date_format(at, "j M")


def chart_of(
    name: str,
    title: str,
    steps: Sequence[dt.datetime | dt.date],
    series: Sequence[Series],
    show: Callable[[float], str],
    **options: Any,
) -> Chart:
    """Return a chart of hours or of days."""
    times = [step_label(step) for step in steps]
    return Chart(name, title, times, series, show, is_daily=not isinstance(steps[0], dt.datetime), **options)


def _factor(value: float) -> str:
    return as_figure(value, ".3g")


def _quantiles(readers: Sequence[object]) -> list[Series]:
    series = []
    for q, colour in zip(QUANTILES, "abc", strict=True):
        milliseconds = [reader(q) for reader in readers]  # type: ignore[operator]
        values: list[Number] = [None if each is None else each / 1000 for each in milliseconds]
        series.append(Series(f"p{q * 100:.0f}", colour, values))
    return series


def _percent(value: float) -> str:
    return f"{as_figure(value, '.3g')} %"
