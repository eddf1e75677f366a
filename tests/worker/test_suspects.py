"""A message whose process died while it ran runs alone the next time: when, for how long, and what waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from rsmq_django.worker import isolation as module
from rsmq_django.worker.isolation import ALONE_S, LOOK_EVERY_S, PATIENCE_S, Isolation
from tests.worker.still_clock import StillClock


class Pool:
    """Takes what it is given and runs nothing."""

    def __init__(self) -> None:
        self.submitted: list[str] = []
        self.is_idle = True

    def submit(self, name: str) -> None:
        self.submitted.append(name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    return StillClock(monkeypatch, module)


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def isolation(clock: StillClock, pool: Pool) -> Any:
    return Isolation(pool)  # type: ignore[arg-type]


def test_nothing_is_held_up_without_suspects(isolation: Any, pool: Pool):
    isolation.advance(is_quiet=True)

    assert (isolation.is_wanted(), isolation.next_look_at(), pool.submitted) == (False, None, [])


def test_a_suspect_runs_when_it_is_quiet_and_the_next_one_after_it(isolation: Any, pool: Pool, clock: StillClock):
    isolation.submit("a")
    isolation.submit("b")
    isolation.advance(is_quiet=False)
    assert pool.submitted == [] and isolation.is_wanted()
    assert isolation.next_look_at() == clock.now + LOOK_EVERY_S

    isolation.advance(is_quiet=True)
    assert pool.submitted == ["a"]
    isolation.advance(is_quiet=False)
    assert pool.submitted == ["a"]
    isolation.advance(is_quiet=True)
    assert pool.submitted == ["a", "b"]


def test_a_suspect_keeps_its_process_for_a_while_unless_it_has_ended(isolation: Any, pool: Pool, clock: StillClock):
    isolation.submit("a")
    isolation.advance(is_quiet=True)

    pool.is_idle = False
    assert isolation.is_wanted()
    pool.is_idle = True
    assert not isolation.is_wanted()
    pool.is_idle = False
    clock.now += ALONE_S - 0.001
    assert isolation.is_wanted()
    clock.now += 0.001
    assert not isolation.is_wanted()


def test_a_suspect_that_has_waited_long_enough_runs_beside_the_others(isolation: Any, pool: Pool, clock: StillClock):
    isolation.submit("a")
    clock.now += 4
    isolation.submit("b")
    clock.now += PATIENCE_S - 4
    isolation.advance(is_quiet=False)
    assert pool.submitted == []

    clock.now += 0.001
    isolation.advance(is_quiet=False)
    assert pool.submitted == ["a"]
    clock.now += PATIENCE_S
    isolation.advance(is_quiet=False)
    assert pool.submitted == ["a"], "the time of the next one begins with the one before it"
    clock.now += 0.001
    isolation.advance(is_quiet=False)
    assert pool.submitted == ["a", "b"]


def test_suspects_that_wait_are_taken_back(isolation: Any):
    isolation.submit("a")
    isolation.submit("b")

    assert (isolation.take_back(), isolation.take_back(), isolation.is_wanted()) == (["a", "b"], [], False)
