"""The table of tasks: searched and sorted by the request, as a page, as CSV or as JSON."""

from __future__ import annotations

import csv
import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..admin.time_field import TimeField
from .charts import SPANS, begin_of, hours_and_days, whole
from .days import KEEP_HOURS_DAYS
from .history import Point, Step
from .pages import span_of

#: Longest range that is shown in hours.
MOST_HOURS = 4 * 24
#: Longest range: the charts have a point for each day.
MOST_DAYS = 3660
SORT = "o"
FORMATS = ("csv", "json")

Row = tuple[str, str, Point]


@dataclass(frozen=True, slots=True)
class Range:
    """A range of whole hours or whole days of UTC; `until` is None if it ends now."""

    since: dt.datetime
    until: dt.datetime | None
    step: Step

    def steps(self, now: dt.datetime) -> list[dt.datetime | dt.date]:
        """Return its hours or days."""
        return hours_and_days(self.since, self.until or now, self.step)


class TaskForm(forms.Form):
    """The search of the table, and a range of time in place of a period."""

    q = forms.CharField(label=gettext_lazy("Search"), required=False, max_length=200)
    since = TimeField(label=gettext_lazy("From"), required=False)
    until = TimeField(label=gettext_lazy("Until"), required=False, is_end=True)

    def __init__(self, request: HttpRequest) -> None:
        super().__init__(request.GET)
        self.request = request
        self.others = [
            (name, value) for name, value in request.GET.items() if name not in self.fields and name != "format"
        ]

    def clean(self) -> None:
        """Refuse a range without a beginning, and a range that ends before it."""
        since, until = self.cleaned_data.get("since"), self.cleaned_data.get("until")
        if until and not since and "since" not in self.errors:
            self.add_error("since", _("A range needs a beginning."))
        if since and since >= (until or dt.datetime.now(dt.UTC)):
            self.add_error("since", _("This is after the end.") if until else _("This is in the future."))

    def range(self, now: dt.datetime) -> Range:
        """Return the hours that the wanted range touches, or days where hours are not kept.

        Without a valid range it is the chosen period.
        """
        if not self.has_range():
            span = span_of(self.request)
            return Range(begin_of(span, now), None, SPANS[span][1])
        since, until = self.cleaned_data["since"], self.cleaned_data["until"]
        until = until if until and until < now else None
        if (until or now) - since > dt.timedelta(days=MOST_DAYS):
            since = (until or now) - dt.timedelta(days=MOST_DAYS)
        is_short = (until or now) - since <= dt.timedelta(hours=MOST_HOURS)
        if is_short and since >= now - dt.timedelta(days=KEEP_HOURS_DAYS):
            return _whole(since, until, "hour")
        return _whole(since, until, "day")

    def has_range(self) -> bool:
        """Return whether there is a valid range."""
        return self.is_valid() and self.cleaned_data["since"] is not None


def _whole(since: dt.datetime, until: dt.datetime | None, step: Step) -> Range:
    """Return the range of the whole hours or days that a range touches."""
    length = dt.timedelta(hours=1) if step == "hour" else dt.timedelta(days=1)
    return Range(whole(since, step), until and whole(until + length - dt.timedelta(microseconds=1), step), step)


#: Name of a column -> its label, and the value by which it is sorted and downloaded.
COLUMNS: Mapping[str, tuple[Any, Callable[[Row], Any]]] = {
    "queue": (gettext_lazy("Queue"), lambda row: row[0]),
    "task": (gettext_lazy("Task"), lambda row: row[1]),
    "attempts": (gettext_lazy("Attempts"), lambda row: row[2].attempts),
    "failure_rate": (gettext_lazy("Failure rate"), lambda row: row[2].failure_rate),
    "retried": (gettext_lazy("Retried"), lambda row: row[2].retried),
    "dead": (gettext_lazy("Dead"), lambda row: row[2].dead),
    "lost": (gettext_lazy("Lost"), lambda row: row[2].lost),
    "wait_p95_ms": (gettext_lazy("Latency p95"), lambda row: row[2].wait_ms(0.95)),
    "run_p50_ms": (gettext_lazy("Run time p50"), lambda row: row[2].run_ms(0.5)),
    "run_p95_ms": (gettext_lazy("Run time p95"), lambda row: row[2].run_ms(0.95)),
    "run_p99_ms": (gettext_lazy("Run time p99"), lambda row: row[2].run_ms(0.99)),
}


def table_rows(request: HttpRequest, totals: Mapping[tuple[str, str], Point], words: str) -> list[Row]:
    """Return the rows that have all words in their queue or task, in the wanted order; the busiest first."""
    asked = words.casefold().split()
    rows = [
        (queue, task, point)
        for (queue, task), point in totals.items()
        if all(word in f"{queue} {task}".casefold() for word in asked)
    ]
    name, is_descending = _order(request)
    if name:
        key = COLUMNS[name][1]
        rows.sort(key=lambda row: ((value := key(row)) is not None, value if value is not None else 0))
        if is_descending:
            rows.reverse()
    return rows


def headers(request: HttpRequest) -> dict[str, SafeString]:
    """Return the label of each column with a link that sorts by it, in the other direction if it is sorted already."""
    sorted_by, is_descending = _order(request)
    found = {}
    for name, (label, _value) in COLUMNS.items():
        is_text = name in ("queue", "task")
        down = not is_descending if name == sorted_by else not is_text
        query = request.GET.copy()
        query[SORT] = f"-{name}" if down else name
        sign = {True: "\N{NO-BREAK SPACE}▾", False: "\N{NO-BREAK SPACE}▴"}[is_descending] if name == sorted_by else ""
        found[name] = format_html('<a href="?{}">{}</a>{}', query.urlencode(), label, sign)
    return found


def _order(request: HttpRequest) -> tuple[str, bool]:
    given = request.GET.get(SORT, "")
    name = given.removeprefix("-")
    return (name, given.startswith("-")) if name in COLUMNS else ("", False)


# -- Downloads --------------------------------------------------------------------------------------------------------


def download(form: str, rows: Sequence[Row], asked: Range) -> HttpResponse:
    """Return all rows as a file."""
    values = [{name: value(row) for name, (_label, value) in COLUMNS.items()} for row in rows]
    if form == "json":
        until = asked.until.isoformat() if asked.until else None
        text = json.dumps({"since": asked.since.isoformat(), "until": until, "tasks": values}, indent=1)
        response = HttpResponse(text, content_type="application/json")
    else:
        response = HttpResponse(content_type="text/csv; charset=utf-8")
        writer = csv.writer(response)
        writer.writerow(COLUMNS)
        writer.writerows([_cell(value) for value in row.values()] for row in values)
    response["Content-Disposition"] = f'attachment; filename="tasks.{form}"'
    return response


#: What spreadsheets take for the beginning of a formula, or leave out before one; the wide ones in Japanese programs.
_FORMULA = (
    *("=", "+", "-", "@", "\t", "\r", "\n"),
    *("\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}"),
    *("\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}"),
)


def _cell(value: Any) -> Any:
    """Return a value of which no spreadsheet makes a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def download_links(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the label and the query of each download."""
    links = []
    for form in FORMATS:
        query = request.GET.copy()
        query["format"] = form
        links.append((_("Download %(form)s") % {"form": form.upper()}, f"?{query.urlencode()}"))
    return links
