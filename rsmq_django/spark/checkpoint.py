"""Reading of Spark checkpoints: finished batches and their end offsets.

A batch has a file in `offsets/` before it runs and one with the same name in `commits/` after it. Spark notifies a
source late or never that a batch is done, so the checkpoint decides which entries may be trimmed from Redis. Only
directories on a file system of this machine are read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import PipelineError


def finished_batch(checkpoint: Path) -> int | None:
    """Return the number of the last finished batch, or None."""
    return max(_numbers(checkpoint / "commits"), default=None)


def finished_offset(checkpoint: Path, *, source: int = 0) -> Any:
    """Return the end offset of the last finished batch, or None."""
    number = finished_batch(checkpoint)
    return None if number is None else read_offset(checkpoint, number, source=source)


def read_offset(checkpoint: Path, batch: int, *, source: int = 0) -> Any:
    """Return the end offset of a batch. The file has a version, a line of settings, and one line per source.

    Raises PipelineError for an unreadable file.
    """
    path = checkpoint / "offsets" / str(batch)
    try:
        line = path.read_text("utf-8").splitlines()[2 + source]
        return None if line == "-" else json.loads(line)
    except (FileNotFoundError, IndexError, ValueError) as error:
        raise PipelineError(
            f"{path}: this file of Spark's checkpoint is missing or damaged, as after a power cut; restore it or start "
            "a new checkpoint (rsmq_pipeline archive --new-checkpoint continues after the last archived event)"
        ) from error


def planned_rows(checkpoint: Path, batch: int, *, source: int = 0) -> int:
    """Return the number of rows of a log that were planned for a batch."""
    end = read_offset(checkpoint, batch, source=source) or {}
    has_before = batch > 0 and (checkpoint / "offsets" / str(batch - 1)).exists()
    before = (read_offset(checkpoint, batch - 1, source=source) if has_before else None) or {}
    # A stream without new entries has its previous offset.
    return sum(stop["rows"] for stream, stop in end.items() if _place(before.get(stream, {})) != _place(stop))


def _place(offset: dict[str, Any]) -> tuple[Any, Any]:
    return offset.get("id"), offset.get("log")


def _numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return [int(path.name) for path in directory.iterdir() if path.name.isdecimal()]
