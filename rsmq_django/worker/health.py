"""Whether a worker is well, as one JSON object: what it shows in a file and on a port, and how the file is checked.

A process is well when it has looked for messages with success not long ago. That it exists says nothing: one that
hangs, or that cannot reach its server, exists too. Nothing here imports Django or talks to Redis, so a probe costs a
bare Python:

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

#: A process that has not looked for messages for so long is not well. It looks once a second when it has nothing to do.
MAX_AGE_S = 60.0
#: How often the file is written. One that is older than MAX_AGE_S tells of a supervisor that is gone or hangs.
WRITE_EVERY_S = 1.0

Report = dict[str, Any]


def make_report(
    worker_id: str, processes: Sequence[tuple[int | None, float]], *, max_age_s: float, is_stopping: bool
) -> Report:
    """Return the report on processes, of each the pid (None while it is being replaced) and its last poll.

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
    """Say whether all processes looked for messages not long ago."""
    return bool(report["status"] != "failing")


class HealthFile:
    """A file that always holds the latest report, and is gone when the worker has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next_at = 0.0

    def show(self, report: Report) -> None:
        """Write the report, unless that was done a moment ago. Raises OSError."""
        if report["written_at"] < self._next_at:
            return
        self._next_at = report["written_at"] + WRITE_EVERY_S
        # Written beside it and put in its place in one step: whoever reads never sees half of it.
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()  # of a process that was killed; or a link, which must not be written through
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o644), "w", encoding="utf-8") as file:
            file.write(json.dumps(report) + "\n")
        draft.replace(self._path)

    def remove(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self._path.unlink()


def complaint_about(path: Path, *, max_age_s: float | None = None) -> str | None:
    """Return what is wrong with the worker that writes this file, in one line; None when it is well."""
    try:
        report = json.loads(path.read_text("utf-8"))
        age_s = time.monotonic() - report["written_at"]
        limit_s = report["max_age_s"] if max_age_s is None else max_age_s
        ages_s = [process["last_poll_age_s"] for process in report["processes"]]
    except OSError as error:
        return f"no worker: {error}"
    except (ValueError, TypeError, KeyError):
        return f"{path} is not the health file of a worker"
    # Less than nothing: the machine was restarted since, and with it the clock.
    if not 0 <= age_s <= limit_s:
        return f"the supervisor is gone or hangs: it last wrote {age_s:.0f} s ago, {limit_s:.0f} s are allowed"
    oldest_s = age_s + max(ages_s, default=0.0)
    if oldest_s > limit_s:
        return f"a process last looked for messages {oldest_s:.0f} s ago, {limit_s:.0f} s are allowed"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a health file from the command line: 0 well, 1 not well."""
    parser = argparse.ArgumentParser(
        prog="python -m rsmq_django.worker.health",
        description="Exit with 0 when the worker that writes this file is well; else say why not and exit with 1.",
    )
    parser.add_argument("file", type=Path, help="what rsmq_worker --health-file was given")
    parser.add_argument("--max-age", type=float, metavar="S", help="default: the worker's own --health-max-age")
    given = parser.parse_args(arguments)
    complaint = complaint_about(given.file, max_age_s=given.max_age)
    print(complaint or "ok", file=sys.stderr if complaint else sys.stdout)
    return 1 if complaint else 0


if __name__ == "__main__":
    sys.exit(main())
