"""Health of a worker as one JSON object: the report in a file and on a port, and the check of the file.

A process is healthy when its last successful fetch is recent. Its existence proves nothing: a process that hangs, or
that cannot reach its server, exists too. Nothing here imports Django or talks to Redis, so a probe costs a bare Python:

    python -m rsmq_django.worker.health /run/worker/health.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: A process whose last successful fetch is older than this is not healthy. An idle process fetches once a second.
MAX_AGE_S = 60.0
#: Interval of writes. A file older than MAX_AGE_S means that the supervisor has ended or hangs.
WRITE_EVERY_S = 1.0

Report = dict[str, Any]


def make_report(
    worker_id: str, processes: Sequence[tuple[int | None, float]], *, max_age_s: float, is_stopping: bool
) -> Report:
    """Return a report on processes from the pid (None while it is being replaced) and the last poll of each.

    Polls and `written_at` are times of the machine's monotonic clock, which every process on it shares.
    """
    now = time.monotonic()
    ages_s = [max(0.0, now - last_poll) for _, last_poll in processes]
    is_well = all(age_s <= max_age_s for age_s in ages_s)
    return {
        "status": ("stopping" if is_stopping else "ok") if is_well else "failing",
        "worker": worker_id,
        "supervisor": os.getpid(),
        "max_age_s": max_age_s,
        "processes": [
            {"pid": pid, "last_poll_age_s": round(age_s, 3)} for (pid, _), age_s in zip(processes, ages_s, strict=True)
        ],
        "written_at": now,
    }


def is_well(report: Report) -> bool:
    """Return whether the last poll of all processes is recent."""
    return bool(report["status"] != "failing")


class HealthFile:
    """A file that always contains the latest report, and is removed when the worker ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next_at = 0.0

    def show(self, report: Report) -> None:
        """Write the report, unless that was done a moment ago. Raises OSError."""
        if report["written_at"] < self._next_at:
            return
        self._next_at = report["written_at"] + WRITE_EVERY_S
        # Written to another file and renamed in one step, so that a reader never sees half of it.
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()  # left by a killed process; or a link, which must not be written through
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o644), "w", encoding="utf-8") as file:
            file.write(json.dumps(report) + "\n")
        draft.replace(self._path)

    def remove(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self._path.unlink()


def problem_of(path: Path, *, max_age_s: float | None = None) -> str | None:
    """Return the problem of the worker that writes this file, in one line; None when it is healthy."""
    try:
        report = json.loads(path.read_text("utf-8"))
        age_s = time.monotonic() - report["written_at"]
        limit_s = report["max_age_s"] if max_age_s is None else max_age_s
        ages_s = [process["last_poll_age_s"] for process in report["processes"]]
    except OSError as error:
        return f"no worker: {error}"
    except (ValueError, TypeError, KeyError):
        return f"{path} is not the health file of a worker"
    # A negative age: the machine was restarted since, and with it the clock.
    if not 0 <= age_s <= limit_s:
        return f"the supervisor is gone or hangs: it last wrote {age_s:.0f} s ago, {limit_s:.0f} s are allowed"
    oldest_s = age_s + max(ages_s, default=0.0)
    if oldest_s > limit_s:
        return f"a process last looked for messages {oldest_s:.0f} s ago, {limit_s:.0f} s are allowed"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a health file from the command line: return 0 if healthy, 1 if not."""
    parser = argparse.ArgumentParser(
        prog="python -m rsmq_django.worker.health",
        description="Exit with 0 if the worker that writes this file is healthy; else print why not and exit with 1.",
    )
    parser.add_argument("file", type=Path, help="the file given to rsmq_worker --health-file")
    parser.add_argument("--max-age", type=float, metavar="S", help="default: the worker's own --health-max-age")
    given = parser.parse_args(arguments)
    problem = problem_of(given.file, max_age_s=given.max_age)
    print(problem or "ok", file=sys.stderr if problem else sys.stdout)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
