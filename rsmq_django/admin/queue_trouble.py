"""Which queues somebody should look at: among a thousand, those in trouble, found in one click.

All queues are read for it, what an overview reads of each; which of them are in trouble is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from ..conf import get_settings
from ..core.listing import QueueSummary
from ..live.places import Place, by_client
from ..live.processes import served_names
from ..live.queues import paused_places
from ..live.servers import all_places, summaries_of

#: A message that is ready for so long should have been taken.
STUCK_AFTER_S = 60.0
TROUBLE_PARAMETER = "trouble"


@dataclass(frozen=True, slots=True)
class Look:
    """What was read of all queues."""

    summaries: Mapping[Place, QueueSummary]
    #: Living processes take messages from it, and it is not paused.
    served: frozenset[Place]

    def is_stuck(self, place: Place) -> bool:
        """Return whether a message has been ready for long."""
        return (self._oldest_s(place) or 0.0) > STUCK_AFTER_S

    def is_unserved(self, place: Place) -> bool:
        """Return whether messages are ready that no process of ours will take."""
        return self._oldest_s(place) is not None and place.is_configured and place not in self.served

    def has_died(self, place: Place) -> bool:
        """Return whether a queue has dead letters."""
        dead_letters = place.dead_letters
        summary = self.summaries.get(dead_letters) if dead_letters is not None else None
        return summary is not None and summary.attributes is not None and summary.attributes.messages > 0

    def _oldest_s(self, place: Place) -> float | None:
        # Nobody takes dead letters by himself.
        return None if place.holds_dead_letters else self.summaries[place].oldest_ready_s


#: The value in the address, what it is called, and which queues are meant.
TROUBLES: Mapping[str, tuple[Any, Callable[[Look, Place], bool]]] = {
    "stuck": (gettext_lazy("backlog older than 1 min"), Look.is_stuck),
    "unserved": (gettext_lazy("no worker"), Look.is_unserved),
    "dead": (gettext_lazy("with dead letters"), Look.has_died),
}


class TroubleFilter(admin.SimpleListFilter):
    """Queues in one kind of trouble."""

    title = gettext_lazy("problem")
    parameter_name = TROUBLE_PARAMETER

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the kinds to choose from."""
        return [(value, label) for value, (label, _is_meant) in TROUBLES.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the queues that are meant."""
        kind = TROUBLES.get(self.value() or "")
        return queryset.filter(pk__in=[place.key for place in in_trouble(kind[1])]) if kind else queryset


def in_trouble(is_meant: Callable[[Look, Place], bool]) -> list[Place]:
    """Return the queues of all connections that are meant, sorted by name."""
    places = all_places([])
    look = Look(summaries_of(places), frozenset(_served(places)))
    return [place for place in places if is_meant(look, place)]


def _served(places: list[Place]) -> Iterable[Place]:
    settings, paused = get_settings(), paused_places(places)
    for group in by_client(places).values():
        names = served_names(group[0].client)
        yield from (place for place in group if settings.base_name(place.name) in names and place not in paused)


def trouble_links(request: HttpRequest) -> list[tuple[Any, str, bool]]:
    """Return what to choose from above the list: label, query string, whether it is the one that is shown."""
    links = []
    for value, label in (("", gettext_lazy("all queues")), *((value, each[0]) for value, each in TROUBLES.items())):
        query = request.GET.copy()
        for name in (TROUBLE_PARAMETER, "p"):
            query.pop(name, None)
        if value:
            query[TROUBLE_PARAMETER] = value
        links.append((label, f"?{query.urlencode()}", value == request.GET.get(TROUBLE_PARAMETER, "")))
    return links
