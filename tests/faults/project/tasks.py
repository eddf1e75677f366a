"""One task per promise that the checker looks at. Each notes its start and its end under the name of its call."""

from __future__ import annotations

import os
import time

from rsmq_django.core import Message
from rsmq_django.core.topic import TopicMessage
from rsmq_django.tasks import Concurrency, TaskContext, Unique, consumer, current_task, fixed, task, topic_task
from tests.faults.history import note

#: Kills take an attempt each, so there are many; what was tried that often without an end is a dead letter.
ATTEMPTS = 50
AT_A_TIME = 2
EXPIRES_IN_S = 1
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


@task(max_attempts=ATTEMPTS, backoff=fixed(0), result_ttl_s=3600)
def kept(name: str) -> str:
    """Return a result that the checker reads."""
    note("start", name, "kept")
    note("end", name, "kept")
    return name


@task(max_attempts=ATTEMPTS, backoff=fixed(0), result_ttl_s=3600)
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
