"""The records of worker processes on all connections, beside their beats."""

from __future__ import annotations

from collections.abc import Iterable

from ..core import Client
from ..core.bands import split_band
from ..core.errors import RedisFailure
from ..core.listing import WorkerBeat, workers
from ..core.processes import ProcessRecord, read_processes
from .places import Place, by_client

#: A worker that has not been heard of for so long counts as dead: others give back what it held.
SILENT_AFTER_S = 30.0


def processes_of(client: Client) -> list[tuple[WorkerBeat, ProcessRecord | None]]:
    """Return all workers of a server, those heard of last first, with their records as far as they have one."""
    beats = client.run(workers(client.namespace))
    records = client.run(read_processes(client.namespace, [beat.worker_id for beat in beats])) if beats else {}
    return [(beat, records.get(beat.worker_id)) for beat in beats]


def is_alive(beat: WorkerBeat) -> bool:
    """Return whether a worker was heard of lately."""
    return (beat.now_ms - beat.beat_ms) / 1000 < SILENT_AFTER_S


def processes_by_queue(places: Iterable[Place]) -> dict[Place, int]:
    """Return how many living processes take messages from each queue; from a priority band as from its queue."""
    found: dict[Place, int] = {}
    for group in by_client(places).values():
        try:
            records = [record for beat, record in processes_of(group[0].client) if record and is_alive(beat)]
        except RedisFailure:
            continue
        for place in group:
            name = split_band(place.name)[0]
            found[place] = sum(name in record.queues and record.state == "working" for record in records)
    return found
