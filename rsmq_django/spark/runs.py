"""Records of the runs of steps, in a table of the lake: for users, web pages and exit codes."""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from .errors import AlreadyRunning, DataLoss, as_our_error
from .lake import Lake
from .schemas import RUNS

__all__ = ["StepRun", "read_runs"]

DONE, FAILED, WRONG_USAGE, LOST_DATA, BUSY = 0, 1, 2, 3, 4
#: Number of runs that are read: a day or two of one run of all steps every quarter of an hour.
MOST_READ = 500


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
        row = as_row(run)
        lake.append(RUNS, row["started_at"].date(), [row])
    return run


def as_row(run: StepRun) -> dict[str, Any]:
    """Return the row of a run."""
    return asdict(run) | {
        "started_at": dt.datetime.fromisoformat(run.started_at),
        "offsets": json.dumps(run.offsets, sort_keys=True),
    }


def read_runs(lake: Lake, *, most: int = MOST_READ) -> list[StepRun]:
    """Return the recorded runs, newest first."""
    table, rows = lake.open(RUNS), []
    for day in reversed(table.days):
        rows += sorted(table.read({day}).to_pylist(), key=lambda row: row["started_at"], reverse=True)
        if len(rows) >= most:
            break
    return [_as_run(row) for row in rows[:most]]


def _as_run(row: dict[str, Any]) -> StepRun:
    started_at = row["started_at"].isoformat(timespec="microseconds")
    return StepRun(**row | {"started_at": started_at, "offsets": json.loads(row["offsets"])})


def _exit_code(error: Exception) -> int:
    if isinstance(error, AlreadyRunning):
        return BUSY
    return LOST_DATA if isinstance(error, DataLoss) else FAILED
