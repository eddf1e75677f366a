"""Records of the runs of steps: a JSON file each, for users, web pages and exit codes."""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .durable import write_whole
from .errors import AlreadyRunning, DataLoss, as_our_error
from .lake import Lake

__all__ = ["StepRun", "read_runs"]

DONE, FAILED, WRONG_USAGE, LOST_DATA, BUSY = 0, 1, 2, 3, 4
#: Number of records to keep.
KEPT = 500


@dataclass(slots=True)
class StepRun:
    """One run of one step. Contains no address and no password."""

    step: str
    started_at: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    seconds: float = 0.0
    rows_in: int = 0
    rows_out: int = 0
    #: Events trimmed before they were read.
    lost: int = 0
    offsets: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    exit_code: int = DONE

    def to_json(self) -> str:
        """Return the run on one line."""
        return json.dumps(asdict(self), sort_keys=True)


def record(lake: Lake, step: str, work: Callable[[StepRun], None]) -> StepRun:
    """Run one step and record its result or error."""
    run = StepRun(step, dt.datetime.now(dt.UTC).isoformat(timespec="microseconds"))
    started = time.monotonic()
    try:
        lake.make_root()
        work(run)
        run.exit_code = LOST_DATA if run.lost else DONE
    except Exception as raised:  # errors of Spark, the disk or Redis are recorded
        error = as_our_error(raised)
        run.error = f"{type(error).__name__}: {error}"[:2000]
        run.exit_code = _exit_code(error)
    run.seconds = round(time.monotonic() - started, 3)
    if run.exit_code != BUSY:
        write_whole(lake.root / "_state" / "runs" / f"{run.started_at}-{run.id}.json", run.to_json().encode())
    return run


def read_runs(lake: Lake) -> list[StepRun]:
    """Return the recorded runs, newest first; records beyond the last `KEPT` are removed.

    Records that are damaged or of a later version are skipped.
    """
    directory = lake.root / "_state" / "runs"
    files = sorted(directory.glob("*.json"), reverse=True) if directory.is_dir() else []
    for file in files[KEPT:]:
        file.unlink(missing_ok=True)
    return [run for file in files[:KEPT] if (run := _read(file)) is not None]


def _read(file: Path) -> StepRun | None:
    try:
        return StepRun(**json.loads(file.read_text("utf-8")))
    except (ValueError, TypeError):
        return None


def _exit_code(error: Exception) -> int:
    if isinstance(error, AlreadyRunning):
        return BUSY
    return LOST_DATA if isinstance(error, DataLoss) else FAILED
