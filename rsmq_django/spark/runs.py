"""Records of the runs of steps, in a table of the lake: for users, web pages and exit codes."""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from .delta import Table
from .errors import AlreadyRunning, DataLoss, as_our_error, brief
from .lake import Lake
from .schemas import RUNS

__all__ = ["StepRun", "read_runs"]

DONE, FAILED, WRONG_USAGE, LOST_DATA, BUSY = 0, 1, 2, 3, 4
#: Number of days whose runs are read.
DAYS_READ = 7


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
    #: The text of the error with Java's stack. It is not recorded.
    whole_error: str = ""

    def to_json(self) -> str:
        """Return the run on one line."""
        return json.dumps(
            {name: value for name, value in asdict(self).items() if name != "whole_error"}, sort_keys=True
        )


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
        run.error, run.whole_error = brief(error)[:2000], f"{type(error).__name__}: {error}"
        run.exit_code = _exit_code(error)
        if run.exit_code == BUSY and run.lost:  # of several logs, only some were busy
            run.exit_code = LOST_DATA
    run.seconds = round(time.monotonic() - started, 3)
    if run.exit_code != BUSY:
        save(lake, run)
    return run


def save(lake: Lake, run: StepRun) -> None:
    """Store the record of a run, in place of an earlier one of the same run."""
    row = as_row(run)
    day = row["started_at"].date()

    def replace_this_run(known: Table) -> dict[dt.date, list[dict[str, Any]]]:
        others = [each for each in known.read({day}).to_pylist() if each["id"] != run.id]
        return {day: [*others, row]}

    lake.change_days(RUNS, replace_this_run)


def status_of(runs: Iterable[StepRun]) -> int:
    """Return the exit code of several runs: a failure comes before lost events, and these before a busy step."""
    codes = {run.exit_code for run in runs}
    return next((code for code in (FAILED, LOST_DATA, BUSY) if code in codes), DONE)


def as_row(run: StepRun) -> dict[str, Any]:
    """Return the row of a run."""
    row = asdict(run) | {
        "started_at": dt.datetime.fromisoformat(run.started_at),
        "offsets": json.dumps(run.offsets, sort_keys=True),
    }
    return {column.name: row[column.name] for column in RUNS.columns}


def read_runs(lake: Lake, *, since: dt.date | None = None) -> list[StepRun]:
    """Return the recorded runs since a day, newest first; by default of a week."""
    since = since or dt.datetime.now(dt.UTC).date() - dt.timedelta(days=DAYS_READ)
    table = lake.open(RUNS)
    return runs_of(table, {day for day in table.days if day >= since})


def runs_of(table: Table, days: Collection[dt.date]) -> list[StepRun]:
    """Return the runs that began on some days, newest first."""
    rows = table.read(days).to_pylist()
    return [_as_run(row) for row in sorted(rows, key=lambda row: row["started_at"], reverse=True)]


def _as_run(row: dict[str, Any]) -> StepRun:
    started_at = row["started_at"].isoformat(timespec="microseconds")
    return StepRun(**row | {"started_at": started_at, "offsets": json.loads(row["offsets"])})


def _exit_code(error: Exception) -> int:
    if isinstance(error, AlreadyRunning):
        return BUSY
    return LOST_DATA if isinstance(error, DataLoss) else FAILED
