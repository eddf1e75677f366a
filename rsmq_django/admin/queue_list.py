"""The list of queues as an overview: what happened lately beside what is in them now."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from ..live.glance import Glance
from ..live.past import Past
from ..live.remembered import Guess, pages
from .charts import Chart
from .past_charts import SPAN_PARAMETER, charts_of, span_links, span_of
from .queue_trouble import trouble_links
from .site import LiveChangeList


class QueueChangeList(LiveChangeList):
    """Reads the past of those queues that its page shows."""

    past: Past
    charts: list[Chart]
    spans: list[tuple[str, str, bool]]
    troubles: list[tuple[Any, str, bool]]

    def get_filters_params(self, params: dict[str, Any] | None = None) -> Any:
        """Leave out what chooses the time shown."""
        found: Any = super().get_filters_params(params)
        found.pop(SPAN_PARAMETER, None)
        return found

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, and what happened in its queues."""
        page, span = self._page(request), span_of(request)
        queryset: Any = self.queryset
        queryset.source.folds_dead_letters = True
        glance = queryset.source.glance = Glance(pages.recall(page) or Guess(), span, queryset.source.notes)
        super().get_results(request)
        rows: Any = self.result_list
        places = [row.place for row in rows]
        glance.show(places)
        pages.keep(page, glance.guess(places))
        self.past = glance.past()
        for row in rows:
            row.past = self.past.by_place.get(row.place)
            row.processes = glance.processes(row.place)
            row.dead = glance.dead(row.place)
            row.hidden_split = glance.hidden.get(row.place)
            if row.past is not None and not row.is_broken:
                row.past.look_now(row.total_sent, row.created_at and row.created_at.timestamp(), glance.now_s)
        self.charts = charts_of(self.past, span)
        self.spans = span_links(request)
        self.troubles = trouble_links(request)

    @staticmethod
    def _page(request: HttpRequest) -> str:
        """Return what stands for a page, whatever time it shows."""
        query = request.GET.copy()
        query.pop(SPAN_PARAMETER, None)
        return query.urlencode()
