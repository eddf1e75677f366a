"""What happened lately in some queues, for the charts of a page about them or about one of their tasks."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..core.past import MAX_QUEUES, moments, past_calls, window_of
from ..queues import get_client
from .past import SPANS_S, Past
from .places import Place, by_client
from .remembered import moments_that_are_over, remember_moments
from .servers import answers_of


def past_of(places: Sequence[Place], span: str, *, task: str | None = None) -> Past:
    """Read the last hour, day or week of queues. With a task, of it alone."""
    now_s = time.time()
    window = window_of(SPANS_S[span], now_s)
    past = Past.empty(window)
    for alias, group in by_client(places).items():
        group, client = group[:MAX_QUEUES], get_client(alias)
        names = tuple(place.name for place in group)
        about = names if task is None else (task, names)
        calls = past_calls(client.namespace, names, window, task=task)
        known = moments_that_are_over(client, about, window)
        missing = [begins_s for begins_s in calls if begins_s not in known]
        read = dict(zip(missing, answers_of(client, [calls[begins_s] for begins_s in missing]), strict=True))
        every = {begins_s: known.get(begins_s) or read[begins_s] for begins_s in calls}
        remember_moments(client, about, window, now_s, every)
        for at, moment in enumerate(moments(list(every.values()))):
            past.add(at, moment, group)
    return past
