"""The simulated calls: each notes its start, its attempt and its end under its name."""

from __future__ import annotations

from rsmq_django.tasks import Concurrency, TaskContext, fixed, task
from tests.faults.checker import LIMIT
from tests.simulation import world

#: Deaths and lost leases take an attempt each, so there are many.
ATTEMPTS = 50
#: After that many failures the call of `hopeless` is a dead letter.
FEW_ATTEMPTS = 3


class Planned(Exception):
    """What a call raises that shall fail."""


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1))
def plain(context: TaskContext, name: str, for_s: float) -> None:
    world.note("start", name, "plain", attempt=context.attempt)
    world.sleep(for_s)
    world.note("end", name, "plain")


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1))
def flaky(context: TaskContext, name: str, failures: int) -> None:
    """Fail at the first attempts."""
    world.note("start", name, "flaky", attempt=context.attempt)
    world.sleep(0.1)
    if context.attempt <= failures:
        world.note("failed", name, "flaky")
        raise Planned("one of the first attempts")
    world.note("end", name, "flaky")


@task(takes_context=True, max_attempts=FEW_ATTEMPTS, backoff=fixed(2))
def hopeless(context: TaskContext, name: str) -> None:
    world.note("start", name, "hopeless", attempt=context.attempt)
    world.sleep(0.1)
    world.note("failed", name, "hopeless")
    raise Planned("each attempt")


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1), limits=[Concurrency(LIMIT)])
def limited(context: TaskContext, name: str, for_s: float) -> None:
    world.note("start", name, "limited", attempt=context.attempt)
    world.sleep(for_s)
    world.note("end", name, "limited")


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1), result_ttl_s=86400)
def kept(context: TaskContext, name: str) -> str:
    world.note("start", name, "kept", attempt=context.attempt)
    world.sleep(0.05)
    world.note("end", name, "kept")
    return name


@task(max_attempts=ATTEMPTS, backoff=fixed(1))
def first_step(name: str) -> str:
    """Is followed by the second step."""
    world.sleep(0.2)
    return name


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1))
def last_step(context: TaskContext, name: str) -> None:
    world.note("start", name, "chain", attempt=context.attempt)
    world.sleep(0.2)
    world.note("end", name, "chain")
