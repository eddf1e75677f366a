"""The records of worker processes on all connections, and their heartbeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ..conf.settings import get_settings
from ..core import Client
from ..core.queue.listing import WorkerBeat, workers
from ..core.tasks.processes import SILENT_AFTER_S, ProcessRecord, read_processes
from .places import QueueRef

#: Maximum length of the list of queues that names a group of processes.
LONGEST_NAMES = 200


def processes_of(client: Client) -> list[tuple[WorkerBeat, ProcessRecord | None]]:
    """Return all workers of a server, the latest heartbeats first, with their records if they have one."""
    beats = client.run(workers(client.namespace))
    records = client.run(read_processes(client.namespace, [beat.worker_id for beat in beats])) if beats else {}
    return [(beat, records.get(beat.worker_id)) for beat in beats]


def serving(place: QueueRef) -> list[str]:
    """Return the live processes that consume a queue; for a priority band, those of its queue."""
    name = get_settings().base_name(place.name)
    return [worker_id for worker_id, record in _at_work(place.client) if name in record.queues]


def served_names(client: Client) -> set[str]:
    """Return the names of all queues of a server that live processes consume."""
    return {name for _worker_id, record in _at_work(client) for name in record.queues}


def records_at_work(client: Client) -> list[ProcessRecord]:
    """Return the records of live processes that receive messages."""
    return [record for _worker_id, record in _at_work(client)]


def worker_counts(records: Iterable[ProcessRecord]) -> Counter[str]:
    """Return how many of these processes consume each queue and each reliable queue."""
    return Counter(name for record in records for name in {*record.queues, *record.reliable})


def slots_in_use(records: Iterable[ProcessRecord]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the busy and all slots of these processes, by the queues that they consume and the kind of slots.

    The names of the queues are joined by commas; long lists are cut, and count together when the rest is equal.
    """
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for record in records:
        names = ",".join(sorted({*record.queues, *record.reliable}))
        if len(names) > LONGEST_NAMES:
            names = f"{names[:LONGEST_NAMES].rpartition(',')[0]},..."
        for each in record.slots:
            busy, total = sums.get((names, each.kind), (0, 0))
            sums[names, each.kind] = busy + each.busy, total + each.total
    return sums


def _at_work(client: Client) -> Iterator[tuple[str, ProcessRecord]]:
    for beat, record in processes_of(client):
        if is_alive(beat) and record is not None and record.state == "working":
            yield beat.worker_id, record


def is_alive(beat: WorkerBeat) -> bool:
    """Return whether the heartbeat of a worker is recent."""
    return (beat.now_ms - beat.beat_ms) / 1000 < SILENT_AFTER_S
