"""The memory of a process, where the system shows it in files and where it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rsmq_django.worker.supervise.process import resident_bytes

GROWN_BYTES = 80 << 20
GROW = f"import sys; big = bytearray({GROWN_BYTES}); print(flush=True); sys.stdin.read()"


@pytest.fixture(params=["with /proc", "without /proc"])
def _system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without /proc":

        def read_text(path: Path, *_: object) -> str:
            raise FileNotFoundError(path)

        monkeypatch.setattr(Path, "read_text", read_text)


def test_memory_of_a_process_is_reported_in_bytes(_system: None):
    with subprocess.Popen([sys.executable, "-c", GROW], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()

        used = resident_bytes(process.pid)

        process.communicate()
    assert used is not None and GROWN_BYTES < used < 2 * GROWN_BYTES


def test_ended_process_uses_an_unknown_amount_of_memory(_system: None):
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ)
    os.waitpid(pid, 0)

    assert resident_bytes(pid) is None
