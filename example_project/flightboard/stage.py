"""Start the processes of a demo, notice when one dies, and stop all of them, and only them.

Each child leads a process group of its own, so Ctrl-C reaches the demo alone, which then stops its children in order.
A guardian process does it when the demo is killed. Refuses to know what the children do.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from . import guardian

STOP_TIMEOUT_S = 10.0
POLL_S = 0.05
PORTS_TO_TRY = 100
LOG_LINES_TO_QUOTE = 15


class ChildDied(Exception):
    """A process that the demo needs has ended."""


class Stage:
    """The children of one demo, used as a context manager. Their output goes to log files."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = log_dir
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Stage":
        command = [sys.executable, "-I", "-S", guardian.__file__]
        self._guardian = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in reversed(list(self._children)):
            self.stop(name)
        self._guardian.communicate()

    def start(self, name: str, command: Sequence[str], *, env: dict[str, str] | None = None) -> None:
        """Start a child; its output goes to `<name>.log` in the log directory, which it empties first."""
        with self.log_path(name).open("wb") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )
        self._children[name] = child
        self._tell_guardian(f"+{child.pid}")

    def pid(self, name: str) -> int:
        """Return the process id of a child."""
        return self._children[name].pid

    def log_path(self, name: str) -> Path:
        """Return the log file of a child."""
        return self.log_dir / f"{name}.log"

    def check(self) -> None:
        """Raise ChildDied, with the end of its log, when a child has ended."""
        for name, child in self._children.items():
            if child.poll() is not None:
                raise ChildDied(f"the {name} ended with exit code {child.returncode}; {self.quote_log(name)}")

    def quote_log(self, name: str) -> str:
        """Return the last lines that a child wrote."""
        lines = self.log_path(name).read_text(errors="replace").splitlines()[-LOG_LINES_TO_QUOTE:]
        return "\n  ".join(["the end of its log:", *lines]) if lines else "its log is empty"

    def stop(self, name: str) -> None:
        """Ask a child to stop, and kill its process group when it does not within ten seconds."""
        child = self._children.pop(name)
        if child.poll() is None:
            child.terminate()
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        self._tell_guardian(f"-{child.pid}")

    def _tell_guardian(self, line: str) -> None:
        assert self._guardian.stdin is not None  # opened with PIPE
        print(line, file=self._guardian.stdin, flush=True)


def free_port(first: int) -> int:
    """Return `first`, or the next free port. Raises OSError when there is none."""
    for port in range(first, first + PORTS_TO_TRY):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port from {first} to {first + PORTS_TO_TRY - 1}; name another with --port")


def wait_for_page(url: str, stage: Stage, *, timeout_s: float = 60) -> None:
    """Wait until the web server answers. Raises ChildDied when it does not."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        stage.check()
        try:
            with urllib.request.urlopen(url, timeout=timeout_s):  # noqa: S310  (our own address)
                return
        except urllib.error.HTTPError as error:
            raise ChildDied(f"the web server answers {url} with status {error.code}; see {stage.log_dir}") from error
        except OSError:
            time.sleep(POLL_S)
    raise ChildDied(f"the web server did not answer at {url} within {timeout_s:g} s; see {stage.log_dir}")
