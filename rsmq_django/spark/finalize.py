"""Releasing in Redis what is safely in the lake: trimming the event log, acknowledging drained messages.

Runs after a query, every half minute beside a continuous one, and first thing of the next run. Safe to repeat: whatever
a crash left undone is done by the next call.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.drain import Drain
from ..core.limits import MAX_BATCH
from ..core.streams import BEGINNING, readers_key, trim
from .checkpoint import finished_offset
from .drain import drains
from .durable import sync, sync_tree
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
        for stream, end in _settled_offset(checkpoint).items()
        if end["id"] != BEGINNING
    )


def _settled_offset(checkpoint: Path) -> dict[str, Any]:
    """Return where the last finished batch ended, once the notes about it are on the disk.

    Its rows are there already. Without the notes the next run would look for them in Redis, and miss them.
    """
    offset: dict[str, Any] = finished_offset(checkpoint) or {}
    if offset:
        sync_tree(checkpoint)
        for above in (checkpoint.parent, checkpoint.parent.parent):
            sync(above)
    return offset


def acknowledge_drained(options: Options, checkpoint: Path) -> Acknowledged:
    """Shorten the journals by what this checkpoint has finished, and delete leased messages among it."""
    server, entries, left = options.server(), 0, 0
    offsets = _settled_offset(checkpoint)
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
