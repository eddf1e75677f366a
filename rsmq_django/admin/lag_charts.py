"""The charts of a topic: for each of its groups, how far it was behind in an hour, a day or a week."""

from __future__ import annotations

import time
from collections.abc import Sequence

from django.utils.translation import gettext as _

from ..core.stats.history import Window, lag_calls, lags_of
from ..core.topic import GroupStatus, Topic
from ..live.history import SPANS_S
from .charts import Chart, Series
from .formats import one_line
from .past_charts import show_number, time_label

#: Of the groups that are furthest behind.
MAX_CHARTS = 12


def lag_charts(topic: Topic, groups: Sequence[GroupStatus], span: str) -> list[Chart]:
    """Return a chart for each of the first groups, all read in one round trip."""
    if not groups:
        return []
    now_s = time.time()
    window = Window.of(now_s - SPANS_S[span], now_s)
    spans = topic.client.run_many(lag_calls(topic.name, window))
    times = [time_label(begins_s, span) for begins_s in window.steps]
    return [
        Chart(
            f"lag-{number}",
            _("Lag of %(group)s") % {"group": one_line(group.name, 40)},
            times,
            [Series(_("messages"), "a", lags_of(group.name, spans))],
            show_number,
            nothing=_("No data. Lag is recorded while a worker consumes this topic."),
            shows_zero=True,
        )
        for number, group in enumerate(groups[:MAX_CHARTS])
    ]
