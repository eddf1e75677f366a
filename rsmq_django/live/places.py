"""The location of a queue or a message, and its key: a text for URLs, logs of the admin and forms.

    mail                 the queue `mail`, on the connection that the settings give it, or on the default one
    billing/mail         a queue of that name on another connection
    mail/dliw0h...       a message

Names and ids of other programs may contain any byte, so all but letters, digits and a few signs is percent-encoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, quote_from_bytes, unquote, unquote_to_bytes

from django.utils.translation import gettext as _

from ..conf.settings import QueueSettings, aliases_of, get_settings
from ..core import Client, Queue
from ..core.limits import TimeUnit
from ..queues import get_client, queue_on

DEFAULT_ALIAS = "default"


@dataclass(frozen=True, slots=True)
class QueueRef:
    """A queue of a connection, whether the settings know it or not."""

    alias: str
    name: str

    @property
    def key(self) -> str:
        """Return the key of the queue."""
        name = quote(self.name, safe="", errors="surrogateescape")
        return name if self.alias == home_of(self.name) else f"{quote(self.alias, safe='')}/{name}"

    @property
    def label(self) -> str:
        """Return what pages call it: its key, or the queue and the number of the shard that this is."""
        return self.key if self.shard is None else self.with_shard(self.name)

    def with_shard(self, name: str) -> str:
        """Return a name of the queue as "events (shard 2 of 4)" if this is a shard, else as it is."""
        if self.shard is None:
            return name
        shard, shards = self.shard
        return _("%(queue)s (shard %(shard)s of %(shards)s)") % {"queue": name, "shard": shard, "shards": shards}

    @property
    def shard(self) -> tuple[int, int] | None:
        """Return the number of the shard that this is, and how many there are; None for a queue without shards."""
        found = _settings_of(self.name)
        if found is None or found.shards == 1 or self.alias not in (aliases := aliases_of(found)):
            return None
        return aliases.index(self.alias), found.shards

    @property
    def client(self) -> Client:
        """Return the client of its connection."""
        return get_client(self.alias)

    @property
    def is_configured(self) -> bool:
        """Return whether the settings name it, as a queue, one of its priority bands, or a dead-letter queue."""
        found = _settings_of(self.name)
        return found is not None and self.alias in aliases_of(found)

    @property
    def holds_dead_letters(self) -> bool:
        """Return whether it is a dead-letter queue of the settings."""
        return (self.alias, self.name) in get_settings().dead_letter_places

    @property
    def dead_letters(self) -> QueueRef | None:
        """Return the dead-letter queue of the settings; None when its dead letters are deleted.

        None for a priority band as well: its dead letters are those of its queue.
        """
        found = get_settings().queues.get(self.name)
        if found is None or self.alias not in aliases_of(found) or found.dead_letter is None:
            return None
        return QueueRef(self.alias, found.dead_letter)

    @property
    def unit(self) -> TimeUnit:
        """Return the unit in which its times are stored."""
        return get_settings().queue(self.name).vt_unit if self.is_configured else "s"

    def queue(self) -> Queue:
        """Return the queue. Raises InvalidName for a name that only other programs accept."""
        return queue_on(self.name, self.alias) if self.is_configured else Queue(self.name, self.client, realtime=True)

    def message_key(self, message_id: bytes) -> str:
        """Return the key of one of its messages."""
        return f"{self.key}/{quote_from_bytes(message_id, safe=':')}"


def home_of(name: str) -> str:
    """Return the alias of the connection of a queue when none is named."""
    settings, found = get_settings(), _settings_of(name)
    if found is not None:
        return found.connection
    return DEFAULT_ALIAS if DEFAULT_ALIAS in settings.connections else next(iter(settings.connections))


def _settings_of(name: str) -> QueueSettings | None:
    settings = get_settings()
    return settings.queues.get(settings.base_name(name)) or settings.dead_letters.get(name)


def place_of(key: str) -> QueueRef | None:
    """Return the queue with this key; None when the key is not valid."""
    alias, slash, name = key.rpartition("/")
    name = unquote(name, errors="surrogateescape")
    place = QueueRef(unquote(alias) if slash else home_of(name), name)
    return place if name and place.alias in get_settings().connections else None


def message_place_of(key: str) -> tuple[QueueRef, bytes] | None:
    """Return the queue and the id of the message with this key; None when the key is not valid."""
    queue_key, slash, message_id = key.rpartition("/")
    place = place_of(queue_key) if slash else None
    return (place, unquote_to_bytes(message_id)) if place is not None else None


def in_order(places: Iterable[QueueRef]) -> list[QueueRef]:
    """Sort queues by name."""
    return sorted(places, key=lambda place: (place.name, place.alias))


def by_client(places: Iterable[QueueRef]) -> dict[str, list[QueueRef]]:
    """Group queues by the alias of their connection."""
    grouped: dict[str, list[QueueRef]] = {}
    for place in places:
        grouped.setdefault(place.alias, []).append(place)
    return grouped
