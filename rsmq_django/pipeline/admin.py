"""The admin pages of pipeline results: weeks of history, failures, objectives, advice, runs, the lake.

They read the tables only, so they need neither Redis nor Spark; the redrive of a failure group reads the lake.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import lazy
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..admin.formats import (
    as_duration,
    as_figure,
    as_number,
    as_run_time,
    as_size,
    local,
    local_text,
    one_line,
    visible,
)
from ..admin.redaction import redact
from ..conf.settings import get_settings
from ..live.places import home_of
from ..spark.burn import ALARMS
from ..spark.runs import DONE
from . import history
from .charts import SPANS, begin_of, burn_charts_of, charts_of, depth_charts_of, hours_and_days
from .days import KEEP_HOURS_DAYS
from .failure_pages import FailureGroupAdmin
from .fields import utc
from .lake_page import LakeAdmin
from .models import Anomaly, CapacityAdvice, PipelineRun, QueueDepth, SloBurn, TaskHour
from .pages import MOST_CHOICES, FilterForm, HistoryAdmin, QueueForm, span_links, span_of
from .state import MOST_CLOCK_S, LogHealth, lost_events, project_logs, published_steps, worst_log, worst_of
from .task_table import FORMATS, TaskForm, download, download_links, headers, table_rows

__all__ = ["FailureGroupAdmin", "LakeAdmin"]

MOST_TASKS = 200
MOST_BURN_CHARTS = 12


@admin.register(TaskHour)
class TaskHistoryAdmin(HistoryAdmin):
    """Throughput, outcomes, latency and run times of all tasks, a queue or a task."""

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Show charts and totals instead of rows of hours."""
        self.demand_view(request)
        now = utc(timezone.now())
        queue, task = request.GET.get("queue") or None, request.GET.get("task") or None
        form = TaskForm(request)
        asked = form.range(now)
        about: dict[str, Any] = {
            "queue": queue,
            "task": task,
            "since": asked.since,
            "until": asked.until,
            "step": asked.step,
        }
        rows = table_rows(request, history.task_totals(**about), form.cleaned_data.get("q", ""))
        if request.GET.get("format") in FORMATS:
            return download(request.GET["format"], rows, asked)
        anomalies = history.anomalies(queue=queue, task=task, since=asked.since, until=asked.until, limit=20)
        steps = asked.steps(now)
        context = {
            "title": _("Task history"),
            "charts": charts_of(history.task_history(**about), steps, self._urls(request, steps)),
            "spans": span_links(request, is_chosen=not form.has_range()),
            "is_still": True,
            "form": form,
            "queue": queue,
            "task": task,
            "headers": headers(request),
            "totals": [
                (row, _share(row[2].failure_rate), *map(_shown_ms, _times(row[2]))) for row in rows[:MOST_TASKS]
            ],
            "left_out": len(rows) - MOST_TASKS,
            "downloads": download_links(request),
            "span": span_of(request),
            "anomalies": [
                (
                    odd,
                    self._runs_of(request, odd.hour, odd.queue, odd.task, home_of(odd.queue)),
                    local_text(odd.hour, "Y-m-d H:i"),
                )
                + _measured(odd)
                for odd in anomalies
            ],
            **self.freshness(),
        }
        return self.own_page(request, "history/tasks.html", context)

    def _urls(self, request: HttpRequest, steps: Sequence[dt.datetime | dt.date]) -> list[str]:
        """Return the address of the page about each step: the hours of a day, or the runs of an hour."""
        queue, task = request.GET.get("queue", ""), request.GET.get("task", "")
        if isinstance(steps[0], dt.datetime):
            hours = [step for step in steps if isinstance(step, dt.datetime)]
            urls = [self._runs_of(request, hour, queue, task, of) for hour, of in _connections(hours, queue, task)]
            return urls if all(urls) else []
        if len(steps) > KEEP_HOURS_DAYS:
            return []  # without hours
        begins = [dt.datetime.combine(step, dt.time(), dt.UTC) for step in steps]
        about = {name: value for name, value in (("queue", queue), ("task", task)) if value}
        return [f"?{urlencode(about | _range(begin, dt.timedelta(days=1)))}" for begin in begins]

    def _runs_of(self, request: HttpRequest, hour: dt.datetime, queue: str, task: str, connection: str) -> str:
        """Return the address of the runs of an hour; "" for users who may not see it."""
        if not request.user.has_perm("rsmq.view_run"):
            return ""
        about = {"queue": queue, "task": task, "connection": connection} | _range(hour, dt.timedelta(hours=1))
        return self.address("run_changelist", **{name: value for name, value in about.items() if value})


def _connections(hours: Sequence[dt.datetime], queue: str, task: str) -> Iterator[tuple[dt.datetime, str]]:
    """Yield each hour with the connection of the queue, or of the busiest queue of the hour: a list of runs has one."""
    busiest: Mapping[dt.datetime, str] = {}
    if not queue and len(get_settings().connections) > 1:
        busiest = history.busiest_queues(task=task, since=hours[0], until=hours[-1] + dt.timedelta(hours=1))
    for hour in hours:
        yield hour, home_of(queue or busiest.get(hour, ""))


def _range(begin: dt.datetime, length: dt.timedelta) -> dict[str, str]:
    """Return the fields of a range, with the offset of the zone, so that a link means the same to everyone."""
    return {"since": local(begin).isoformat(), "until": local(begin + length).isoformat()}


def _times(point: history.Point) -> tuple[float | None, ...]:
    return point.wait_ms(0.95), point.run_ms(0.5), point.run_ms(0.95), point.run_ms(0.99)


def _shown_ms(value: float | None) -> str:
    return as_run_time(None if value is None else value / 1000)


#: Metric of anomalies -> its name, and how its values are written.
METRICS: Mapping[str, tuple[Any, Callable[[float], str]]] = {
    "attempts": (gettext_lazy("attempts"), lambda value: as_number(round(value))),
    "failure_rate": (gettext_lazy("failure rate"), lambda value: _share(value)),
    "wait_p95": (gettext_lazy("latency p95"), lambda value: _shown_ms(value / 1000)),
    "run_p95": (gettext_lazy("run time p95"), lambda value: _shown_ms(value / 1000)),
}


def _measured(odd: Anomaly) -> tuple[str, str, str]:
    """Return the metric of an anomaly, its value, and its usual value."""
    name, write = METRICS.get(odd.metric, (odd.metric, lambda value: as_figure(value, ".3g")))
    return str(name), write(odd.value), write(odd.median)


def _shown_time(time: dt.datetime, form: str) -> SafeString:
    """Return a time, which narrow columns break after the date only; the title of the column has the zone."""
    parts = local_text(time, f"Y-m-d {form}").split(maxsplit=1)
    return format_html('<span class="rsmq-time"><span>{}</span> <span>{}</span></span>', *parts)


def _with_zone(title: Any) -> Any:
    """Return the title of a column of times, with the zone of the request that shows it."""

    def zone() -> str:
        # A narrow column may break it after the slash.
        return timezone.get_current_timezone_name().replace("/", "/\N{ZERO WIDTH SPACE}")

    return format_lazy("{} ({})", title, lazy(zone, str)())


@admin.register(SloBurn)
class ObjectiveAdmin(HistoryAdmin):
    """Burn rates of error budgets, alarms about them, and capacity advice for queues."""

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Show the newest of each instead of all rows."""
        self.demand_view(request)
        now, span = utc(timezone.now()), span_of(request)
        since, step = begin_of(span, now), SPANS[span][1]
        burns = dict(islice(history.burn_history(since=since, step=step).items(), MOST_BURN_CHARTS))
        may_view_advice = request.user.has_perm("rsmq_pipeline.view_capacityadvice")
        context = {
            "title": _("Objectives and capacity"),
            "burns": [
                (
                    burn,
                    burn.burn_rate > ALARMS.get(burn.window, float("inf")),
                    _share(burn.target),
                    _share(burn.budget_left),
                )
                for burn in history.slo_burns()
            ],
            "advice": [
                (one, _shown_ms(1000 * one.mean_run_s), _("%(share)s within %(time)s") % _target(one))
                for one in (history.capacity_advice() if may_view_advice else [])
            ],
            "charts": burn_charts_of(burns, hours_and_days(since, now, step)),
            "spans": span_links(request),
            "is_still": True,
            "alarms": [(alarm, one_line(redact(alarm.error), 200)) for alarm in history.slo_alarms()],
            "has_objectives": bool(get_settings().pipeline.objectives),
            **self.freshness(),
        }
        return self.own_page(request, "history/objectives.html", context)


def _target(advice: CapacityAdvice) -> dict[str, str]:
    return {"share": _share(advice.quantile), "time": f"{as_figure(advice.wait_target_s, 'g')} s"}


def _clock_of(log: LogHealth) -> str:
    """Return a sentence about a wrong clock, "" about a correct clock."""
    if log.ahead_s > MOST_CLOCK_S:
        return _("The newest event is dated in the future, as are all events until then: see rsmq_pipeline doctor.")
    if abs(log.clock_s) <= MOST_CLOCK_S:
        return ""
    text = _("%(time)s ahead of this machine") if log.clock_s > 0 else _("%(time)s behind this machine")
    return text % {"time": as_duration(abs(log.clock_s))}


def _share(share: float) -> str:
    return f"{as_figure(100 * share, '.3g')} %"


@admin.register(CapacityAdvice)
class CapacityAdviceAdmin(HistoryAdmin):
    """Capacity advice of all days."""

    list_display = (
        "day",
        "queue",
        "slots_needed",
        "slots_seen",
        "load",
        "arrivals_per_s",
        "mean_run_s",
        "silent_because",
    )
    filter_form = QueueForm
    date_hierarchy = "day"


class AnomalyForm(QueueForm):
    """The filters of the anomalies."""

    metric = forms.ChoiceField(label=gettext_lazy("Metric"), required=False)

    def shown(self, value: str) -> str:
        """Return the name that the list shows."""
        return str(METRICS[value][0]) if value in METRICS else value


@admin.register(Anomaly)
class AnomalyAdmin(HistoryAdmin):
    """Anomalies: hours that differ from the same hour of other days."""

    list_display = ("local_hour", "queue", "measure", "then", "usually", "distance", "task")
    filter_form = AnomalyForm
    is_stacked = True
    search_fields = ("task",)

    @admin.display(description=_with_zone(gettext_lazy("hour")), ordering="hour")
    def local_hour(self, row: Anomaly) -> str:
        """Return the begin of the hour in the format of the history pages."""
        return _shown_time(row.hour, "H:i")

    @admin.display(description=gettext_lazy("metric"), ordering="metric")
    def measure(self, row: Anomaly) -> str:
        """Return the metric."""
        return _measured(row)[0]

    @admin.display(description=gettext_lazy("value"))
    def then(self, row: Anomaly) -> str:
        """Return the value."""
        return _measured(row)[1]

    @admin.display(description=gettext_lazy("usual value"))
    def usually(self, row: Anomaly) -> str:
        """Return the median of the compared hours."""
        return _measured(row)[2]

    @admin.display(description=gettext_lazy("z-score"), ordering="z")
    def distance(self, row: Anomaly) -> str:
        """Return the distance from the median, in units of the usual deviation."""
        return "-" if row.z is None else as_figure(row.z, ".1f")


@admin.register(QueueDepth)
class QueueDepthAdmin(HistoryAdmin):
    """Depths of the queues by snapshot."""

    change_list_template = "admin/rsmq/history/depths.html"
    list_display = ("local_time", "queue", "waiting", "delayed", "in_flight", "oldest", "size")
    filter_form = QueueForm
    date_hierarchy = "taken_at"

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Show charts above the snapshots."""
        self.demand_view(request)
        span, now = span_of(request), utc(timezone.now())
        since, step = begin_of(span, now), SPANS[span][1]
        points = history.depth_history(queue=request.GET.get("queue") or None, since=since, step=step)
        context = {
            "charts": depth_charts_of(points, hours_and_days(since, now, step)) if points else [],
            "spans": span_links(request),
            "span": span,
            "is_still": True,
            "queue_names": history.depth_queues(since=since, most=MOST_CHOICES),
            **self.freshness(),
        }
        return super().changelist_view(request, {**context, **(extra_context or {})})

    @admin.display(description=_with_zone(gettext_lazy("taken at")), ordering="taken_at")
    def local_time(self, row: QueueDepth) -> str:
        """Return the moment of the snapshot."""
        return _shown_time(row.taken_at, "H:i")

    @admin.display(description=gettext_lazy("oldest ready"), ordering="oldest_age_us")
    def oldest(self, row: QueueDepth) -> str:
        """Return the age of the oldest message."""
        return as_duration(None if row.oldest_age_us is None else row.oldest_age_us / 1e6)

    @admin.display(description=gettext_lazy("body size"), ordering="body_bytes")
    def size(self, row: QueueDepth) -> str:
        """Return the size of the bodies."""
        return as_size(row.body_bytes)


class PipelineRunForm(FilterForm):
    """The filters of the runs."""

    step = forms.ChoiceField(label=gettext_lazy("Step"), required=False)
    exit_code = forms.ChoiceField(label=gettext_lazy("Exit code"), required=False)


@admin.register(PipelineRun)
class PipelineRunAdmin(HistoryAdmin):
    """Runs of the pipeline, with lost events."""

    change_list_template = "admin/rsmq/history/runs.html"
    list_display = ("local_start", "step", "outcome", "took", "rows_in", "rows_out", "lost")
    filter_form = PipelineRunForm

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Show the health of the pipeline above its runs."""
        self.demand_view(request)
        found, lost = project_logs(), lost_events()
        logs = {alias: each for alias, each in found.items() if each is not None}
        log = worst_log(logs.values()) if logs else None
        health = {
            "log": log,
            "lag": log and as_duration(log.lag_s),
            "share": log and _share(log.fill),
            "clock": log and _clock_of(log),
            "lost": sum(lost.values()),
            "latest": worst_of({alias: each.lag_s for alias, each in logs.items()}),
            "fullest": worst_of({alias: each.fill for alias, each in logs.items()}),
            "lossiest": worst_of(lost),
            "silent": ", ".join(sorted(found.keys() - logs.keys())),
            "steps": [(step, one_line(redact(step.error), 200)) for step in published_steps()],
        }
        return super().changelist_view(request, {**health, **(extra_context or {})})

    @admin.display(description=_with_zone(gettext_lazy("started")), ordering="started_at")
    def local_start(self, run: PipelineRun) -> str:
        """Return when it began."""
        return _shown_time(run.started_at, "H:i:s")

    @admin.display(description=gettext_lazy("outcome"), ordering="exit_code")
    def outcome(self, run: PipelineRun) -> str:
        """Return the beginning of the error, or the status."""
        if run.error:
            return one_line(redact(run.error), 80)
        return _("done") if run.exit_code == DONE else _("done, but events were lost")

    @admin.display(description=gettext_lazy("duration"), ordering="seconds")
    def took(self, run: PipelineRun) -> str:
        """Return the duration."""
        return as_duration(run.seconds)

    @admin.display(description=gettext_lazy("error"))
    def problem(self, run: PipelineRun) -> str:
        """Return the whole error."""
        return visible(redact(run.error)) or "-"

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields of a run; its error without secrets."""
        return ["run_id", "step", "local_start", "took", "rows_in", "rows_out", "lost", "exit_code", "problem"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return all of them."""
        return self.get_fields(request, obj)
