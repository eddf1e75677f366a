"""The queues of all connections as rows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.db import models

from ..core.bands import split_band
from ..core.listing import QueueSummary
from ..core.pause import paused
from .conditions import Selection
from .glance import Glance
from .places import Place, by_client, in_order, place_of
from .queryset import Scan
from .servers import all_places, summaries_of
from .times import as_datetime


class QueueSource:
    """Reads names first, and what a queue holds only for those that are shown."""

    def __init__(self, model: type[models.Model]) -> None:
        self.model = model
        self.notes: list[str] = []
        #: What a page has read of the servers beforehand.
        self.glance: Glance | None = None

    @cached_property
    def places(self) -> list[Place]:
        """Return all queues, sorted by name."""
        return self.glance.places if self.glance is not None else all_places(self.notes)

    def _chosen(self, selection: Selection) -> list[Place]:
        keys = selection.values("key")
        if keys is None:
            return self.places
        # Only those: a page about one queue must not list a thousand.
        named = summaries_of(in_order({place for place in map(place_of, keys) if place}))
        return [place for place, summary in named.items() if summary.attributes is not None or place in self.places]

    def can_page(self, selection: Selection) -> bool:
        """See Source."""
        by_name = selection.order_by in ((), ("name",), ("-name",))
        return by_name and selection.is_exact and set(selection.equal) <= {"key"} and not selection.words

    def count(self, selection: Selection) -> int:
        """See Source."""
        return len(self._chosen(selection))

    def page(self, selection: Selection, start: int, stop: int | None) -> list[Any]:
        """See Source."""
        places = self._chosen(selection)
        return self._rows((places[::-1] if selection.order_by == ("-name",) else places)[start:stop])

    def scan(self, selection: Selection) -> Scan:
        """Read all queues: a thousand of them take Redis a few milliseconds."""
        words = [word.lower() for word in selection.words]
        places = [place for place in self._chosen(selection) if all(word in place.name.lower() for word in words)]
        return Scan(self._rows(places), len(places), len(places))

    def _rows(self, places: list[Place]) -> list[Any]:
        if self.glance is not None:
            stopped = {place for place in places if self.glance.is_paused(place)}
            summaries = self.glance.summaries_of(places)
        else:
            stopped, summaries = paused_places(places), summaries_of(places)
        return [
            self.model(**fields_of(place, summary), is_paused=place in stopped) for place, summary in summaries.items()
        ]


def paused_places(places: list[Place]) -> set[Place]:
    """Return which of the queues are paused. A priority band pauses with its queue."""
    found: set[Place] = set()
    for group in by_client(places).values():
        names = group[0].client.run(paused(group[0].client.namespace))
        found.update(place for place in group if split_band(place.name)[0] in names)
    return found


def fields_of(place: Place, summary: QueueSummary) -> dict[str, Any]:
    """Return the fields of the model `Queue`."""
    fields: dict[str, Any] = {
        "key": place.key,
        "name": place.name,
        "connection": place.alias,
        "is_configured": place.is_configured,
        "holds_dead_letters": place.holds_dead_letters or summary.failures > 0,
        "is_broken": summary.attributes is None,
        "oldest_ready_s": summary.oldest_ready_s,
        "next_due_s": summary.next_due_s,
    }
    attributes = summary.attributes
    if attributes is None:
        return fields
    return fields | {
        "visibility_timeout_s": attributes.visibility_timeout_s,
        "delay_s": attributes.delay_s,
        "max_size_bytes": attributes.max_size_bytes,
        "messages": attributes.messages,
        "ready": attributes.ready_messages,
        "hidden": attributes.hidden_messages,
        "total_sent": attributes.total_sent,
        "total_received": attributes.total_received,
        "created_at": as_datetime(_milliseconds(attributes.created_s)),
        "modified_at": as_datetime(_milliseconds(attributes.modified_s)),
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
