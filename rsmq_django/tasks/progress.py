"""The reported progress of a task, which any process can read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from .results import as_time, read_record
from .shards import clients_for


@dataclass(frozen=True, slots=True)
class Progress:
    """The last reported progress of a task."""

    done: float
    total: float | None
    note: str
    at: datetime | None


def progress_of(task_id: str) -> Progress | None:
    """Return the last reported progress of a task; None without one, or when its result has expired."""
    for client in clients_for(task_id):
        record = client.run(read_record(client.namespace, task_id))
        if "progress" in record:
            said = json.loads(record["progress"])
            return Progress(said["done"], said["total"], said["note"], as_time(record.get("progress_ms")))
    return None
