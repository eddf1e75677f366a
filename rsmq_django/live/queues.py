"""The queues of all connections as rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from django.db import models

from ..conf.settings import get_settings
from ..core.queue.listing import QueueSummary
from ..core.queue.pause import paused
from .conditions import Selection
from .glance import Glance
from .places import QueueRef, by_client, in_order, place_of
from .queryset import Scan
from .servers import all_places, summaries_of
from .times import as_datetime

#: Fields by which queues are sorted without creating a row for each.
ORDERS: Mapping[str, Callable[[QueueSummary], float | None]] = {
    "ready": lambda summary: summary.depth.ready,
    "oldest_ready_s": lambda summary: summary.depth.oldest_ready_s,
    "next_due_s": lambda summary: summary.next_due_s,
}


class QueueRowSource:
    """Reads names first, and the contents of queues only for the rows on the page."""

    def __init__(self, model: type[models.Model]) -> None:
        self.model = model
        self.notes: list[str] = []
        #: The replies of the servers that a page has read before.
        self.glance: Glance | None = None
        #: Leave out queues whose messages are counted as the dead letters of another queue.
        self.folds_dead_letters = False
        #: Queues that need attention, which come first unless another order was selected; the worst has 0.
        self.ranks: Mapping[QueueRef, int] | None = None

    @cached_property
    def places(self) -> list[QueueRef]:
        """Return all queues, sorted by name."""
        return self.glance.places if self.glance is not None else all_places(self.notes)

    @cached_property
    def unfolded(self) -> list[QueueRef]:
        """Return the queues of a list without filters, sorted by name."""
        return without_dead_letters(self.places) if self.folds_dead_letters else self.places

    def _chosen(self, selection: Selection) -> list[QueueRef]:
        keys = selection.values("key")
        if keys is None:
            # When a search or a filter names them, dead-letter queues are rows like other queues.
            is_asked_for = selection.words or "holds_dead_letters" in selection.equal
            return self.places if is_asked_for else self.unfolded
        # Only these: a page about one queue must not list a thousand.
        named = summaries_of(in_order({place for place in map(place_of, keys) if place}))
        return [place for place, summary in named.items() if summary.attributes is not None or place in self.places]

    def _found(self, selection: Selection) -> list[QueueRef]:
        """Return the selected queues that have all words of a search in their names."""
        words = [word.lower() for word in selection.words]
        places = self._chosen(selection)
        return [place for place in places if all(word in place.name.lower() for word in words)] if words else places

    def can_page(self, selection: Selection) -> bool:
        """See RowSource."""
        order_by = selection.order_by
        is_known = not order_by or (len(order_by) == 1 and order_by[0].lstrip("-") in ("name", *ORDERS))
        return is_known and selection.is_exact and set(selection.equal) <= {"key"}

    def count(self, selection: Selection) -> int:
        """See RowSource."""
        return len(self._found(selection))

    def page(self, selection: Selection, start: int, stop: int | None) -> list[Any]:
        """See RowSource."""
        places, name = self._found(selection), "".join(selection.order_by)
        order, is_reversed = ORDERS.get(name.lstrip("-")), name.startswith("-")
        if order is not None:
            # The contents of a thousand queues are read in a few milliseconds; rows are created only for the page.
            summaries = self._summaries_of(places)
            places = sorted(places, key=lambda place: _none_first(order(summaries[place])), reverse=is_reversed)
        elif is_reversed:
            places = places[::-1]
        elif self.ranks is not None:
            places = self._worst_first(places)
        return self._rows(places[start:stop])

    def scan(self, selection: Selection) -> Scan:
        """Read all queues."""
        places = self._found(selection)
        if self.ranks is None or not selection.is_exact:
            return Scan(self._rows(places), len(places), len(places))
        rows = self._rows(self._worst_first(places))
        fitting = [row for row in rows if all(getattr(row, name) in values for name, values in selection.equal.items())]
        return Scan(fitting, len(places), len(places), is_final=True)

    def _worst_first(self, places: list[QueueRef]) -> list[QueueRef]:
        """Return the queues that need attention, then the other queues of the settings, then unknown queues."""
        settings, ranks = get_settings(), self.ranks or {}
        last = max(ranks.values(), default=0) + 1

        def key(place: QueueRef) -> tuple[int, bool]:
            name = settings.base_name(place.name)
            rank = ranks.get(place) if name == place.name else ranks.get(QueueRef(place.alias, name))
            return (last if rank is None else rank, not place.is_configured)

        return sorted(places, key=key)

    def _summaries_of(self, places: list[QueueRef]) -> dict[QueueRef, QueueSummary]:
        return self.glance.summaries_of(places) if self.glance is not None else summaries_of(places)

    def _rows(self, places: list[QueueRef]) -> list[Any]:
        is_paused = self.glance.is_paused if self.glance is not None else paused_places(places).__contains__
        rows: list[Any] = []
        for place, summary in self._summaries_of(places).items():
            rows.append(self.model(**fields_of(place, summary), is_paused=is_paused(place)))
            rows[-1].now_ms = summary.depth.now_ms
        return rows


def without_dead_letters(places: list[QueueRef]) -> list[QueueRef]:
    """Return queues without dead-letter queues whose messages are shown with another queue of the list."""
    folded = {place.dead_letters for place in places}
    return [place for place in places if place not in folded]


def paused_places(places: list[QueueRef]) -> set[QueueRef]:
    """Return the paused queues. A priority band pauses with its queue."""
    found: set[QueueRef] = set()
    for group in by_client(places).values():
        names = group[0].client.run(paused(group[0].client.namespace))
        found.update(place for place in group if get_settings().base_name(place.name) in names)
    return found


def fields_of(place: QueueRef, summary: QueueSummary) -> dict[str, Any]:
    """Return the fields of the model `Queue`."""
    fields: dict[str, Any] = {
        "key": place.key,
        "name": place.name,
        "connection": place.alias,
        "is_configured": place.is_configured,
        "holds_dead_letters": place.holds_dead_letters or summary.failures > 0,
        "is_broken": summary.attributes is None,
        "oldest_ready_s": summary.depth.oldest_ready_s,
        "next_due_s": summary.next_due_s,
    }
    attributes, depth = summary.attributes, summary.depth
    if attributes is None:
        return fields
    return fields | {
        "visibility_timeout_s": attributes.visibility_timeout_s,
        "delay_s": attributes.delay_s,
        "max_size_bytes": attributes.max_size_bytes,
        "messages": depth.messages,
        "ready": depth.ready,
        "hidden": depth.hidden,
        "total_sent": depth.total_sent,
        "total_received": depth.total_received,
        "created_at": as_datetime(_milliseconds(attributes.created_s)),
        "modified_at": as_datetime(_milliseconds(attributes.modified_s)),
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _none_first(value: float | None) -> tuple[bool, float]:
    return value is not None, value or 0.0
