"""Releasing in Redis what is safely in the lake: trimming the event log, acknowledging drained messages.

Runs after a query, every half minute beside a continuous one, and first thing of the next run. Safe to repeat: whatever
a crash left undone is done by the next call.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..core.drain import Drain
from ..core.limits import MAX_BATCH
from ..core.streams import BEGINNING, readers_key, trim
from .checkpoint import finished_offset
from .drain import drains
from .options import Options
from .server import Server


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What became of drained messages."""

    entries: int
    #: Leased messages that somebody else received meanwhile: their rows are in the lake, they stay in the queue.
    left: int


def trim_events(server: Server, checkpoint: Path, *, reader: str = "archive") -> int:
    """Remove from the event log what this checkpoint has finished and no other reader needs; return how much."""
    return sum(
        server.run(trim(stream, readers_key(stream), reader=reader, finished_id=end["id"]))
        for stream, end in (finished_offset(checkpoint) or {}).items()
        if end["id"] != BEGINNING
    )


def acknowledge_drained(options: Options, checkpoint: Path) -> Acknowledged:
    """Shorten the journals by what this checkpoint has finished, and delete leased messages among it."""
    server, entries, left = options.server(), 0, 0
    offsets = finished_offset(checkpoint) or {}
    for drain in drains(options):
        end = offsets.get(drain.journal)
        while end and end["id"] != BEGINNING:
            done, foreign = server.run(drain.acknowledge(end["id"]))
            entries, left = entries + done, left + foreign
            if done < MAX_BATCH:
                break
    server.close()
    return Acknowledged(entries, left)


def restore_drained(server: Server, drain: Drain) -> int:
    """Give up a drain: put what its journal still holds back into the queue; return how many messages."""
    total = 0
    while True:
        entries, back = server.run(drain.restore())
        total += back
        if entries < MAX_BATCH:
            return total
