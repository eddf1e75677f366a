"""The list of queues as an overview: recent activity and current depth."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.views.main import ORDER_VAR
from django.http import HttpRequest

from ..core.doctor.troubles import ORDER
from ..live.glance import Glance
from ..live.history import Past, past_together_soon
from ..live.places import QueueRef
from ..live.remembered import Guess, pages
from ..live.shard_totals import ShardTotal, totals_of
from .charts import Chart
from .past_charts import SPAN_PARAMETER, charts_of, span_links, span_of
from .queue_trouble import state_of, trouble_links, troubles_by_queue
from .site import LiveChangeList

#: Each is some sixty hashes the first time; the charts leave out queues of others when there are more.
MAX_CHARTED = 3_000


class QueueChangeList(LiveChangeList):
    """Reads the past of those queues that its page shows."""

    past: Past
    charts: list[Chart]
    spans: list[tuple[str, str, bool]]
    troubles: list[tuple[Any, str, bool]]
    #: Those of queues with shards on the page.
    totals: list[ShardTotal]
    #: How many queues the charts are about, and of how many.
    charted: int
    charted_of: int
    #: The charts of all queues are not read yet: until then they are about the queues of the page.
    is_loading = False

    def get_filters_params(self, params: dict[str, Any] | None = None) -> Any:
        """Leave out what chooses the time shown."""
        found: Any = super().get_filters_params(params)
        found.pop(SPAN_PARAMETER, None)
        return found

    def get_ordering_field_columns(self) -> Any:
        """Return the columns that the list is sorted by: none while queues with problems come first."""
        return super().get_ordering_field_columns() if ORDER_VAR in self.params else {}

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, and what happened in its queues."""
        page, span = self._page(request), span_of(request)
        queryset: Any = self.queryset
        queryset.source.folds_dead_letters = True
        glance = queryset.source.glance = Glance(pages.recall(page) or Guess(), span, queryset.source.notes)
        troubles = troubles_by_queue(state_of(request))
        if ORDER_VAR not in self.params:
            queryset.source.ranks = {place: ORDER.index(ids[0]) for place, ids in troubles.items()}
        super().get_results(request)
        if self.query:  # a search also looks at dead-letter queues
            self.full_result_count = len(queryset.source.places)
        rows: Any = self.result_list
        places = [row.place for row in rows]
        glance.show(places)
        self.totals = totals_of(places, glance)
        pages.keep(page, glance.guess(places))
        self.past = glance.past()
        for row in rows:
            row.past = self.past.by_place.get(row.place)
            row.processes = glance.processes(row.place)
            row.troubles = troubles.get(row.place, [])
            row.dead = glance.dead(row.place)
            row.depth = glance.depths.get(row.place)
            if row.past is not None and not row.is_broken:
                row.past.look_now(row.total_sent, row.created_at and row.created_at.timestamp(), glance.now_s)
        charted, self.charted_of = self._charted(queryset.source, places), len(queryset.source.unfolded)
        together = self.past if {*charted} <= {*places} else past_together_soon(charted, span)
        self.is_loading = together is None
        self.charts = charts_of(self.past if together is None else together, span)
        self.charted = len(places) if together is None else len(charted)
        self.spans = span_links(request)
        self.troubles = trouble_links(request)

    @property
    def is_filtered(self) -> bool:
        """Return whether the list is about some of the queues."""
        return bool(self.query or self.get_filters_params())

    def _charted(self, source: Any, shown: list[QueueRef]) -> list[QueueRef]:
        """Return the queues that the charts are about: all of them, unless the list is about some."""
        if self.is_filtered:
            return shown
        every: list[QueueRef] = source.unfolded
        if len(every) <= MAX_CHARTED:
            return every
        return sorted(every, key=lambda place: not place.is_configured)[:MAX_CHARTED]

    @staticmethod
    def _page(request: HttpRequest) -> str:
        """Return the key of a page, without its period."""
        query = request.GET.copy()
        query.pop(SPAN_PARAMETER, None)
        return query.urlencode()
