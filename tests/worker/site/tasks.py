"""Tasks that run in worker processes. Each notes its start and its end."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from django.utils import translation

from rsmq_django.core.topic import TopicMessage
from rsmq_django.tasks import Concurrency, TaskContext, current_task, fixed, task, topic_task
from rsmq_django.worker.fetch import polling as idle_turns

from .journal import gate_of, note

GATE_TIMEOUT_S = 180


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


@task(takes_context=True, max_attempts=20, backoff=fixed(0), ack="each")
def toil_acked(context: TaskContext, name: str) -> None:
    """Be short, and known to have ended before the next one begins. One of that name takes its process along."""
    note("start", name)
    if name == "deadly" and context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@task
def kill_process(name: str, after_s: float) -> None:
    """Take the process along after a while."""
    note("start", name)
    time.sleep(after_s)
    os.kill(os.getpid(), signal.SIGKILL)


@task(max_attempts=20, limits=[Concurrency(3)])
def toil_limited(name: str, for_s: float) -> None:
    """Take a while, but not many at a time."""
    note("start", name)
    time.sleep(for_s)
    note("end", name)


@task(max_attempts=20, backoff=fixed(0))
def square(number: int, for_s: float) -> int:
    """Return a result after a while."""
    note("start", number, os.getpid())
    time.sleep(for_s)
    note("end", number)
    return number * number


@task(max_attempts=20, backoff=fixed(0))
def gather(results: list[int]) -> None:
    """Note what the members of a group returned."""
    note("gathered", current_task().id, *results)


@task(takes_context=True, max_attempts=20)
def wait_at_gate(context: TaskContext, name: str) -> None:
    """Go on when the test opens the gate."""
    note("start", name, context.attempt, os.getpid())
    wait_for(gate_of(Path(os.environ["RSMQ_TEST_JOURNAL"])))
    note("end", name, context.attempt)


@task(takes_context=True)
def write_id(context: TaskContext) -> None:
    note("id", context.task_result.id)


@task
def look_at_database(name: str) -> None:
    """Note whether this thread has an open connection already, and open one."""
    note("database", name, "open" if connection.connection is not None else "closed")
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


# -- Functions that are interrupted ------------------------------------------------------------------------------------

#: Has a handler with a lock that all threads share, as the log of a project has.
log = logging.getLogger("tests.worker.site.interrupted")
log.addHandler(logging.FileHandler(os.devnull))
log.propagate = False
#: Long enough that a process that is replaced for it has not lived for a suspiciously short time.
SOON_S = 1.1


def use_database() -> None:
    with transaction.atomic(), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT 1")


@task(max_attempts=1)
def ordinary(name: str) -> None:
    """Do what most tasks do: a short transaction, a line in the log."""
    note("begin", name)
    use_database()
    log.warning("ordinary %s", name)
    note("end", name)


@task(max_attempts=1, timeout_s=SOON_S)
def endless_transactions(name: str) -> None:
    note("start", name)
    while True:
        use_database()


@task(max_attempts=1, timeout_s=SOON_S)
def endless_log(name: str) -> None:
    note("start", name)
    while True:
        log.warning("again and again")


@task(max_attempts=1, timeout_s=SOON_S)
def endless_excepts(name: str) -> None:
    note("start", name)
    while True:
        try:
            int("no number")
        except Exception:
            translation.gettext("")


@task(max_attempts=1, timeout_s=SOON_S)
async def endless_coroutine() -> None:
    await asyncio.sleep(GATE_TIMEOUT_S)


@task(max_attempts=1, timeout_s=0.1)
def endless_call() -> None:
    """Be where nothing can be raised."""
    time.sleep(GATE_TIMEOUT_S)


@task(max_attempts=1, timeout_s=0.1)
def brief() -> None:
    while True:
        pass


_lock = threading.Lock()


def lock_called(name: str) -> Any:
    return _lock if name == "a lock" else logging.getLogger("rsmq_django").handlers[0]


@task(max_attempts=1, timeout_s=SOON_S)
def lose_lock(name: str) -> None:
    """Be interrupted where a lock was taken and nothing gives it back."""
    lock_called(name).acquire()
    Path(os.environ["RSMQ_TEST_JOURNAL"]).with_suffix(".lost").touch()
    while True:
        pass


@task(max_attempts=1)
def want_lock(name: str) -> None:
    """Hang where the lock was lost."""
    wait_for(Path(os.environ["RSMQ_TEST_JOURNAL"]).with_suffix(".lost"))
    lock_called(name).acquire()
    note("got", "lock")
    lock_called(name).release()


ENDLESS = (endless_transactions, endless_log, endless_excepts)


def _fork(how: str) -> str:
    """Fork, and let the child leave the function as `how` says; the parent notes how it ended."""
    pid = os.fork()
    if pid == 0:
        note("copy", os.getpid())
        if how == "raises":
            raise OSError("in the child")
        if how == "exits":
            raise SystemExit(3)
        return "from the child"
    note("child-ended", how, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return "from the parent"


@task(max_attempts=1)
def fork(how: str) -> str:
    return _fork(how)


@task(max_attempts=1)
async def afork(how: str) -> str:
    return _fork(how)


def _terminate_children(count: int) -> list[int | None]:
    """Terminate processes right after their starts; return their exit statuses, None for one that went on."""
    forking = multiprocessing.get_context("fork")
    children = [forking.Process(target=time.sleep, args=(600,)) for _ in range(count)]
    try:
        for child in children:
            child.start()
            child.terminate()
        for child in children:
            child.join(10)
        return [child.exitcode for child in children]
    finally:
        for child in children:
            child.kill()


@task(max_attempts=1)
def terminate_children(count: int) -> list[int | None]:
    return _terminate_children(count)


@task(max_attempts=1)
async def aterminate_children(count: int) -> list[int | None]:
    return _terminate_children(count)


if "RSMQ_TEST_TURN_S" in os.environ:  # so long that no process loses its turn because the machine is busy
    idle_turns.TURN_S = idle_turns.LONGEST_WAIT_S = float(os.environ["RSMQ_TEST_TURN_S"])


if "RSMQ_TEST_TOPIC" in os.environ:

    @topic_task(
        os.environ["RSMQ_TEST_TOPIC"],
        group="site",
        visibility_timeout_s=float(os.environ.get("RSMQ_TEST_LEASE_S", "30")),
        connection=os.environ.get("RSMQ_TEST_TOPIC_CONNECTION", "default"),
    )
    def note_message(message: TopicMessage) -> None:
        if message.text() == "gate":
            return _pass_gate(message)
        time.sleep(0.01)
        note("message", message.text())
        if message.text().startswith("fork "):
            _fork(message.text().split()[1])


def _pass_gate(message: TopicMessage) -> None:
    note("start", message.index, os.getpid())
    wait_for(gate_of(Path(os.environ["RSMQ_TEST_JOURNAL"])))
    note("end", message.index, os.getpid())


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + GATE_TIMEOUT_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


@task(max_attempts=20)
def tick(name: str) -> None:
    """Note that it still runs, again and again, until the gate is open."""
    note("start", name, os.getpid())
    deadline = time.monotonic() + GATE_TIMEOUT_S
    while not gate_of(Path(os.environ["RSMQ_TEST_JOURNAL"])).exists() and time.monotonic() < deadline:
        note("tick", name, os.getpid())
        time.sleep(0.001)


@task(max_attempts=20)
async def hog_loop(name: str) -> None:
    """Let no other coroutine run until the gate is open: a process that stops waits for its event loop for a while."""
    note("start", name, os.getpid())
    deadline = time.monotonic() + GATE_TIMEOUT_S
    while not gate_of(Path(os.environ["RSMQ_TEST_JOURNAL"])).exists() and time.monotonic() < deadline:
        time.sleep(0.01)  # noqa: ASYNC251 - that is what it is for


@task(max_attempts=20)
async def await_gate(name: str) -> None:
    """Go on when the test opens the gate, and let other coroutines run meanwhile."""
    note("start", name, os.getpid())
    await _gate_opens(time.monotonic() + GATE_TIMEOUT_S)


async def _gate_opens(deadline: float) -> None:
    gate = gate_of(Path(os.environ["RSMQ_TEST_JOURNAL"]))
    while not gate.exists() and time.monotonic() < deadline:  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(0.01)
