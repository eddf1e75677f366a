"""Priority bands: the messages of one priority lie in a queue of their own.

`mail-p50` holds what was sent to `mail` with priority 50, `mail-m10` priority -10; priority 0 is `mail` itself. Each
is an ordinary RSMQ queue that any client reads and writes, so delayed messages, retries and leases keep their
priority by staying where they are. The set of queue names, which every client keeps, tells which bands exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .errors import InvalidValue

HIGHEST, LOWEST = 100, -100

_BAND = re.compile(r"(?P<queue>.+)-(?P<sign>[pm])(?P<number>[1-9][0-9]?|100)")


def band_name(queue_name: str, priority: int) -> str:
    """Return the name of the queue that holds messages of this priority. Raises InvalidValue outside -100..100."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not LOWEST <= priority <= HIGHEST:
        raise InvalidValue(f"priority is {priority!r}; it must be a whole number from {LOWEST} to {HIGHEST}")
    if priority == 0:
        return queue_name
    return f"{queue_name}-{'p' if priority > 0 else 'm'}{abs(priority)}"


def split_band(name: str) -> tuple[str, int]:
    """Return the queue and the priority that a name stands for; any other name is a queue itself, of priority 0."""
    found = _BAND.fullmatch(name)
    if found is None:
        return name, 0
    number = int(found["number"])
    return found["queue"], number if found["sign"] == "p" else -number


def bands_of(queue_name: str, names: Iterable[str]) -> list[str]:
    """Return the bands of a queue among `names`, and the queue itself, highest priority first."""
    found = {queue_name: 0}
    for name in names:
        base, priority = split_band(name)
        if base == queue_name:
            found[name] = priority
    return sorted(found, key=lambda name: -found[name])


def by_queue(names: Iterable[str]) -> dict[str, list[str]]:
    """Group names by the queues whose bands they are, so that bands_of() of many queues need not read them all."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(split_band(name)[0], []).append(name)
    return groups
