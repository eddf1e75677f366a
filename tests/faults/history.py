"""What senders, tasks and the scenario did: one line of JSON each, appended in one write, so that no kill loses it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "RSMQ_FAULTS_HISTORY"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: when (seconds of the machine's monotonic clock), what, of which call, in which process."""

    at_s: float
    #: Of senders: `sent`, `unknown` (stored or not), `refused` (not stored), `cancelled`, `unclear` (cancelled or not).
    #: Of tasks: `start`, `failed`, `end`. Of the
    #: scenario: `fault`, `healed`, `promoted` with how the ids of calls on the promoted server begin (default: any),
    #: `killed` with the pid of a process that it killed, and `cut off`, at the end of that, with the pids (none: all
    #: processes), the begin and how long it took from the point of view of the processes.
    what: str
    #: The name of the call, which is one of its arguments; of a fault, its name.
    name: str
    #: The kind of call: `plain`, `flaky` ...
    kind: str = ""
    pid: int = 0
    more: dict[str, Any] = field(default_factory=dict)


def note(what: str, name: str, kind: str = "", *, pid: int | None = None, **more: Any) -> None:
    """Append a line to the history of this run, whose path is in the environment."""
    line = json.dumps([time.monotonic(), what, name, kind, os.getpid() if pid is None else pid, more]) + "\n"
    descriptor = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


class History:
    """The lines so far; each read() returns those since the last one."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open()

    def read(self) -> Iterator[Entry]:
        for line in self._file:
            yield Entry(*json.loads(line))

    def close(self) -> None:
        self._file.close()
