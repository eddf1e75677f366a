"""Worker processes as a user starts them: `manage.py rsmq_worker`, with a journal of what their tasks did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.leftovers import descendants
from tests.redis_server import PrivateServer
from tests.support import wait_until
from tests.worker.site.journal import Journal

ROOT = Path(__file__).parents[2]
#: A process that lives longer than this hangs.
HANG_S = 180


class WorkerProcess:
    """One running command, in a process group of its own, with its output in a file."""

    def __init__(
        self,
        arguments: tuple[str, ...],
        *,
        environment: dict[str, str],
        log: Path,
        command: str = "rsmq_worker",
        directory: Path = ROOT,
    ) -> None:
        self._log = log
        words = [sys.executable, "manage.py", command, *arguments]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                words, cwd=directory, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def output(self) -> str:
        """Return what the process has printed so far."""
        return self._log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process that was started, and to none of its children."""
        self.process.send_signal(number)

    def send_to_all(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children, as a terminal does."""
        os.killpg(self.process.pid, number)

    def wait(self) -> int:
        """Wait for the end and return the exit status."""
        try:
            return self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker does not end; it said:\n{self.output}") from None

    def destroy(self) -> None:
        """End everything at once; afterwards nothing of it writes to the server any more.

        A process that reloads has its worker in a process group of its own.
        """
        others = descendants(self.process.pid)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        wait_until(lambda: not _lives(self.process.pid, others))


def _lives(group: int, others: list[int]) -> bool:
    """Return whether a process of the group or of the others runs. One that has ended may wait to be collected."""
    done = subprocess.run(["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=True)
    lines = (line.split() for line in done.stdout.splitlines())
    return any((int(pgid) == group or int(pid) in others) and state[0] != "Z" for pid, pgid, state in lines)


StartWorker = Callable[..., WorkerProcess]


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    path = tmp_path / "journal"
    monkeypatch.setenv("RSMQ_TEST_JOURNAL", str(path))
    return Journal(path)


@pytest.fixture
def start_worker(server: PrivateServer, journal: Journal, tmp_path: Path) -> Iterator[StartWorker]:
    """Return the function that starts `manage.py rsmq_worker` on the test server."""
    started: list[WorkerProcess] = []

    def start(*arguments: str, queues: dict[str, Any] | None = None, **variables: str) -> WorkerProcess:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.worker.site.settings",
            "RSMQ_TEST_URL": server.url,
            "RSMQ_TEST_QUEUES": json.dumps(queues or {"default": {}}),
            **{f"RSMQ_TEST_{name.upper()}": value for name, value in variables.items()},
        }
        started.append(WorkerProcess(arguments, environment=environment, log=tmp_path / f"log-{len(started)}"))
        return started[-1]

    yield start
    for worker in started:
        worker.destroy()


def hold_still(pid: int) -> None:
    """Stop a process until SIGCONT, and wait until each of its threads stands still: a signal takes effect later."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    wait_until(lambda: all(") T " in (each / "stat").read_text() for each in threads.iterdir()))
