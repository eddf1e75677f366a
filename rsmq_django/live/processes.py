"""The records of worker processes on all connections, beside their beats."""

from __future__ import annotations

from ..core import Client
from ..core.listing import WorkerBeat, workers
from ..core.processes import ProcessRecord, read_processes

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
