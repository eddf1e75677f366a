"""The simulated calls: each notes its start, its attempt and its end under its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rsmq_django.tasks import Concurrency, Failure, TaskCancelled, TaskContext, Unique, current_task, fixed, task
from tests.faults.checker import LIMIT
from tests.simulation import world
from tests.simulation.calls import BURST_S, EXPIRES_IN_S, LONGEST_BURST_S, WINDOW_S

#: Deaths and lost leases take an attempt each, so there are many.
ATTEMPTS = 50
#: After that many failures the call of `hopeless` is a dead letter.
FEW_ATTEMPTS = 3


class Planned(Exception):
    """What a call raises that shall fail."""


@contextmanager
def noted(name: str, kind: str, attempt: int, **more: Any) -> Iterator[None]:
    """Note a run."""
    world.note("start", name, kind, attempt=attempt, **more)
    try:
        yield
    except Planned:
        world.note("failed", name, kind)
        raise
    except TaskCancelled:
        world.note("stopped", name, kind)
        raise
    world.note("end", name, kind)


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1))
def plain(context: TaskContext, name: str, for_s: float) -> None:
    with noted(name, "plain", context.attempt):
        world.sleep(for_s)


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1))
def flaky(context: TaskContext, name: str, failures: int) -> None:
    """Fail at the first attempts."""
    with noted(name, "flaky", context.attempt):
        world.sleep(0.1)
        if context.attempt <= failures:
            raise Planned("one of the first attempts")


@task(takes_context=True, max_attempts=FEW_ATTEMPTS, backoff=fixed(2))
def hopeless(context: TaskContext, name: str) -> None:
    with noted(name, "hopeless", context.attempt):
        world.sleep(0.1)
        raise Planned("each attempt")


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1), limits=[Concurrency(LIMIT)])
def limited(context: TaskContext, name: str, for_s: float) -> None:
    with noted(name, "limited", context.attempt):
        world.sleep(for_s)


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1), expires_in_s=EXPIRES_IN_S)
def expiring(context: TaskContext, name: str, failures: int) -> None:
    """Do not begin late, but be tried again at any time."""
    with noted(name, "expiring", context.attempt):
        world.sleep(0.1)
        if context.attempt <= failures:
            raise Planned("one of the first attempts")


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1), result_ttl_s=86400)
def kept(context: TaskContext, name: str) -> str:
    with noted(name, "kept", context.attempt):
        world.sleep(0.05)
    return name


@task(max_attempts=ATTEMPTS, backoff=fixed(1))
def tick() -> None:
    """Run by a schedule."""
    current = current_task()
    with noted(current.id, "tick", current.attempt):
        world.sleep(0.1)


# -- Workflows: members have the name of the workflow and their number, a later step has a + behind it ----------------


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1))
def member(context: TaskContext, name: str, fails: bool, for_s: float) -> str:
    with noted(name, "member", context.attempt):
        world.sleep(for_s)
        if fails:
            raise Planned("each attempt")
    return name


@task(takes_context=True, max_attempts=FEW_ATTEMPTS, backoff=fixed(1))
def mapped(context: TaskContext, name: str) -> str:
    with noted(name, "mapped", context.attempt):
        world.sleep(0.1)
        if name.endswith("!"):
            raise Planned("each attempt")
    return name


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1))
def follow(context: TaskContext, said: str, name: str) -> str:
    with noted(name, "follow", context.attempt, got=said, expected=name.rstrip("+")):
        world.sleep(0.1)
    return said


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1))
def last_step(context: TaskContext, said: str, name: str) -> None:
    with (
        noted(name, "last_step", context.attempt, got=said, expected=name.rstrip("+")),
        noted(name.partition(".")[0], "chain", context.attempt),
    ):
        world.sleep(0.1)


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1))
def together(context: TaskContext, said: list[Any] | None = None, *, name: str) -> None:
    got = said and [each.member if isinstance(each, Failure) else each for each in said]
    with noted(name, "together", context.attempt, got=got):
        world.sleep(0.1)


@task(takes_context=True, max_attempts=ATTEMPTS, backoff=fixed(1))
def complain(context: TaskContext, failures: list[Failure], name: str) -> None:
    with noted(name, "complain", context.attempt, got=[each.member for each in failures]):
        world.sleep(0.1)
    world.note("end", name.partition(".")[0], "complain")


# -- Unique tasks: the first argument is the key, and the id of a call is its name ------------------------------------


@task(max_attempts=ATTEMPTS, backoff=fixed(1), unique=Unique(by=["key"]))
def single(key: str, for_s: float) -> None:
    _run("single", key, for_s)


@task(max_attempts=ATTEMPTS, backoff=fixed(1), unique=Unique(by=["key"], scope="pending"))
def waiting(key: str, for_s: float) -> None:
    _run("waiting", key, for_s)


@task(max_attempts=ATTEMPTS, backoff=fixed(1), unique=Unique(by=["key"], scope="window", window_s=WINDOW_S))
def windowed(key: str, for_s: float) -> None:
    _run("windowed", key, for_s)


@task(max_attempts=ATTEMPTS, backoff=fixed(1), unique=Unique(by=["key"], mode="replace"))
def latest(key: str, for_s: float) -> None:
    _run("latest", key, for_s)


@task(
    max_attempts=ATTEMPTS,
    backoff=fixed(1),
    unique=Unique(by=["key"], mode="debounce", window_s=BURST_S, max_wait_s=LONGEST_BURST_S),
)
def burst(key: str, for_s: float) -> None:
    _run("burst", key, for_s)


def _run(kind: str, key: str, for_s: float) -> None:
    """Fail now and then: the call is unique until its last attempt."""
    current = current_task()
    with noted(current.id, kind, current.attempt, key=key):
        world.sleep(for_s)
        if for_s < 1 and current.attempt == 1:
            raise Planned("the first attempt")
