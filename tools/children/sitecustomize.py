"""Python imports this module when it starts, so a process that a test starts notes the lines that it executes.

Only `tools/mutate.py` puts this directory on PYTHONPATH. Each line is written at once: the process may be killed.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = str(Path(__file__).parents[2]) + os.sep
PACKAGE = ROOT + "rsmq_django" + os.sep


def note_lines(note: Callable[[str, int], object]) -> None:
    """Call `note` with the path and number of each line of the package, the first time a function executes it."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]

    def note_line(code: CodeType, line: int) -> Any:
        if code.co_filename.startswith(PACKAGE) and code.co_flags & inspect.CO_OPTIMIZED:
            note(code.co_filename[len(ROOT) :], line)
        return monitoring.DISABLE

    if monitoring.get_tool(monitoring.COVERAGE_ID) is None:
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "footprints")
    monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, note_line)
    monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
    monitoring.restart_events()


def note_this_process() -> None:
    """Append the lines and scripts to a file that begins with the name of the test."""
    directory, test = os.environ.get("RSMQ_FOOTPRINTS"), os.environ.get("PYTEST_CURRENT_TEST")
    if not directory or not test:
        return
    file = os.path.join(directory, f"{os.getpid()}-{time.time_ns()}.child")

    def append(text: str) -> None:
        # Opened each time: the process may close files that it does not know.
        with suppress(OSError):
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, f"{text}\n".encode())
            finally:
                os.close(descriptor)

    def note_script(event: str, arguments: tuple[object, ...]) -> None:
        path = arguments[0] if event == "open" else None
        if isinstance(path, str) and path.startswith(PACKAGE) and path.endswith(".lua"):
            append(f"{path[len(ROOT) :]}:0")

    append(test.rpartition(" (")[0])
    sys.addaudithook(note_script)
    note_lines(lambda path, line: append(f"{path}:{line}"))


if __name__ == "sitecustomize":
    note_this_process()
