"""The page of the lake: its place, its tables, and the days of a table. It reads no file of the lake."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _

from ..admin.charts import Chart, Number, Series
from ..admin.formats import as_size
from ..admin.past_charts import show_number
from ..spark.schemas import EVENTS
from . import history
from .charts import begin_of, chart_of, hours_and_days
from .fields import utc
from .models import LakeDay
from .pages import HistoryAdmin, span_links, span_of

#: Program -> the line of Python that opens a table. Credentials come from the variables of the storage.
READERS = {
    "DuckDB": "import deltalake, duckdb; "
    "rows = duckdb.from_arrow(deltalake.DeltaTable({place!r}).to_pyarrow_dataset())",
    "polars": "import polars; rows = polars.scan_delta({place!r})",
}


@admin.register(LakeDay)
class LakeAdmin(HistoryAdmin):
    """The tables of the lake, and rows, files and bytes of each day of one of them."""

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Show figures and charts instead of rows of days."""
        self.demand_view(request)
        now, state, tables = utc(timezone.now()), history.lake_state(), history.lake_tables()
        asked = request.GET.get("table")
        chosen = asked if asked in [one.table for one in tables] else EVENTS.name
        since = begin_of(span_of(request), now)
        days = history.lake_days(table=chosen, since=since.date())
        context = {
            "title": _("Lake"),
            "state": state,
            "chosen": chosen,
            "tables": [(one, as_size(one.size_bytes)) for one in tables],
            "files": sum(one.files for one in tables),
            "size": as_size(sum(one.size_bytes for one in tables)),
            "readers": readers_of(f"{state.place}/{chosen}") if state else [],
            "days": [(day, as_size(day.size_bytes)) for day in days],
            "charts": lake_charts_of(days, since, now) if days else [],
            "spans": span_links(request),
            "is_still": True,
        }
        return self.own_page(request, "history/lake.html", context)


def readers_of(place: str) -> list[tuple[str, str]]:
    """Return the programs that open a table, and the line for each."""
    return [(program, line.format(place=place)) for program, line in READERS.items()]


def lake_charts_of(days: Sequence[LakeDay], since: dt.datetime, now: dt.datetime) -> list[Chart]:
    """Return charts of the rows and the bytes of each day."""
    found = {day.day: day for day in days}
    steps = hours_and_days(since, now, "day")
    row = [found.get(step) for step in steps]
    rows: list[Number] = [None if day is None else day.rows for day in row]
    sizes: list[Number] = [None if day is None else day.size_bytes / 2**20 for day in row]
    return [
        chart_of("lake-rows", _("Rows per day"), steps, [Series(_("rows"), "a", rows)], show_number, is_stacked=True),
        chart_of("lake-size", _("MiB per day"), steps, [Series("MiB", "b", sizes)], show_number, is_stacked=True),
    ]
