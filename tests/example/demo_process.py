"""Starting the demo from outside. Imports nothing of the site, so that every test can."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BLIZZARD = "2013-02-08"


def demo_command(*arguments: str) -> list[str]:
    return [sys.executable, str(REPOSITORY / "manage.py"), "rsmq_demo", *arguments]


def demo_environment(**changes: str) -> dict[str, str]:
    """Return an environment in which the demo runs with its own settings, as from a shell."""
    ours = ("DJANGO_SETTINGS_MODULE", "RSMQ_TEST_URL", "RSMQ_URL", "RSMQ_STATE_DIR")
    return {name: value for name, value in os.environ.items() if name not in ours} | {"COLUMNS": "120"} | changes


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """Return what the demo printed up to the line with `words`."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError(f"the demo ended without saying {words!r}:\n" + "".join(lines))
