"""Processes of a benchmark and the processor time they use. CPU figures need Linux's /proc and are None elsewhere."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from .places import ROOT

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STOP_WITHIN_S = 10.0


class Process:
    """A program in a process group of its own, whose output is kept to be shown when something goes wrong."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._log.close()

    def check(self) -> None:
        """Raise RuntimeError with the program's last words when it has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(
                f"{self._process.args!r} ended with {self._process.returncode}:\n{self.output()[-2000:]}"
            )

    def output(self) -> str:
        """Return what the program has written."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def kill(self) -> None:
        """End the whole group as a crash would."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Ask the program to end; kill the group when it does not."""
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_WITHIN_S)
        self._signal(signal.SIGKILL)  # what it may have left behind
        self._process.wait()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def cpu_s(self) -> float | None:
        """Return the processor time of the program and its children, in hundredths of a second."""
        return tree_cpu_s(self.pid)


def tree_cpu_s(pid: int) -> float | None:
    """Return the processor time of a process and all its descendants, those that ended included."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    own = sum(map(int, fields[11:15])) / _TICKS_PER_S  # user, system, and both of children that were waited for
    return own + sum(tree_cpu_s(int(child)) or 0.0 for child in children)


@contextmanager
def one_core() -> Iterator[None]:
    """Let everything that is started inside share one core.

    For clients that wait for each reply: client and server never work at the same time, and waking another core takes
    a virtual machine longer than the work. Which core the kernel chooses changes such a rate by a factor of six.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def wait_for(condition: Callable[[], bool], *, process: Process, within_s: float, what: str) -> None:
    """Wait until the condition holds. Raises RuntimeError when the process ends or the time is over."""
    deadline = time.monotonic() + within_s
    while not condition():
        process.check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"after {within_s:.0f} s still waiting for {what}\n{process.output()[-2000:]}")
        time.sleep(0.01)
