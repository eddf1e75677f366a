"""How much memory a process uses."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process, or None when it is gone or cannot be asked."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return _ask_ps(pid)


def _ask_ps(pid: int) -> int | None:
    """See resident_bytes(); for systems without /proc, such as macOS."""
    done = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
    return int(done.stdout) * 1024 if done.stdout.strip() else None
