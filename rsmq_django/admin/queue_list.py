"""The list of queues as an overview: what happened lately beside what is in them now."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from ..live.past import Past, past_of
from ..live.processes import processes_by_queue
from .charts import Chart
from .past_charts import SPAN_PARAMETER, charts_of, span_links, span_of
from .site import LiveChangeList


class QueueChangeList(LiveChangeList):
    """Reads the past of those queues that its page shows."""

    past: Past
    charts: list[Chart]
    spans: list[tuple[str, str, bool]]

    def get_filters_params(self, params: dict[str, Any] | None = None) -> Any:
        """Leave out what chooses the time shown."""
        found: Any = super().get_filters_params(params)
        found.pop(SPAN_PARAMETER, None)
        return found

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, and what happened in its queues."""
        super().get_results(request)
        rows: Any = self.result_list
        places = [row.place for row in rows]
        self.past = past_of(places, span_of(request))
        serving = processes_by_queue(places)
        for row in rows:
            row.past = self.past.by_place.get(row.place)
            row.processes = serving.get(row.place, 0)
        self.charts = charts_of(self.past, span_of(request))
        self.spans = span_links(request)
