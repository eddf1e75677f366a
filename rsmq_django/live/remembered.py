"""What a process remembers of the pages that it has shown, so that showing them again costs little.

Nothing here is shown before it was compared with what is so now: names only say what to read at once, and counters are
kept only of spans of time that are over.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..conf import Settings
from ..core.counters import Window
from ..core.past import Moment
from .places import Place

#: Pages whose names are remembered; each holds at most some thousand.
MAX_PAGES = 32
#: Lists of queues whose counters are remembered; each takes up to a few megabytes.
MAX_PASTS = 32
#: A worker that was cut off reports what it counted when it is back, also for spans that are over.
KEEP_PAST_S = 300
#: A span is over when all workers must have reported: they do so once a second.
REPORTED_WITHIN_S = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Guess:
    """What a page was about the last time."""

    settings: Settings | None = None
    #: Queues that were read to choose from, and those that were shown.
    read: tuple[Place, ...] = ()
    shown: tuple[Place, ...] = ()
    #: By alias of the connection.
    worker_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Memory(Generic[T]):
    """Some values by key. The one that nobody has asked for longest is forgotten first."""

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
pages: Memory[Guess] = Memory(MAX_PAGES)


@dataclass(frozen=True, slots=True)
class _Past:
    """What was counted in spans that were over, by their begin, and until when to believe it (monotonic time)."""

    until_s: float
    moments: dict[int, Moment]


_pasts: Memory[_Past] = Memory(MAX_PASTS)


def moments_that_are_over(client: Hashable, names: Hashable, window: Window) -> Mapping[int, Moment]:
    """Return what is known of queues in spans of a window, by their begin."""
    past = _pasts.recall((client, names, window.step_s))
    return past.moments if past is not None and time.monotonic() < past.until_s else {}


def remember_moments(
    client: Hashable, names: Hashable, window: Window, now_s: float, found: Mapping[int, Moment]
) -> None:
    """Remember those that are over."""
    key, over_s = (client, names, window.step_s), now_s - REPORTED_WITHIN_S
    past = _pasts.recall(key)
    until_s = past.until_s if past is not None and time.monotonic() < past.until_s else time.monotonic() + KEEP_PAST_S
    over = {begins_s: moment for begins_s, moment in found.items() if begins_s + window.step_s <= over_s}
    _pasts.keep(key, _Past(until_s, over))
