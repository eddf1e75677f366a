"""Tasks that run in worker processes. Each notes its start and its end."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

from django.db import connection

from rsmq_django.tasks import TaskContext, fixed, task

from .journal import gate_of, note

GATE_TIMEOUT_S = 60
eaten: list[bytearray] = []


@task
def write(name: str) -> str:
    note("start", name)
    note("end", name)
    return name


@task(max_attempts=20, backoff=fixed(0))
def toil(name: str, for_s: float) -> None:
    """Take a while, as real work does."""
    note("start", name, os.getpid())
    time.sleep(for_s)
    note("end", name)


@task
def hold_interpreter(name: str, for_s: int) -> None:
    """Let no other Python code run in this process, as a long call into C does."""
    note("start", name)
    ctypes.PyDLL(None).sleep(for_s)
    note("end", name)


@task(takes_context=True, max_attempts=20)
def wait_at_gate(context: TaskContext, name: str) -> None:
    """Go on when the test opens the gate."""
    note("start", name, context.attempt, os.getpid())
    wait_for(gate_of(Path(os.environ["RSMQ_TEST_JOURNAL"])))
    note("end", name, context.attempt)


@task
def eat(name: str, megabytes: int) -> None:
    """Use memory and keep it, as a task that leaks does."""
    note("start", name, os.getpid())
    eaten.append(bytearray(os.urandom(1024) * 1024 * megabytes))
    note("end", name, os.getpid())


@task(max_attempts=20, backoff=fixed(0))
def kill_own_process(name: str) -> None:
    note("start", name)
    os.kill(os.getpid(), signal.SIGKILL)


@task
def look_at_database(name: str) -> None:
    """Note whether this thread has an open connection already, and open one."""
    note("database", name, "open" if connection.connection is not None else "closed")
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + GATE_TIMEOUT_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
