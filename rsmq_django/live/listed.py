"""Objects that are listed by name and read one by one, as rows: topics and reliable queues of all connections."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from django.db import models
from django.utils.translation import ngettext

from ..core import Client
from ..core.errors import InvalidName
from ..core.reliable import ReliableQueue, ReliableStatistics, list_reliable_queues
from ..core.topic import Topic, TopicStatus, list_topics
from ..core.transport.call import Call
from .conditions import Selection
from .places import QueueRef, by_client, in_order, place_of
from .queryset import Scan
from .servers import answers_that_came, from_each
from .times import as_datetime


class ListedSource:
    """Reads names first, and further data only for the rows on the page."""

    #: Returns the names on a server.
    names: Callable[[Client], list[str]]
    #: Returns the call that reads one of them. Raises InvalidName.
    call: Callable[[str, Client], Call[Any]]
    #: Returns the reply as fields of the model. It receives None for an object that cannot be read, and returns None
    #: when the object does not exist.
    fields: Callable[[Any], dict[str, Any] | None]

    def __init__(self, model: type[models.Model]) -> None:
        self.model = model
        self.notes: list[str] = []

    @cached_property
    def places(self) -> list[QueueRef]:
        """Return all of them, sorted by name."""
        found = from_each(
            lambda alias, client: [QueueRef(alias, name) for name in type(self).names(client)],
            self.notes,
            with_shards=False,
        )
        places = [place for group in found for place in group]
        usable = [place for place in places if self._call(place) is not None]
        if odd := len(places) - len(usable):
            text = ngettext("%d entry is not a valid name.", "%d entries are not valid names.", odd)
            self.notes.append(text % odd)
        return in_order(usable)

    def _call(self, place: QueueRef) -> Call[Any] | None:
        try:
            return type(self).call(place.name, place.client)
        except InvalidName:
            return None

    def _chosen(self, selection: Selection) -> list[QueueRef]:
        keys = selection.values("key")
        if keys is None:
            return self.places
        named = in_order({place for place in map(place_of, keys) if place})
        return [place for place in named if self._call(place) is not None]

    def can_page(self, selection: Selection) -> bool:
        """See RowSource."""
        return selection.order_by in ((), ("name",), ("-name",)) and not selection.equal and self._is_plain(selection)

    @staticmethod
    def _is_plain(selection: Selection) -> bool:
        return selection.is_exact and not selection.words

    def count(self, selection: Selection) -> int:
        """See RowSource."""
        return len(self.places)

    def page(self, selection: Selection, start: int, stop: int | None) -> list[Any]:
        """See RowSource."""
        places = self.places[::-1] if selection.order_by == ("-name",) else self.places
        return self._rows(places[start:stop])

    def scan(self, selection: Selection) -> Scan:
        """See RowSource."""
        words = [word.lower() for word in selection.words]
        places = [place for place in self._chosen(selection) if all(word in place.name.lower() for word in words)]
        rows = self._rows(places)
        return Scan(rows, len(places), len(places))

    def _rows(self, places: list[QueueRef]) -> list[Any]:
        rows = []
        for group in by_client(places).values():
            calls = [type(self).call(place.name, place.client) for place in group]
            for place, reply in zip(group, answers_that_came(group[0].client, calls), strict=True):
                fields = type(self).fields(reply)
                if fields is not None:
                    rows.append(self.model(key=place.key, name=place.name, connection=place.alias, **fields))
        order = {place.key: at for at, place in enumerate(places)}
        return sorted(rows, key=lambda row: order[row.key])


def _topic_fields(status: TopicStatus | None) -> dict[str, Any] | None:
    if status is None:
        return {"is_broken": True}
    if not status.exists:
        return None
    return {
        "messages": status.length,
        "first": status.first,
        "last": status.last,
        "groups": status.groups,
        "oldest_at": as_datetime(status.oldest_ms),
        "newest_at": as_datetime(status.newest_ms),
    }


class TopicSource(ListedSource):
    """Topics that were used with this package."""

    names = staticmethod(list_topics)
    call = staticmethod(lambda name, client: Topic(name, client).status_call())
    fields = staticmethod(_topic_fields)


def _reliable_fields(statistics: ReliableStatistics | None) -> dict[str, Any] | None:
    if statistics is None:
        return None  # no message was pushed yet, or it was deleted
    depth, oldest_ms = statistics.depth, statistics.oldest_delivery_ms
    return {
        "waiting": depth.ready,
        "delayed": depth.delayed,
        "pending": depth.in_flight,
        "dead": depth.dead,
        "oldest_pending_s": None if oldest_ms is None else oldest_ms / 1000,
        "max_deliveries": statistics.max_deliveries,
    }


class ReliableQueueSource(ListedSource):
    """Reliable queues."""

    names = staticmethod(list_reliable_queues)
    call = staticmethod(lambda name, client: ReliableQueue(name, client).statistics_call())
    fields = staticmethod(_reliable_fields)
