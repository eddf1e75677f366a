"""Data of earlier pages that a process remembers, so that the same page costs little the next time.

Remembered data is compared with the current state before it is shown: names only select the data that is read at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..conf.settings import Settings
from .places import QueueRef

#: Number of pages whose names are remembered; each has up to some thousand names.
MAX_PAGES = 32
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Guess:
    """The contents of a page at the last request."""

    settings: Settings | None = None
    #: Queues that were read for the selection, and the queues on the page.
    read: tuple[QueueRef, ...] = ()
    shown: tuple[QueueRef, ...] = ()
    #: By alias of the connection.
    worker_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class LruCache(Generic[T]):
    """Values by key. The least recently used value is forgotten first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()

    def recall(self, key: Hashable) -> T | None:
        """Return the value of a key, or None."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def keep(self, key: Hashable, value: T) -> None:
        """Remember a value."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)


#: By query string of the page.
pages: LruCache[Guess] = LruCache(MAX_PAGES)
