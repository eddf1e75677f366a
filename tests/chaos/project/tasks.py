"""Tasks that end, kill or block their process, and good ones that run beside them. Each notes its start and its end."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from rsmq_django.tasks import fixed, task
from tests.worker.site.journal import gate_of, note
from tests.worker.site.tasks import wait_for

_kept: list[bytes] = []


@task
def good(name: str) -> None:
    note("start", name, os.getpid())
    note("end", name, os.getpid())


@task(result_ttl_s=0)
def silent() -> None:
    """Do nothing and leave nothing behind."""


@task(max_attempts=20, backoff=fixed(0))
def nap(name: str, for_s: float) -> None:
    """Take a while, as real work does."""
    note("start", name, os.getpid())
    time.sleep(for_s)
    note("end", name, os.getpid())


@task
def gate(name: str) -> None:
    """Go on when the test opens the gate."""
    note("start", name, os.getpid())
    wait_for(gate_of(Path(os.environ["RSMQ_TEST_JOURNAL"])))
    note("end", name, os.getpid())


@task
def hold_interpreter(name: str, for_s: int) -> None:
    """Let no other Python code run in this process, as a long call into C does."""
    note("start", name, os.getpid())
    ctypes.PyDLL(None).sleep(for_s)
    note("end", name, os.getpid())


@task
def grow(name: str, megabytes: int) -> None:
    """Use memory that is never given back."""
    note("start", name, os.getpid())
    _kept.append(os.urandom(1) * (megabytes << 20))
    note("end", name, os.getpid())


DEATHS: dict[str, Callable[[], object]] = {
    "exit": lambda: os._exit(3),
    "exit-as-if-done": lambda: os._exit(0),
    "exit-as-if-misconfigured": lambda: os._exit(78),
    "segfault": lambda: ctypes.string_at(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "close-all-files": lambda: os.closerange(3, 1024),
}


@task
def die(name: str, how: str) -> None:
    """End the process in the middle of this task."""
    note("start", name, os.getpid())
    DEATHS[how]()
    time.sleep(60)
