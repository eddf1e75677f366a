"""Cleanup in Redis after rows are safely in the lake: trims the event log and acknowledges drained messages.

Runs after a query, every half minute during a continuous one, and at the start of the next run. It is idempotent: the
next call completes the work after a crash.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.limits import MAX_BATCH
from ..core.queue.drain import Drain
from ..core.transport.streams import BEGINNING, readers_key, step, trim
from .checkpoint import finished_offset
from .drain import drains
from .durable import sync, sync_tree
from .options import Options
from .server import Server


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Counts of acknowledged messages."""

    entries: int
    #: Leased messages that another consumer received meanwhile: their rows are in the lake, they stay in the queue.
    left: int


def trim_events(server: Server, checkpoint: Path, *, reader: str = "archive") -> int:
    """Trim entries that this checkpoint has finished and no other reader needs; return their number.

    A log other than the one that was read keeps its entries.
    """
    return sum(
        server.run(trim(stream, readers_key(stream), reader=reader, finished_id=end["id"], log=end.get("log", "")))
        for stream, end in _settled_offset(checkpoint).items()
        if end["id"] != BEGINNING
    )


def _settled_offset(checkpoint: Path) -> dict[str, Any]:
    """Return the end of the last finished batch, after syncing its checkpoint files to disk.

    Its rows are already on disk. Without the checkpoint files, the next run would expect the rows in Redis.
    """
    offset: dict[str, Any] = finished_offset(checkpoint) or {}
    if offset:
        sync_tree(checkpoint)
        for above in (checkpoint.parent, checkpoint.parent.parent):
            sync(above)
    return offset


def acknowledge_drained(options: Options, checkpoint: Path) -> Acknowledged:
    """Trim the journals up to the end of this checkpoint, and delete leased messages."""
    server, entries, left = options.server(), 0, 0
    offsets = _settled_offset(checkpoint)
    for drain in drains(options):
        end = offsets.get(drain.journal)
        if end and end.get("log", "") not in ("", server.run(step(drain.journal, after=end["id"], most=1)).log):
            continue  # another server: its journal was not read
        while end and end["id"] != BEGINNING:
            done, foreign = server.run(drain.acknowledge(end["id"]))
            entries, left = entries + done, left + foreign
            if done < MAX_BATCH:
                break
    server.close()
    return Acknowledged(entries, left)


def restore_drained(server: Server, drain: Drain) -> int:
    """Cancel a drain: send the messages of its journal back to the queue; return their number."""
    total = 0
    while True:
        entries, back = server.run(drain.restore())
        total += back
        if entries < MAX_BATCH:
            return total
