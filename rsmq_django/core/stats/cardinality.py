"""Limits for the number of names that are shown: any program may write names of tasks and queues into Redis.

Names beyond the limits are counted together under OTHER, so that sums stay true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence

from .counts import COUNTERS, HISTOGRAMS
from .histogram import read_bucket

#: Label for all names that are not shown. Not a valid name of a queue or dotted path of a task.
OTHER = "(other)"
#: Maximum number of separate pairs of queue and task in one read of a connection.
MOST_TASKS = 1000
#: Maximum number of separate queues, reliable queues and topic groups in one scrape.
MOST_QUEUES = 1000
_SUMS = tuple(f"{name}_us" for name in HISTOGRAMS)


def parts_of(field: str) -> tuple[str, int | None, str] | None:
    """Return kind, bucket and task of a field of counters; None for a field that does not belong to a task."""
    kind, _, task = field.partition(":")
    if kind in HISTOGRAMS:
        text, _, task = task.partition(":")
        bucket = read_bucket(text)
        return None if bucket is None else (kind, bucket, task)
    return (kind, None, task) if kind in COUNTERS or kind in _SUMS else None


def shown_tasks(queues: Mapping[str, Sequence[Mapping[str, int]]], known: Container[str]) -> dict[str, set[str]] | None:
    """Return the tasks of each queue that are shown: `known` ones first, then the busiest; None if all are shown."""
    weights = Counter[tuple[str, str]]()
    for queue, hashes in queues.items():
        for fields in hashes:
            for field, number in fields.items():
                if (parts := parts_of(field)) is not None:
                    weights[queue, parts[2]] += number if parts[0] in COUNTERS else 0
    if len(weights) <= MOST_TASKS:
        return None
    chosen: dict[str, set[str]] = {queue: set() for queue in queues}
    for queue, task in sorted(weights, key=lambda pair: (pair[1] not in known, -weights[pair], pair))[:MOST_TASKS]:
        chosen[queue].add(task)
    return chosen
