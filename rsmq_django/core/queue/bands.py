"""Priority bands and lanes: the messages of one priority, or of some tenants, are in a separate queue.

`mail-p50` has the messages sent to `mail` with priority 50, `mail-m10` priority -10; priority 0 is `mail` itself.
`mail-lane3` and `mail-p50-lane3` have the calls of the tenants that share lane 3, so that workers can take turns
between lanes. Each is an ordinary RSMQ queue that any client reads and writes, so delayed messages, retries and leases
stay in their band and lane. The set of queue names, which every client maintains, contains all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import InvalidValue
from ..numbers import is_whole

HIGHEST, LOWEST = 100, -100

#: More lanes would cost more keys in each read than they are worth.
MOST_LANES = 64

_BAND = re.compile(r"(?P<queue>.+)-(?P<sign>[pm])(?P<number>[1-9][0-9]?|100)")
_LANES = {str(lane): lane for lane in range(MOST_LANES)}


def band_name(queue_name: str, priority: int, lane: int | None = None) -> str:
    """Return the name of the queue that holds messages of this priority and lane.

    Raises InvalidValue for a priority outside -100..100.
    """
    if not is_whole(priority) or not LOWEST <= priority <= HIGHEST:
        raise InvalidValue(f"priority is {priority!r}; it must be a whole number from {LOWEST} to {HIGHEST}")
    band = queue_name if priority == 0 else f"{queue_name}-{'p' if priority > 0 else 'm'}{abs(priority)}"
    return band if lane is None else f"{band}-lane{lane}"


def split_band(name: str) -> tuple[str, int]:
    """Return the queue and the priority of a band's name; any other name is a queue itself, of priority 0."""
    queue, priority, _ = _parts(name)
    return queue, priority


def lane_of(name: str) -> int | None:
    """Return the lane in a name, or None."""
    return _parts(name)[2]


def bands_of(queue_name: str, names: Iterable[str]) -> list[str]:
    """Return the bands of a queue among `names`, and the queue itself: highest priority first, then by lane."""
    found = {queue_name: (0, -1)}
    for name in names:
        base, priority, lane = _parts(name)
        if base == queue_name:
            found[name] = (-priority, -1 if lane is None else lane)
    return sorted(found, key=found.__getitem__)


def _parts(name: str) -> tuple[str, int, int | None]:
    before, _, last = name.rpartition("-lane")
    lane = _LANES.get(last) if before else None
    band = name if lane is None else before
    found = _BAND.fullmatch(band)
    if found is None:
        return band, 0, lane
    number = int(found["number"])
    return found["queue"], number if found["sign"] == "p" else -number, lane


def by_queue(names: Iterable[str]) -> dict[str, list[str]]:
    """Return names by the queue whose bands they are, so that bands_of() of many queues need not read all names."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(split_band(name)[0], []).append(name)
    return groups
