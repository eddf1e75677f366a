"""Three ways to run the command line: in this process (fast), as the installed script, and on a terminal."""

from __future__ import annotations

import codecs
import fcntl
import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rsmq_django.cli.app import main

SCRIPT = Path(sys.executable).with_name("rsmqctl")
STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@dataclass
class Result:
    """What a command left behind."""

    exit_code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        """Return stdout as one JSON document."""
        return json.loads(self.output)

    @property
    def json_lines(self) -> list[Any]:
        """Return stdout as one JSON document per line."""
        return [json.loads(line) for line in self.output.splitlines()]


class Terminal:
    """A program on a pseudo terminal of 100 columns."""

    def __init__(self, *words: str, program: Sequence[str | Path] = (SCRIPT,), **environment: str) -> None:
        self._master, slave = pty.openpty()
        clean = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        size = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
        self.process = subprocess.Popen(
            [*program, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=clean | size | environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        )
        os.close(slave)
        self.screen = ""
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode  # a letter may come in two parts

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._master, text.encode())

    def wait_for(self, text: str, timeout_s: float = 90) -> None:
        """Read until the text has appeared."""
        deadline = time.monotonic() + timeout_s
        while text not in self.screen:
            assert time.monotonic() < deadline, f"{text!r} never appeared:\n{self.screen}"
            assert self._read(0.1) or self.process.poll() is None, f"ended without {text!r}:\n{self.screen}"

    def finish(self, *, pressing: str = "", timeout_s: float = 90) -> int:
        """Read to the end and return the exit code.

        `pressing` is typed every three seconds: a Ctrl-C that arrives just before Python reads is seen only after that.
        """
        deadline = time.monotonic() + timeout_s
        press_at = time.monotonic()
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it never ended:\n{self.screen}"
            if pressing and time.monotonic() >= press_at:
                self.type(pressing)
                press_at += 3
            self._read(0.05)
        while self._read(0):
            pass
        os.close(self._master)
        return self.process.returncode

    @property
    def text(self) -> str:
        """Return what is on the screen without colours."""
        return STYLES.sub("", self.screen).replace("\r\n", "\n")

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._master], [], [], timeout_s)[0]:
            return False
        try:
            self.screen += self._decode(os.read(self._master, 65536))
        except OSError:  # the program has closed its end
            return False
        return True


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    """The private server is the default one."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def rsmqctl(
    environment: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Run a command in this process, as if its output were piped."""

    def run(*words: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        exit_code = main(words)
        output, errors = capsys.readouterr()
        return Result(exit_code, output, errors)

    return run


@pytest.fixture
def script(environment: None) -> Callable[..., Result]:
    """Run the installed script in a process of its own."""

    def run(*words: str, stdin: bytes = b"", **more: str) -> Result:
        done = subprocess.run([SCRIPT, *words], input=stdin, capture_output=True, env={**os.environ, **more})
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def terminal(environment: None) -> Iterator[Callable[..., Terminal]]:
    """Run the installed script on a terminal."""
    terminals: list[Terminal] = []

    def run(*words: str, **more: Any) -> Terminal:
        terminals.append(Terminal(*words, **more))
        return terminals[-1]

    yield run
    for terminal in terminals:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait()
