"""Tasks that end, kill or block their process, and good ones that run beside them. Each notes its start and its end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rsmq_django.tasks import BatchCall, fixed, task
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


@task(max_attempts=1, hard_timeout_s=2)
def spin(name: str) -> None:
    """Run for ever, whatever is raised here."""
    note("start", name, os.getpid())
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.01)


@task(max_attempts=1, hard_timeout_s=2)
def hang(name: str) -> None:
    """Let no other Python code run in this process, for ever."""
    note("start", name, os.getpid())
    ctypes.PyDLL(None).sleep(3600)


@task(max_attempts=2, backoff=fixed(0), hard_timeout_s=3)
def hang_once(name: str) -> None:
    """Hang at the first attempt, and not at the second one."""
    note("start", name, os.getpid())
    marker = Path(f"{os.environ['RSMQ_TEST_JOURNAL']}.{name}")
    if not marker.exists():
        marker.touch()
        ctypes.PyDLL(None).sleep(3600)
    note("end", name, os.getpid())


def _recurse() -> None:
    _recurse()


def _use_all_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    try:
        kept = []
        while True:
            kept.append(bytes(16 << 20))
    finally:
        kept.clear()
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _raise(error: BaseException) -> None:
    raise error


#: What a task can do that its process survives.
MISDEEDS: dict[str, Callable[[], object]] = {
    "system-exit": lambda: sys.exit(3),
    "interrupt": lambda: _raise(KeyboardInterrupt()),
    "generator-exit": lambda: _raise(GeneratorExit()),
    "recursion": _recurse,
    "memory": _use_all_memory,
}


@task(max_attempts=1)
def misbehave(name: str, how: str) -> None:
    """Do something that no task should do."""
    note("start", name, os.getpid())
    MISDEEDS[how]()


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


@task(batch=10, max_attempts=2, backoff=fixed(0), hard_timeout_s=3)
def hang_once_together(calls: list[BatchCall]) -> None:
    """Hang when there are several, and not when they come again."""
    note("start", str(len(calls)), os.getpid())
    marker = Path(f"{os.environ['RSMQ_TEST_JOURNAL']}.together")
    if not marker.exists():
        marker.touch()
        ctypes.PyDLL(None).sleep(3600)
    note("end", str(len(calls)), os.getpid())


@task(batch=10, max_attempts=5)
def crash_once_together(calls: list[BatchCall]) -> None:
    """Kill the process when there are several calls; alone, each is harmless."""
    note("start", str(len(calls)), os.getpid())
    if len(calls) > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    note("end", str(len(calls)), os.getpid())
