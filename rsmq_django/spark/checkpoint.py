"""What a checkpoint of Spark says: which batches are done, and where they ended.

A batch has a file in `offsets/` before it runs and one of the same name in `commits/` after it. Spark tells a source
late or never that a batch is done, so this is what decides which entries may leave Redis. Only directories that this
machine can see as files are read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import PipelineError


def finished_batch(checkpoint: Path) -> int | None:
    """Return the number of the last batch that is done, or None."""
    return max(_numbers(checkpoint / "commits"), default=None)


def finished_offset(checkpoint: Path, *, source: int = 0) -> Any:
    """Return where the last batch that is done ended, or None."""
    number = finished_batch(checkpoint)
    return None if number is None else read_offset(checkpoint, number, source=source)


def read_offset(checkpoint: Path, batch: int, *, source: int = 0) -> Any:
    """Return the end of one batch. The file has a version, a line of settings, and one line per source.

    Raises PipelineError for one that cannot be read.
    """
    path = checkpoint / "offsets" / str(batch)
    try:
        line = path.read_text("utf-8").splitlines()[2 + source]
        return None if line == "-" else json.loads(line)
    except (FileNotFoundError, IndexError, ValueError) as error:
        raise PipelineError(
            f"{path}: this note of Spark's checkpoint is missing or damaged, as a power cut may leave it; restore it, "
            "or begin a new checkpoint (rsmq_pipeline archive --new-checkpoint goes on behind what the lake has)"
        ) from error


def planned_rows(checkpoint: Path, batch: int, *, source: int = 0) -> int:
    """Return how many rows of a log a batch had when it was planned."""
    end = read_offset(checkpoint, batch, source=source) or {}
    has_before = batch > 0 and (checkpoint / "offsets" / str(batch - 1)).exists()
    before = (read_offset(checkpoint, batch - 1, source=source) if has_before else None) or {}
    # A stream that had nothing new is named with its place of before.
    return sum(stop["rows"] for stream, stop in end.items() if before.get(stream, {}).get("id") != stop["id"])


def _numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return [int(path.name) for path in directory.iterdir() if path.name.isdecimal()]
