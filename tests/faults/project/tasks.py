"""One task per promise that the checker looks at. Each notes its start and its end under the name of its call."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path

from rsmq_django.core import Message
from rsmq_django.core.topic import TopicMessage
from rsmq_django.tasks import Concurrency, TaskContext, Unique, consumer, current_task, fixed, task, topic_task
from tests.faults.history import note

#: Kills take an attempt each, so there are many; what was tried that often without an end is a dead letter.
ATTEMPTS = 50
#: The clock of a server goes forward by up to four hours.
RESULTS_LAST_S = 86_400
AT_A_TIME = 2
EXPIRES_IN_S = 1
#: What a process may have beyond what it has when `hungry` begins.
HUNGRY_BYTES = 64 << 20
_eating = threading.Lock()
TOPIC = os.environ.get("RSMQ_FAULTS_TOPIC", "orders")


@task(max_attempts=ATTEMPTS, backoff=fixed(0))
def plain(name: str, for_s: float) -> None:
    note("start", name, "plain")
    time.sleep(for_s)
    note("end", name, "plain")


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(0))
def flaky(context: TaskContext, name: str) -> None:
    """Fail at the first attempt."""
    note("start", name, "flaky")
    if context.attempt == 1:
        note("failed", name, "flaky")
        raise RuntimeError("the first attempt")
    note("end", name, "flaky")


@task(max_attempts=ATTEMPTS, backoff=fixed(0), limits=[Concurrency(AT_A_TIME)])
def limited(name: str) -> None:
    note("start", name, "limited")
    time.sleep(0.02)
    note("end", name, "limited")


@task(max_attempts=ATTEMPTS, backoff=fixed(0))
async def awaited(name: str) -> None:
    note("start", name, "awaited")
    note("end", name, "awaited")


@task(max_attempts=ATTEMPTS, backoff=fixed(0), result_ttl_s=RESULTS_LAST_S)
def kept(name: str) -> str:
    """Return a result that the checker reads."""
    note("start", name, "kept")
    note("end", name, "kept")
    return name


@task(max_attempts=ATTEMPTS, backoff=fixed(0), result_ttl_s=RESULTS_LAST_S)
def first_step(name: str) -> str:
    return name


@task(max_attempts=ATTEMPTS, backoff=fixed(0))
def last_step(name: str) -> None:
    note("start", name, "chain")
    note("end", name, "chain")


@task(max_attempts=ATTEMPTS, backoff=fixed(0), unique=Unique(by=["key"]))
def single(key: int) -> None:
    """Have equal calls that are dropped while this one runs; the name of the call is its id."""
    name = current_task().id
    note("start", name, "single", key=key)
    time.sleep(0.02)
    note("end", name, "single")


@task(max_attempts=ATTEMPTS, backoff=fixed(0))
def cancelled(name: str) -> None:
    note("start", name, "cancelled")
    note("end", name, "cancelled")


@task(max_attempts=ATTEMPTS, backoff=fixed(0), expires_in_s=EXPIRES_IN_S)
def expiring(name: str) -> None:
    note("start", name, "expiring")
    note("end", name, "expiring")


@task(max_attempts=ATTEMPTS, backoff=fixed(0))
def member(name: str) -> None:
    note("start", name, "member")
    note("end", name, "member")


@task(max_attempts=ATTEMPTS, backoff=fixed(0))
def together(name: str) -> None:
    """Run when all members of a group or a map have ended."""
    note("start", name, "group")
    note("end", name, "group")


@task(max_attempts=2, backoff=fixed(0))
def deadly(name: str) -> None:
    """Take the process along."""
    note("killed", name, "deadly", pid=os.getpid())
    os._exit(1)


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(0))
def hungry(context: TaskContext, name: str) -> None:
    """Use all memory that its process may have at the first attempt."""
    note("start", name, "hungry")
    if context.attempt == 1:
        try:
            use_all_memory()
        except MemoryError:
            note("failed", name, "hungry")
            raise
    note("end", name, "hungry")


def use_all_memory() -> None:
    """Raise MemoryError: the process may have little more memory than it has, and this needs more.

    One call at a time: the limit is that of the whole process.
    """
    with _eating:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most, limits = pages * resource.getpagesize() + HUNGRY_BYTES, resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (most, limits[1]))
        try:
            bytearray(2 * HUNGRY_BYTES)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)


@task(max_attempts=ATTEMPTS, backoff=fixed(0))
def large(name: str, text: str) -> None:
    note("start", name, "large")
    note("end", name, "large")


@task(queue_name="ordered", max_attempts=ATTEMPTS, backoff=fixed(0))
def boxed(name: str) -> None:
    """Run a call that was a row of the outbox."""
    note("start", name, "boxed")
    note("end", name, "boxed")


if os.environ.get("RSMQ_FAULTS_RELEASE", "new") == "new":

    @task(max_attempts=ATTEMPTS, backoff=fixed(0))
    def added(name: str) -> None:
        """Exist since the new release."""
        note("start", name, "added")
        note("end", name, "added")


@task(max_attempts=ATTEMPTS, backoff=fixed(0))
def tick() -> None:
    name = current_task().id
    note("start", name, "tick")
    note("end", name, "tick")


@consumer("raw", max_attempts=ATTEMPTS, backoff=fixed(0))
def foreign(message: Message) -> None:
    """Run what clients in other languages send."""
    name = message.body.decode()
    note("start", name, "foreign")
    note("end", name, "foreign")


@consumer("parcels", max_attempts=ATTEMPTS, backoff=fixed(0))
def pushed(message: Message) -> None:
    name = message.body.decode()
    note("start", name, "pushed")
    note("end", name, "pushed")


@topic_task(TOPIC, group="billing", max_deliveries=ATTEMPTS, backoff=fixed(0))
def published(message: TopicMessage) -> None:
    name = message.body.decode()
    note("start", name, "published")
    note("end", name, "published")
